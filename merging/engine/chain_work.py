"""The work of a chain, in units that no machine changes: passes over tensors, bytes, operations, passes of towers.

A chain is edits and a merge; an adapt, which adds modules to the merged model, may follow. A survey is a pass over all
tensors for the statistics of one method.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from merging.base.errors import CheckpointError
from merging.base.numerics.flops import LinearMap, core_projection, symmetric_product
from merging.engine.learning.learning_work import FORWARD_AND_BACKWARD, learning_work
from merging.engine.run_inputs import sum_of_ranks
from merging.methods.method import Edit, Merge, Needs
from merging.methods.slot import Gradients
from merging.methods.split_qkv import find_packed_tensors, is_split
from merging.models.architecture import Architecture
from merging.models.checkpoint import Checkpoint
from merging.models.families import EMBEDDINGS, LINEAR_MAPS, UNMERGED, Role
from merging.models.tower_names import is_transposed

if TYPE_CHECKING:
    from merging.methods.method import Method
    from merging.methods.params import Params
    from merging.recipes.recipe import Recipe


@dataclass(frozen=True, slots=True)
class ChainWork:
    """The work of a chain on the pretrained model and ``experts`` with ``scalars`` merged scalars each.

    ``passes`` counts passes over the tensors of all models, including the pass that merges. ``reads`` and ``writes``
    are bytes of tensors; tensors that an edit drops are counted although they are not read. ``matrix_flops`` estimates
    the operations of the methods' products and decompositions, with the exemplars' Gram matrices (see
    ``base.numerics.flops``). ``exemplars`` counts the images of all tasks, ``forward`` and ``backward`` the passes of
    one image through a tower. ``tower_flops`` are the operations of these passes: about two per weight and token in a
    forward pass, and twice as many in a backward pass.
    """

    experts: int
    scalars: int
    passes: int
    reads: int
    writes: int
    matrix_flops: float
    exemplars: int = 0
    forward: int = 0
    backward: int = 0
    tower_flops: float = 0.0


def chain_work(
    recipe: Recipe, pretrained: Checkpoint, experts: Mapping[str, Checkpoint], test_images: Sequence[int] = ()
) -> ChainWork:
    """The work of merging these checkpoints by a recipe, without its adapt and without evaluation.

    ``test_images`` are the numbers of unlabeled images by task, if they are known.
    """
    models, passes = (pretrained, *experts.values()), count_passes(recipe)
    merged = [p.name for p in pretrained.parameters if p.role not in UNMERGED]
    written = len(experts) if recipe.per_task else 1  # models
    captures, through_merged = count_input_passes(recipe), _uses_merged_inputs(recipe)
    gradient_kinds = {method.gradients for method, _ in recipe.data_methods if method.gradients}
    exemplar_count = recipe.exemplars.per_task * len(experts) if recipe.exemplars else 0
    learning = learning_work(recipe, len(experts), test_images)
    tower = find_tower(pretrained) if exemplar_count or learning.images else None
    pass_flops = forward_flops(tower) if tower else 0.0  # of one image
    gram_methods = [method for method, _ in _layer_input_methods(recipe)] + [recipe.methods[-1]] * through_merged
    gram_flops = 0.0
    if tower:
        gram_flops = sum(exemplar_count * _gram_flops(pretrained, method.algebra_on) for method in gram_methods)
    # An expert that lacks a tensor is refused later, with a better message than a KeyError.
    pretrained_bytes, *expert_bytes = model_bytes = [
        sum(model.infos[name].nbytes for name in merged if name in model.infos) for model in models
    ]
    tower_bytes = captures * sum(expert_bytes)
    if through_merged:  # every expert's section after the embeddings is read once more
        sections = [p.name for p in pretrained.parameters if p.role not in UNMERGED and p.section != EMBEDDINGS]
        tower_bytes += sum(
            expert.infos[name].nbytes for expert in experts.values() for name in sections if name in expert.infos
        )
    for kind in gradient_kinds:
        tower_bytes += pretrained_bytes if kind == Gradients.SENSITIVITY else sum(expert_bytes)
    tower_bytes += round(learning.models * sum(model_bytes) / len(model_bytes))
    forward_only = (captures + 2 * through_merged) * exemplar_count  # 2: an expert's section, then the merged section
    both_ways = len(gradient_kinds) * exemplar_count + learning.images
    return ChainWork(
        experts=len(experts),
        scalars=sum(pretrained.infos[name].numel for name in merged),
        passes=passes,
        reads=passes * sum(model_bytes) + tower_bytes,
        writes=written * sum(info.nbytes for info in pretrained.infos.values()),
        matrix_flops=_count_flops(recipe, pretrained, experts) + gram_flops,
        exemplars=exemplar_count,
        forward=forward_only + both_ways,
        backward=both_ways,
        tower_flops=(forward_only + FORWARD_AND_BACKWARD * both_ways) * pass_flops,
    )


def list_separable_tensors(recipe: Recipe, pretrained: Checkpoint, tasks: int) -> list[str]:
    """The tensors that a chain decomposes, each of which can be computed alone on any machine; the largest first.

    There are none if a method needs images, counts over all tensors, or gives one model per task.
    """
    pairs = [(method, step.params) for method, step in zip(recipe.methods, recipe.steps, strict=True)]
    merge = recipe.methods[-1]
    assert isinstance(merge, Merge)
    in_pieces = all(method.is_elementwise(params) for method, params in pairs)
    needs_data = any(method.needs_for(params) != Needs.NOTHING for method, params in pairs)
    if in_pieces or needs_data or recipe.per_task or merge.run_before_count is not None or merge.through_merged:
        return []
    roles = frozenset[Role]()
    for method, params in pairs:
        if any(method.algebra(params, matrix) for matrix in list_linear_maps(pretrained, tasks, method.algebra_on)):
            roles |= method.algebra_on
    names = [parameter.name for parameter in pretrained.parameters if parameter.role in roles]
    return sorted(names, key=lambda name: -pretrained.infos[name].nbytes)


def count_passes(recipe: Recipe) -> int:
    """The number of passes of a chain over all tensors: those of its surveys, and the pass that merges."""
    pairs = zip(recipe.methods, recipe.steps, strict=True)
    surveys = sum(method.survey_passes for method, step in pairs if method.surveys(step.params))
    return 1 + surveys + _needs_count_pass(recipe)


def _needs_count_pass(recipe: Recipe) -> bool:
    """Whether the merge counts over all tensors, as TIES counts signs, and sees them whole: it takes another pass."""
    merge = recipe.methods[-1]
    merge_counts = isinstance(merge, Merge) and merge.run_before_count is not None
    pairs = zip(recipe.methods, recipe.steps, strict=True)
    return merge_counts and not all(method.is_elementwise(step.params) for method, step in pairs)


def count_input_passes(recipe: Recipe) -> int:
    """How often exemplars run through the experts for layer inputs: in surveys, and in the pass that merges."""
    readers = _layer_input_methods(recipe)
    surveys = sum(method.surveys(params) for method, params in readers)
    return surveys + (surveys < len(readers))  # methods without a survey read in the pass that merges


def _uses_merged_inputs(recipe: Recipe) -> bool:
    """Whether exemplars run through every layer once it is merged."""
    return any(isinstance(method, Merge) and method.through_merged for method in recipe.methods)


def _layer_input_methods(recipe: Recipe) -> list[tuple[Method, Params]]:
    """The methods of the chain that read layer inputs, with their parameters."""
    pairs = [(method, step.params) for method, step in zip(recipe.methods, recipe.steps, strict=True)]
    return [
        (method, params)
        for method, params in pairs
        if method.needs_for(params) != Needs.NOTHING and method.reads_layer_inputs
    ]


def _count_flops(recipe: Recipe, pretrained: Checkpoint, experts: Mapping[str, Checkpoint]) -> float:
    """Floating-point operations of the methods' products and decompositions."""
    per_task = recipe.exemplars.per_task if recipe.exemplars else None
    total = 0.0
    for method, step in zip(recipe.methods, recipe.steps, strict=True):
        split = is_split(step.params)
        ranks = sum_thin_ranks(recipe, pretrained, experts) if method.role == "merge" else {}
        for name, matrix in _named_maps(pretrained, len(experts), method.algebra_on, images=per_task, split_qkv=split):
            rank = int(min(ranks.get(name, math.inf), matrix.short))
            is_thin = rank < matrix.short
            total += core_projection(matrix, rank) if is_thin else 0.0
            decomposed = matrix._replace(outputs=rank, inputs=rank) if is_thin else matrix
            total += method.algebra(step.params, decomposed)
    return total


