"""DRM: decompose all tasks into one space, renormalize their basis vectors, then prune, elect and merge there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.families import Role
from merging.least_squares import as_stored, matrices
from merging.linear_algebra import left_basis
from merging.merges.task_arithmetic import SCALING_HELP
from merging.method import Citation, Merge, Slot, register
from merging.params import Params, choice, flag, fraction, real
from merging.quantile import kth_smallest

# Entries of a task's row that is shorter than this share of its matrix are rounding: renormalized, they would take part
# of the density, and they would count in the mean.
ROUNDING = {torch.float64: 1e-10, torch.float32: 1e-5}
PIECE = 1 << 15  # entries per task


@dataclass(frozen=True, kw_only=True)
class DrmParams(Params):
    """What can be set."""

    direction: str = choice(
        "horizontal",
        "vertical",
        label="Direction",
        help="Share the output space (DRM-H: matrices side by side) or the input space (DRM-V: on top of each other).",
    )
    density: float = fraction(
        0.2, open_low=True, slider=(0.05, 1), symbol=r"\rho", label="Density", help="Share of the largest entries kept."
    )
    scaling: float = real(
        1.0,
        low=0.0,
        high=1000.0,
        slider=(0.5, 2.0),
        step=0.05,
        symbol=r"\lambda",
        label="Scaling coefficient",
        help=SCALING_HELP,
    )
    rank_tol: float = fraction(
        0.01,
        slider=(0.0, 0.1),
        step=0.005,
        symbol=r"\epsilon",
        label="Rank cut",
        help="Directions whose singular value is at most this share of the largest are dropped; 0 drops null ones.",
    )
    renorm: bool = flag(True, label="Renormalize", help="Prune by entries of basis vectors of unit length per task.")
    elect: bool = flag(True, label="Elect signs", help="Drop entries against the sign of their sum over the tasks.")
    disjoint: bool = flag(
        True, label="Disjoint mean", help="Divide by the number of entries that are left, not by that of the tasks."
    )
    pruning: str = choice(
        "joint", "individual", label="Pruning", help="Rank the entries of all tasks together, or of each task alone."
    )


def drm(slot: Slot, params: DrmParams, found: None) -> Tensor:
    """The task vector merged in the joint space, (K, *S) -> (*S); the mean for what is no linear map."""
    if slot.role not in {Role.LINEAR, Role.PROJECTION}:
        return params.scaling * slot.task_vectors.mean(dim=0)
    vertical = params.direction == "vertical"  # the same, of the transposed matrices
    blocks = matrices(slot).mT if vertical else matrices(slot)
    basis = left_basis(blocks, params.rank_tol).to(blocks)
    slot.tick(0.5)
    merged = params.scaling * basis @ _merged(basis.T @ blocks, params)
    return as_stored(merged.T if vertical else merged, slot)


def _merged(entries: Tensor, params: DrmParams) -> Tensor:
    """Tasks in the joint space (K, r, n) pruned, elected and averaged, row by row: (r, n)."""
    units = _units(entries, params.renorm)
    limits = _limits(entries, units, params)
    merged = torch.empty_like(entries[0])
    for rows in _pieces(entries):
        part = entries[:, rows]
        part = part * (part.abs().div_(units[:, rows]) >= limits)
        if params.elect:
            # An exact tie elects nobody: the majority of all signs would hang on the arbitrary sign of each row.
            sign = part.sum(dim=0).sign()
            part = part.mul_(sign).relu_().mul_(sign)
        count = part.sign().abs_().sum(dim=0).clamp_(min=1) if params.disjoint else len(part)
        merged[rows] = part.sum(dim=0) / count
    return merged


def _units(entries: Tensor, renorm: bool) -> Tensor:
    """What entries are measured against before pruning, (K, r, 1): infinity for rows that are only rounding."""
    lengths = entries.norm(dim=-1, keepdim=True)  # renormalization moves them into the singular values
    rounding = lengths <= ROUNDING[entries.dtype] * lengths.norm(dim=1, keepdim=True)
    return torch.where(rounding, torch.inf, lengths if renorm else lengths.norm(dim=0, keepdim=True))


def _limits(entries: Tensor, units: Tensor, params: DrmParams) -> Tensor:
    """The size that an entry must have in its units to be kept, (K or 1, 1, 1); zeros never have it."""
    groups = 1 if params.pruning == "joint" else len(entries)

    def sizes() -> Iterator[Tensor]:
        return (entries[:, rows].abs().div_(units[:, rows]).reshape(groups, -1) for rows in _pieces(entries))

    numel = entries.numel() // groups
    rank = numel - round(params.density * numel) - 1
    limits = entries.new_tensor(kth_smallest(sizes, [rank] * groups) if rank >= 0 else [0.0])
    return limits.clamp(min=torch.finfo(entries.dtype).tiny)[:, None, None]


def _pieces(entries: Tensor) -> Iterator[slice]:
    """Rows whose entries for all tasks fit the processor's cache: everything but the products is done on these."""
    step = max(PIECE // max(entries.shape[2], 1), 1)
    return (slice(start, start + step) for start in range(0, entries.shape[1], step))


register(
    Merge(
        key="drm",
        title="DRM",
        summary="Merges in the space that all tasks' matrices share, with each task's basis vectors renormalized.",
        formula=r"[\Delta_1 \cdots \Delta_K] = U \Sigma V^\top, \quad "
        r"M_k = \mathrm{top}_{\rho}(\tilde V_k^\top) \odot U^\top \Delta_k, \quad "
        r"\theta = \theta_0 + \lambda\, U \sum_{k : M_k \gamma > 0} M_k \,/\, |\{k : M_k \gamma > 0\}|, \quad "
        r"\gamma = \mathrm{sign} \sum_k M_k, \quad \sigma_i > \epsilon\, \sigma_1",
        cite=Citation(
            key="chaichana2025drm",
            authors="Chaichana et al.",
            title="Decom-Renorm-Merge: model merging on the right space improves multitasking",
            venue="arXiv",
            year=2025,
            arxiv="2505.23117",
        ),
        params=DrmParams,
        run=drm,
        variant="Linear weights and the output projection, which is oriented as a linear weight; everything else takes "
        "the mean of the task vectors. The rank cut is the released code's: the paper cuts nothing, and near-null "
        "directions would then take part of the density. round(ρN) + 1 of N entries and ties survive; density 1 keeps "
        "all, still in the joint space. An exactly zero vote drops its entries. Without the disjoint mean, sums are "
        "divided by the number of tasks. Attention's q, k and v are one matrix where the checkpoint packs them; "
        "Hugging Face's separate ones give another result.",
    )
)
