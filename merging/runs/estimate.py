"""What a run will cost before it starts: time, memory, bytes read. Learns this machine's speed from its own runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from merging.benchmarks.benchmark import SPLITS, Benchmark
from merging.checkpoints.families import Role
from merging.engine.inputs import BLOCK_CPU
from merging.engine.work import ChainWork, chain_work, forward_flops, linear_maps, tokens_of, tower_of
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
    ``learned`` says that the seconds of merging and evaluating come from this machine's own runs; else they are a
    guess for a slow core.
    """

    seconds: float
    anonymous_bytes: int
    reads_bytes: int
    phases: Mapping[str, float]
    work: Mapping[str, float]
    learned: bool


def estimate(opened: OpenedRecipe, benchmark: Benchmark | None = None, runs: Sequence[Run] = ()) -> Estimate:
    """The cost of running a recipe; the runs of this machine among ``runs`` give its speed."""
    merged = [p for p in opened.pretrained.parameters if p.role != Role.BUFFER]
    numels = [opened.pretrained.infos[p.name].numel for p in merged]
    chain, pieces = chain_work(opened.recipe, opened.pretrained, opened.experts), _in_pieces(opened)
    work = {
        READING: float(opened.unread),
        MERGING: PER_SCALAR * float(sum(numels) * ((len(opened.experts) + 1) * chain.passes + _more_models(opened)))
        + chain.matrix_flops / 2
        + _exemplar_work(opened, chain),
        EVALUATING: _evaluation_work(opened, benchmark),
    }
    keys = tuple(step.key for step in opened.recipe.steps)
    speeds = {phase: _speed(phase, keys, runs) for phase in PHASES}
    phases = {phase: work[phase] / (speeds[phase] or SPEED[phase]) for phase in PHASES}
    learned = all(speeds[phase] for phase in (MERGING, EVALUATING) if work[phase])
    largest = min(max(numels, default=0), 4 * BLOCK_CPU) if pieces else max(numels, default=0)
    itemsize = 8 if any(i.dtype == torch.float64 for i in opened.pretrained.infos.values()) else 4
    memory = largest * (len(opened.experts) + 1) * itemsize * COPIES
    memory += _algebra_bytes(opened) + _exemplar_bytes(opened)
    if benchmark is not None:
        memory = max(memory, 2 * sum(numels) * 4)  # the tower in float32, while the stored one is read
    reads = opened.unread + opened.nbytes * chain.passes
    return Estimate(sum(phases.values()), memory, reads, phases, work, learned)


def _more_models(opened: OpenedRecipe) -> int:
    """Models that are written in addition to the one that every merge gives."""
    return len(opened.experts) - 1 if opened.recipe.per_task else 0


def _in_pieces(opened: OpenedRecipe) -> bool:
    pairs = zip(opened.recipe.methods, opened.recipe.steps, strict=True)
    return all(method.elementwise(step.params) for method, step in pairs)


def _algebra_bytes(opened: OpenedRecipe) -> int:
    """Memory for decomposing the largest matrix in float64."""
    maps, pairs = linear_maps(opened.pretrained, 2), zip(opened.recipe.methods, opened.recipe.steps, strict=True)
    whole = [(method, step.params) for method, step in pairs if not method.elementwise(step.params)]
    if not any(method.algebra(params, matrix) for method, params in whole for matrix in maps[:1]):
        return 0
    return 8 * COPIES * max(max(matrix.outputs, matrix.inputs) ** 2 for matrix in maps)


def _exemplar_work(opened: OpenedRecipe, chain: ChainWork) -> float:
    """Multiply-adds that take as long as passing exemplars through the towers."""
    tower = tower_of(opened.pretrained)
    if not chain.exemplars or tower is None:
        return 0.0
    return forward_flops(tower) / 2 * (chain.forward - chain.backward + GRADIENT * chain.backward)


def _exemplar_bytes(opened: OpenedRecipe) -> int:
    """Memory for the exemplars of all tasks: images, their tokens and what enters a block; or a model's gradients."""
    tower = tower_of(opened.pretrained)
    if opened.recipe.exemplars is None or tower is None:
        return 0
    images, rows = opened.recipe.exemplars.per_task, opened.recipe.exemplars.per_task * tokens_of(tower)
    each = 3 * images * tower.image_size**2
    held = 0
    for method, _ in opened.recipe.data_methods:
        if method.gradients:  # one expert's at a time: its weights, their gradients, and sums of those in float64
            held = max(held, 4 * sum(opened.pretrained.infos[p.name].numel for p in opened.pretrained.parameters))
        else:  # rows, or their Gram matrix in float64 where that is smaller
            entering = sum(
                min(rows * matrix.inputs, 2 * matrix.inputs**2) for matrix in linear_maps(opened.pretrained, 1, block=0)
            )
            held = max(held, len(opened.experts) * (rows * tower.width + entering))
    return 4 * (len(opened.experts) * each + held)


def _evaluation_work(opened: OpenedRecipe, benchmark: Benchmark | None) -> float:
    """Multiply-adds of the tower over all images.

    With one model per task, tasks in domain are evaluated on their own model, the others on all models.
    """
    tower = tower_of(opened.pretrained)
    if benchmark is None or tower is None:
        return 0.0
    outside = 1 + _more_models(opened)
    models = {task.key: 1 if task.key in opened.experts else outside for task in benchmark.tasks}
    images = sum(models[key] * benchmark.count(key, split) for key in models for split in SPLITS)
    return forward_flops(tower) / 2 * images


def _speed(phase: str, chain: tuple[str, ...], runs: Sequence[Run]) -> float | None:
    """Work per second: the median of the latest own runs (of the same chain, where the method matters), if any."""
    own = [run for run in runs if run.provenance == THIS_MACHINE and (phase != MERGING or run.chain == chain)]
    rates = [run.work[phase] / run.seconds[phase] for run in own if run.work.get(phase) and run.seconds.get(phase)]
    return statistics.median(rates[:ENOUGH]) if rates else None
