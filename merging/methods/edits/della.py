"""DELLA: drop scalars of each task vector at random, small ones more often than large ones, and rescale the others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics.linear_algebra import to_float64
from merging.methods.method import Citation, EarlierEdits, Edit, register
from merging.methods.params import Params, choice, fraction, real
from merging.methods.shared import expert_factors, fields
from merging.methods.shared.random_masks import sample_at_rates
from merging.methods.slot import Slot


@dataclass(frozen=True, kw_only=True)
class DellaParams(Params):
    """The parameters of DELLA."""

    density: float = fraction(
        0.5, open_low=True, symbol=r"\rho", label="Density", help="Mean probability that a scalar is kept."
    )
    epsilon: float = real(
        0.15, low=0.0, high=0.5, slider=(0.0, 0.5), step=0.01, symbol=r"\epsilon", label="Spread",
        help="How far the probabilities of a row's smallest and largest scalar lie below and above the density.",
    )  # fmt: skip
    rescale_by: str = choice(
        "probability", "l1", "none", label="Rescale by",
        help="Divide each kept scalar by its own probability, which preserves the expectation; give each tensor its "
        "former L1 norm; or do not rescale.",
    )  # fmt: skip
    seed: int = fields.mask_seed()


def keep_probabilities(vectors: Tensor, density: float, epsilon: float) -> Tensor:
    """The probabilities (K, *S), float64, with which scalars of task vectors (K, *S) are kept.

    They rise with a scalar's rank by size in its row, evenly from ``density`` - ``epsilon`` to ``density`` +
    ``epsilon``. Where these leave [0, 1], epsilon is lowered to fit.
    """
    rows = vectors.abs().reshape(len(vectors), len(vectors[0]) if vectors.dim() > 2 else 1, -1)
    length = rows.shape[-1]
    if length < 2:
        return torch.full_like(to_float64(vectors), density)
    ranks = torch.empty_like(rows, dtype=torch.int64)
    order = rows.sort(dim=-1, stable=True).indices
    ranks.scatter_(-1, order, torch.arange(length, device=rows.device).expand_as(order))
    spread = min(epsilon, density, 1 - density)
    probabilities = to_float64(ranks).mul_(2 * spread / (length - 1)).add_(density - spread)
    return probabilities.reshape(vectors.shape)


def della(slot: Slot, params: DellaParams, statistics: None) -> Tensor:
    """Task vectors with scalars dropped at random, by size, and the others rescaled, (K, *S) -> (K, *S)."""
    vectors = slot.task_vectors
    if params.density == 1.0 or not vectors.numel():
        return vectors
    probabilities = keep_probabilities(vectors, params.density, params.epsilon)
    kept = vectors * sample_at_rates("della", params.seed, 1 - probabilities, slot).to(vectors.dtype)
    if params.rescale_by == "probability":
        return (kept / probabilities.clamp(min=torch.finfo(torch.float32).tiny)).to(vectors)
    if params.rescale_by == "l1":
        return expert_factors.keep_size(vectors, kept)
    return kept


def find_refusal(params: DellaParams, before: EarlierEdits) -> str:
    """The reason to refuse an earlier della step with the same seed; empty if there is none."""
    if any(isinstance(earlier, DellaParams) and earlier.seed == params.seed for _, earlier in before):
        return "Two della steps with one seed draw the same numbers; give the second another seed."
    return ""


register(
    Edit(
        key="della",
        title="DELLA",
        summary="Drops scalars of each task vector at random, a row's small ones more often than its large ones, and "
        "rescales the others, which preserves the expectation.",
        formula=r"\tilde\tau_{k,i} = \frac{m_{k,i}\, \tau_{k,i}}{p_{k,i}}, \quad "
        r"m_{k,i} \sim \mathrm{Bernoulli}(p_{k,i}), \quad "
        r"p_{k,i} = \rho + \epsilon\, \frac{2\, r_{k,i} - n - 1}{n - 1}",
        cite=Citation(
            key="deep2024della",
            authors="Deep et al.",
            title="DELLA-Merging: reducing interference in model merging through magnitude-based sampling",
            venue="arXiv",
            year=2024,
            arxiv="2406.11617",
        ),
        params=DellaParams,
        run=della,
        refuses=find_refusal,
        variant="The paper's MAGPRUNE: r is the rank in a row of n scalars, and 2ε the paper's ε. Before ties with "
        "density 1 it is mergekit's della, before a sum della_linear. mergekit rescales to the tensor's L1 norm "
        "(rescale_by = l1), the paper by probability. Where ρ ± ε leaves [0, 1], ε is lowered; mergekit refuses it. A "
        "tensor of one dimension is one row, a kernel has one row per output; of equal sizes the first ranks lower. "
        "Random numbers are as in DARE.",
    )
)
