"""The cost of a run before it starts: time, memory, bytes read. This machine's speed comes from its own runs.

A tensor is merged in pieces if all methods of the chain work scalar by scalar on it, otherwise whole. Exemplars are
labeled training images; methods learn from their layer inputs (forward passes) or gradients (backward passes).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from merging.base.devices import choose_device, describe_device
from merging.base.parallel import peak_bytes
from merging.base.text import first_few, printable, size_text
from merging.base.threads import parallel_pieces, piece_memory
from merging.engine.chain_work import (
    ChainWork,
    chain_work,
    count_tokens,
    find_tower,
    forward_flops,
    list_linear_maps,
    sum_thin_ranks,
)
from merging.engine.run_inputs import BLOCK_CPU, TASK_VECTOR_COPIES, layer_bytes
from merging.images.benchmarks.benchmark import EXEMPLARS, SPLITS, Benchmark
from merging.methods.adapted_network import Sizes
from merging.methods.method import Adapt, Method
from merging.models.families import UNMERGED, Parameter
from merging.recipes.recipe import Exemplars, Recipe
from merging.recipes.step import Step
from merging.study.runs.opened_recipe import OpenedRecipe
from merging.study.runs.run import THIS_MACHINE, Run

READING, MERGING, ADAPTING, EVALUATING = "reading", "merging", "adapting", "evaluating"
PHASES = (READING, MERGING, ADAPTING, EVALUATING)
# Work per second of one slow core, used until this machine has runs of its own.
DEFAULT_SPEEDS = {READING: 5e8, MERGING: 2e10, ADAPTING: 2e10, EVALUATING: 2e10}
SCALAR_WORK = 150  # multiply-adds that take as long as handling one scalar once
MLP_SHARE = 2 / 3  # share of a tower's multiply-adds that its MLPs take
UPDATE_WORK = 8e6  # multiply-adds that take as long as the overhead of an update on features
LEARNING_PASSES = 3  # forward passes that take as long as an image's forward and backward pass in a batch
GRADIENT_PASSES = 4  # forward passes that take as long as one image's own gradient
METHOD_PHASES = (MERGING, ADAPTING)  # phases whose speed depends on the methods
RECENT_RUNS = 5  # whose median is the speed


@dataclass(frozen=True, slots=True)
class Estimate:
    """``seconds`` in all and by phase, ``anonymous_bytes`` of memory that no file backs, ``reads_bytes`` from files.

    ``work`` is proportional to the time of each phase: bytes read, multiply-adds of the merge and of the tower.
    ``is_from_own_runs``: the seconds come from this machine's own runs, not from the assumed speed of a slow core.
    """

    seconds: float
    anonymous_bytes: int
    reads_bytes: int
    phases: Mapping[str, float]
    work: Mapping[str, float]
    is_from_own_runs: bool
    whole: Mapping[str, int] = field(default_factory=dict)  # memory for each tensor that cannot be merged in pieces
    matrices: int = 0  # tensors of a network other than CLIP that are decomposed or multiplied

    def explain_too_large(self, free_bytes: int, recipe: Recipe) -> str:
        """A sentence about the tensors that do not fit into ``free_bytes`` bytes of memory; empty if all do."""
        names = sorted(
            (name for name in self.whole if self.whole[name] > free_bytes), key=lambda name: -self.whole[name]
        )
        if not names:
            return ""
        pairs = zip(recipe.methods, recipe.steps, strict=True)
        methods = first_few(method.title for method, step in pairs if not method.is_elementwise(step.params))
        return (
            f"Memory is too small for tensors that {methods} cannot merge in pieces: {first_few(names)}. "
            f"{printable(names[0])} needs about {size_text(self.whole[names[0]])}; {size_text(free_bytes)} are free. "
            "Free memory, merge fewer experts at once, use a machine with more memory, or choose methods that work "
            "scalar by scalar."
        )


def estimate_run(
    opened: OpenedRecipe,
    benchmark: Benchmark | None = None,
    runs: Sequence[Run] = (),
    device: str = "auto",
    *,
    quiet: bool = False,
) -> Estimate:
    """The cost of running a recipe on a device, whose speed comes from those of ``runs`` that were computed on it.

    ``quiet``: the time on an idle machine, from its fastest runs, since slower runs may have shared the machine.
    """
    torch_device = choose_device(device)
    device_name = describe_device(torch_device)
    runs = [run for run in runs if run.device == device_name]
    merged = [p for p in opened.pretrained.parameters if p.role not in UNMERGED]
    numels = [opened.pretrained.infos[p.name].numel for p in merged]
    chain = chain_work(opened.recipe, opened.pretrained, opened.experts)
    stages = opened.recipe.stages
    work = {
        READING: float(opened.unread_bytes),
        MERGING: SCALAR_WORK
        * float(sum(numels) * ((len(opened.experts) + 1) * chain.passes + _count_extra_models(opened)))
        + chain.matrix_flops / 2
        + _exemplar_work(opened, chain)
        + _learning_work(opened, benchmark, [stage for stage in stages if not isinstance(stage[0], Adapt)]),
        ADAPTING: _learning_work(opened, benchmark, [stage for stage in stages if isinstance(stage[0], Adapt)]),
        EVALUATING: _evaluation_work(opened, benchmark),
    }
    keys = tuple(step.key for _, step in stages)
    speeds = {phase: _find_speed(phase, keys, runs, quiet) for phase in PHASES}
    phases = {phase: work[phase] / (speeds[phase] or DEFAULT_SPEEDS[phase]) for phase in PHASES}
    from_own_runs = all(speeds[phase] for phase in (MERGING, ADAPTING, EVALUATING) if work[phase])
    itemsize = 8 if any(i.dtype == torch.float64 for i in opened.pretrained.infos.values()) else 4
    whole_tensor_bytes: dict[str, int] = {}
    if _is_elementwise(opened):
        memory = _piece_bytes(opened, max(numels, default=0), itemsize)
    else:
        pieces, whole_tensor_bytes = _layer_sizes(opened, chain, merged, itemsize)
        memory = peak_bytes([*whole_tensor_bytes.values(), pieces], parallel_pieces(torch_device), piece_memory())
    memory += _exemplar_bytes(opened)
    if benchmark is not None:
        memory = max(memory, 2 * sum(numels) * 4)  # the tower in float32, while the stored one is read
    reads = opened.unread_bytes + opened.nbytes * chain.passes
    matrices = _count_matrices(opened) if opened.pretrained.is_inferred else 0
    return Estimate(sum(phases.values()), memory, reads, phases, work, from_own_runs, whole_tensor_bytes, matrices)


def tensor_bytes(opened: OpenedRecipe, names: Collection[str]) -> int:
    """Bytes of memory for merging the largest of these whole tensors, alone."""
    chain = chain_work(opened.recipe, opened.pretrained, opened.experts)
    merged = [p for p in opened.pretrained.parameters if p.name in names]
    itemsize = 8 if any(i.dtype == torch.float64 for i in opened.pretrained.infos.values()) else 4
    pieces, whole_tensor_bytes = _layer_sizes(opened, chain, merged, itemsize)
    return max(pieces, *whole_tensor_bytes.values())


def in_memory_bytes(opened: OpenedRecipe, device: str = "auto") -> int:
    """Bytes of memory for a merge that is not written to a file, including the merged weights."""
    models = len(opened.experts) if opened.recipe.per_task else 1
    weights = models * sum(info.nbytes for info in opened.pretrained.infos.values())
    return estimate_run(opened, device=device).anonymous_bytes + weights


def _count_extra_models(opened: OpenedRecipe) -> int:
    """The number of models beyond the first one, if the merge gives one model per expert."""
    return len(opened.experts) - 1 if opened.recipe.per_task else 0


def _is_elementwise(opened: OpenedRecipe) -> bool:
    pairs = zip(opened.recipe.methods, opened.recipe.steps, strict=True)
    return all(method.is_elementwise(step.params) for method, step in pairs)


def _count_matrices(opened: OpenedRecipe) -> int:
    """The number of tensors that the methods of a recipe decompose, or multiply as matrices."""
    pairs = [(method, step.params) for method, step in zip(opened.recipe.methods, opened.recipe.steps, strict=True)]
    return max(
        sum(method.algebra(params, matrix) > 0 for matrix in list_linear_maps(opened.pretrained, 2, method.algebra_on))
        for method, params in pairs
    )


def _layer_sizes(
    opened: OpenedRecipe, chain: ChainWork, merged: Sequence[Parameter], itemsize: int
) -> tuple[int, dict[str, int]]:
    """Bytes of memory for merging in pieces, and {tensor: bytes for merging it whole}."""
    maps, recipe = list_linear_maps(opened.pretrained, tasks=2), opened.recipe  # 2: several tasks
    pairs = [(method, step.params) for method, step in zip(recipe.methods, recipe.steps, strict=True)]
    whole_methods = [(method, params) for method, params in pairs if not method.is_elementwise(params)]
    decomposes = any(method.algebra(params, matrix) for method, params in whole_methods for matrix in maps[:1])
    tower, exemplars = find_tower(opened.pretrained), opened.recipe.exemplars
    captures_inputs = chain.forward > chain.backward  # each backward pass has a forward pass; others capture inputs
    rows = exemplars.per_task * count_tokens(tower) if captures_inputs and tower and exemplars else 0
    infos, count = opened.pretrained.infos, len(opened.experts)
    large_parameters = [p for p in merged if opened.pretrained.is_inferred and infos[p.name].numel > BLOCK_CPU]
    cut_names = {p.name for p in large_parameters if all(method.elementwise(params, p) for method, params in pairs)}
    ranks = sum_thin_ranks(recipe, opened.pretrained, opened.experts)
    sizes = {
        p.name: layer_bytes(p, infos[p.name], count, itemsize, decomposes, rows, ranks.get(p.name, math.inf))
        for p in merged
        if p.name not in cut_names
    }
    return _piece_bytes(opened, max((infos[name].numel for name in cut_names), default=0), itemsize), sizes


def _piece_bytes(opened: OpenedRecipe, numel: int, itemsize: int) -> int:
    """Bytes of memory for tensors that are merged in pieces, the largest of ``numel`` scalars."""
    return min(numel, 4 * BLOCK_CPU) * (len(opened.experts) + 1) * itemsize * TASK_VECTOR_COPIES


def _exemplar_work(opened: OpenedRecipe, chain: ChainWork) -> float:
    """Multiply-adds that take as long as passing exemplars through the towers."""
    tower = find_tower(opened.pretrained)
    if not chain.exemplars or tower is None:
        return 0.0
    return forward_flops(tower) / 2 * (chain.forward - chain.backward + GRADIENT_PASSES * chain.backward)


def learning_images(opened: OpenedRecipe, benchmark: Benchmark | None) -> list[int]:
    """The number of images of each merged task that the chain learns from, in order; exemplars without test data.

    Without a benchmark, and for tasks that it does not have, it is the default number of exemplars.
    """
    recipe, names = opened.recipe, list(opened.experts)
    settings, split = recipe.test_data or recipe.exemplars, recipe.test_data.split if recipe.test_data else EXEMPLARS
    if settings is None:
        return []
    default_count = Exemplars().per_task
    available = [
        default_count if benchmark is None else benchmark.count_images(name, split) or default_count for name in names
    ]
    return [count if settings.per_task is None else min(count, settings.per_task) for count in available]


def _learning_work(opened: OpenedRecipe, benchmark: Benchmark | None, stages: Sequence[tuple[Method, Step]]) -> float:
    """Multiply-adds that take as long as these methods' learning: passes of images forward and backward."""
    tower, images = find_tower(opened.pretrained), learning_images(opened, benchmark)
    if tower is None:
        return 0.0
    passes, updates = 0, 0.0
    sizes = Sizes(len(opened.experts), tower.layers, tower.width, tower.embed_dim)
    for method, step in stages:
        passes += LEARNING_PASSES * method.count_images_processed(step.params, images) if images else 0
        if isinstance(method, Adapt):
            passes += method.feature_passes * sum(images)
            updates += _update_work(method, step, images, sizes)
    return forward_flops(tower) / 2 * passes + updates


