"""Exported models, reloaded by the libraries that they are for, give our features."""

from __future__ import annotations

import json

import peers
import pytest
import torch
from peers import alike, by_open_clip, by_transformers, front, ours, random_images
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from merging.base.errors import CheckpointError, MergingError
from merging.models.checkpoint import MappingCheckpoint
from merging.models.formats.model_sources import open_checkpoint
from merging.models.inspection import checkpoint_facts
from merging.models.tensor_info import TensorInfo
from merging.sharing.export import weight_files
from merging.sharing.export.model_export import export
from merging.sharing.export.weight_files import divide_into_shards
from merging.tasks.context import Context


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch, tiny_folder):
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))


@pytest.fixture(params=peers.FAMILIES)
def family(request):
    return peers.tower(*peers.FAMILIES[request.param])


@pytest.fixture(scope="module")
def small():
    return peers.tower(*peers.FAMILIES["B/32"])


# --- features --------------------------------------------------------------------------------------------------------


def test_every_family_gives_the_same_features(family, tmp_path):
    images = random_images(json.loads(family.metadata["architecture"])["vision_cfg"]["image_size"])
    expected = ours(family, images)
    export(family, tmp_path / "hf")
    export(family, tmp_path / "oc", to="open_clip")
    assert alike(by_transformers(tmp_path / "hf", images), expected)
    assert alike(by_open_clip(tmp_path / "oc", images), expected)
    for folder in ("hf", "oc"):
        again = open_checkpoint(tmp_path / folder)
        assert torch.equal(ours(again, images), expected)
        assert again.infos == family.infos


def test_the_activation_matters(small, tmp_path):
    """The test above would not see a wrong activation if features hardly depended on it."""
    images = random_images(32)
    done = export(small, tmp_path / "hf", activation="gelu")
    assert "states the activation quick_gelu" in done.warnings[0]
    assert not alike(by_transformers(tmp_path / "hf", images), ours(small, images))


def test_a_round_trip_is_bit_for_bit(small, tmp_path):
    export(small, tmp_path / "hf")
    for start, to, end in (("hf", "open_clip", "oc"), ("oc", "hf", "hf2"), ("hf2", "open_clip", "oc2")):
        export(tmp_path / start, tmp_path / end, to=to)
    for one, other in (("hf/model", "hf2/model"), ("oc/open_clip_model", "oc2/open_clip_model")):
        assert (tmp_path / f"{one}.safetensors").read_bytes() == (tmp_path / f"{other}.safetensors").read_bytes()
    back = open_checkpoint(tmp_path / "oc2")
    assert all(torch.equal(back.read(name), small.read(name)) for name in small.infos)


def test_names_and_configurations_are_those_of_the_libraries(small, tmp_path):
    """Against what they write themselves."""
    transformers = peers.transformers()
    export(small, tmp_path / "hf")
    model = transformers.CLIPVisionModelWithProjection.from_pretrained(tmp_path / "hf")
    model.save_pretrained(tmp_path / "own")
    assert {name: v.shape for name, v in load_file(tmp_path / "own" / "model.safetensors").items()} == {
        name: v.shape for name, v in load_file(tmp_path / "hf" / "model.safetensors").items()
    }
    own = json.loads((tmp_path / "own" / "config.json").read_text())
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    defaults = transformers.CLIPVisionConfig().to_dict()
    assert all(
        config.get(key, defaults.get(key)) == value for key, value in own.items() if key != "transformers_version"
    )


