"""Our functional tower against open_clip's own module, and what its record sees."""

from __future__ import annotations

import json

import plain_tower
import pytest
import torch

from merging.base.errors import CheckpointError
from merging.base.open_clip_import import prepare_torchvision
from merging.images.image_encoder import Encoder
from merging.models.architecture import Architecture
from merging.models.checkpoint import MappingCheckpoint

CONFIG = {"image_size": 16, "layers": 2, "width": 24, "head_width": 8, "patch_size": 4}


@pytest.fixture(scope="module")
def tower():
    prepare_torchvision()
    # open_clip and its dependencies emit deprecation warnings of their own while they are imported.
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from open_clip.model import CLIPVisionCfg, _build_vision_tower

        torch.manual_seed(0)
        return _build_vision_tower(12, CLIPVisionCfg(**CONFIG), quick_gelu=True).eval()


def _checkpoint(tower, prefix="visual.", **changes) -> MappingCheckpoint:
    checkpoint = MappingCheckpoint({prefix + name: t for name, t in tower.state_dict().items()}, "tower")
    checkpoint.metadata = {
        "architecture": json.dumps({"embed_dim": 12, "quick_gelu": True, "vision_cfg": CONFIG | changes})
    }
    return checkpoint


@pytest.mark.parametrize("prefix", ["visual.", ""])
@pytest.mark.full
def test_features_equal_open_clips(tower, prefix):
    images = torch.randn(5, 3, 16, 16)
    with torch.inference_mode():
        expected = tower(images)
        found = Encoder.from_checkpoint(_checkpoint(tower, prefix))(images)
    assert torch.allclose(found, expected, atol=1e-5)


def test_activation_and_heads_come_from_the_metadata(tower):
    images = torch.randn(5, 3, 16, 16)
    checkpoint = _checkpoint(tower, head_width=24)
    assert Architecture.from_checkpoint(checkpoint).heads == 1
    with torch.inference_mode():
        assert not torch.allclose(Encoder.from_checkpoint(checkpoint)(images), tower(images), atol=1e-5)


def _recorded(checkpoint, images):
    seen = {}
    with torch.inference_mode():
        Encoder.from_checkpoint(checkpoint)(images, record=lambda name, rows: seen.update({name: rows.double()}))
    weights = [p.name for p in checkpoint.parameters if p.role in {"linear", "conv", "projection", "norm_scale"}]
    assert sorted(seen) == sorted(weights)
    return seen


def _outputs(seen, checkpoint):
    """What each layer gives for the rows that were recorded: {weight: (n, d_out)}."""
    found, state = {}, {n: checkpoint.read(n).double() for n in checkpoint.infos}
    for parameter in checkpoint.parameters:
        name = parameter.name
        if name in seen:
            weight = state[name]
            bias = state.get(name.removesuffix("weight") + "bias", torch.zeros(()).double())
            if parameter.role == "norm_scale":
                found[name] = seen[name] * weight + bias
            else:
                found[name] = seen[name] @ (weight if name.endswith("proj") else weight.flatten(1).T) + bias
    return found


@torch.inference_mode()
def test_record_sees_the_rows_that_enter_every_weight(tower):
    """What is recorded must reproduce the outputs of open_clip's own layers, for each weight that has an input."""
    checkpoint, images, hidden, handles = _checkpoint(tower), torch.randn(3, 3, 16, 16), {}, []
    for name, module in tower.named_modules():
        handles.append(module.register_forward_hook(lambda m, i, o, name=name: hidden.update({name: o})))
    features = tower(images)
    for handle in handles:
        handle.remove()
    hidden["conv1"] = hidden["conv1"].flatten(2).transpose(1, 2)
    hidden["ln_post"] = hidden["ln_post"][:, 0]
    outputs = _outputs(_recorded(checkpoint, images), checkpoint)
    for name, found in outputs.items():
        layer = name.removeprefix("visual.").removesuffix(".weight")
        if layer.endswith("in_proj_weight"):
            continue  # no module of its own; what it must give is checked in the next test
        expected = features if layer == "proj" else hidden[layer.removesuffix(".out_proj")]
        expected = expected[0] if isinstance(expected, tuple) else expected
        assert torch.allclose(found, expected.reshape(found.shape).double(), atol=1e-5), name


def test_record_sees_the_rows_under_hugging_faces_names(tower):
    """Against a second implementation, q, k and v among them; and the same rows whichever names the tower has."""
    packed, images = _checkpoint(tower), torch.randn(3, 3, 16, 16)
    state = plain_tower.hugging_face({n: packed.read(n) for n in packed.infos})
    apart = MappingCheckpoint(state, "hf")
    apart.metadata = packed.metadata
    double = {n: v.double() for n, v in state.items()}
    expected = plain_tower.layer_outputs(double, images.double(), layers=2, heads=3, patch=4)
    seen = _recorded(apart, images)
    outputs = _outputs(seen, apart)
    assert outputs.keys() == expected.keys()
    for name, found in outputs.items():
        assert torch.allclose(found, expected[name].reshape(found.shape), atol=1e-5), name
    in_proj = _recorded(packed, images)["visual.transformer.resblocks.1.attn.in_proj_weight"]
    at = "vision_model.encoder.layers.1.self_attn."
    assert all(torch.allclose(seen[f"{at}{letter}_proj.weight"], in_proj, atol=1e-6) for letter in "qkv")
    with torch.inference_mode():
        assert torch.allclose(Encoder.from_checkpoint(apart)(images), tower(images), atol=1e-5)
    assert Architecture.from_checkpoint(apart) == Architecture.from_checkpoint(packed)


def test_a_tower_without_projection_gives_the_class_token(tower):
    packed, images = _checkpoint(tower), torch.randn(3, 3, 16, 16)
    state = plain_tower.hugging_face({n: packed.read(n) for n in packed.infos})
    projection = state.pop("visual_projection.weight")
    checkpoint = MappingCheckpoint(state, "hf")
    checkpoint.metadata = packed.metadata
    assert Architecture.from_checkpoint(checkpoint).embed_dim == 24
    with torch.inference_mode():
        assert torch.allclose(Encoder.from_checkpoint(checkpoint)(images) @ projection.T, tower(images), atol=1e-5)


@pytest.mark.parametrize("section", range(4))
def test_a_section_runs_with_only_its_own_tensors(tower, section):
    encoder = Encoder.from_checkpoint(_checkpoint(tower), on_demand=True)
    x = torch.randn(2, 3, 16, 16) if section == 0 else torch.randn(2, 17, 24)
    held = encoder.load_section(section)
    assert len(held.tensors) < len(encoder.tensors)
    with torch.inference_mode():
        assert torch.equal(held.run_section(section, x), encoder.run_section(section, x))


def test_a_checkpoint_without_tower_says_so():
    checkpoint = MappingCheckpoint({"visual.ln_post.weight": torch.ones(4)}, "half")
    with pytest.raises(CheckpointError, match="half is not a visual tower"):
        Architecture.from_checkpoint(checkpoint)


def test_without_metadata_the_heads_are_not_guessed(tower):
    """Width 24 could have any number of heads; a wrong guess would give wrong features without an error."""
    known = _checkpoint(tower)
    bare = MappingCheckpoint({name: known.read(name) for name in known.infos}, "bare")
    with pytest.raises(CheckpointError, match="how many heads a tower of width 24 has"):
        Architecture.from_checkpoint(bare)
    assert Architecture.from_checkpoint(bare, fallback=known) == Architecture.from_checkpoint(known)