def _update_work(method: Adapt, step: Step, images: Sequence[int], sizes: Sizes) -> float:
    """Multiply-adds that take as long as an adapt's updates on features; backward costs twice as much as forward."""
    count, rows = method.updates(step.params, images)
    shapes = method.shapes(step.params, sizes)
    learned = sum(math.prod(shape) for shape in (*shapes.router.values(), *shapes.per_task.values()))
    return UPDATE_WORK * count + 3.0 * rows * learned


def _exemplar_bytes(opened: OpenedRecipe) -> int:
    """Bytes of memory for the exemplars of all tasks: images, their tokens and a block's inputs; or gradients."""
    tower = find_tower(opened.pretrained)
    if opened.recipe.exemplars is None or tower is None:
        return 0
    images, rows = opened.recipe.exemplars.per_task, opened.recipe.exemplars.per_task * count_tokens(tower)
    image_numbers = 3 * images * tower.image_size**2
    max_scalars = 0
    for method, _ in opened.recipe.data_methods:
        if method.gradients:  # one expert's at a time: its weights, their gradients, and sums of those in float64
            max_scalars = max(
                max_scalars, 4 * sum(opened.pretrained.infos[p.name].numel for p in opened.pretrained.parameters)
            )
        else:  # rows, or their Gram matrix in float64 where that is smaller
            input_scalars = sum(
                min(rows * matrix.inputs, 2 * matrix.inputs**2)
                for matrix in list_linear_maps(opened.pretrained, tasks=1, block=0)
            )
            max_scalars = max(max_scalars, len(opened.experts) * (rows * tower.width + input_scalars))
    return 4 * (len(opened.experts) * image_numbers + max_scalars)


