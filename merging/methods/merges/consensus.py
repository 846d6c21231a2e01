"""Consensus merging: drop the scalars that too few tasks need (TALL masks)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from merging.base.numerics.sign_election import trim_vectors
from merging.methods.merges import ties
from merging.methods.method import Citation, Merge, register
from merging.methods.params import Params, choice, integer, real
from merging.methods.shared import fields
from merging.methods.shared.trimming import TrimThresholds, majority_sign
from merging.methods.slot import Slot, SlotStream, Survey

TASK_ARITHMETIC, TIES = "task_arithmetic", "ties"
TIES_SUM = ties.TiesParams(density=0.2, aggregation="sum", scaling=1.0)  # the TIES vector that is masked


@dataclass(frozen=True, kw_only=True)
class ConsensusParams(Params):
    """The parameters of Consensus."""

    mask_scale: float = real(
        0.4,
        low=0.0,
        high=1000.0,
        slider=(0.1, 1.0),
        step=0.05,
        symbol=r"\lambda",
        label="Mask scale",
        help="Least size of a scalar that a task needs, relative to the sum of the other tasks' changes.",
    )
    min_tasks: int = integer(
        2,
        low=0,
        high=1000,
        slider=(0, 8),
        symbol=r"\kappa",
        label="Tasks needed",
        help="Scalars that fewer tasks need stay pretrained. 0 keeps all scalars; at most all experts are required.",
    )
    scaling: float = fields.scaling(0.3, (0.0, 1.0), symbol=r"\alpha")
    base: str = choice(
        TASK_ARITHMETIC,
        TIES,
        label="Base",
        help="The vector that is masked: the sum of the task vectors, or their TIES sum.",
    )


def survey(slots: SlotStream, params: ConsensusParams) -> Survey:
    """The survey of TIES with the sign for exact ties, for the base ``ties``."""
    ties_survey = ties.survey(slots, TIES_SUM)
    statistics: TrimThresholds = ties_survey.statistics
    sign = majority_sign(slots, lambda slot: trim_vectors(slot.task_vectors, statistics.thresholds))
    return replace(ties_survey, statistics=replace(statistics, tie_sign=sign))


def consensus(slot: Slot, params: ConsensusParams, statistics: TrimThresholds | None) -> Tensor:
    """The multi-task vector, with zero for scalars that too few tasks need: (K, *S) -> (*S).

    Without ``statistics``, which only the base ``ties`` has, the multi-task vector is the sum of the task vectors.
    """
    vectors = slot.task_vectors
    merged = vectors.sum(dim=0) if statistics is None else ties.ties(slot, TIES_SUM, statistics)
    needed = vectors.abs() > params.mask_scale * (merged - vectors).abs()
    enough = needed.sum(dim=0) >= min(params.min_tasks, len(vectors))
    return params.scaling * merged * enough


register(
    Merge(
        key="consensus",
        title="Consensus",
        summary="Keeps the scalars of a multi-task vector that enough tasks need, and leaves the others pretrained.",
        formula=r"\theta = \theta_0 + \alpha\, [\textstyle\sum_k m_k \ge \kappa] \odot \tau, \quad "
        r"m_k = [\,|\tau_k| > \lambda\, |\tau - \tau_k|\,], \quad \tau = \textstyle\sum_k \tau_k",
        cite=Citation(
            key="wang2024tall",
            authors="Wang et al.",
            title="Localizing task information for improved model merging and compression",
            venue="ICML",
            year=2024,
            arxiv="2405.07813",
        ),
        params=ConsensusParams,
        run=consensus,
        survey=survey,
        survey_when=lambda params: params.base == TIES,
        survey_passes=3,
        elementwise=lambda params, parameter: True,
        variant="One mask scale for all tasks, by default the middle of the published grid; the authors choose one per "
        "task on validation data. min_tasks never exceeds the number of experts. With base ties, the raw task vectors "
        "are compared with the TIES sum at density 0.2.",
    )
)
