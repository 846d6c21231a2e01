"""Model Breadcrumbs: drop the outliers and the smallest scalars of each task vector, tensor by tensor."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from merging.base.numerics.quantile import kth_smallest
from merging.methods.factor_rules import FactorRule
from merging.methods.method import Citation, Edit, register
from merging.methods.params import Params, choice, flag, fraction
from merging.methods.shared import expert_factors, fields
from merging.methods.slot import Slot


@dataclass(frozen=True, kw_only=True)
class BreadcrumbsParams(Params):
    """The parameters of Breadcrumbs."""

    density: float = fraction(
        0.9, open_low=True, symbol=r"\rho", label="Density", help="Share of each tensor's scalars that are kept."
    )
    gamma: float = fraction(
        0.01,
        slider=(0.0, 0.1),
        step=0.005,
        symbol=r"\gamma",
        label="Outliers dropped",
        help="Share of each tensor's scalars dropped as outliers, largest first; others are dropped smallest first.",
    )
    split_qkv: bool = fields.split_qkv()
    densities: tuple[FactorRule, ...] = expert_factors.factor_field(
        "Densities", "Factors of the density, by expert and tensor."
    )
    at_least_one: bool = flag(
        False,
        later=True,
        label="At least one",
        help="Keep at least one scalar of every tensor, unless the density is 0.",
    )
    rescale_by: str = choice(
        "none", "l1", later=True, label="Rescale by",
        help="Leave kept scalars as they are, or rescale each tensor to the sum of absolute values that it had.",
    )  # fmt: skip


def _count_kept(numel: int, density: float, params: BreadcrumbsParams) -> int:
    """The number of a tensor's scalars that an expert with this density keeps."""
    count = min(int(numel * density), numel)
    return max(count, 1) if params.at_least_one and density > 0 and numel else count


def _expert_masks(slot: Slot, params: BreadcrumbsParams) -> Tensor | None:
    """The masks (K, *S) of the scalars that each expert keeps; None if all."""
    sizes = slot.task_vectors.abs()
    numel, experts = slot.pretrained.numel(), len(sizes)
    densities = [max(params.density * factor, 0.0) for factor in expert_factors.slot_factors(slot, params.densities)]
    counts = [_count_kept(numel, density, params) for density in densities]
    if set(counts) == {numel}:
        return None
    if set(counts) == {0}:
        return sizes < 0  # false everywhere
    # Ranks of the smallest and the largest scalar that an expert keeps; those of experts without either do not matter.
    low_ranks = [max(numel - count - int(numel * params.gamma), 0) for count in counts]
    high_ranks = [low + max(count, 1) - 1 for low, count in zip(low_ranks, counts, strict=True)]
    limits = sizes.new_tensor(kth_smallest(lambda: [sizes.flatten(1)], low_ranks + high_ranks))
    low, high = limits.reshape(2, experts, *[1] * slot.pretrained.dim())
    masks: Tensor = (sizes >= low) & (sizes <= high)
    for mask, count in zip(masks, counts, strict=True):
        if count in (0, numel):
            mask.fill_(count == numel)
    return masks


def breadcrumbs(slot: Slot, params: BreadcrumbsParams, statistics: None) -> Tensor:
    """Task vectors with their largest and smallest scalars set to zero, (K, *S) -> (K, *S)."""
    masks = _expert_masks(slot, params)
    if masks is None:
        return slot.task_vectors
    kept = slot.task_vectors * masks
    return expert_factors.keep_size(slot.task_vectors, kept) if params.rescale_by == "l1" else kept


def kept_by_any(slot: Slot, params: BreadcrumbsParams, statistics: None) -> Tensor | None:
    """The mask (*S) of the scalars that any expert keeps; None if all."""
    masks = _expert_masks(slot, params)
    return None if masks is None else masks.any(dim=0)


register(
    Edit(
        key="breadcrumbs",
        title="Model Breadcrumbs",
        summary="Drops the largest scalars of each task vector as outliers and the smallest as negligible, tensor by "
        "tensor.",
        formula=r"\tau_k \leftarrow \tau_k \odot [\,q_{1 - \rho - \gamma} \le |\tau_k| \le q_{1 - \gamma}\,]",
        cite=Citation(
            key="davari2024breadcrumbs",
            authors="Davari and Belilovsky",
            title="Model Breadcrumbs: scaling multi-task model merging with sparse masks",
            venue="ECCV",
            year=2024,
            arxiv="2312.06795",
        ),
        params=BreadcrumbsParams,
        run=breadcrumbs,
        kept=kept_by_any,
        content=expert_factors.content_with("densities"),
        variant="Density and gamma as in mergekit: of the d scalars of a tensor, the int(γ·d) largest are dropped, "
        "int(ρ·d) and ties are kept, and the smallest are dropped; where the density leaves no room, fewer outliers "
        "are dropped. The paper's β is 1 - ρ - γ. The authors' code ranks within the last dimension of a tensor, this "
        "one within the tensor. Before task arithmetic it is the paper's method; before TIES with density 1 it is "
        "mergekit's breadcrumbs_ties.",
    )
)
