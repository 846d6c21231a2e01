"""What a run will cost before it starts: time, memory, bytes read. Learns this machine's speed from its own runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from merging.benchmarks.benchmark import SPLITS, Benchmark
from merging.checkpoints.architecture import Architecture
from merging.checkpoints.families import LINEAR_MAPS, Role
from merging.checkpoints.tower_names import transposed
from merging.engine.inputs import BLOCK_CPU
from merging.errors import CheckpointError
from merging.numerics.flops import LinearMap
from merging.runs.inputs import OpenedRecipe
from merging.runs.run import THIS_MACHINE, Run

READING, MERGING, EVALUATING = "reading", "merging", "evaluating"
PHASES = (READING, MERGING, EVALUATING)
# Work per second of one slow core, until this machine has runs of its own to learn from.
SPEED = {READING: 5e8, MERGING: 2e10, EVALUATING: 2e10}
PER_SCALAR = 150  # multiply-adds that take as long as handling one scalar once
GRADIENT = 4  # forward passes that take as long as one image's own gradient
COPIES = 4  # stacks of task vectors in memory at once: the one read, an edited one, two inside a formula
ENOUGH = 5  # runs to learn from


@dataclass(frozen=True, slots=True)
class Estimate:
    """``seconds`` in all and by phase, ``anonymous_bytes`` of memory, ``reads_bytes`` from files.

    ``work`` is what the time is proportional to: bytes read, multiply-adds of the merge, multiply-adds of the tower.
    """

    seconds: float
    anonymous_bytes: int
    reads_bytes: int
    phases: Mapping[str, float]
    work: Mapping[str, float]


def estimate(opened: OpenedRecipe, benchmark: Benchmark | None = None, runs: Sequence[Run] = ()) -> Estimate:
    """The cost of running a recipe; the runs of this machine among ``runs`` give its speed."""
    merged = [p for p in opened.pretrained.parameters if p.role != Role.BUFFER]
    numels = [opened.pretrained.infos[p.name].numel for p in merged]
    passes, pieces = _passes(opened), _in_pieces(opened)
    work = {
        READING: float(opened.unread),
        MERGING: PER_SCALAR * float(sum(numels) * ((len(opened.experts) + 1) * passes + _more_models(opened)))
        + _algebra(opened)
        + _exemplar_work(opened),
        EVALUATING: _evaluation_work(opened, benchmark),
    }
    chain = tuple(step.key for step in opened.recipe.steps)
    phases = {phase: work[phase] / _speed(phase, chain, runs) for phase in PHASES}
    largest = min(max(numels, default=0), 4 * BLOCK_CPU) if pieces else max(numels, default=0)
    itemsize = 8 if any(i.dtype == torch.float64 for i in opened.pretrained.infos.values()) else 4
    memory = largest * (len(opened.experts) + 1) * itemsize * COPIES
    memory += _algebra_bytes(opened) + _exemplar_bytes(opened)
    if benchmark is not None:
        memory = max(memory, 2 * sum(numels) * 4)  # the tower in float32, while the stored one is read
    return Estimate(sum(phases.values()), memory, opened.unread + opened.nbytes * passes, phases, work)


def _passes(opened: OpenedRecipe) -> int:
    pairs = zip(opened.recipe.methods, opened.recipe.steps, strict=True)
    return 1 + sum(method.survey_passes for method, step in pairs if method.surveys(step.params))


def _more_models(opened: OpenedRecipe) -> int:
    """Models that are written in addition to the one that every merge gives."""
    return len(opened.experts) - 1 if opened.recipe.per_task else 0


def _in_pieces(opened: OpenedRecipe) -> bool:
    pairs = zip(opened.recipe.methods, opened.recipe.steps, strict=True)
    return all(method.elementwise(step.params) for method, step in pairs)


def _linear_maps(opened: OpenedRecipe, block: int | None = None) -> list[LinearMap]:
    """The linear maps of the whole model, or of one block."""
    maps = []
    for parameter in opened.pretrained.parameters:
        if parameter.role in LINEAR_MAPS and block in (None, parameter.block):
            outputs, *rest = opened.pretrained.infos[parameter.name].shape
            sides = outputs, math.prod(rest)
            turned = parameter.role == Role.PROJECTION and transposed(parameter.name)
            maps.append(LinearMap(len(opened.experts), *(sides[::-1] if turned else sides)))
    return maps


def _algebra(opened: OpenedRecipe) -> float:
    """Multiply-adds of the methods' linear algebra."""
    pairs = list(zip(opened.recipe.methods, opened.recipe.steps, strict=True))
    return sum(method.algebra(step.params, matrix) for matrix in _linear_maps(opened) for method, step in pairs)


