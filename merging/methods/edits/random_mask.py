"""Random mask: drop scalars of each task vector at random, without rescaling. A baseline."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from merging.methods.method import EarlierEdits, Edit, register
from merging.methods.params import Params
from merging.methods.shared import citations, fields
from merging.methods.shared.random_masks import sample_survivors
from merging.methods.slot import Slot


@dataclass(frozen=True, kw_only=True)
class RandomMaskParams(Params):
    """The parameters of the random mask."""

    prune_ratio: float = fields.prune_ratio("Probability that a scalar of a task vector is dropped.")
    seed: int = fields.mask_seed()


def _expert_masks(slot: Slot, params: RandomMaskParams) -> Tensor:
    """The masks (K, *S) of each expert, bytes: 1 for kept scalars, else 0."""
    return sample_survivors("random_mask", params.seed, params.prune_ratio, slot)


def random_mask(slot: Slot, params: RandomMaskParams, statistics: None) -> Tensor:
    """Task vectors with scalars dropped at random, (K, *S) -> (K, *S)."""
    if params.prune_ratio == 0.0:
        return slot.task_vectors
    return _expert_masks(slot, params).to(slot.task_vectors.dtype).mul_(slot.task_vectors)


def kept_by_any(slot: Slot, params: RandomMaskParams, statistics: None) -> Tensor | None:
    """The mask (*S) of the scalars that any expert keeps; None if all."""
    return None if params.prune_ratio == 0.0 else _expert_masks(slot, params).any(dim=0).bool()


def find_refusal(params: RandomMaskParams, before: EarlierEdits) -> str:
    """The reason to refuse an earlier random_mask step with the same seed; empty if there is none."""
    if any(isinstance(earlier, RandomMaskParams) and earlier.seed == params.seed for _, earlier in before):
        return "Two random_mask steps with one seed would drop the same scalars; give the second another seed."
    return ""


register(
    Edit(
        key="random_mask",
        title="Random mask",
        summary="Drops scalars of each task vector at random, without rescaling: the baseline that any mask must beat.",
        formula=r"\tau_k \leftarrow m_k \odot \tau_k, \quad m_k \sim \mathrm{Bernoulli}(1 - \eta)",
        cite=citations.LWPTV,
        params=RandomMaskParams,
        run=random_mask,
        kept=kept_by_any,
        refuses=find_refusal,
        elementwise=lambda params, parameter: True,
        variant="One mask per expert, sampled per scalar. The paper does not say whether its mask drops scalars or "
        "tensors; its accuracy is close to the pretrained model's, which this mask does not reproduce. Scalars that no "
        "expert keeps stay pretrained after any merge.",
    )
)
