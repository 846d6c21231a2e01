"""Saliency of tensors and the masks that follow from it (LwPTV, Eq. 5 to 7), independent of any merge.

The edit ``lwptv`` and the live figure of masks use the same functions, so the figure shows the edit's effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.files.tables import Columns
from merging.methods.shared.trimming import floor_share
from merging.methods.slot import Slot, SlotStream
from merging.models.families import PACKED_QKV, Parameter, stored_tensor_name

if TYPE_CHECKING:
    import pandas as pd

DEVIATION, MEAN_ABS = "deviation", "mean_abs"  # scores: from the mean task vector, or from zero
RUN_LENGTH = 512  # adjacent scalars that are summed in their own precision


def deviations(task_vectors: Tensor, score: str) -> Tensor:
    """The distance (K, *S) of every scalar of the task vectors (K, *S) from their mean, or from zero."""
    if score == DEVIATION:
        differences = task_vectors - task_vectors[0]  # so that equal task vectors deviate by exactly zero
        return differences.sub_(differences.mean(dim=0)).abs_()
    return task_vectors.abs()


def scores(slots: SlotStream, score: str = DEVIATION) -> NDArray[np.float64]:
    """Mean deviation over the entries of each tensor: (K, L), tensors in model order (LwPTV Eq. 5)."""
    sums = {p.name: np.zeros(len(slots.experts)) for p in slots.parameters}
    counts = dict.fromkeys(sums, 0)

    def sum_slot(slot: Slot) -> tuple[str, int, NDArray[np.float64]]:
        per_scalar = deviations(slot.task_vectors, score)
        return slot.name, slot.pretrained.numel(), _row_sums(per_scalar.flatten(1)).cpu().numpy()

    for name, numel, row_sums in slots.map(sum_slot):
        sums[name] += row_sums
        counts[name] += numel
    return np.stack([sums[name] / max(counts[name], 1) for name in sums], axis=1)


def _row_sums(rows: Tensor) -> Tensor:
    """Sums (K,) in float64 of rows (K, n).

    Runs of 512 numbers are first added in the rows' own precision. This is twice as fast, and as all numbers have one
    sign, its rounding error is far below that of the numbers themselves.
    """
    in_runs = rows.shape[1] // RUN_LENGTH * RUN_LENGTH
    runs = rows[:, :in_runs].reshape(len(rows), -1, RUN_LENGTH).sum(dim=2)
    return runs.sum(dim=1, dtype=torch.float64) + rows[:, in_runs:].sum(dim=1, dtype=torch.float64)


def thresholds(saliency: NDArray[np.float64], prune_ratio: float, dead_tensors: int = 0) -> NDArray[np.float64]:
    """The thresholds (K,) that the scores (K, L) of kept tensors exceed: below all at ratio 0, above all at ratio 1.

    ``dead_tensors`` more tensors, of an unused text tower, count with a score of zero.
    """
    all_scores = np.pad(saliency, ((0, 0), (dead_tensors, 0)))
    index = floor_share(all_scores.shape[1], prune_ratio)  # of the threshold among the sorted scores
    if prune_ratio == 0.0:
        return np.full(len(saliency), -np.inf)
    if index >= all_scores.shape[1]:
        return np.full(len(saliency), np.inf)
    limits: NDArray[np.float64] = np.sort(all_scores, axis=1)[:, index]
    return limits


def own_masks(saliency: NDArray[np.float64], prune_ratio: float, dead_tensors: int = 0) -> NDArray[np.bool_]:
    """The masks (K, L) of the tensors that each expert keeps, from their saliency (K, L) (LwPTV Eq. 6)."""
    kept: NDArray[np.bool_] = saliency > thresholds(saliency, prune_ratio, dead_tensors)[:, None]
    return kept


def final_masks(own: NDArray[np.bool_], shared: bool) -> NDArray[np.bool_]:
    """The masks (K, L) for the merge: all that any expert keeps if shared (LwPTV Eq. 7), else ``own`` (K, L)."""
    return np.broadcast_to(own.any(axis=0), own.shape) if shared else own


def saliency_table(
    saliency: NDArray[np.float64],
    experts: Sequence[str],
    parameters: Sequence[Parameter],
    numels: Sequence[int],
    prune_ratio: float,
    shared: bool = True,
    dead_tensors: int = 0,
) -> Columns:
    """A table of saliency (K, L): one row per expert and tensor with score, threshold and two masks.

    The column ``kept`` is the mask of the expert alone, ``final`` the one for the merge.
    """
    own = own_masks(saliency, prune_ratio, dead_tensors)
    columns = {
        "tensor": [p.name for p in parameters] * len(experts),
        "order": [p.order for p in parameters] * len(experts),
        "section": [p.section for p in parameters] * len(experts),
        "role": [str(p.role) for p in parameters] * len(experts),
        "part": [p.part for p in parameters] * len(experts),
        "numel": list(numels) * len(experts),
        "expert": [expert for expert in experts for _ in parameters],
        "saliency": saliency.reshape(-1),
        "threshold": np.repeat(thresholds(saliency, prune_ratio, dead_tensors), len(parameters)),
        "kept": own.reshape(-1),
        "final": final_masks(own, shared).reshape(-1),
    }
    return Columns(columns | ({"dead_tensors": dead_tensors} if dead_tensors else {}))


def join_thirds(table: pd.DataFrame) -> pd.DataFrame:
    """A saliency table that has one row for the query, key and value of a packed tensor.

    The joined row is kept if any of the three is; its saliency is their mean.
    """
    names = table["tensor"].map(stored_tensor_name)
    is_third = names != table["tensor"]
    if not is_third.any():
        return table
    whole = table.assign(tensor=names, part=table["part"].mask(is_third, PACKED_QKV))
    rules = dict.fromkeys(table.columns.drop(["expert", "tensor"]), "first")
    rules |= {"numel": "sum", "saliency": "mean", "kept": "any", "final": "any"}
    return whole.groupby(["expert", "tensor"], sort=False, as_index=False).agg(rules)[list(table.columns)]


def apply_ratio(table: pd.DataFrame, prune_ratio: float, shared: bool = True) -> pd.DataFrame:
    """A saliency table with the masks of another prune ratio and the same scores; no checkpoint is read."""
    experts = list(dict.fromkeys(table["expert"]))
    saliency = table["saliency"].to_numpy(np.float64).reshape(len(experts), -1)
    dead_tensors = int(table["dead_tensors"].iloc[0]) if "dead_tensors" in table else 0
    own = own_masks(saliency, prune_ratio, dead_tensors)
    changed = table.copy()
    changed["threshold"] = np.repeat(thresholds(saliency, prune_ratio, dead_tensors), saliency.shape[1])
    changed["kept"] = own.reshape(-1)
    changed["final"] = final_masks(own, shared).reshape(-1)
    return changed