def _evaluation_work(opened: OpenedRecipe, benchmark: Benchmark | None) -> float:
    """Multiply-adds of the tower over all images.

    With one model per task, tasks in domain are evaluated on their own model, the others on all models. If an adapt
    predicts an image's task, images in domain run again: once for routing, and once through the chosen model.
    """
    tower = find_tower(opened.pretrained)
    if benchmark is None or tower is None:
        return 0.0
    models_out_of_domain = 1 + _count_extra_models(opened)
    models = {task.key: 1 if task.key in opened.experts else models_out_of_domain for task in benchmark.tasks}
    images = sum(models[key] * benchmark.count_images(key, split) for key in models for split in SPLITS)
    is_routed = opened.recipe.is_routed  # an adapt mixes the experts' weights anew for every image
    passes = 1 + MLP_SHARE * len(opened.experts) if is_routed else 1.0  # the model, and the MLPs of every expert
    return forward_flops(tower) / 2 * (images * passes + _count_unknown_task_images(opened, benchmark) * (1 + passes))


def _count_unknown_task_images(opened: OpenedRecipe, benchmark: Benchmark) -> int:
    """The number of images that are scored again as if their task were unknown, if an adapt predicts it."""
    adapts = [method for method, _ in opened.recipe.stages if isinstance(method, Adapt)]
    if not any(adapt.candidate_tasks for adapt in adapts) or not set(opened.experts) <= {
        task.key for task in benchmark.tasks
    }:
        return 0
    return sum(benchmark.count_images(name, split) for name in opened.experts for split in SPLITS)


def _find_speed(phase: str, chain: tuple[str, ...], runs: Sequence[Run], quiet: bool) -> float | None:
    """Work per second: the median of the latest own runs, with the same chain in ``METHOD_PHASES``; None without runs.

    ``quiet``: the speed of the fastest run.
    """
    own_runs = [
        run
        for run in runs
        if run.provenance == THIS_MACHINE and (phase not in METHOD_PHASES or _stage_keys(run) == chain)
    ]
    rates = [run.work[phase] / run.seconds[phase] for run in own_runs if run.work.get(phase) and run.seconds.get(phase)]
    if not rates:
        return None
    return max(rates) if quiet else statistics.median(rates[:RECENT_RUNS])


def _stage_keys(run: Run) -> tuple[str, ...]:
    """The keys of a run's whole chain, including its adapt."""
    return (*run.chain, run.adapt) if run.adapt else run.chain
