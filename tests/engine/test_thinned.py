"""A thinned stream: every so-many-th scalar of all tensors, whether edits come before or not."""

from __future__ import annotations

import pytest
import tiny
import torch

from merging.base.progress import Meter
from merging.engine import run_inputs as inputs_module
from merging.engine.run_inputs import RunInputs
from merging.engine.stream import Stage, Stream
from merging.methods import registry
from merging.methods.method import Edit
from merging.models.checkpoint import MappingCheckpoint


def stream(in_pieces: bool, *edits: str) -> Stream:
    base, experts = tiny.family(("a", "b"))
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    inputs = RunInputs(MappingCheckpoint(base, "pretrained"), opened, None, torch.device("cpu"))
    stages = []
    for key in edits:
        method = registry.find_method("edit", key)
        assert isinstance(method, Edit)
        stages.append(Stage(method, method.params()))
    return Stream(inputs, tuple(stages), in_pieces, Meter(inputs.work), "Sampling")


@pytest.mark.parametrize(("in_pieces", "edits"), [(True, ()), (False, ()), (False, ("dare",))])
@pytest.mark.parametrize("stride", [1, 7])
def test_it_gives_every_seventh_scalar(
    in_pieces: bool, edits: tuple[str, ...], stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs_module, "BLOCK_CPU", 1000)
    monkeypatch.setattr(inputs_module, "PIECE_CPU", 300)
    slots = stream(in_pieces, *edits)
    whole = torch.cat([slot.task_vectors.flatten(1).clone() for slot in slots], dim=1)
    base = torch.cat([slot.pretrained.flatten() for slot in slots])
    chosen = [(slot.pretrained.clone(), slot.task_vectors.clone()) for slot in slots.sample_slots(stride)]
    assert torch.equal(torch.cat([vectors for _, vectors in chosen], dim=1), whole[:, ::stride])
    assert torch.equal(torch.cat([values for values, _ in chosen]), base[::stride])
    assert slots.meter.done == 3 * slots.inputs.work


@pytest.mark.parametrize(("stride", "length"), [(1, 5), (7, 1), (7, 5)])
def test_of_edited_pieces_it_gives_every_seventh_run(stride: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs end with their tensor; the edit of each is that of the whole tensor."""
    monkeypatch.setattr(inputs_module, "MAX_RUN_LENGTH", length)
    monkeypatch.setattr(inputs_module, "MIN_RUNS", 1)
    slots = stream(True, "dare")
    names = [(slot.name, slot.start + place) for slot in slots for place in range(slot.pretrained.numel())]
    numbers = {name: number for number, name in enumerate(names)}
    whole = torch.cat([slot.task_vectors.clone() for slot in slots], dim=1)
    seen = []
    for slot in slots.sample_slots(stride):
        places = [(slot.name, slot.start + place) for place in range(slot.pretrained.numel())]
        first = numbers[places[0]]
        assert names[first : first + len(places)] == places and first % (stride * length) == 0
        assert torch.equal(slot.task_vectors, whole[:, first : first + len(places)])
        seen.append(first)
    assert seen == list(range(0, len(names), stride * length)) and slots.meter.done == 3 * slots.inputs.work
