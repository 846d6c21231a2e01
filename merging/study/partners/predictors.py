"""What can be known of two experts before they are merged: from their weights, and from a few training images.

Row i, column j of a matrix (K, K) is of the ordered pair (i, j): task i, which is judged, and the task vector τ_j that
is added. ``foretell`` measures how well each number foretells a measured loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.devices import choose_device
from merging.base.numerics.linear_algebra import Factors, to_float64, to_numbers, truncated_svd
from merging.base.progress import Meter
from merging.engine.evaluation.image_features import compute_features, predict
from merging.engine.gradients import gradient_files
from merging.engine.layer_inputs import CapturedInputs
from merging.engine.run_inputs import RunInputs
from merging.engine.stream import Stream
from merging.images.exemplars import TaskExemplars
from merging.images.image_encoder import Encoder
from merging.methods.shared.least_squares import as_matrices
from merging.models.checkpoint import Checkpoint
from merging.models.families import WEIGHT_ROLES
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.measurements.drift import output_energy
from merging.study.measurements.first_order import DifferentiableTower
from merging.study.measurements.pairs import CONFLICT, COSINE, compare_experts
from merging.study.measurements.put_back_images import SampleImages
from merging.tasks.context import QUIET, Context

KEY, IMAGES, SEED = "predictors", 32, 0  # of the measurement: its key, training images of each task and their seed
PAIRS = "pairs"  # its table
DIGITS = 4  # significant digits of stored numbers
ENERGY_SHARE = 0.9  # of the squared singular values, which the compared directions hold
WEIGHTS_STAGE, SPECTRA_STAGE = "signs and cosines", "singular vectors"  # stages
FROM_WEIGHTS, FROM_IMAGES = "weights", "images"  # stages of the measurement
GRADIENTS_STAGE, INPUTS_STAGE, PRETRAINED_STAGE = "gradients", "layer inputs", "pretrained model"
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WeightPredictors:
    """Numbers of K experts from their weights alone, of L matrices and S sections of the network.

    ``cosine``, ``log_norm_ratio`` (log ‖τ_j‖ / ‖τ_i‖) and ``conflict`` (the share with different signs of entries that
    both change, minus that by chance) are (K, K), over all tensors; ``section_cosine`` (S, K, K) has the cosines of
    each of the ``sections``. ``right`` and ``left`` (L, K, K) are the overlaps of the ``matrices``, see
    ``overlap_experts``. ``effective_rank`` and ``energy`` (‖τ‖²_F) are (L, K).
    """

    experts: tuple[str, ...]
    sections: tuple[str, ...]
    matrices: tuple[str, ...]
    cosine: Floats
    log_norm_ratio: Floats
    conflict: Floats
    section_cosine: Floats
    right: Floats
    left: Floats
    effective_rank: Floats
    energy: Floats

    def average_matrices(self, values: Floats) -> Floats:
        """The mean over matrices (K, ...) of ``values`` (L, K, ...), each with expert i's share of its energy.

        NaN for an expert without energy.
        """
        whole = self.energy.sum(axis=0)
        shares = self.energy / np.where(whole > 0, whole, np.nan)
        known = np.where(np.isfinite(values), values, 0.0)  # undefined only where the share is zero
        mean: Floats = np.einsum("lk,lk...->k...", shares, known)
        return mean


@dataclass(frozen=True, eq=False)
class ImagePredictors:
    """Numbers of K experts from a few training images of each task.

    ``alignment`` (K, K) is ⟨∇L_i(θ₀ + τ_i), τ_j⟩, to first order the rise of task i's loss (cross-entropy, nats) when
    τ_j is added to expert i. ``interference`` (K, K) is Σ_l ‖X_i^l τ_j^l‖² / ‖X_i^l τ_i^l‖² with the inputs X_i^l of
    layer l in expert i, over the weight matrices that expert i changed. ``pretrained`` (K,) is the pretrained model's
    accuracy on the images of each task.
    """

    experts: tuple[str, ...]
    alignment: Floats
    interference: Floats
    pretrained: Floats


def measure_predictors(subject: Subject, context: Context) -> MeasurementResult:
    """The table of ``build_pair_table`` of a run's experts, with ``IMAGES`` training images of each task.

    Raises:
        CheckpointError, TaskError: the run's models cannot be read, or do not fit the benchmark's images.
        NeedsError, MergingError: images do not fit an expert, or the disk is full. Cancelled: the user cancelled.
    """
    opened, device = subject.checkpoints_on_benchmark, choose_device(context.device)
    stages = context.split({FROM_WEIGHTS: 1.0, FROM_IMAGES: 1.0})
    exemplars = subject.benchmark.labeled_exemplars(IMAGES, SEED)
    weights = compare_weights(opened.pretrained, opened.experts, device, stages[FROM_WEIGHTS])
    own = {name: exemplars[name] for name in opened.experts}
    images = compare_on_images(opened.pretrained, opened.experts, own, device, stages[FROM_IMAGES])
    table, counts = build_pair_table(weights, images), [len(one.images) for one in own.values()]
    numbers = list_predictors(table)
    table[numbers] = table[numbers].map(lambda value: float(f"{value:.{DIGITS}g}"))
    notes = {"exemplars": max(counts), "fewest_exemplars": min(counts), "exemplar_seed": SEED}
    return MeasurementResult({PAIRS: table}, notes)


# From weights


def compare_weights(
    pretrained: Checkpoint, experts: Mapping[str, Checkpoint], device: torch.device, context: Context = QUIET
) -> WeightPredictors:
    """The predictors from weights, streamed tensor by tensor. Raises CheckpointError or Cancelled."""
    inputs = RunInputs(pretrained, experts, None, device)
    stages = context.split({WEIGHTS_STAGE: 1.0, SPECTRA_STAGE: 4.0})
    sums = compare_experts(inputs, stages[WEIGHTS_STAGE])
    whole, lengths = sums.sum_rows(), np.sqrt(np.diagonal(sums.dot.sum(axis=0)))
    sections = sums.tensors["section"].to_numpy(object)
    names = tuple(dict.fromkeys(sections))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_norm_ratio = np.log(lengths[None, :] / lengths[:, None])
    matrices, overlaps, ranks, energies = [], [], [], []
    meter = stages[SPECTRA_STAGE].meter(inputs.work)
    for slot in Stream(inputs, stages=(), in_pieces=False, meter=meter, phase="Comparing singular vectors"):
        if slot.role not in WEIGHT_ROLES:
            continue
        factors = [truncated_svd(matrix, min(matrix.shape)).on_cpu() for matrix in as_matrices(slot)]
        matrices.append(slot.name)
        overlaps.append(overlap_experts(factors))
        ranks.append([effective_rank(one.values) for one in factors])
        energies.append([float(one.values.square().sum()) for one in factors])
    right, left = (np.array([one[side] for one in overlaps]).reshape(-1, *log_norm_ratio.shape) for side in (0, 1))
    return WeightPredictors(
        inputs.names, names, tuple(matrices), whole.values(COSINE)[0], log_norm_ratio,
        (whole.values(CONFLICT) - whole.chance(CONFLICT))[0],
        np.stack([sums.sum_rows(sections == name).values(COSINE)[0] for name in names]), right, left,
        *(np.array(rows, np.float64).reshape(-1, len(inputs.names)) for rows in (ranks, energies)),
    )  # fmt: skip


def overlap_experts(factors: Sequence[Factors]) -> tuple[Floats, Floats]:
    """The overlaps (K, K) of right and of left singular subspaces that hold ``ENERGY_SHARE`` of the energy.

    The overlap of orthonormal columns V_i (d, r) and V_j (d, s) is ‖V_iᵀV_j‖²_F / r, the share of the first subspace in
    the second: 1 if the second contains the first, 0 if they are orthogonal, about s / d by chance; NaN if r is zero.
    """
    ranks = [hold_energy(one.values) for one in factors]
    right = [one.right[:rank].T for one, rank in zip(factors, ranks, strict=True)]
    left = [one.left[:, :rank] for one, rank in zip(factors, ranks, strict=True)]
    right_overlaps, left_overlaps = (
        np.array([[float((first.T @ second).square().sum()) for second in bases] for first in bases])
        for bases in (right, left)
    )
    sizes = np.where(ranks, ranks, np.nan)[:, None]
    return right_overlaps / sizes, left_overlaps / sizes


def hold_energy(values: Tensor, share: float = ENERGY_SHARE) -> int:
    """How many of the singular values (r,), the largest first, hold this share of the sum of squares."""
    energy = to_float64(values).square().cumsum(0)
    return int((energy < share * energy[-1:]).sum()) + 1 if len(energy) and energy[-1] > 0 else 0


def effective_rank(values: Tensor) -> float:
    """exp(H) of the entropy H of σ² / Σσ², of singular values (r,); 0 without any.

    Roy and Vetterli 2007, "The effective rank", take σ / Σσ; squares weight by energy.
    """
    squares = to_float64(values).square()
    squares = squares[squares > 0]
    shares = squares / squares.sum()
    return float(torch.exp(-(shares * shares.log()).sum())) if len(squares) else 0.0


# From images


def compare_on_images(
    pretrained: Checkpoint,
    experts: Mapping[str, Checkpoint],
    exemplars: Mapping[str, TaskExemplars],
    device: torch.device,
    context: Context = QUIET,
) -> ImagePredictors:
    """The predictors from the labeled ``exemplars`` {task: images with labels and head} of every expert.

    Raises:
        NeedsError: an expert has no exemplars, or images that its tower cannot take.
        CheckpointError, MergingError: a model cannot be read, or the disk is full. Cancelled: the user cancelled.
    """
    captured = CapturedInputs(experts, {task: one.images for task, one in exemplars.items()}, device, like=pretrained)
    inputs = RunInputs(pretrained, experts, captured, device)
    stages = context.split({GRADIENTS_STAGE: 3.0, INPUTS_STAGE: 3.0, PRETRAINED_STAGE: 1.0})
    count, images = len(inputs.names), sum(len(exemplars[name].images) for name in inputs.names)
    alignment, interference = np.zeros((count, count)), np.zeros((count, count))
    with gradient_files(inputs, count) as (file,):
        meter = stages[GRADIENTS_STAGE].meter(images)
        for name, expert in inputs.experts.items():
            tower, loss = (
                DifferentiableTower.load(expert, inputs),
                partial(cross_entropies, exemplars[name].logit_scale),
            )
            file.append(tower.gradient(_to_sample(exemplars[name]), meter, name, loss))
        meter = stages[INPUTS_STAGE].meter(inputs.work)
        for slot in Stream(inputs, stages=(), in_pieces=False, meter=meter, phase="Comparing layer inputs"):
            gradients = to_float64(file.read(slot.name, 0, slot.pretrained.numel()))
            vectors = to_float64(slot.task_vectors)
            alignment += (gradients @ vectors.flatten(1).T).cpu().numpy()
            if (rows := slot.inputs) is not None and slot.role in WEIGHT_ROLES:
                tensors = as_matrices(slot, vectors)
                for i, moments in enumerate(rows):
                    energies = np.array(to_numbers(*(output_energy(moments, one) for one in tensors)))
                    interference[i] += energies / energies[i] if energies[i] > 0 else 0
    meter = stages[PRETRAINED_STAGE].meter(images)
    accuracies = score_exemplars(pretrained, {name: exemplars[name] for name in inputs.names}, device, meter)
    return ImagePredictors(inputs.names, alignment, interference, accuracies)


def cross_entropies(scale: float, features: Tensor, head: Tensor, labels: Tensor) -> Tensor:
    """The losses (n,), in nats, of features (n, d) with a head (classes, d) of unit rows and labels (n,)."""
    logits = scale * torch.nn.functional.normalize(features, dim=-1) @ head.T
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def score_exemplars(
    model: Checkpoint, exemplars: Mapping[str, TaskExemplars], device: torch.device, meter: Meter | None = None
) -> Floats:
    """A model's accuracy (K,) on the labeled exemplars of each task."""
    encoder, accuracies = Encoder.from_checkpoint(model, device), []
    for name, task in exemplars.items():
        sample = _to_sample(task)
        features = compute_features(encoder, sample.images, meter, "Evaluating the pretrained model", name)
        accuracies.append(float((predict(features, sample.head) == sample.labels).mean()))
    return np.array(accuracies)


