"""Real files of every format and family, written by open_clip, Transformers, PEFT and torch, come in bit for bit."""

from __future__ import annotations

import json
import pickle
import warnings

import peers
import pytest
import torch
from safetensors.torch import save_file

import merging
from merging.checkpoints.architecture import Architecture, stated_by
from merging.checkpoints.checkpoint import MappingCheckpoint
from merging.checkpoints.views import to_naming
from merging.clip.image_encoder import Encoder
from merging.errors import CheckpointError, CompatibilityError, FamilyError
from merging.formats.opening import open_checkpoint
from merging.inspection.fit import fit

SIZES = {"width": 24, "layers": 2, "head_width": 8, "patch_size": 4, "image_size": 16}
EMBED = 12
TRAINING = {"epoch": 3, "optimizer": {"state": {0: {"step": torch.ones(1)}}}, "args": {"lr": 1e-5}}


@pytest.fixture(scope="module")
def clip():
    """A whole open_clip model and its state dict."""
    return peers.clip(SIZES, EMBED)


def visual(model):
    return {name: value for name, value in model.state_dict().items() if name.startswith("visual.")}


class ImageEncoder(torch.nn.Module):
    """As released with task vectors: a CLIP model without its text transformer, under ``model``."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.train_preprocess = [len, torch.nn.GELU()]


def save(thing, path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(thing, path, **options)


def dump(thing, path, protocol=4):
    path.write_bytes(pickle.dumps(thing, protocol))


def prefixed(state, prefix):
    return {prefix + name: value for name, value in state.items()}


LEGACY = {"_use_new_zipfile_serialization": False}
WRITERS = {
    "zip": lambda m, p: save(m.state_dict(), p),
    "legacy": lambda m, p: save(m.state_dict(), p, **LEGACY),
    "pickled state dict": lambda m, p: dump(m.state_dict(), p),
    "module": save,
    "legacy module": lambda m, p: save(m, p, **LEGACY),
    "pickled module": dump,
    "pickled module, protocol 5": lambda m, p: dump(m, p, 5),
    "image encoder": lambda m, p: save(ImageEncoder(m), p),
    "legacy image encoder": lambda m, p: save(ImageEncoder(m), p, **LEGACY),
    "pickled image encoder": lambda m, p: dump(ImageEncoder(m), p),
    "trainer": lambda m, p: save(TRAINING | {"state_dict": prefixed(m.state_dict(), "module.")}, p),
    "trainer with average": lambda m, p: save(
        TRAINING | {"model": m.state_dict(), "model_ema": prefixed(m.state_dict(), "module.")}, p
    ),
    "image encoder's names": lambda m, p: save(prefixed(m.state_dict(), "image_encoder.model."), p),
    "classifier": lambda m, p: save(
        prefixed(m.state_dict(), "image_encoder.model.") | {"classification_head.weight": torch.ones(5, EMBED)}, p
    ),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_torch_files_of_open_clip_models_come_in_bit_for_bit(kind, clip, tmp_path):
    path = tmp_path / "model.any"
    WRITERS[kind](clip, path)
    checkpoint = open_checkpoint(path)
    expected = clip.state_dict()
    assert set(checkpoint.infos) == set(expected)
    assert all(torch.equal(checkpoint.read(name), value) for name, value in expected.items())
    assert len([p for p in checkpoint.parameters if p.role != "buffer"]) == len(visual(clip))
    if "module" in kind or ("encoder" in kind and "names" not in kind):
        assert "without running its code" in " ".join(checkpoint.notes)


def test_a_bare_tower_keeps_its_names(clip, tmp_path):
    save(clip.visual.state_dict(), tmp_path / "tower.pt")
    save(prefixed(clip.visual.state_dict(), "module."), tmp_path / "wrapped.pt")
    for name in ("tower.pt", "wrapped.pt"):
        assert set(open_checkpoint(tmp_path / name).infos) == set(clip.visual.state_dict())


def test_a_class_that_is_gone_is_not_needed(clip, tmp_path):
    import sys
    import types

    module = types.ModuleType("gone.modeling")
    module.Encoder = type("Encoder", (ImageEncoder,), {"__module__": "gone.modeling"})
    sys.modules |= {"gone": types.ModuleType("gone"), "gone.modeling": module}
    try:
        save(module.Encoder(clip), tmp_path / "zeroshot.pt")
    finally:
        del sys.modules["gone"], sys.modules["gone.modeling"]
    checkpoint = open_checkpoint(tmp_path / "zeroshot.pt")
    assert "gone.modeling.Encoder" in checkpoint.notes[0] and set(visual(clip)) <= set(checkpoint.infos)
    assert not {"gone", "gone.modeling"} & set(sys.modules)


def test_the_names_of_open_clip_configurations_are_read(clip, tmp_path):
    save(clip.state_dict(), tmp_path / "open_clip_pytorch_model.bin")
    vision = {key: SIZES[key] for key in SIZES}
    model = {"embed_dim": EMBED, "vision_cfg": vision, "text_cfg": {}}
    for stated, expected in (({"quick_gelu": True}, True), ({}, False)):
        (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": model | stated}))
        found = Architecture.of(open_checkpoint(tmp_path))
        assert (found.quick_gelu, found.heads) == (expected, 3)


# --- names -----------------------------------------------------------------------------------------------------------

PUBLISHED = {"ViT-B-32": (768, 12, 12, True), "ViT-B-16": (768, 12, 12, True), "ViT-L-14": (1024, 24, 16, True),
             "ViT-H-14": (1280, 32, 16, False)}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_families_go_to_transformers_and_back(name):
    """Names and shapes of the published sizes, on one number per tensor."""
    width, layers, heads, quick_gelu = PUBLISHED[name]
    state = _published(name, width, layers)
    there = to_naming(state, "hf")
    assert len(there) == 8 + 16 * layers and there["visual_projection.weight"].shape[1] == width
    back = to_naming(there, "open_clip")
    assert set(back) == set(state)
    assert all(torch.equal(back[key], value) and back[key].shape == value.shape for key, value in state.items())
    bare = to_naming(there, "open_clip_tower")
    assert all(torch.equal(bare[key.removeprefix("visual.")], value) for key, value in state.items())
    found = Architecture.of(MappingCheckpoint(there, name))
    assert (found.width, found.layers, found.heads, found.quick_gelu) == (width, layers, heads, quick_gelu)


def _published(name, width, layers):
    """Tensors of a published size whose storage is one number; every tensor has its own."""
    patch = int(name.rsplit("-", maxsplit=1)[-1])
    shapes = {"class_embedding": (width,), "positional_embedding": ((224 // patch) ** 2 + 1, width),
              "conv1.weight": (width, 3, patch, patch), "ln_pre.weight": (width,), "ln_pre.bias": (width,),
              "ln_post.weight": (width,), "ln_post.bias": (width,), "proj": (width, 512)}  # fmt: skip
    for block in range(layers):
        at = f"transformer.resblocks.{block}."
        thin = {"ln_1.weight": width, "ln_1.bias": width, "ln_2.weight": width, "ln_2.bias": width}
        thin |= {"attn.in_proj_bias": 3 * width, "attn.out_proj.bias": width}
        thin |= {"mlp.c_fc.bias": 4 * width, "mlp.c_proj.bias": width}
        shapes |= {at + key: (size,) for key, size in thin.items()}
        wide = {"attn.in_proj_weight": 3 * width, "attn.out_proj.weight": width}
        wide |= {"mlp.c_fc.weight": 4 * width, "mlp.c_proj.weight": width}
        shapes |= {at + key: (size, 1) for key, size in wide.items()}  # one column each: the names are what matters
    draw = torch.Generator().manual_seed(0)
    return {f"visual.{key}": torch.randn(shape, generator=draw) for key, shape in shapes.items()}


def test_packed_tensors_are_read_in_any_span(clip, tmp_path):
    state = visual(clip)
    save_file(to_naming(state, "hf"), tmp_path / "model.safetensors")
    opened_file = open_checkpoint(tmp_path / "model.safetensors")
    for name in (n for n in state if "in_proj" in n or n.endswith("proj")):
        flat = state[name].reshape(-1)
        cuts = sorted({0, 1, len(flat) // 3, len(flat) // 3 + 1, len(flat) - 1, len(flat)})
        for start in cuts:
            for stop in (cut for cut in cuts if cut >= start):
                assert torch.equal(opened_file.read_flat(name, start, stop), flat[start:stop]), (name, start, stop)


def test_other_namings_are_refused(clip):
    with pytest.raises(CheckpointError, match="'hf', 'open_clip'"):
        to_naming(clip.state_dict(), "timm")
    with pytest.raises(CheckpointError, match="no visual tower"):
        to_naming({"w": torch.ones(1)}, "hf")


def test_several_towers_are_refused(clip, tmp_path):
    save(prefixed(visual(clip), "a.") | prefixed(visual(clip), "b."), tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match="several visual towers"):
        open_checkpoint(tmp_path / "x.pt")


# --- Transformers and PEFT (their import takes seconds) --------------------------------------------------------------


@pytest.fixture(scope="module")
def transformers():
    return peers.transformers()


@pytest.fixture(scope="module")
def vision_config(transformers):
    return transformers.CLIPVisionConfig(
        hidden_size=24, intermediate_size=96, num_hidden_layers=2, num_attention_heads=3, image_size=16, patch_size=4,
        projection_dim=EMBED, hidden_act="gelu",
    )  # fmt: skip


@pytest.fixture(scope="module")
def projecting(transformers, vision_config):
    torch.manual_seed(1)
    return transformers.CLIPVisionModelWithProjection(vision_config).eval()


def test_transformers_models_give_their_own_features(projecting, tmp_path):
    projecting.save_pretrained(tmp_path)
    images = torch.randn(2, 3, 16, 16)
    checkpoint = open_checkpoint(tmp_path)
    assert not Architecture.of(checkpoint).quick_gelu
    with torch.inference_mode():
        expected = projecting(pixel_values=images).image_embeds
        assert torch.allclose(Encoder.of(checkpoint)(images), expected, atol=1e-5)
    state = projecting.state_dict()
    back = to_naming(checkpoint.state_dict(), "hf")
    assert set(back) == set(state) and all(torch.equal(back[name], value) for name, value in state.items())


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
def test_whole_modules_tell_their_activation_by_their_classes(projecting, options, tmp_path):
    for number, (vision, quick_gelu) in enumerate(peers.FAMILIES.values()):
        torch.save(peers.clip(vision, EMBED, quick_gelu=quick_gelu), tmp_path / f"{number}.pt", **options)
        opened = open_checkpoint(tmp_path / f"{number}.pt")
        assert stated_by(opened) == {"quick_gelu": quick_gelu}
        like = peers.known(opened.state_dict(), vision, not quick_gelu)
        assert Architecture.of(opened, like).quick_gelu == quick_gelu
        assert Architecture.of(opened, like).heads == Architecture.of(like).heads
    torch.save(projecting, tmp_path / "hf.pt", **options)
    assert stated_by(open_checkpoint(tmp_path / "hf.pt")) == {"quick_gelu": False}
    approximate = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.GELU("tanh"))
    torch.save(approximate, tmp_path / "tanh.pt", **options)
    assert not open_checkpoint(tmp_path / "tanh.pt").metadata


def test_transformers_kinds_and_prefixes_give_the_same_tower(transformers, vision_config, projecting, tmp_path):
    config = transformers.CLIPConfig(
        vision_config=vision_config.to_dict(),
        text_config={"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 20},
        projection_dim=EMBED,
    )
    whole, plain = transformers.CLIPModel(config), transformers.CLIPVisionModel(vision_config)
    state = projecting.state_dict()
    whole.load_state_dict(state, strict=False)
    plain.load_state_dict({n.removeprefix("vision_model."): v for n, v in state.items()}, strict=False)
    plain.load_state_dict(state, strict=False)
    whole.save_pretrained(tmp_path / "whole")
    plain.save_pretrained(tmp_path / "plain", max_shard_size="20KB")
    save(state | {"vision_model.embeddings.position_ids": torch.arange(17)[None]}, tmp_path / "old.bin")
    save(prefixed(state, "clip_model."), tmp_path / "wrapped.bin")
    assert (tmp_path / "plain" / "model.safetensors.index.json").exists()
    projecting.save_pretrained(tmp_path / "projecting")
    expected = open_checkpoint(tmp_path / "projecting").state_dict()
    for name in ("whole", "plain", "old.bin", "wrapped.bin"):
        checkpoint = open_checkpoint(tmp_path / name)
        found = checkpoint.state_dict()
        assert set(found) == set(expected) - ({"visual.proj"} if name == "plain" else set())
        assert all(torch.equal(value, expected[key]) for key, value in found.items()), name
    assert any("text side" in note for note in open_checkpoint(tmp_path / "whole").notes)
    assert any("position_ids" in note for note in open_checkpoint(tmp_path / "old.bin").notes)


def test_open_clip_and_transformers_merge_with_one_another(projecting, tmp_path):
    projecting.save_pretrained(tmp_path / "hf")
    base = open_checkpoint(tmp_path / "hf").state_dict()
    tuned = {name: value + 0.01 * torch.randn_like(value) for name, value in base.items()}
    save(base, tmp_path / "base.pt")
    save(prefixed(tuned, "model."), tmp_path / "tuned.pt")
    save(to_naming(tuned, "hf"), tmp_path / "tuned_hf.pt")
    bare = {name.removeprefix("visual."): value for name, value in tuned.items()}
    expected = merging.merge(base, {"a": tuned}, "ties", {"scope": "tensor"}, device="cpu").state_dict
    for expert in (tmp_path / "tuned.pt", tmp_path / "tuned_hf.pt", bare, to_naming(tuned, "hf")):
        found = merging.merge(tmp_path / "base.pt", {"a": expert}, "ties", {"scope": "tensor"}, device="cpu")
        assert all(torch.equal(found.state_dict[name], value) for name, value in expected.items())
        found = merging.merge(tmp_path / "hf", {"a": expert}, "ties", {"scope": "tensor"}, device="cpu")
        assert list(found.state_dict) == list(open_checkpoint(tmp_path / "hf").native(base))
        back = to_naming(found.state_dict, "open_clip")
        assert all(torch.equal(back[name], value) for name, value in expected.items())
    apart = merging.merge(to_naming(base, "hf"), {"a": tmp_path / "tuned.pt"}, device="cpu").state_dict
    packed = merging.merge(base, {"a": tuned}, device="cpu").state_dict
    assert set(apart) == set(to_naming(base, "hf"))
    assert all(torch.equal(value, packed[name]) for name, value in to_naming(apart, "open_clip").items())


def test_a_projection_that_an_expert_leaves_out_is_kept(projecting, tmp_path):
    base = projecting.state_dict()
    save(base, tmp_path / "base.pt")
    save({n: v + 0.01 for n, v in base.items() if n.startswith("vision_model.")}, tmp_path / "tuned.pt")
    pretrained, expert = open_checkpoint(tmp_path / "base.pt"), open_checkpoint(tmp_path / "tuned.pt")
    report = fit(pretrained, {"a": expert})
    assert report.ok and any("no output projection" in note for note in report.notes)
    merged = merging.merge(tmp_path / "base.pt", {"a": tmp_path / "tuned.pt"}, device="cpu").state_dict
    assert torch.equal(merged["visual_projection.weight"], base["visual_projection.weight"])


@pytest.fixture(scope="module")
def peft(transformers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import peft

        return peft


def adapted(peft, model, folder, **options):
    """An adapter's folder and the state dict of the model with it merged in, both by PEFT."""
    import copy

    config = peft.LoraConfig(**({"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj", "fc1"]} | options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = peft.get_peft_model(copy.deepcopy(model), config)
        draw = torch.Generator().manual_seed(0)
        for _name, value in wrapped.named_parameters():
            if value.requires_grad:
                value.data += 0.1 * torch.randn(value.shape, generator=draw)
        wrapped.save_pretrained(folder)
        return wrapped.merge_and_unload().state_dict()


ADAPTERS = {
    "plain": {},
    "rslora": {"use_rslora": True},
    "patterns": {"rank_pattern": {"fc1": 2, r"layers\.1\.self_attn\.q_proj": 3}, "alpha_pattern": {"v_proj": 20}},
    "bias": {"bias": "lora_only"},
    "all biases": {"bias": "all"},
    "module saved whole": {"modules_to_save": ["visual_projection"]},
    "projection and patches": {"target_modules": ["visual_projection", "patch_embedding", "k_proj"]},
    "one layer": {"target_modules": ["vision_model.encoder.layers.1.mlp.fc2"]},
}


@pytest.mark.parametrize("kind", ADAPTERS)
def test_lora_adapters_give_what_peft_merges(kind, peft, projecting, tmp_path):
    expected = adapted(peft, projecting, tmp_path / "adapter", **ADAPTERS[kind])
    projecting.save_pretrained(tmp_path / "base")
    base = open_checkpoint(tmp_path / "base")
    expert = open_checkpoint(tmp_path / "adapter", like=base)
    found = to_naming(expert.state_dict(), "hf")
    for name, value in expected.items():
        assert torch.allclose(found[name], value, atol=1e-6), name
    changed = {n for n in expected if not torch.equal(expected[n], projecting.state_dict()[n])}
    for name in set(expected) - changed:
        assert torch.equal(found[name], expected[name])
    assert fit(base, {"a": open_checkpoint(tmp_path / "adapter")}, values=True).ok
    merged = merging.merge(projecting.state_dict(), {"a": tmp_path / "adapter"}, params={"scaling": 1.0}, device="cpu")
    assert all(torch.allclose(merged.state_dict[n], v, atol=1e-6) for n, v in expected.items())


REFUSED = {
    "dora": ({"use_dora": True}, {}, "DoRA"),
    "other kind": ({}, {"peft_type": "IA3"}, "'IA3' is not supported"),
    "pissa": ({}, {"init_lora_weights": "pissa"}, "changes the pretrained weights"),
    "gradients first": ({}, {"init_lora_weights": "lora_ga"}, "changes the pretrained weights"),
    "third factor": ("kasa", {}, "kasa_config are not supported"),
    "third factor, not said": ("kasa", {"kasa_config": None}, "more than two factors"),
    "blocks": ({}, {"use_bdlora": {"nblocks": 2}}, "use_bdlora are not supported"),
    "lying rank": ({}, {"r": 5}, "its configuration says rank 5"),
    "intricate pattern": ({}, {"rank_pattern": {"(a+)+b": 3}}, "too intricate"),
    "no alpha": ({}, {"lora_alpha": "much"}, "lora_alpha is a number"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_adapters_of_other_kinds_are_refused(kind, peft, projecting, tmp_path):
    options, changes, says = REFUSED[kind]
    if options == "kasa":
        options = {"kasa_config": peft.tuners.lora.config.KasaConfig()}
    adapted(peft, projecting, tmp_path / "adapter", **options)
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(CheckpointError, match=says):
        open_checkpoint(tmp_path / "adapter")


def test_settings_of_adapters_that_nobody_knows_are_said(peft, projecting, tmp_path):
    adapted(peft, projecting, tmp_path / "adapter")
    assert not open_checkpoint(tmp_path / "adapter").cautions
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"use_tomorrow": True}))
    assert "use_tomorrow" in open_checkpoint(tmp_path / "adapter").cautions[0]


