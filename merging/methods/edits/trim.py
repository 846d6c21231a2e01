"""Trim: keep each task vector's largest scalars, and of these only those with the elected sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from merging.base.numerics.sign_election import elect_sign, trim_vectors
from merging.methods.method import Edit, register
from merging.methods.params import Params, flag, fraction
from merging.methods.shared import citations
from merging.methods.shared.trimming import TrimThresholds, global_thresholds, majority_sign
from merging.methods.slot import Slot, SlotStream, Survey

if TYPE_CHECKING:
    from merging.base.files.tables import Table


@dataclass(frozen=True, kw_only=True)
class TrimParams(Params):
    """The parameters of Trim."""

    density: float = fraction(
        0.2,
        open_low=True,
        symbol=r"\rho",
        label="Density",
        help="Share of each task vector's scalars that are kept, largest first.",
    )
    elect: bool = flag(True, label="Elect signs", help="Drop the scalars whose sign loses the vote of all experts.")


def survey(slots: SlotStream, params: TrimParams) -> Survey:
    """The thresholds over all tensors, and the majority of elected signs for exact ties."""
    thresholds: tuple[float, ...] | None = None
    table: dict[str, Table] = {}
    if params.density < 1.0:
        thresholds, table = global_thresholds(slots, params.density)
    tie_sign = majority_sign(slots, lambda slot: trim_vectors(slot.task_vectors, thresholds)) if params.elect else 0.0
    return Survey(TrimThresholds(thresholds, tie_sign), table)


def _expert_masks(slot: Slot, params: TrimParams, statistics: TrimThresholds) -> Tensor:
    """The masks (K, *S) of the scalars that each expert keeps."""
    vectors = slot.task_vectors
    if params.elect:
        kept = trim_vectors(vectors, statistics.thresholds)
        return kept * elect_sign(kept, statistics.tie_sign) > 0
    assert statistics.thresholds is not None
    return vectors.abs() >= vectors.new_tensor(statistics.thresholds).reshape(-1, *[1] * slot.pretrained.dim())


def trim(slot: Slot, params: TrimParams, statistics: TrimThresholds | None) -> Tensor:
    """Task vectors with all other scalars set to zero, (K, *S) -> (K, *S)."""
    return slot.task_vectors if statistics is None else slot.task_vectors * _expert_masks(slot, params, statistics)


def kept_by_any(slot: Slot, params: TrimParams, statistics: TrimThresholds | None) -> Tensor | None:
    """The mask (*S) of the scalars that any expert keeps; None if all."""
    return None if statistics is None else _expert_masks(slot, params, statistics).any(dim=0)


register(
    Edit(
        key="trim",
        title="Trim and elect",
        summary="Keeps each task vector's largest scalars and drops those against the elected sign, as TIES does "
        "before it merges.",
        formula=r"\tau_k \leftarrow \hat\tau_k \odot [\,\hat\tau_k \gamma > 0\,], \quad "
        r"\gamma = \mathrm{sign} \sum_k \hat\tau_k, \quad \hat\tau_k = \mathrm{top}_{\rho}(\tau_k)",
        cite=citations.TIES,
        params=TrimParams,
        run=trim,
        survey=survey,
        survey_when=lambda params: params.density < 1.0 or params.elect,
        survey_passes=3,
        kept=kept_by_any,
        elementwise=lambda params, parameter: True,
        variant="The ++ of AdaMerging++: every expert keeps its own task vector, so there is no mean over the experts "
        "that agree. Before task arithmetic it gives TIES with the aggregation sum. Each expert has one threshold over "
        "the whole model; int(d·ρ) + 1 scalars and ties are kept, and for a vote of exactly zero the majority sign of "
        "the whole model is used. After LwPTV the thresholds count all scalars, including masked ones.",
    )
)
