"""A thinned stream: every so-many-th scalar of all tensors, whether edits come before or not."""

from __future__ import annotations

import pytest
import tiny
import torch

from merging.checkpoints.checkpoint import MappingCheckpoint
from merging.engine import inputs as inputs_module
from merging.engine.inputs import Inputs
from merging.engine.stream import Stage, Stream
from merging.methods import registry
from merging.methods.method import Edit
from merging.progress import Meter


def stream(in_pieces: bool, *edits: str) -> Stream:
    base, experts = tiny.family(("a", "b"))
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    inputs = Inputs(MappingCheckpoint(base, "pretrained"), opened, None, torch.device("cpu"))
    stages = []
    for key in edits:
        method = registry.method("edit", key)
        assert isinstance(method, Edit)
        stages.append(Stage(method, method.params()))
    return Stream(inputs, tuple(stages), in_pieces, Meter(inputs.work), "Sampling")


@pytest.mark.parametrize("in_pieces", [True, False])
@pytest.mark.parametrize("edits", [(), ("dare",)])
@pytest.mark.parametrize("stride", [1, 7])
def test_it_gives_every_seventh_scalar(
    edits: tuple[str, ...], in_pieces: bool, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs_module, "BLOCK_CPU", 1000)
    monkeypatch.setattr(inputs_module, "PIECE_CPU", 300)
    slots = stream(in_pieces, *edits)
    whole = torch.cat([slot.task_vectors.flatten(1).clone() for slot in slots], dim=1)
    base = torch.cat([slot.pretrained.flatten() for slot in slots])
    chosen = [(slot.pretrained.clone(), slot.task_vectors.clone()) for slot in slots.thinned(stride)]
    assert torch.equal(torch.cat([vectors for _, vectors in chosen], dim=1), whole[:, ::stride])
    assert torch.equal(torch.cat([values for values, _ in chosen]), base[::stride])
    assert slots.meter.done == 3 * slots.inputs.work