def test_adapters_of_open_clip_models(peft, clip, tmp_path):
    layers = r"visual\.transformer.*"
    expected = adapted(peft, clip, tmp_path / "mlp", target_modules=layers + "(c_fc|c_proj)")
    found = open_checkpoint(tmp_path / "mlp", like=opened(dict(clip.state_dict())))
    assert all(torch.allclose(found.read(name), value, atol=1e-6) for name, value in expected.items())
    assert "of 4 tensors" in found.notes[-1]
    adapted(peft, clip, tmp_path / "attention", target_modules=layers + "attn")
    with pytest.raises(CheckpointError, match="count differently"):
        open_checkpoint(tmp_path / "attention")


def test_an_adapter_of_another_model_is_refused(peft, projecting, clip, tmp_path):
    adapted(peft, projecting, tmp_path / "adapter")
    small = {name: value[:, :1] if name.endswith("c_fc.weight") else value for name, value in visual(clip).items()}
    with pytest.raises(CheckpointError, match="belongs to another model"):
        open_checkpoint(tmp_path / "adapter", like=MappingCheckpoint(small, "small"))


# --- the report ------------------------------------------------------------------------------------------------------


def opened(state, name="x"):
    return MappingCheckpoint(state, name)


def shifted(state, size):
    draw = torch.Generator().manual_seed(3)
    return {n: v + size * torch.randn(v.shape, generator=draw) for n, v in state.items()}


