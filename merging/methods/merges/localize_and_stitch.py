"""Localize-and-Stitch: a mask of the few scalars that carry each task, then the mean of the kept scalars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.methods.learning import Blend, Masks, require_finite
from merging.methods.method import Citation, Merge, Needs, register
from merging.methods.params import Params, choice, fraction, real
from merging.methods.shared import fields
from merging.methods.shared.localization import (
    L1,
    RELEASED,
    MaskCounts,
    MaskLearningHistory,
    MaskScores,
    reaches_limit,
    size_limits,
)
from merging.methods.slot import Slot, SlotStream, Survey

LEARNED, MAGNITUDE = "learned", "magnitude"
IF_LEARNED = {"when": ("localize", LEARNED)}


@dataclass(frozen=True, kw_only=True)
class LocalizeAndStitchParams(Params):
    """The parameters of Localize-and-Stitch."""

    localize: str = choice(
        LEARNED, MAGNITUDE, label="Masks", help="Learned from labeled exemplars, or chosen by magnitude."
    )
    density: float = fraction(
        0.05, open_low=True, symbol=r"\rho", label="Density", help="Share of scalars that masks by magnitude keep.",
        when=("localize", MAGNITUDE),
    )  # fmt: skip
    steps: int = fields.learning_steps(
        10, (5, 50), "Gradient steps, each on all exemplars of a task.", step=5, **IF_LEARNED
    )
    lr: float = fields.learning_rate(
        1e7,
        slider=(1e6, 1e8),
        step=1e6,
        help="Depends on the model: check the density of the masks.",
        high=1e15,
        **IF_LEARNED,
    )
    l1: float = real(
        1.0, low=0.0, high=1e6, slider=(0.0, 10.0), step=0.5, label="L1 weight",
        help="Push towards smaller masks in every step, independent of the learning rate.", **IF_LEARNED,
    )  # fmt: skip
    bias: float = real(
        5.0, low=0.0, high=50.0, open_low=True, slider=(1.0, 10.0), step=0.5, symbol="b", label="Initial score",
        help="Scores start at this value for the largest scalars, at minus this value for the others.", **IF_LEARNED,
    )  # fmt: skip
    init_density: float = fraction(
        1e-5, step=1e-5, slider=(0.0, 0.1), label="Initial density",
        help="Share of scalars whose scores start above zero; always at least one scalar.", **IF_LEARNED,
    )  # fmt: skip
    regularizer: str = choice(
        L1,
        RELEASED,
        label="Regularizer",
        help="The paper's L1 norm, or the regularizer of the released code.",
        **IF_LEARNED,
    )


@dataclass(frozen=True)
class LocalizedMasks:
    """Every expert's mask: learned (``masks``), or the scalars that reach a limit in absolute value (``limits``)."""

    limits: tuple[float, ...] = ()
    masks: Masks | None = None

    def read_masks(self, slot: Slot) -> Tensor:
        """The masks (K, *S) of the scalars that each expert keeps in a slot."""
        if self.masks is None:
            return reaches_limit(slot, self.limits)
        stop = slot.start + slot.pretrained.numel()
        return self.masks.read(slot.name, slot.start, stop).reshape(slot.task_vectors.shape)


def survey(slots: SlotStream, params: LocalizeAndStitchParams) -> Survey:
    """Masks of the largest scalars."""
    localized = LocalizedMasks(limits=size_limits(slots, params.density))
    counts = MaskCounts(slots.experts, slots.parameters, slots.numels)
    for name, shared in slots.map(lambda slot: (slot.name, counts.count_shared(localized.read_masks(slot)))):
        counts.add(name, shared)
    return Survey(localized, counts.tables())