def sum_thin_ranks(recipe: Recipe, pretrained: Checkpoint, experts: Mapping[str, Checkpoint]) -> dict[str, float]:
    """{tensor: the sum of its factors' ranks over the experts}, for tensors that a merge takes as low-rank factors.

    Empty if an edit comes before the merge, because edited task vectors have full rank.
    """
    pairs = zip(recipe.methods, recipe.steps, strict=True)
    has_edits = any(isinstance(method, Edit) and not method.after_merge(step.params) for method, step in pairs)
    merge = recipe.methods[-1]
    if has_edits or not (isinstance(merge, Merge) and merge.in_factors):
        return {}
    return {p.name: sum_of_ranks(p, pretrained, experts) for p in pretrained.parameters if p.role == Role.LINEAR}


def _gram_flops(pretrained: Checkpoint, roles: frozenset[Role]) -> float:
    """Floating-point operations, per image, of the Gram matrices of the rows that enter tensors of these roles."""
    return sum(
        symmetric_product(matrix.inputs, matrix.rows) for matrix in list_linear_maps(pretrained, 1, roles, images=1)
    )


def list_linear_maps(
    pretrained: Checkpoint,
    tasks: int,
    roles: frozenset[Role] = LINEAR_MAPS,
    block: int | None = None,
    images: int | None = None,
    split_qkv: bool = False,
) -> list[LinearMap]:
    """The tensors of these roles as linear maps, of the whole model or of one ``block``.

    Each map has the numbers of tasks and images. With ``split_qkv``, query, key and value of a packed tensor are three
    maps.
    """
    return [matrix for _, matrix in _named_maps(pretrained, tasks, roles, block, images, split_qkv)]