def problems(report):
    return {(p.severity, p.problem) for p in report.problems}


def test_a_related_expert_is_fine_and_an_unrelated_one_is_not(clip):
    base = visual(clip)
    other = {n: torch.randn_like(v) * v.std() if v.ndim > 1 else v for n, v in base.items()}
    for options in ({"values": True}, {"sample": True}):
        report = fit(opened(base), {"near": opened(shifted(base, 1e-3)), "far": opened(other)}, **options)
        assert {(p.checkpoint, p.problem) for p in report.problems} == {("far", "unrelated")} and report.ok
        assert report.distances["near"].ratio < 0.1 and report.distances["near"].cosine > 0.99
        assert "cosine of" in report.text()


def test_another_resolution_has_its_own_sentence(clip):
    base = visual(clip)
    wide = shifted(base, 1e-3) | {"visual.positional_embedding": torch.zeros(37, 24)}
    report = fit(opened(base), {"a": opened(wide)})
    assert problems(report) == {("error", "resolution")}
    assert "4 × 4 patches, found images of 6 × 6 patches" in report.text()
    with pytest.raises(CompatibilityError, match="image size"):
        merging.merge(base, {"a": wide})


def test_text_tensors_are_counted_and_compared(clip):
    base = dict(clip.state_dict())
    tuned = shifted(base, 1e-3)
    report = fit(opened(base), {"a": opened(tuned)}, values=True)
    assert ("warning", "other text") in problems(report) and report.ok
    assert "31 tensors" not in report.notes[0] and report.notes[0].startswith(f"{len(visual(clip))} tensors")
    assert report.notes[1].startswith(f"{len(base) - len(visual(clip))} tensors are kept")


