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


def test_with_a_long_stride_it_reads_the_first_quarter_of_full_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """There one in 67 scalars of the quarter stands for one in 269 of the block; shorter blocks are read whole."""
    block, stride, spans = 500, 269, []
    monkeypatch.setattr(inputs_module, "BLOCK_CPU", block)
    slots = stream(True)
    whole = {slot.name: slot.task_vectors.clone() for slot in stream(False)}
    read = MappingCheckpoint.read_flat

    def note(checkpoint: MappingCheckpoint, name: str, start: int, stop: int) -> torch.Tensor:
        spans.append((name, start, stop))
        return read(checkpoint, name, start, stop)

    monkeypatch.setattr(MappingCheckpoint, "read_flat", note)
    seen = 0
    for slot in slots.sample_slots(stride):
        known = {tuple(column) for column in whole[slot.name].flatten(1).T.tolist()}
        assert known.issuperset(tuple(column) for column in slot.task_vectors.T.tolist())
        seen += slot.task_vectors.shape[1]
    numels = {name: vectors[0].numel() for name, vectors in whole.items()}
    assert {stop - start for name, start, stop in spans if start + block <= numels[name]} == {block // 4}
    assert 0.5 < seen / (sum(numels.values()) / stride) < 2 and slots.meter.done == slots.inputs.work


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
