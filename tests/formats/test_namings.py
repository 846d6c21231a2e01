"""Namings of towers while files are read: spans of packed tensors, and names that are refused."""

from __future__ import annotations

import pytest
import torch
from namings import to_naming
from real_models import add_prefix, save, visual
from safetensors.torch import save_file

from merging.base.errors import CheckpointError
from merging.models.formats.model_sources import open_checkpoint


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
    save(add_prefix(visual(clip), "a.") | add_prefix(visual(clip), "b."), tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match="several visual towers"):
        open_checkpoint(tmp_path / "x.pt")
