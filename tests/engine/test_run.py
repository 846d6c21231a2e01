"""What a call of the engine promises: progress to the end, a cancel within one tensor, a device that is there."""

from __future__ import annotations

import threading

import pytest
import tiny
import torch

import merging
from merging.base.errors import Cancelled, MergingError
from merging.engine import run as engine
from merging.models.families import Role
from merging.recipes.recipe import Recipe


def test_progress_reaches_the_end_and_never_goes_back():
    base, experts = tiny.family()
    seen = []
    merging.merge(base, experts, "ties", edits=["lwptv"], progress=seen.append)
    fractions = [p.fraction for p in seen]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    assert {p.phase for p in seen} >= {"Surveying for LwPTV", "Surveying for TIES", "Merging with TIES"}


def test_cancel_stops_within_one_tensor():
    base, experts = tiny.family()
    stop, seen = threading.Event(), []

    def progress(p):
        seen.append(p.detail)
        if len(seen) == 5:
            stop.set()

    with pytest.raises(Cancelled):
        merging.merge(base, experts, progress=progress, cancel=stop)
    assert len(seen) == 5


def test_an_unknown_device_is_a_sentence():
    base, experts = tiny.family(("a",))
    with pytest.raises(MergingError, match="'cuda:99' is not available"):
        merging.merge(base, experts, device="cuda:99")


def test_only_chosen_tensors_and_buffers_are_written_with_the_numbers_of_the_whole_merge():
    class Noting(dict):
        def write(self, name, values, start=0):
            self.setdefault(name, []).append(values.clone())

    base, tuned = tiny.family()
    pretrained, experts = tiny.checkpoint(base), {name: tiny.checkpoint(state) for name, state in tuned.items()}
    recipe, chosen = Recipe.build("ties"), {"visual.conv1.weight", "visual.transformer.resblocks.1.ln_1.bias"}
    whole = engine.run_recipe(recipe, pretrained, experts).state_dict
    written = Noting()
    engine.run_recipe(recipe, pretrained, experts, make_sink=lambda _: written, only=chosen)
    buffers = {p.name for p in pretrained.parameters if p.role == Role.BUFFER}
    assert set(written) == chosen | buffers
    assert all(torch.equal(torch.cat(written[name]).reshape(whole[name].shape), whole[name]) for name in chosen)