def _named_maps(
    pretrained: Checkpoint,
    tasks: int,
    roles: frozenset[Role],
    block: int | None = None,
    images: int | None = None,
    split_qkv: bool = False,
) -> list[tuple[str, LinearMap]]:
    """The maps of ``list_linear_maps``, each with the name of its tensor."""
    maps, tower = [], find_tower(pretrained) if images is not None else None
    tokens = count_tokens(tower) if tower else math.inf
    rows = {Role.CONV: tokens - 1, Role.PROJECTION: 1}  # per image, where they differ from the number of tokens
    packed = find_packed_tensors(pretrained.parameters, pretrained.infos) if split_qkv else {}
    for parameter in pretrained.parameters:
        if parameter.role in roles and block in (None, parameter.block):
            outputs, *input_sides = pretrained.infos[parameter.name].shape
            count = len(packed[parameter.name].parts) if parameter.name in packed else 1
            sides = outputs // count, math.prod(input_sides)
            transposed = is_transposed(parameter)
            row_count = (images or 1) * rows.get(parameter.role, tokens) if tower else math.inf  # infinite: unknown
            matrix = LinearMap(tasks, *(sides[::-1] if transposed else sides), row_count)
            maps += [(parameter.name, matrix)] * count
    return maps


def find_tower(pretrained: Checkpoint) -> Architecture | None:
    """The architecture of the pretrained model; None for a state dict that is not a visual tower."""
    try:
        return Architecture.from_checkpoint(pretrained)
    except CheckpointError:
        return None


def count_tokens(tower: Architecture) -> int:
    """The number of tokens of one image: its patches and the class token."""
    return (tower.image_size // tower.patch_size) ** 2 + 1


def forward_flops(tower: Architecture) -> float:
    """Floating-point operations of the tower for one image: two per token and weight of its blocks."""
    return 2 * 12.0 * tower.layers * tower.width**2 * count_tokens(tower)  # a block has 12 width² weights
