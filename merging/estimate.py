"""What a run will cost before it starts: time, memory, bytes read. Learns this machine's speed from its own runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from merging.encoder import Architecture
from merging.errors import CheckpointError
from merging.families import Role
from merging.runs import THIS_MACHINE, Run
from merging.sources import Opened
from merging.stream import BLOCK_CPU
from merging.tasks import SPLITS, Benchmark

READING, MERGING, EVALUATING = "reading", "merging", "evaluating"
PHASES = (READING, MERGING, EVALUATING)
# Work per second of one slow core, until this machine has runs of its own to learn from.
SPEED = {READING: 5e8, MERGING: 5e7, EVALUATING: 2e10}
WHOLE_TENSORS = 0.1  # methods that need whole tensors factorize them, at about a tenth of that speed
COPIES = 4  # stacks of task vectors alive at once: the read one, an edited one, two in the middle of a formula
ENOUGH = 5  # runs to learn from


@dataclass(frozen=True, slots=True)
class Estimate:
    """``seconds`` in all and by phase, ``anonymous_bytes`` of memory, ``reads_bytes`` from files.

    ``work`` is what the time is proportional to: bytes read, scalars merged, multiply-adds of the tower.
    """

    seconds: float
    anonymous_bytes: int
    reads_bytes: int
    phases: Mapping[str, float]
    work: Mapping[str, float]


def estimate(opened: Opened, benchmark: Benchmark | None = None, known: Sequence[Run] = ()) -> Estimate:
    """The cost of running a recipe; ``known`` are stored runs, of which this machine's own give its speed."""
    merged = [p for p in opened.pretrained.parameters if p.role != Role.BUFFER]
    numels = [opened.pretrained.infos[p.name].numel for p in merged]
    passes, pieces = _passes(opened), _in_pieces(opened)
    work = {
        READING: float(opened.unread),
        MERGING: float(sum(numels) * ((len(opened.experts) + 1) * passes + _more_models(opened))),
        EVALUATING: _evaluation_work(opened, benchmark),
    }
    chain = tuple(step.key for step in opened.recipe.steps)
    phases = {phase: work[phase] / _speed(phase, chain, known, pieces) for phase in PHASES}
    largest = min(max(numels, default=0), 4 * BLOCK_CPU) if pieces else max(numels, default=0)
    itemsize = 8 if any(i.dtype == torch.float64 for i in opened.pretrained.infos.values()) else 4
    memory = largest * (len(opened.experts) + 1) * itemsize * COPIES
    if benchmark is not None:
        memory = max(memory, 2 * sum(numels) * 4)  # the tower in float32, while the stored one is read
    return Estimate(sum(phases.values()), memory, opened.unread + opened.nbytes * passes, phases, work)


def _passes(opened: Opened) -> int:
    pairs = zip(opened.recipe.methods, opened.recipe.steps, strict=True)
    return 1 + sum(method.survey_passes for method, step in pairs if method.surveys(step.params))


def _more_models(opened: Opened) -> int:
    """Models that are written beyond the one that every merge gives."""
    return len(opened.experts) - 1 if opened.recipe.per_task else 0


def _in_pieces(opened: Opened) -> bool:
    pairs = zip(opened.recipe.methods, opened.recipe.steps, strict=True)
    return all(method.elementwise(step.params) for method, step in pairs)


def _evaluation_work(opened: Opened, benchmark: Benchmark | None) -> float:
    """Multiply-adds of the tower over all images, about: weights × tokens × images.

    With one model per task, tasks in domain see their own model, the others see all of them.
    """
    if benchmark is None:
        return 0.0
    try:
        tower = Architecture.of(opened.pretrained)
    except CheckpointError:
        return 0.0
    tokens = (tower.image_size // tower.patch_size) ** 2 + 1
    outside = 1 + _more_models(opened)
    models = {task.key: 1 if task.key in opened.experts else outside for task in benchmark.tasks}
    images = sum(models[key] * benchmark.count(key, split) for key in models for split in SPLITS)
    return 12.0 * tower.layers * tower.width**2 * tokens * images


def _speed(phase: str, chain: tuple[str, ...], known: Sequence[Run], pieces: bool) -> float:
    """Work per second: the median of the latest own runs (of the same chain, where the method matters)."""
    own = [run for run in known if run.provenance == THIS_MACHINE and (phase != MERGING or run.chain == chain)]
    rates = [run.work[phase] / run.seconds[phase] for run in own if run.work.get(phase) and run.seconds.get(phase)]
    if rates:
        return statistics.median(rates[:ENOUGH])
    return SPEED[phase] * (1.0 if pieces or phase != MERGING else WHOLE_TENSORS)
