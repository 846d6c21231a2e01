"""Our functional tower against open_clip's own module, and what its record sees."""

from __future__ import annotations

import json

import pytest
import torch

from merging.checkpoints import MappingCheckpoint
from merging.compat import prepare_torchvision
from merging.encoder import Architecture, Encoder
from merging.errors import CheckpointError

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
def test_features_equal_open_clips(tower, prefix):
    images = torch.randn(5, 3, 16, 16)
    with torch.inference_mode():
        expected = tower(images)
        found = Encoder.of(_checkpoint(tower, prefix))(images)
    assert torch.allclose(found, expected, atol=1e-5)


def test_activation_and_heads_come_from_the_metadata(tower):
    images = torch.randn(5, 3, 16, 16)
    checkpoint = _checkpoint(tower, head_width=24)
    assert Architecture.of(checkpoint).heads == 1
    with torch.inference_mode():
        assert not torch.allclose(Encoder.of(checkpoint)(images), tower(images), atol=1e-5)


def test_record_sees_the_rows_that_enter_every_weight(tower):
    """What is recorded must reproduce the layer's own output, for each weight that has an input."""
    checkpoint = _checkpoint(tower)
    seen: dict[str, torch.Tensor] = {}
    images = torch.randn(3, 3, 16, 16)
    hidden = {}
    tower.transformer.resblocks[1].mlp.c_fc.register_forward_hook(lambda m, i, o: hidden.update(fc=o))
    tower.transformer.resblocks[1].ln_1.register_forward_hook(lambda m, i, o: hidden.update(ln=o))
    with torch.inference_mode():
        Encoder.of(checkpoint)(images, record=lambda name, rows: seen.update({name: rows}))
        tower(images)
    weights = [p.name for p in checkpoint.parameters if p.role in {"linear", "conv", "projection", "norm_scale"}]
    assert sorted(seen) == sorted(weights)
    at, read = "visual.transformer.resblocks.1.", checkpoint.read
    fc = seen[at + "mlp.c_fc.weight"] @ read(at + "mlp.c_fc.weight").T + read(at + "mlp.c_fc.bias")
    ln = seen[at + "ln_1.weight"] * read(at + "ln_1.weight") + read(at + "ln_1.bias")
    assert torch.allclose(fc, hidden["fc"].reshape(fc.shape), atol=1e-5)
    assert torch.allclose(ln, hidden["ln"].reshape(ln.shape), atol=1e-5)


def test_a_checkpoint_without_tower_says_so():
    checkpoint = MappingCheckpoint({"visual.ln_post.weight": torch.ones(4)}, "half")
    with pytest.raises(CheckpointError, match="half is not a visual tower"):
        Architecture.of(checkpoint)


def test_without_metadata_the_heads_are_not_guessed(tower):
    """Width 24 could have any number of heads; a wrong guess would give wrong features without an error."""
    known = _checkpoint(tower)
    bare = MappingCheckpoint({name: known.read(name) for name in known.infos}, "bare")
    with pytest.raises(CheckpointError, match="how many heads a tower of width 24 has"):
        Architecture.of(bare)
    assert Architecture.of(bare, like=known) == Architecture.of(known)
