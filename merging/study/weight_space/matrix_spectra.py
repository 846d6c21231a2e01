"""Singular values of task vectors, of their sum and of a merged change, and how well the merge spans each expert.

Matrices are task vectors of linear maps (d_out, d_in); decompositions run in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.devices import choose_device
from merging.base.errors import TaskError
from merging.base.numerics.linear_algebra import move_to_float64_device, to_float64
from merging.engine.run_inputs import RunInputs
from merging.methods.shared.least_squares import as_matrices
from merging.models.families import LINEAR_MAPS
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.tasks.context import Context

SUM, MERGED = "sum of task vectors", "merged change"  # matrices beside those of the experts
RESIDUAL = 0.05  # the share of the merged change's norm that its subspace may leave out
SPECTRA_STAGE, PHASE_TEXT = "spectra", "Decomposing"  # a stage
TENSOR_COLUMNS = ["tensor", "order", "section", "role", "part"]
Floats = NDArray[np.float64]


class LayerSpectra(NamedTuple):
    """Singular values (K + 2, r), descending, of K task vectors, their sum and the merged change; ratios (K,); k."""

    values: Floats
    ratios: Floats
    rank: int


def measure_spectra(subject: Subject, context: Context) -> MeasurementResult:
    """Spectra of every linear map of a run that merges into one model.

    Tables: "ranks" (a row for each tensor and matrix: an expert's, ``SUM`` or ``MERGED``) with norm, effective and
    stable rank, and the largest possible rank; "alignment" (a row for each tensor and expert) with ratio, and rank (k
    of the merged change's subspace). The array "merged" (tensors, largest rank) has the singular values of the merged
    change, float32, NaN beyond a matrix's own rank, in the order of "ranks"; those of the experts need no merge.

    Raises:
        CheckpointError: the models can no longer be read. TaskError: the run gives one model per task.
    """
    run, opened = subject.store.get_run(subject.run_id), subject.checkpoints
    if run.per_task:
        raise TaskError("Spectra are of one merged model; this run gives one model per task.")
    subject.refuse_modules(routed_only=True)
    device, stages = choose_device(context.device), subject.split_context(context, {SPECTRA_STAGE: 1.0})
    inputs = RunInputs(opened.pretrained, opened.experts, None, device)
    layers = [parameter for parameter in inputs.parameters if parameter.role in LINEAR_MAPS]
    meter, names = stages[SPECTRA_STAGE].meter(len(layers)), [*inputs.names, SUM, MERGED]
    ranks, alignment, values = [], [], []
    with subject.open_models(stages) as models:
        for parameter in layers:
            slot = inputs.read_whole(parameter)
            vectors = to_float64(move_to_float64_device(as_matrices(slot)))
            change = to_float64(models["merged"].read(parameter.name)) - to_float64(slot.pretrained).cpu()
            merged = as_matrices(slot, change[None])[0].to(vectors)
            layer = decompose_layer(vectors, merged)
            facts = (parameter.name, parameter.order, parameter.section, str(parameter.role), parameter.part)
            ranks += [
                (*facts, name, float(np.linalg.norm(row)), effective_rank(row), stable_rank(row), len(row))
                for name, row in zip(names, layer.values, strict=True)
            ]
            alignment += [
                (*facts, name, float(ratio), layer.rank) for name, ratio in zip(inputs.names, layer.ratios, strict=True)
            ]
            values.append(layer.values[-1].astype(np.float32))
            meter.advance(1, PHASE_TEXT, parameter.name)
    tables = {
        "ranks": pd.DataFrame(ranks, columns=[*TENSOR_COLUMNS, "matrix", "norm", "effective", "stable", "full"]),
        "alignment": pd.DataFrame(alignment, columns=[*TENSOR_COLUMNS, "expert", "ratio", "rank"]),
    }
    notes = {"residual": RESIDUAL, "layers": len(layers), "experts": len(inputs.names)}
    return MeasurementResult(tables, notes, {"merged": pad_rows(values)})


def decompose_layer(vectors: Tensor, merged: Tensor) -> LayerSpectra:
    """The spectra of task vectors (K, d_out, d_in), float64, of their sum and of the merged change (d_out, d_in)."""
    left, merged_values, _ = torch.linalg.svd(merged, full_matrices=False)
    both = torch.stack([*torch.linalg.svdvals(vectors), torch.linalg.svdvals(vectors.sum(dim=0)), merged_values])
    rank = find_subspace_rank(merged_values.cpu().numpy())
    return LayerSpectra(both.cpu().numpy(), align_subspaces(left[:, :rank], vectors), rank)


def find_subspace_rank(values: Floats) -> int:
    """The least k such that singular values (r,) after the k-th have at most ``RESIDUAL`` of the norm; 0 for zeros."""
    energy = np.square(values)
    beyond = np.append(np.cumsum(energy[::-1])[::-1], 0.0)  # beyond[k]: of the values after the k-th
    return int(np.argmax(beyond <= RESIDUAL**2 * beyond[0]))


def align_subspaces(left: Tensor, vectors: Tensor) -> Floats:
    """The subspace alignment ratios (K,): ‖Π Δ_i‖ / ‖Δ_i‖ of task vectors (K, d_out, d_in), NaN where Δ_i is zero.

    Π projects on the orthonormal columns of ``left`` (d_out, k) (Marczak et al. 2025, "No Task Left Behind", eq. 6).
    """
    kept = torch.linalg.matrix_norm(left.mT @ vectors) if left.shape[1] else vectors.new_zeros(len(vectors))
    ratios: Floats = (kept / torch.linalg.matrix_norm(vectors)).clamp(max=1.0).cpu().numpy()
    return ratios


def effective_rank(values: Floats) -> float:
    """exp of the entropy of σ² / Σσ² of singular values (r,); NaN for zeros (Roy and Vetterli 2007, on energies)."""
    if not (total := float(np.square(values).sum())):
        return math.nan
    shares = np.square(values) / total
    shares = shares[shares > 0]
    return float(np.exp(-(shares * np.log(shares)).sum()))


def stable_rank(values: Floats) -> float:
    """Σσ² / σ₁² of descending singular values (r,); NaN for zeros."""
    return float(np.square(values).sum() / values[0] ** 2) if values[0] else math.nan


def pad_rows(rows: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Arrays (r,) of L layers as one (L, largest r), with NaN at the ends."""
    width = max(map(len, rows), default=0)
    padded = [np.pad(row, (0, width - len(row)), constant_values=np.nan) for row in rows]
    return np.stack(padded) if padded else np.zeros((0, 0), np.float32)