def _to_sample(task: TaskExemplars) -> SampleImages:
    assert task.labels is not None and task.head is not None  # ``labeled_exemplars`` have both
    return SampleImages(task.images, task.labels.numpy(), task.head)


# Tables


def build_pair_table(weights: WeightPredictors, images: ImagePredictors | None = None) -> pd.DataFrame:
    """A row for each ordered pair of different experts: first (i), second (j), and one column for each predictor.

    Columns: cosine, log_norm_ratio, conflict, right and left (overlaps, means over matrices by energy of the first),
    first_rank and second_rank (effective, likewise), "cosine SECTION" of each section; with images also alignment,
    interference and pretrained (of the first).
    """
    first, second = np.nonzero(~np.eye(len(weights.experts), dtype=bool))
    names, ranks = np.array(weights.experts, object), weights.average_matrices(weights.effective_rank)
    matrices = {
        "cosine": weights.cosine, "log_norm_ratio": weights.log_norm_ratio, "conflict": weights.conflict,
        "right": weights.average_matrices(weights.right), "left": weights.average_matrices(weights.left),
    }  # fmt: skip
    matrices |= {
        f"cosine {section}": of_section
        for section, of_section in zip(weights.sections, weights.section_cosine, strict=True)
    }
    if images is not None:
        matrices |= {"alignment": images.alignment, "interference": images.interference}
    table = pd.DataFrame({"first": names[first], "second": names[second]})
    table = table.assign(**{name: matrix[first, second] for name, matrix in matrices.items()})
    table = table.assign(first_rank=ranks[first], second_rank=ranks[second])
    return table if images is None else table.assign(pretrained=images.pretrained[first])


def list_predictors(pairs: pd.DataFrame) -> list[str]:
    """The names of the predictors in a table of ``build_pair_table``."""
    return [str(name) for name in pairs.columns if name not in ("first", "second")]
