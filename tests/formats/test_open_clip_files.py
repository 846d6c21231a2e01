"""Files of open_clip models, as torch writes them, come in bit for bit."""

from __future__ import annotations

import json
import pickle

import pytest
import torch
from real_models import EMBED, SIZES, add_prefix, save, visual

from merging.models.architecture import Architecture
from merging.models.formats.model_sources import open_checkpoint

TRAINING = {"epoch": 3, "optimizer": {"state": {0: {"step": torch.ones(1)}}}, "args": {"lr": 1e-5}}


class ImageEncoder(torch.nn.Module):
    """As released with task vectors: a CLIP model without its text transformer, under ``model``."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.train_preprocess = [len, torch.nn.GELU()]


def dump(thing, path, protocol=4):
    path.write_bytes(pickle.dumps(thing, protocol))


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
    "trainer": lambda m, p: save(TRAINING | {"state_dict": add_prefix(m.state_dict(), "module.")}, p),
    "trainer with average": lambda m, p: save(
        TRAINING | {"model": m.state_dict(), "model_ema": add_prefix(m.state_dict(), "module.")}, p
    ),
    "image encoder's names": lambda m, p: save(add_prefix(m.state_dict(), "image_encoder.model."), p),
    "classifier": lambda m, p: save(
        add_prefix(m.state_dict(), "image_encoder.model.") | {"classification_head.weight": torch.ones(5, EMBED)}, p
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
    save(add_prefix(clip.visual.state_dict(), "module."), tmp_path / "wrapped.pt")
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
        found = Architecture.from_checkpoint(open_checkpoint(tmp_path))
        assert (found.quick_gelu, found.heads) == (expected, 3)
