"""AdaMerging: coefficients of the task vectors, learned without labels so that predictions become confident."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics.linear_algebra import inner_products, weighted_sum
from merging.methods.learning import Adam, Blend, require_finite
from merging.methods.method import Merge, Needs, register
from merging.methods.params import Params, choice, fraction
from merging.methods.shared import citations, fields
from merging.methods.shared.coefficients import FORWARD, NONE, PROJECT, TASK, Coefficients
from merging.methods.slot import Slot, Survey


@dataclass(frozen=True, kw_only=True)
class AdamergingParams(Params):
    """The parameters of AdaMerging."""

    granularity: str = choice(
        "tensor", "task", label="Granularity", help="One coefficient per task and tensor, or one per task."
    )
    steps: int = fields.learning_steps(500, (50, 1000), "Steps of Adam; 0 is task arithmetic at the initial value.")
    lr: float = fields.learning_rate(
        1e-3, slider=(1e-4, 1e-2), step=1e-4, help="About how far one step moves each coefficient."
    )
    init: float = fraction(0.3, symbol=r"\lambda_0", label="Initial value", help="Initial value of every coefficient.")
    batch: int = fields.task_batch(32)
    clamp: str = choice(
        FORWARD, PROJECT, NONE, label="Bounds",
        help="forward: the model uses coefficients clipped to [0, 1]. project: they are clipped after each step.",
    )  # fmt: skip
    shrink: float = fraction(
        1.0, symbol=r"\eta", label="Shrink", help="Factor on all coefficients, applied after the last step."
    )
    seed: int = fields.image_seed()
    split_qkv: bool = fields.split_qkv(when=("granularity", "tensor"))


TensorCoefficients = dict[str, tuple[float, ...]]  # tensor -> coefficient of each expert


def learn(blend: Blend, params: AdamergingParams) -> Survey:
    """The coefficients that minimize the entropy of the merged model's predictions on every task's images."""
    experts, by_task = blend.slots.experts, params.granularity == "task"
    learned = Coefficients(experts, blend.live_parameters, params.init, params.clamp, by_task=by_task)
    adam = Adam(learned.raw, params.lr)
    if state := blend.load_state():
        adam.restore(state)
        learned.restore(state)
        blend.skip_share(adam.steps / params.steps)

    def write_merged(slot: Slot, gradient: Tensor | None) -> Tensor:
        return weighted_sum(slot.task_vectors, learned.model_values(slot.name).tolist())

    def descend(slot: Slot, gradient: Tensor | None) -> Tensor | None:
        learned.move(adam, slot.name, _coefficient_gradient(slot, gradient, adam.steps, learned.all_model_values))
        return write_merged(slot, None) if adam.steps < params.steps else None  # no loss follows the last step

    if blend.live_parameters and adam.steps < params.steps:
        blend.report_detail(f"step {adam.steps + 1} of {params.steps}")
        blend.update_tensors(write_merged)
    while blend.live_parameters and (step := adam.steps) < params.steps:
        losses = blend.compute_entropies(params.seed, params.batch, step)
        require_finite(losses, step, experts, "entropy", learned.all_model_values)
        learned.record_step(losses)
        adam.begin_step()
        if by_task:
            learned.move(adam, TASK, _summed_gradient(blend, adam.steps, learned.all_model_values))
            if adam.steps < params.steps:
                blend.update_tensors(write_merged)
        else:
            blend.update_tensors(descend)
        blend.report_detail(f"step {adam.steps} of {params.steps} · entropy {sum(losses) / len(losses):.2f}")
        blend.offer_state(lambda: adam.state() | learned.state())
    tables = learned.tables(blend.slots.parameters, params.shrink)
    return Survey(learned.merge_values(params.shrink), tables, _warn_of_params(params))


def _coefficient_gradient(
    slot: Slot, gradient: Tensor | None, steps: int, list_coefficients: Callable[[], list[Tensor]]
) -> Tensor:
    """The derivatives (K,) of the loss by the experts' coefficients of a tensor: ⟨gradient, task vector⟩.

    Raises MergingError if one is not finite; for its message are ``list_coefficients`` and ``steps``, the number of
    steps begun.
    """
    if gradient is None:  # the tensor is not part of the tower that encodes images
        return torch.zeros(len(slot.experts), dtype=torch.float64)
    slopes = inner_products(slot.task_vectors, gradient)
    require_finite(slopes.tolist(), steps - 1, [slot.name] * len(slopes), "gradient", list_coefficients)
    return slopes


def _summed_gradient(blend: Blend, steps: int, list_coefficients: Callable[[], list[Tensor]]) -> Tensor:
    """The derivatives (K,) of the loss by the experts' coefficients, which all tensors share."""
    slopes: list[Tensor] = []

    def add_slopes(slot: Slot, gradient: Tensor | None) -> None:
        slopes.append(_coefficient_gradient(slot, gradient, steps, list_coefficients))

    blend.update_tensors(add_slopes)
    return sum(slopes[1:], slopes[0])


def _warn_of_params(params: AdamergingParams) -> tuple[str, ...]:
    if params.granularity == "task" and params.shrink != 1.0:
        return ("adamerging shrinks coefficients of whole tasks; papers shrink coefficients of single tensors only.",)
    return ()


def adamerging(slot: Slot, params: AdamergingParams, coefficients: TensorCoefficients) -> Tensor:
    """The sum of the task vectors times their coefficients, (K, *S) -> (*S)."""
    return weighted_sum(slot.task_vectors, coefficients.get(slot.name, (0.0,) * len(slot.experts)))


def _count_images(params: AdamergingParams, image_counts: Sequence[int]) -> int:
    return params.steps * sum(min(params.batch, count) for count in image_counts)


def _count_reads(params: AdamergingParams, experts: int) -> int:
    # By task, a step reads all models for the gradient and again to write the merged model; by tensor, once for both.
    passes = 2 * params.steps if params.granularity == "task" else params.steps + 1
    return 1 + passes * (experts + 1) if params.steps else 0  # 1: the pretrained model, to build the network


register(
    Merge(
        key="adamerging",
        title="AdaMerging",
        summary="Learns a coefficient per task and tensor on unlabeled images, so that predictions become confident.",
        formula=r"\theta^l = \theta_0^l + \eta \sum_k \lambda_k^l \tau_k^l, \quad "
        r"\min_\lambda \sum_k \tfrac{1}{|B_k|} \sum_{x \in B_k} H\big(p_k(\cdot \mid x; \theta(\lambda))\big)",
        cite=citations.ADAMERGING,
        params=AdamergingParams,
        needs=Needs.TEST_DATA,
        heads=True,
        learn=learn,
        count_images_processed=_count_images,
        learn_reads=_count_reads,
        loss="Entropy of the predictions (nats)",
        starts_from=lambda params: ("task_arithmetic", {"scaling": params.init}),
        run=adamerging,
        elementwise=lambda params, parameter: True,
        variant="A layer is a named tensor, with q, k and v in one unless split_qkv is on. As in the authors' code, a "
        "step uses 32 images per task, and the model uses coefficients clipped to [0, 1]; that code also learns "
        "coefficients of unused text tensors. Tensors that an edit drops for every expert have no coefficients. The "
        "shrink factor is applied after the last step, as in LwPTV.",
    )
)
