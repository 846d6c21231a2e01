"""DARE: drop scalars of each task vector at random and rescale the others, which preserves the expectation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from merging.methods.factor_rules import FactorRule
from merging.methods.method import Citation, EarlierEdits, Edit, register
from merging.methods.params import Params, choice, flag, fraction
from merging.methods.shared import expert_factors, fields
from merging.methods.shared.random_masks import sample_survivors
from merging.methods.slot import Slot


@dataclass(frozen=True, kw_only=True)
class DareParams(Params):
    """The parameters of DARE."""

    drop_rate: float = fraction(
        0.5,
        slider=(0.0, 0.99),
        symbol=r"\pi",
        label="Drop rate",
        help="Probability that a scalar of a task vector is dropped.",
    )
    rescale: bool = flag(
        True, label="Rescale", help="Divide kept scalars by 1 − drop rate, which preserves the expectation."
    )
    seed: int = fields.mask_seed()
    rescale_by: str = choice(
        "rate", "l1", when=("rescale", True), later=True, label="Rescale by",
        help="Rescale by the drop rate, or to the sum of absolute values that each tensor had.",
    )  # fmt: skip
    rates: tuple[FactorRule, ...] = expert_factors.factor_field(
        "Drop rates", "Factors of the drop rate, by expert and tensor."
    )


def dare(slot: Slot, params: DareParams, statistics: None) -> Tensor:
    """Task vectors with scalars dropped at random and the others rescaled, (K, *S) -> (K, *S)."""
    if params.drop_rate == 0.0:
        return slot.task_vectors
    rates = [min(max(params.drop_rate * f, 0.0), 1.0) for f in expert_factors.slot_factors(slot, params.rates)]
    same = len(set(rates)) == 1
    factors = sample_survivors("dare", params.seed, rates[0] if same else rates, slot).to(slot.task_vectors.dtype)
    if params.rescale and params.rescale_by == "l1":
        return expert_factors.keep_size(slot.task_vectors, factors.mul_(slot.task_vectors))
    if params.rescale and same and rates[0] < 1.0:
        zero = factors.new_zeros(())
        return torch.addcmul(zero, factors, slot.task_vectors, value=1.0 / (1.0 - rates[0]), out=factors)
    if params.rescale and not same:
        factors.mul_(expert_factors.as_rows([1.0 / (1.0 - rate) if rate < 1.0 else 1.0 for rate in rates], factors))
    return factors.mul_(slot.task_vectors)


def find_refusal(params: DareParams, before: EarlierEdits) -> str:
    """The reason to refuse an earlier dare step with the same seed; empty if there is none."""
    if any(isinstance(earlier, DareParams) and earlier.seed == params.seed for _, earlier in before):
        return "Two dare steps with one seed drop the same scalars and rescale twice; give the second another seed."
    return ""


register(
    Edit(
        key="dare",
        title="DARE",
        summary="Drops scalars of each task vector at random and rescales the others, which preserves the expectation.",
        formula=r"\tilde\tau_k = \frac{m_k \odot \tau_k}{1 - \pi}, \quad m_k \sim \mathrm{Bernoulli}(1 - \pi)",
        cite=Citation(
            key="yu2024dare",
            authors="Yu et al.",
            title="Language models are Super Mario: absorbing abilities from homologous models as a free lunch",
            venue="ICML",
            year=2024,
            arxiv="2311.03099",
        ),
        params=DareParams,
        run=dare,
        refuses=find_refusal,
        content=expert_factors.content_with("rates"),
        elementwise=lambda params, parameter: not params.rescale or params.rescale_by == "rate",
        variant="Applies to every tensor. DARE-TIES is dare → ties with density 1; with a lower density, TIES trims "
        "the scalars that DARE kept. Random numbers depend only on the seed, the names of expert and tensor, and the "
        "position. A dropped scalar is only zero in its task vector: unlike a mask, DARE does not hold a scalar that "
        "every expert drops at its pretrained value if the merge mixes scalars, as DRM does. mergekit rescales to "
        "the tensor's L1 norm instead (l1).",
    )
)