def learn(blend: Blend, params: LocalizeAndStitchParams) -> Survey:
    """Masks of the scalars that, added to the pretrained model, classify each task's labeled exemplars best."""
    experts, history = blend.slots.experts, MaskLearningHistory(blend.create_masks())
    limits, state = size_limits(blend.slots, params.init_density, min_count=1), blend.load_state()
    history.restore(state)
    if history.rows:
        blend.skip_share(len(history.rows) / (params.steps * len(experts)))
    for task in range(history.finished, len(experts)):
        scores = MaskScores(limits[task], params.bias, params.lr, params.l1, params.regularizer)
        scores.restore(state)
        state = {}  # the stored scores belong to one task
        _learn_task(blend, params, task, scores, history)
        history.finish_task(scores)
        blend.offer_state(history.state)
    counts = MaskCounts(experts, blend.slots.parameters, blend.slots.numels)
    for parameter, numel in zip(blend.slots.parameters, blend.slots.numels, strict=True):
        counts.add(parameter.name, counts.count_shared(history.masks.read(parameter.name, 0, numel)))
    tables = counts.tables() | {"learning": history.table(experts, params.steps, sum(blend.slots.numels))}
    return Survey(LocalizedMasks(masks=history.masks), tables, counts.warnings("localize_and_stitch"))


def _learn_task(
    blend: Blend, params: LocalizeAndStitchParams, task: int, scores: MaskScores, history: MaskLearningHistory
) -> None:
    """Learn one task's scores, in all steps that remain."""
    experts = blend.slots.experts
    expert, prefix = experts[task], f"task {task + 1} of {len(experts)}, step"
    first_step = len(history.rows) - task * params.steps  # above 0 after a pause
    blend.report_detail(f"{prefix} {first_step + 1} of {params.steps}")
    blend.update_tensors(scores.initialize, expert)
    for step in range(first_step, params.steps):
        loss = blend.compute_cross_entropy(expert)
        require_finite([loss], step, [expert], "cross-entropy", scores.values.values)
        history.rows.append((loss, float(scores.mask_size)))
        blend.update_tensors(scores.descend, expert)
        blend.report_detail(f"{prefix} {step + 1} of {params.steps} · cross-entropy {loss:.2f}")
        blend.offer_state(lambda: history.state() | scores.state())
    scores.require_no_nan(expert)


def localize_and_stitch(slot: Slot, params: LocalizeAndStitchParams, localized: LocalizedMasks) -> Tensor:
    """Per scalar, the mean of the task vectors whose masks keep it, zero if none does: (K, *S) -> (*S)."""
    masks = localized.read_masks(slot)
    total = torch.where(masks, slot.task_vectors, 0).sum(dim=0)
    return total / masks.sum(dim=0).clamp(min=1)


def _count_images(params: LocalizeAndStitchParams, image_counts: Sequence[int]) -> int:
    return params.steps * sum(image_counts)


def _count_reads(params: LocalizeAndStitchParams, experts: int) -> int:
    limits = 2 * (experts + 1)  # two passes over all models find the limits
    # 1: the pretrained model, to build the network. A step reads the pretrained model and the task's expert.
    return limits + 1 + experts * (params.steps + 1) * 2


register(
    Merge(
        key="localize_and_stitch",
        title="Localize-and-Stitch",
        summary="Learns a mask of the few scalars that carry each task; averages the task vectors where masks overlap.",
        formula=r"\theta = \theta_0 + \sum_k \frac{\gamma_k}{\sum_j \gamma_j} \odot \tau_k, \quad "
        r"\gamma_k = [S_k > 0], \quad \min_{S_k} \mathcal L_k\big(\theta_0 + \sigma(S_k) \odot \tau_k\big) "
        r"+ \beta \lVert \sigma(S_k) \rVert_1",
        cite=Citation(
            key="he2025localize",
            authors="He et al.",
            title="Localize-and-Stitch: efficient model merging via sparse task arithmetic",
            venue="TMLR",
            year=2025,
            arxiv="2408.13656",
        ),
        params=LocalizeAndStitchParams,
        needs=Needs.LABELED_EXEMPLARS,
        needs_when=lambda params: bool(params.localize == LEARNED),
        heads=True,
        learn=learn,
        count_images_processed=_count_images,
        learn_reads=_count_reads,
        loss="Cross-entropy with the labels (nats)",
        run=localize_and_stitch,
        survey=survey,
        survey_when=lambda params: bool(params.localize == MAGNITUDE),
        survey_passes=3,
        elementwise=lambda params, parameter: True,
        variant="Steps use all labeled exemplars of a task at once, where the authors average batches of 128. The L1 "
        "norm has the sign of the paper; the released code pushes scores away from zero instead. The default learning "
        "rate suits CLIP. By magnitude, int(ρP) scalars of each task vector and ties are kept.",
    )
)
