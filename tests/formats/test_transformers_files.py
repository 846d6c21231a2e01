"""Files of Transformers models: their own features, every kind and prefix, merged with open_clip's."""

from __future__ import annotations

import peers
import pytest
import torch
from namings import to_naming
from real_models import EMBED, add_prefix, save

import merging
from merging.images.image_encoder import Encoder
from merging.models.architecture import Architecture, architecture_in_metadata
from merging.models.formats.model_sources import open_checkpoint
from merging.models.inspection.fit_check import check_fit


def test_transformers_models_give_their_own_features(projecting, tmp_path):
    projecting.save_pretrained(tmp_path)
    images = torch.randn(2, 3, 16, 16)
    checkpoint = open_checkpoint(tmp_path)
    assert not Architecture.from_checkpoint(checkpoint).quick_gelu
    with torch.inference_mode():
        expected = projecting(pixel_values=images).image_embeds
        assert torch.allclose(Encoder.from_checkpoint(checkpoint)(images), expected, atol=1e-5)
    state = projecting.state_dict()
    back = to_naming(checkpoint.state_dict(), "hf")
    assert set(back) == set(state) and all(torch.equal(back[name], value) for name, value in state.items())


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
def test_whole_modules_tell_their_activation_by_their_classes(projecting, options, tmp_path):
    for number, (vision, quick_gelu) in enumerate(peers.FAMILIES.values()):
        torch.save(peers.clip(vision, EMBED, quick_gelu=quick_gelu), tmp_path / f"{number}.pt", **options)
        opened = open_checkpoint(tmp_path / f"{number}.pt")
        assert architecture_in_metadata(opened) == {"quick_gelu": quick_gelu}
        like = peers.known(opened.state_dict(), vision, not quick_gelu)
        assert Architecture.from_checkpoint(opened, like).quick_gelu == quick_gelu
        assert Architecture.from_checkpoint(opened, like).heads == Architecture.from_checkpoint(like).heads
    torch.save(projecting, tmp_path / "hf.pt", **options)
    assert architecture_in_metadata(open_checkpoint(tmp_path / "hf.pt")) == {"quick_gelu": False}
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
    save(add_prefix(state, "clip_model."), tmp_path / "wrapped.bin")
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
    save(add_prefix(tuned, "model."), tmp_path / "tuned.pt")
    save(to_naming(tuned, "hf"), tmp_path / "tuned_hf.pt")
    bare = {name.removeprefix("visual."): value for name, value in tuned.items()}
    expected = merging.merge(base, {"a": tuned}, "ties", {"scope": "tensor"}, device="cpu").state_dict
    for expert in (tmp_path / "tuned.pt", tmp_path / "tuned_hf.pt", bare, to_naming(tuned, "hf")):
        found = merging.merge(tmp_path / "base.pt", {"a": expert}, "ties", {"scope": "tensor"}, device="cpu")
        assert all(torch.equal(found.state_dict[name], value) for name, value in expected.items())
        found = merging.merge(tmp_path / "hf", {"a": expert}, "ties", {"scope": "tensor"}, device="cpu")
        assert list(found.state_dict) == list(open_checkpoint(tmp_path / "hf").rename_as_in_file(base))
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
    report = check_fit(pretrained, {"a": expert})
    assert report.ok and any("no output projection" in note for note in report.notes)
    merged = merging.merge(tmp_path / "base.pt", {"a": tmp_path / "tuned.pt"}, device="cpu").state_dict
    assert torch.equal(merged["visual_projection.weight"], base["visual_projection.weight"])
