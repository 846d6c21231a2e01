"""The first-order map: how putting a tensor back would change the margin, predicted from one gradient.

m(x) is the cosine of the right class minus the largest other one. Its mean over a task's images changes by about
-⟨∂m/∂θ, θ - θ₀⟩ if a tensor θ of the merged model is put back to θ₀. The same gradient predicts the change if expert
k's part is taken out, -⟨∂m/∂θ, λ τₖ⟩, and if the expert's tensor replaces the merged one, ⟨∂m/∂θ, θ₀ + τₖ - θ⟩. The
weight λ of the task vectors in a merged tensor is the one that fits it best, argmin ‖θ - θ₀ - λ Σₖ τₖ‖, since few
merges are sums. For Task Arithmetic it is the scaling coefficient, for a tensor that was pruned whole 0.

A gradient predicts only small steps well. The true map (``put_back``) shows how well it ranks the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.devices import choose_device
from merging.base.numerics.linear_algebra import to_float64, to_numbers
from merging.base.progress import Meter
from merging.engine.evaluation.image_features import cosine_margins
from merging.engine.gradients import GradientFile, gradient_files
from merging.engine.run_inputs import RunInputs
from merging.engine.stream import Stream
from merging.images.batch_sizes import limit_batch
from merging.images.benchmarks.paired_scores import AVERAGE
from merging.images.image_encoder import Encoder
from merging.methods.slot import Slot
from merging.models.checkpoint import Checkpoint
from merging.models.tower_names import assemble
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.measurements import put_back_images
from merging.study.measurements.put_back_images import SampleImages
from merging.study.previews.preview_samples import BATCH_SIZE
from merging.tasks.context import Context

if TYPE_CHECKING:
    from merging.engine.evaluation.evaluate import EvaluatedModel

GRADIENTS, PRODUCTS = "gradients", "products"  # stages
ACTIVATION_BYTES = 1 << 30  # rough limit of the activations that one backward pass retains
RETAINED_NUMBERS = 24  # for a token in a block, in units of the width
Floats = NDArray[np.float64]
MeasureImages = Callable[[Tensor, Tensor, Tensor], Tensor]


class Predictions(NamedTuple):
    """Predicted changes of one task's mean margin: put_back (L,), take_out and give_back (L, K), for L tensors."""

    put_back: Floats
    take_out: Floats
    give_back: Floats


def measure_first_order(subject: Subject, context: Context) -> MeasurementResult:
    """The tables "changes", "experts" and "weights"; changes are those of the mean margin (cosines).

    "changes" has put_back for each tensor, over "in domain", "out of domain" (group "average") and each task (group:
    its domain). "experts" has take_out and give_back for each tensor and expert, over both averages. "weights" has λ
    of every tensor. The arrays take_out and give_back (T, L, K) have a row for each of T tasks; tasks, L tensors and K
    experts are in the order of the tables.

    Raises:
        CheckpointError, TaskError: a checkpoint of the run cannot be read, or does not fit the benchmark's images.
        MergingError: the folder for temporary files has no room.
    """
    subject.refuse_modules()
    opened, sample = subject.checkpoints, put_back_images.sample_images(subject.benchmark)
    in_domain = [task for task in sample if task in opened.experts]
    stages = subject.split_context(context, {GRADIENTS: 3.0, PRODUCTS: 1.0})
    with subject.open_models(stages) as models:
        evaluated_models = put_back_images.list_evaluated_models(models, subject)
        inputs = RunInputs(opened.pretrained, opened.experts, None, choose_device(context.device))
        counts = [
            sum(len(sample[task].labels) for task in evaluated.tasks if task in sample)
            for evaluated in evaluated_models
        ]
        gradient_meter = stages[GRADIENTS].meter(sum(counts))
        product_meter = stages[PRODUCTS].meter(inputs.work * len(evaluated_models))
        predicted, weights = predict_changes(evaluated_models, inputs, sample, gradient_meter, product_meter)
    tensors, experts = list(weights), list(opened.experts)
    arrays = {
        name: np.stack([getattr(changes, name) for changes in predicted.values()]) for name in ("take_out", "give_back")
    }
    tables = {
        "changes": build_change_table(predicted, tensors, in_domain),
        "experts": build_expert_table(predicted, tensors, experts, in_domain),
        "weights": pd.DataFrame({"tensor": tensors, "weight": list(weights.values())}),
    }
    return MeasurementResult(tables, put_back_images.sample_notes(sample, in_domain), arrays)


