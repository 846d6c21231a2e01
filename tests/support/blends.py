"""A merged model to learn on, made of the small family, and the same losses by plain means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import tiny
import torch
from torch import Tensor

from merging.base.progress import Meter
from merging.engine.learning.blend import EngineBlend
from merging.engine.learning.learning_state import LearningState
from merging.engine.run_inputs import RunInputs
from merging.engine.stream import Stage, Stream
from merging.images.exemplars import TaskExemplars
from merging.images.image_encoder import Encoder
from merging.methods.learning import entropies
from merging.models.checkpoint import MappingCheckpoint

State = dict[str, Tensor]


@contextmanager
def open_blend(
    base: State, experts: Mapping[str, State], tasks: Mapping[str, TaskExemplars], edits: tuple[Stage, ...] = ()
) -> Iterator[EngineBlend]:
    """The blend of this family, for as long as the block runs."""
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    inputs = RunInputs(tiny.checkpoint(base), opened, None, torch.device("cpu"))
    meter = Meter(0)
    with ExitStack() as files:
        yield EngineBlend(
            inputs, edits, Stream(inputs, edits, True, meter, ""), tasks, LearningState(), meter, files, 0
        )


def blend_by_hand(base: State, experts: Mapping[str, State], coefficients: Tensor) -> State:
    """The merged model at coefficients (K, L)."""
    return {
        name: value + sum(c * (state[name] - value) for c, state in zip(row, experts.values(), strict=True))
        for (name, value), row in zip(base.items(), coefficients.T.tolist(), strict=True)
    }


def plain_entropy(state: State, tasks: Mapping[str, TaskExemplars]) -> list[float]:
    """Every task's mean entropy over all its images."""
    encoder = Encoder(
        Encoder.from_checkpoint(tiny.checkpoint(state)).architecture,
        {n.removeprefix("visual."): v for n, v in state.items()},
    )
    with torch.no_grad():
        found = [entropies(encoder(t.images.to(torch.float64)), t.head.double(), t.logit_scale) for t in tasks.values()]
    return [float(values.mean()) for values in found]