def _algebra_bytes(opened: OpenedRecipe) -> int:
    """Memory for decomposing the largest matrix in float64."""
    if not _algebra(opened):
        return 0
    return 8 * COPIES * max(max(matrix.outputs, matrix.inputs) ** 2 for matrix in _linear_maps(opened))


def _exemplar_work(opened: OpenedRecipe) -> float:
    """Multiply-adds of passing exemplars through every expert, and of the statistics collected on the way."""
    tower = _tower(opened)
    if opened.recipe.exemplars is None or tower is None:
        return 0.0
    images, methods = opened.recipe.exemplars.per_task * len(opened.experts), opened.recipe.data_methods
    work = sum(GRADIENT * images * _forward(tower) for method, _ in methods if method.gradients)
    if any(method.gradients is None for method, _ in methods):
        grams = sum(matrix.inputs**2 for matrix in _linear_maps(opened))
        work += images * (_forward(tower) + _tokens(tower) * grams / 2)
    return float(work)


def _exemplar_bytes(opened: OpenedRecipe) -> int:
    """Memory for the exemplars of all tasks: images, their tokens and what enters a block; or a model's gradients."""
    tower = _tower(opened)
    if opened.recipe.exemplars is None or tower is None:
        return 0
    images, rows = opened.recipe.exemplars.per_task, opened.recipe.exemplars.per_task * _tokens(tower)
    each = 3 * images * tower.image_size**2
    held = 0
    for method, _ in opened.recipe.data_methods:
        if method.gradients:  # one expert's at a time: its weights, their gradients, and sums of those in float64
            held = max(held, 4 * sum(opened.pretrained.infos[p.name].numel for p in opened.pretrained.parameters))
        else:  # rows, or their Gram matrix in float64 where that is smaller
            entering = sum(min(rows * matrix.inputs, 2 * matrix.inputs**2) for matrix in _linear_maps(opened, block=0))
            held = max(held, len(opened.experts) * (rows * tower.width + entering))
    return 4 * (len(opened.experts) * each + held)


def _tower(opened: OpenedRecipe) -> Architecture | None:
    """The architecture of the pretrained model, None for a state dict that is no visual tower."""
    try:
        return Architecture.of(opened.pretrained)
    except CheckpointError:
        return None


def _tokens(tower: Architecture) -> int:
    return (tower.image_size // tower.patch_size) ** 2 + 1


def _forward(tower: Architecture) -> float:
    """Multiply-adds of the tower for one image, about weights × tokens."""
    return 12.0 * tower.layers * tower.width**2 * _tokens(tower)


def _evaluation_work(opened: OpenedRecipe, benchmark: Benchmark | None) -> float:
    """Multiply-adds of the tower over all images.

    With one model per task, tasks in domain are evaluated on their own model, the others on all models.
    """
    tower = _tower(opened)
    if benchmark is None or tower is None:
        return 0.0
    outside = 1 + _more_models(opened)
    models = {task.key: 1 if task.key in opened.experts else outside for task in benchmark.tasks}
    images = sum(models[key] * benchmark.count(key, split) for key in models for split in SPLITS)
    return _forward(tower) * images


def _speed(phase: str, chain: tuple[str, ...], runs: Sequence[Run]) -> float:
    """Work per second: the median of the latest own runs (of the same chain, where the method matters)."""
    own = [run for run in runs if run.provenance == THIS_MACHINE and (phase != MERGING or run.chain == chain)]
    rates = [run.work[phase] / run.seconds[phase] for run in own if run.work.get(phase) and run.seconds.get(phase)]
    return statistics.median(rates[:ENOUGH]) if rates else SPEED[phase]