def predict_changes(
    evaluated_models: Sequence[EvaluatedModel],
    inputs: RunInputs,
    sample: put_back_images.SampleByTask,
    gradient_meter: Meter,
    product_meter: Meter,
) -> tuple[dict[str, Predictions], dict[str, float]]:
    """The predictions of every task, as means over the models that answer it, and the weight λ of each tensor.

    L tensors are in the order of the weights, K experts in that of the inputs.
    """
    by_task: dict[str, list[Predictions]] = {task: [] for task in sample}
    weights: dict[str, list[float]] = {}
    for evaluated in evaluated_models:
        merged = evaluated.open()
        tasks = [task for task in evaluated.tasks if task in sample]
        with gradient_files(inputs, len(tasks)) as (file,):
            tower = DifferentiableTower.load(merged, inputs)
            for task in tasks:
                file.append(tower.gradient(sample[task], gradient_meter, task))
            rows = []
            stream = Stream(inputs, stages=(), in_pieces=False, meter=product_meter, phase="Predicting changes")
            for slot in stream:
                *row, weight = first_order_products(slot, merged, file)
                rows.append(row)
                weights.setdefault(slot.name, []).append(weight)
        for index, task in enumerate(tasks):
            by_task[task].append(Predictions(*(np.stack([row[kind][index] for row in rows]) for kind in range(3))))
    means = {
        task: Predictions(*(np.mean(values, axis=0) for values in zip(*by_model, strict=True)))
        for task, by_model in by_task.items()
    }
    return means, {name: float(np.mean(values)) for name, values in weights.items()}


def first_order_products(slot: Slot, merged: Checkpoint, file: GradientFile) -> tuple[Floats, Floats, Floats, float]:
    """The predictions for the tensor of a slot: put_back (T,), take_out and give_back (T, K), and the weight λ."""
    base = slot.pretrained
    change = to_float64(merged.read(slot.name).to(base.device, base.dtype) - base).flatten()
    vectors, gradients = to_float64(slot.task_vectors).flatten(1), to_float64(file.read(slot.name, 0, base.numel()))
    total = vectors.sum(dim=0)
    square, product = to_numbers(total.square().sum(), change @ total)
    weight = product / square if square > 0 else 0.0
    by_change, by_vector = gradients @ change, gradients @ vectors.T  # (T,), (T, K)
    changes = (-by_change, -weight * by_vector, by_vector - by_change[:, None])
    put_back, take_out, give_back = (product_row.cpu().numpy() for product_row in changes)
    return put_back, take_out, give_back, weight


@dataclass(frozen=True)
class DifferentiableTower:
    """A model's tower whose margins are differentiated with respect to the stored tensors (``leaves``)."""

    encoder: Encoder
    leaves: Mapping[str, Tensor]

    @classmethod
    def load(cls, merged: Checkpoint, inputs: RunInputs) -> DifferentiableTower:
        """The tower of a merged model, loaded into memory."""
        encoder = Encoder.from_checkpoint(merged, inputs.device, on_demand=True, fallback=inputs.pretrained)
        stored = [name for parts in encoder.names.values() for name in parts]
        return cls(encoder, {n: merged.read(n).to(inputs.device, torch.float32).requires_grad_() for n in stored})

    def gradient(
        self, task: SampleImages, meter: Meter, detail: str, measure: MeasureImages = cosine_margins
    ) -> dict[str, Tensor]:
        """∂m/∂θ of the task's mean margin m by name of the stored tensor θ, each of the shape (*S) of θ.

        With ``measure``, m is the mean of what it returns of features (n, d), head (classes, d) and labels (n,).
        """
        for leaf in self.leaves.values():
            leaf.grad = None
        architecture, count = self.encoder.architecture, len(task.labels)
        tokens = (architecture.image_size // architecture.patch_size) ** 2 + 1
        image_bytes = 4 * RETAINED_NUMBERS * architecture.layers * architecture.width * tokens
        size = max(1, limit_batch(min(BATCH_SIZE, ACTIVATION_BYTES // image_bytes), architecture, self.encoder.device))
        labels, head = torch.from_numpy(task.labels), task.head.to(self.encoder.device)
        for batch, right in zip(task.images.split(size), labels.split(size), strict=True):
            with torch.enable_grad():
                values = measure(self._assemble()(batch.to(head.device)), head, right.to(head.device))
                (values.sum() / count).backward()
            meter.advance(len(batch), "Computing gradients", detail)
        return {name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for name, leaf in self.leaves.items()}

    def _assemble(self) -> Encoder:
        names = self.encoder.names.items()
        tensors = {name: assemble(name, parts, [self.leaves[part] for part in parts]) for name, parts in names}
        return replace(self.encoder, tensors=tensors)


def build_change_table(
    predicted: Mapping[str, Predictions], tensors: Sequence[str], in_domain: Sequence[str]
) -> pd.DataFrame:
    """The table "changes" of ``measure_first_order``."""
    numbers = put_back_images.average_tasks({task: changes.put_back for task, changes in predicted.items()}, in_domain)
    frames = [
        pd.DataFrame({"tensor": tensors, "over": scope, "group": group, "put_back": values})
        for (scope, group), values in numbers.items()
    ]
    return pd.concat(frames, ignore_index=True)


def build_expert_table(
    predicted: Mapping[str, Predictions], tensors: Sequence[str], experts: Sequence[str], in_domain: Sequence[str]
) -> pd.DataFrame:
    """The table "experts" of ``measure_first_order``."""
    pairs = pd.MultiIndex.from_product([tensors, experts], names=["tensor", "expert"]).to_frame(index=False)
    averages = put_back_images.average_tasks(
        {task: np.stack(changes[1:]) for task, changes in predicted.items()}, in_domain
    )
    frames = [
        pairs.assign(over=scope, take_out=take_out.ravel(), give_back=give_back.ravel())
        for (scope, group), (take_out, give_back) in averages.items()
        if group == AVERAGE
    ]
    return pd.concat(frames, ignore_index=True)
