"""SLERP: per tensor, a point on the arc between the weights of two experts."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from merging.methods.factor_rules import FactorRule
from merging.methods.method import Citation, EarlierEdits, Merge, register
from merging.methods.params import Params
from merging.methods.shared import expert_factors, fields, spheres
from merging.methods.slot import Slot

MAX_COSINE = 0.9995  # above it, an arc counts as straight


@dataclass(frozen=True, kw_only=True)
class SlerpParams(Params):
    """The parameters of SLERP."""

    t: float = spheres.position()
    between: str = spheres.between()
    split_qkv: bool = fields.split_qkv()
    positions: tuple[FactorRule, ...] = expert_factors.factor_field("Positions", "Factors of the position, by tensor.")


def slerp(slot: Slot, params: SlerpParams, statistics: None) -> Tensor:
    """The task vector at position ``t`` of the arc between two experts' tensors, (2, *S) -> (*S)."""
    position = min(max(params.t * expert_factors.slot_factors(slot, params.positions)[0], 0.0), 1.0)

    def merge(tensors: Tensor) -> Tensor:
        first, second = tensors.flatten(1)
        merged = spheres.interpolate(first, second, position, lambda angle: angle.cos().abs() > MAX_COSINE)
        return merged.reshape(tensors.shape[1:])

    return spheres.merge_on_spheres(slot, params.between, merge)


def find_refusal(params: SlerpParams, before: EarlierEdits) -> str:
    """The reason to refuse positions by expert; empty if there are none."""
    if any(rule.experts for rule in params.positions):
        return "slerp has one position for both experts; let the rules of its positions name no experts."
    return ""


register(
    Merge(
        key="slerp",
        title="SLERP",
        summary="Goes from one expert to another on an arc instead of a line, tensor by tensor, which preserves the "
        "length of the weights. For two experts.",
        formula=r"\theta = \frac{\sin((1 - t)\, \Omega)}{\sin \Omega}\, \theta_1 + "
        r"\frac{\sin(t\, \Omega)}{\sin \Omega}\, \theta_2, \quad \cos \Omega = \cos(\theta_1, \theta_2)",
        cite=Citation(
            key="shoemake1985animating",
            authors="Shoemake",
            title="Animating rotation with quaternion curves",
            venue="SIGGRAPH",
            year=1985,
        ),
        params=SlerpParams,
        run=slerp,
        refuses=find_refusal,
        content=expert_factors.content_with("positions"),
        max_experts=2,
        variant="As in mergekit: each tensor is one vector, and the arc is a line where |cos Ω| is above 0.9995, as it "
        "is for most tensors of lightly fine-tuned experts. mergekit calls the first expert the base model. It has no "
        "arc between task vectors; its NuSLERP does. A zero tensor counts as orthogonal to the other.",
    )
)