def test_half_precision_and_mixed_types_stay(small, tmp_path):
    half = MappingCheckpoint({n: small.read(n) if "ln_" in n else small.read(n).half() for n in small.infos}, "half")
    half.metadata = small.metadata
    export(half, tmp_path / "hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["dtype"] == "float16"
    assert open_checkpoint(tmp_path / "hf").infos == half.infos
    images = random_images(32)
    assert alike(by_transformers(tmp_path / "hf", images), ours(half, images))


# --- shards ----------------------------------------------------------------------------------------------------------


def test_large_weights_are_divided(small, tmp_path):
    images = random_images(32)
    done = export(small, tmp_path / "hf", shard_bytes=100_000)
    shards = sorted((tmp_path / "hf").glob("model-*.safetensors"))
    assert len(shards) > 3 and shards[0].name == f"model-00001-of-{len(shards):05}.safetensors"
    index = json.loads((tmp_path / "hf" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == small.nbytes == done.nbytes
    for shard in shards:
        with safe_open(shard, "pt") as file:
            assert file.metadata()["format"] == "pt"
            assert {index["weight_map"][name] for name in file.keys()} == {shard.name}  # noqa: SIM118
    assert alike(by_transformers(tmp_path / "hf", images), ours(small, images))
    assert torch.equal(ours(open_checkpoint(tmp_path / "hf"), images), ours(small, images))
    assert not list((export(small, tmp_path / "oc", to="open_clip", shard_bytes=1).folder).glob("*-of-*"))


def test_division_by_size():
    infos = {name: TensorInfo((size,), torch.float32) for name, size in {"a": 1, "b": 2, "c": 9, "d": 1}.items()}
    assert divide_into_shards(infos, "m.safetensors", 52) == {"m.safetensors": ["a", "b", "c", "d"]}
    found = divide_into_shards(infos, "m.safetensors", 12)
    assert found == {f"m-0000{i}-of-00003.safetensors": names for i, names in enumerate((["a", "b"], ["c"], ["d"]), 1)}


def test_weights_are_copied_in_pieces(small, tmp_path, monkeypatch):
    assert small.digest  # which reads larger pieces, once
    monkeypatch.setattr(weight_files, "PIECE_SCALARS", 1000)
    largest = []
    read = MappingCheckpoint.read_flat
    monkeypatch.setattr(
        MappingCheckpoint, "read_flat", lambda self, n, a, b: largest.append(b - a) or read(self, n, a, b)
    )
    seen = []
    export(small, tmp_path / "hf", context=Context(progress=seen.append))
    assert max(largest) == 1000
    assert [p.fraction for p in seen] == sorted(p.fraction for p in seen)
    assert seen[0].fraction == 0 and seen[-1].fraction == 1.0 and len(seen) > 100
    monkeypatch.undo()
    assert torch.equal(ours(open_checkpoint(tmp_path / "hf"), random_images(32)), ours(small, random_images(32)))


# --- the text side ---------------------------------------------------------------------------------------------------


def text_features(model):
    with torch.inference_mode():
        return model.encode_text(torch.arange(16).reshape(2, 8) % 20)


def test_a_whole_model_keeps_its_text_side(tmp_path):
    source = peers.whole()
    export(source, tmp_path / "oc", to="open_clip")
    model = peers.open_clip().create_model(f"local-dir:{tmp_path / 'oc'}")
    expected = peers.clip(peers.FAMILIES["B/32"][0], peers.EMBED)
    expected.load_state_dict(source.state_dict())
    assert torch.equal(text_features(model), text_features(expected))
    images = random_images(32)
    with torch.inference_mode():
        assert alike(model.eval().encode_image(images), ours(source, images))
    assert front(tmp_path / "oc")[0]["pipeline_tag"] == "zero-shot-image-classification"
    export(tmp_path / "oc", tmp_path / "again", to="open_clip")  # what the file says of its text side is enough
    assert (tmp_path / "again" / "open_clip_model.safetensors").stat().st_size >= source.nbytes
    export(source, tmp_path / "hf")
    assert alike(by_transformers(tmp_path / "hf", images), ours(source, images))


def test_the_text_side_can_come_from_the_base(small, tmp_path):
    export(small, tmp_path / "hf")
    export(tmp_path / "hf", tmp_path / "oc", to="open_clip", base=peers.whole(1))
    model = peers.open_clip().create_model(f"local-dir:{tmp_path / 'oc'}").eval()
    images = random_images(32)
    with torch.inference_mode():
        assert alike(model.encode_image(images), ours(small, images))
    expected = peers.clip(peers.FAMILIES["B/32"][0], peers.EMBED)
    expected.load_state_dict(peers.whole(1).state_dict())
    assert torch.equal(text_features(model), text_features(expected))
    assert len(front(tmp_path / "oc")[0]["base_model"]) == 2


@pytest.mark.parametrize("left_out", ["transformer.resblocks.0.ln_1.weight", "token_embedding.weight", "transformer."])
def test_a_text_side_in_part_is_left_out(left_out, tmp_path):
    source = peers.whole()
    state = {name: value for name, value in source.state_dict().items() if not name.startswith(left_out)}
    part = MappingCheckpoint(state, "part")
    part.metadata = source.metadata
    done = export(part, tmp_path / "oc", to="open_clip")
    assert all(name.startswith("visual.") for name in load_file(tmp_path / "oc" / "open_clip_model.safetensors"))
    assert alike(by_open_clip(done.folder, random_images(32)), ours(source, random_images(32)))


def test_a_tower_without_projection(small, tmp_path):
    state = {name: value for name, value in small.state_dict().items() if name != "visual.proj"}
    bare = MappingCheckpoint(state, "bare")
    bare.metadata = small.metadata
    images = random_images(32)
    export(bare, tmp_path / "hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == ["CLIPVisionModel"]
    assert alike(by_transformers(tmp_path / "hf", images), ours(bare, images))
    with pytest.raises(CheckpointError, match="no output projection, which all towers of open_clip have"):
        export(tmp_path / "hf", tmp_path / "oc", to="open_clip")
    export(tmp_path / "hf", tmp_path / "oc", to="open_clip", base=small)
    assert alike(by_open_clip(tmp_path / "oc", images), ours(small, images))


# --- what is refused, and what is said -------------------------------------------------------------------------------


def test_an_activation_that_nothing_tells_is_assumed_aloud(tmp_path):
    vision = {"image_size": 64, "layers": 1, "width": 768, "head_width": 64, "patch_size": 32}
    known = peers.tower(vision, True)
    narrow = {
        "mlp.c_fc.weight": slice(256),
        "mlp.c_fc.bias": slice(256),
        "mlp.c_proj.weight": (slice(None), slice(256)),
    }
    parts = {name: narrow.get(".".join(name.split(".")[-3:]), slice(None)) for name in known.infos}
    bare = {name: known.read(name)[part].contiguous() for name, part in parts.items()}
    save_file(bare, tmp_path / "bare.safetensors")
    done = export(tmp_path / "bare.safetensors", tmp_path / "a")
    assert "No file states the activation of bare" in done.warnings[0]
    assert "QuickGELU, as in OpenAI's models" in done.warnings[0]
    assert "No file states the activation of bare" in (tmp_path / "a" / "README.md").read_text()
    assert json.loads((tmp_path / "a" / "config.json").read_text())["hidden_act"] == "quick_gelu"
    done = export(tmp_path / "bare.safetensors", tmp_path / "b", activation="gelu")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert (done.warnings, config["hidden_act"], config["intermediate_size"]) == ((), "gelu", 256)
    assert not checkpoint_facts.inspect(tmp_path / "bare.safetensors")["activation"]["known"]
    assert checkpoint_facts.inspect(tmp_path / "b")["activation"] == {"name": "gelu", "known": True}
    assert config["num_attention_heads"] == 12
    images = random_images(64)
    export(tmp_path / "b", tmp_path / "oc", to="open_clip")  # with MLPs that are narrower than the tower
    assert alike(by_open_clip(tmp_path / "oc", images), ours(open_checkpoint(tmp_path / "b"), images))
    with pytest.raises(CheckpointError, match="'quick_gelu' or 'gelu'; got 'relu'"):
        export(tmp_path / "bare.safetensors", tmp_path / "c", activation="relu")


BIAS = "visual.transformer.resblocks.0.attn.in_proj_bias"
BROKEN = {
    "a missing tensor": (lambda s: s.pop("visual.ln_post.bias"), r"1 tensor is missing \(ln_post.bias\)"),
    "a missing block": (lambda s: [s.pop(n) for n in list(s) if ".0." in n], "tensors are missing"),
    "a third": (lambda s: s.update({BIAS: torch.ones(3)}), "has the shape"),
    "whole numbers": (lambda s: s.update({BIAS: torch.ones(192, dtype=torch.int32)}), "not floating-point"),
    "no tower": (lambda s: (s.clear(), s.update(w=torch.ones(1))), "holds no visual tower"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_whole_tower_is_refused(kind, small, tmp_path):
    change, says = BROKEN[kind]
    state = small.state_dict()
    change(state)
    broken = MappingCheckpoint(state, "broken")
    broken.metadata = small.metadata
    with pytest.raises(CheckpointError, match=says):
        export(broken, tmp_path / "new" / "out")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(MergingError, match="exported to 'hf' or 'open_clip'; got 'timm'"):
        export(small, tmp_path / "out", to="timm")