def test_numbers_that_do_not_survive_are_told(clip):
    base = visual(clip)
    brain = {n: v.bfloat16() for n, v in base.items()}
    report = fit(opened(brain), {"a": opened(shifted({n: v.float() for n, v in brain.items()}, 1e-5))}, values=True)
    assert ("warning", "rounding") in problems(report)
    half = {n: v.half() for n, v in base.items()} | {"visual.ln_post.bias": torch.full((24,), 6e4).half()}
    report = fit(
        opened(half), {"a": opened(half | {"visual.ln_post.bias": torch.full((24,), 4e4).half()})}, values=True
    )
    assert ("warning", "range") in problems(report)
    huge = base | {"visual.ln_post.bias": torch.full((24,), 3e38)}
    report = fit(opened(huge), {"a": opened(huge)}, values=True)
    assert problems(report) == {("warning", "huge numbers"), ("warning", "not changed")}


def test_what_was_odd_about_a_file_is_in_the_report(clip, tmp_path):
    save(prefixed(shifted(visual(clip), 1e-3), "module."), tmp_path / "a.pt")
    report = fit(opened(visual(clip)), {"a": open_checkpoint(tmp_path / "a.pt")})
    assert problems(report) == {("warning", "opened")} and report.ok
    assert report.text() == "a: The names begin with 'module.', which was removed."


def test_models_of_no_family_are_compared_but_not_merged():
    base = {"conv.weight": torch.ones(4, 3, 2, 2), "bn.running_mean": torch.ones(4), "fc.weight": torch.ones(2, 4)}
    base |= {"bn.num_batches_tracked": torch.tensor(3), "mask": torch.tensor([True])}
    tuned = {n: v * 1.01 if v.is_floating_point() else v for n, v in base.items()}
    report = fit(opened(base), {"a": opened(tuned)}, values=True)
    assert report.ok and not report.warnings and not report.mergeable and "no known model family" in report.text()
    report = fit(opened(base), {"a": opened({n: v for n, v in tuned.items() if n != "fc.weight"})})
    assert problems(report) == {("error", "missing")}
    with pytest.raises(FamilyError):
        merging.merge(base, {"a": tuned}, device="cpu")
