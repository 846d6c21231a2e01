"""Manual: multiply each expert's task vector, tensor by tensor, by factors that the user chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from merging.methods.factor_rules import MAX_FACTOR, FactorRule, ResolvedFactors, resolve
from merging.methods.method import EarlierEdits, Edit, register
from merging.methods.params import Params, choice, real, rules
from merging.methods.shared import citations
from merging.methods.simplify_factors import simplify
from merging.methods.slot import Slot, SlotStream, Survey
from merging.models.families import Parameter

BEFORE, AFTER = "before", "after"
MERGED = "merged"  # stands in the column "expert" of the table of factors if they apply to the merged task vector


@dataclass(frozen=True, kw_only=True)
class ManualParams(Params):
    """The parameters of the manual edit."""

    rules: tuple[FactorRule, ...] = rules(
        label="Rules",
        help="Factors of blocks, roles, sections, tensors and experts; later rules win. Rules as text: "
        "b0-1=0+r.shift/e.digits=0.5, with b (blocks), r. (role), s. (section), t. (tensor) and e. (expert).",
    )
    default: float = real(
        1.0,
        low=-MAX_FACTOR,
        high=MAX_FACTOR,
        slider=(0.0, 2.0),
        step=0.05,
        label="Default factor",
        help="Factor of every tensor that no rule selects: 1 leaves it unchanged, 0 restores the pretrained values.",
    )
    when: str = choice(
        BEFORE,
        AFTER,
        label="Before or after the merge",
        help="Multiply each expert's task vector before the merge, or the merged one after it.",
    )


Factors = dict[str, tuple[float, ...]]  # tensor -> its factor for every expert, or for the merged task vector


def resolve_params(params: ManualParams, experts: Sequence[str], parameters: Sequence[Parameter]) -> ResolvedFactors:
    """The factors (K, L) of the experts' task vectors, or (1, L) of the merged task vector."""
    return resolve(params.rules, params.default, [MERGED] if params.when == AFTER else experts, parameters)


def canonical_content(params: ManualParams, experts: Sequence[str], parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The effect of the step as plain data: the same for all rules that result in the same factors.

    Raises:
        ParameterError: a rule matches nothing, or names an expert, block or tensor that does not exist.
    """
    return {"factors": resolve_params(params, experts, parameters).digest, "when": params.when}


def simplify_params(params: ManualParams, experts: Sequence[str], parameters: Sequence[Parameter]) -> ManualParams:
    """Parameters with the fewest rules for the same factors."""
    table = resolve_params(params, experts, parameters)
    return ManualParams(rules=simplify(table.values, table.experts, parameters), when=params.when)


def survey(slots: SlotStream, params: ManualParams) -> Survey:
    """The factor of every tensor; no tensor is read."""
    import pandas as pd

    table = resolve_params(params, slots.experts, slots.parameters)
    factors: Factors = {name: tuple(table.values[:, i].tolist()) for i, name in enumerate(table.tensors)}
    expert_count, tensor_count = len(table.experts), len(table.tensors)
    frame = pd.DataFrame(
        {
            "expert": np.repeat(np.array(table.experts, object), tensor_count),
            "tensor": np.tile(np.array(table.tensors, object), expert_count),
            "factor": table.values.reshape(-1),
            "rule": table.rules.reshape(-1),
        }
    )
    warnings = ("manual changes nothing: every factor is 1.",) if (table.values == 1.0).all() else ()
    return Survey(factors, {"factors": frame}, warnings)


def is_dropped(parameter: Parameter, factors: Factors) -> bool:
    """Whether all factors of this tensor are 0."""
    return not any(factors[parameter.name])


def manual(slot: Slot, params: ManualParams, factors: Factors) -> Tensor:
    """Task vectors times their factors, (K, *S) -> (K, *S)."""
    vectors, slot_factors = slot.task_vectors, factors[slot.name]
    if len(set(slot_factors)) == 1:  # one factor for all experts
        return vectors if slot_factors[0] == 1.0 else slot_factors[0] * vectors
    return vectors * vectors.new_tensor(slot_factors).reshape(-1, *[1] * (vectors.dim() - 1))


def kept_by_any(slot: Slot, params: ManualParams, factors: Factors) -> Tensor | None:
    """The mask (*S) of the scalars that are merged: false if all factors are 0, else None, which stands for all."""
    return None if any(factors[slot.name]) else torch.zeros_like(slot.pretrained, dtype=torch.bool)


def find_refusal(params: ManualParams, before: EarlierEdits) -> str:
    """The reason why these rules cannot apply to the merged task vector; empty if they can."""
    number = next((i for i, rule in enumerate(params.rules, 1) if rule.experts), 0)
    if params.when == AFTER and number:
        return f"manual: rule {number} names experts, and after the merge there is one task vector; use when=before."
    return ""


register(
    Edit(
        key="manual",
        title="Manual",
        summary="Multiplies task vectors, tensor by tensor, by factors that you choose: 0 restores a pretrained layer, "
        "1 leaves it unchanged.",
        formula=r"\tau_k^l \leftarrow f_k^l\, \tau_k^l",
        cite=citations.MERGESCOPE,
        params=ManualParams,
        run=manual,
        survey=survey,
        survey_passes=0,
        elementwise=lambda params, parameter: True,
        kept=kept_by_any,
        drops=is_dropped,
        refuses=find_refusal,
        content=canonical_content,
        plainest=simplify_params,
        after_merge=lambda params: params.when == AFTER,
        variant="Not from a paper. After the merge, a factor changes only its own tensor. Before a merge with a "
        "threshold over all scalars (TIES, PCB, Consensus on TIES), it also changes which scalars of other tensors "
        "that merge keeps. A tensor with factor 0 for every expert stays pretrained bit for bit.",
    )
)
