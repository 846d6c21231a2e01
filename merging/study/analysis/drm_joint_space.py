"""DRM's joint space of one linear layer: spectrum, energy of the experts, what pruning drops, and the four steps.

All numbers come from the functions that the merge itself runs. Direction i is the i-th left singular vector of all
tasks' matrices side by side (H), or the i-th right singular vector of these matrices on top of each other (V, also
called vertical). Renormalization scales every task's row of the decomposition to the same length before pruning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.errors import StoreError
from merging.base.numerics.drm_space import average_rows, prune_rows
from merging.base.numerics.linear_algebra import left_factors
from merging.engine.run_inputs import RunInputs
from merging.methods.shared.least_squares import as_matrices
from merging.study.analysis.measurement_subject import open_merged
from merging.study.runs.run import Run

MAX_ROWS, MAX_COLUMNS = 96, 256  # of a heat map
DECOMPOSED, RENORMALIZED, PRUNED, MERGED, DELTA = "decomposed", "renormalized", "pruned", "merged", "delta"
PROBE_SIZE = 384  # the size of the matrix whose decomposition measures the speed of this machine
Floats = NDArray[np.float64]
Tick = Callable[[float], object]


@dataclass(frozen=True)
class TaskMatrices:
    """The task vectors of a run's experts, read from their checkpoints one linear layer at a time, on the CPU."""

    inputs: RunInputs

    @classmethod
    def from_run(cls, run: Run) -> TaskMatrices:
        """The task vectors that a run merged.

        Raises:
            CheckpointError: a checkpoint of the run is missing or has changed.
            StoreError: the run is not a merge.
        """
        if (recipe := run.recipe) is None:
            raise StoreError(f"Run {run.id} is not a merge, so it has no task vectors.")
        opened = open_merged(run, recipe)
        return cls(RunInputs(opened.pretrained, opened.experts, None, torch.device("cpu")))

    def layer(self, name: str) -> Tensor:
        """The matrices of one linear layer (K, d_out, d_in), in the order of the run's experts."""
        parameter = next(parameter for parameter in self.inputs.parameters if parameter.name == name)
        return as_matrices(self.inputs.read_whole(parameter)).contiguous()


@dataclass(frozen=True)
class JointSpace:
    """Task matrices in their shared basis: ``basis`` (m, r), singular ``values`` (r,) in float64, descending, and
    ``entries`` (K, r, n). basis @ entries restores the matrices, transposed if ``vertical``."""

    experts: tuple[str, ...]
    vertical: bool
    basis: Tensor
    values: Tensor
    entries: Tensor

    @property
    def lengths(self) -> Floats:
        """Norms (K, r) of each task's part of the orthonormal rows, before renormalization.

        Their squares sum to 1 over the tasks.
        """
        norms: Floats = (self.entries.double().norm(dim=2) / self.values).cpu().numpy()
        return norms

    def truncate(self, rank_tol: float) -> JointSpace:
        """The space with only the directions whose singular value exceeds ``rank_tol`` times the largest (DRM)."""
        rank = count_directions(self.values, rank_tol)
        entries = self.entries[:, :rank]
        return replace(self, basis=self.basis[:, :rank], values=self.values[:rank], entries=entries)

    def matrices(self) -> Tensor:
        """The tasks' matrices (K, d_out, d_in), restored from the basis."""
        matrices = self.basis @ self.entries
        return matrices.mT if self.vertical else matrices


def compute_joint_space(
    experts: Sequence[str], vectors: Tensor, vertical: bool, tick: Tick = lambda share: None
) -> JointSpace:
    """The joint space of task vectors (K, d_out, d_in) of a linear map, with every direction of a nonzero value.

    ``tick`` is called with the share of the work done so far, and may raise Cancelled.

    Raises:
        MergingError: the numbers are too large.
    """
    blocks = vectors.mT if vertical else vectors
    tick(0.05)  # estimated shares of the time
    basis, values = left_factors(blocks, rank_tol=0.0)
    tick(0.85)
    basis, values = basis.flip(1).to(blocks), values.flip(0)
    entries = basis.T @ blocks
    tick(1.0)
    return JointSpace(tuple(experts), vertical, basis, values, entries)


def count_directions(values: Tensor, rank_tol: float) -> int:
    """The number of singular ``values`` (r,), descending, above ``rank_tol`` times the largest."""
    return int((values > rank_tol * values[:1]).sum().cpu())


@cache
def measure_speed() -> float:
    """Multiply-adds per second of this machine in the decompositions of ``compute_joint_space``."""
    probe = torch.randn(1, PROBE_SIZE, PROBE_SIZE, generator=torch.Generator().manual_seed(0))
    times = []
    for _ in range(3):
        started = time.perf_counter()
        left_factors(probe, rank_tol=0.0)
        times.append(time.perf_counter() - started)
    return _count_multiply_adds(1, PROBE_SIZE, PROBE_SIZE) / min(times)


def _count_multiply_adds(count: int, height: int, width: int) -> float:
    """Multiply-adds of the Gram matrix, its eigenvectors and the projection; eigenvectors have a larger factor."""
    short = min(height, count * width)
    return 2.0 * count * width * short**2 + 20.0 * short**3


def estimated_seconds(count: int, shape: tuple[int, int], vertical: bool) -> float:
    """Estimated seconds of ``compute_joint_space`` for ``count`` matrices of ``shape`` (d_out, d_in)."""
    height, width = shape[::-1] if vertical else shape
    return _count_multiply_adds(count, height, width) / measure_speed()


# Tables


def spectrum(space: JointSpace, rank_tol: float) -> pd.DataFrame:
    """A row per direction, largest first: direction (from 1), value, share (of the largest value), kept, and energy.

    kept says whether the rank cut retains the direction. energy is the share of all tasks' squared entries in the
    directions up to this one.
    """
    values = space.values.cpu().numpy()
    squares = values**2
    kept = np.arange(len(values)) < count_directions(space.values, rank_tol)
    largest, total = max(values.max(initial=0.0), np.finfo(float).tiny), max(squares.sum(), np.finfo(float).tiny)
    return pd.DataFrame(
        {
            "direction": np.arange(1, len(values) + 1),
            "value": values,
            "share": values / largest,
            "kept": kept,
            "energy": squares.cumsum() / total,
        }
    )


def energy_by_direction(space: JointSpace) -> pd.DataFrame:
    """The energy of every expert by direction: a row per expert and range of directions (at most ``MAX_COLUMNS``).

    Columns: expert, first and last (directions, from 1), norm (the mean of its row norms before renormalization),
    energy (the share of the expert's own squared entries in the range) and cumulative (up to the end of the range).
    """
    lengths = space.lengths
    squares = (lengths * space.values.cpu().numpy()) ** 2
    starts = _part_starts(squares.shape[1], MAX_COLUMNS)
    sizes = np.diff(starts, append=squares.shape[1])
    total = squares.sum(axis=1, keepdims=True)
    shares = np.divide(squares, total, out=np.full(squares.shape, np.nan), where=total > 0)
    energy = np.add.reduceat(shares, starts, axis=1)
    count = len(space.experts)
    return pd.DataFrame(
        {
            "expert": np.repeat(np.array(space.experts, object), len(starts)),
            "first": np.tile(starts + 1, count),
            "last": np.tile(starts + sizes, count),
            "norm": (np.add.reduceat(lengths, starts, axis=1) / sizes).ravel(),
            "energy": energy.ravel(),
            "cumulative": energy.cumsum(axis=1).ravel(),
        }
    )


def dropped_shares(space: JointSpace, prune_ratio: float, joint: bool = False) -> pd.DataFrame:
    """The share of every row's entries that pruning drops, with and without renormalization (DRM, Fig. 3).

    Columns: direction, expert, renorm, dropped. ``prune_ratio`` is the share dropped of the entries of each task's
    matrix, or of all tasks' matrices together if ``joint``.
    """
    frames = []
    for renorm in (True, False):
        dropped = np.empty(space.entries.shape[:2])
        for rows, part in prune_rows(space.entries, 1 - prune_ratio, renorm, joint):
            dropped[:, rows] = (part == 0).double().mean(dim=2).cpu().numpy()
        count, directions = dropped.shape
        columns = {
            "direction": np.tile(np.arange(1, directions + 1), count),
            "expert": np.repeat(np.array(space.experts, object), directions),
            "renorm": renorm,
            "dropped": dropped.ravel(),
        }
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


# The four steps


def algorithm_steps(space: JointSpace, prune_ratio: float, joint: bool) -> tuple[pd.DataFrame, dict[str, float]]:
    """The steps of DRM on this layer: a table of matrices reduced to block means of |x|, and facts about them.

    Columns: step, expert (empty for merged matrices), row and column (where the block begins in its matrix), value. The
    first three steps have a matrix for each expert, in units in which a row of length 1 has entries of mean square 1.
    Then come the merged entries and the merged task vector, in their own units. The facts are ratios: "kept", the share
    of all entries that pruning keeps; "elected", the share of the kept entries that have the sign of their sum; and
    "norm", the merged vector's norm over that of the experts' mean in these directions.
    """
    entries, unit = space.entries, space.entries.shape[2] ** 0.5
    lengths = entries.norm(dim=2, keepdim=True)
    inverse = torch.where(lengths > 0, unit / lengths, 0.0)
    pruned, merged = torch.empty_like(entries), torch.empty_like(entries[0])
    kept = elected = 0
    for rows, part in prune_rows(entries, 1 - prune_ratio, renorm=True, joint=joint):
        pruned[:, rows] = part
        kept, elected = kept + int((part != 0).sum()), elected + int((part * part.sum(dim=0) > 0).sum())
        merged[rows] = average_rows(part, elect=True, disjoint=True)
    delta, mean = space.basis @ merged, space.basis @ entries.mean(dim=0)
    stacks = {
        DECOMPOSED: entries * (unit / space.values.to(entries)[:, None]),
        RENORMALIZED: entries * inverse,
        PRUNED: pruned * inverse,
    }
    width = max(MAX_COLUMNS // len(entries), 1)
    frames = [
        _build_step_rows(step, expert, matrix, width)
        for step, stack in stacks.items()
        for expert, matrix in zip(space.experts, stack, strict=True)
    ]
    frames += [
        _build_step_rows(MERGED, "", merged, MAX_ROWS),
        _build_step_rows(DELTA, "", delta.T if space.vertical else delta, MAX_ROWS),
    ]
    mean_norm = float(mean.double().norm())
    facts = {
        "kept": kept / max(entries.numel(), 1),
        "elected": elected / kept if kept else np.nan,
        "norm": float(delta.double().norm()) / mean_norm if mean_norm else np.nan,
    }
    return pd.concat(frames, ignore_index=True), facts


def _build_step_rows(step: str, expert: str, matrix: Tensor, width: int) -> pd.DataFrame:
    values, rows, columns = block_means(matrix, MAX_ROWS, width)
    blocks = {"row": np.repeat(rows, len(columns)), "column": np.tile(columns, len(rows))}
    return pd.DataFrame({"step": step, "expert": expert, **blocks, "value": values.ravel()})


def block_means(matrix: Tensor, height: int, width: int) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Means of |x| (h, w) over blocks of a ``matrix`` (rows, columns), and their first rows (h,) and columns (w,).

    The matrix is cut as evenly as possible into at most ``height`` × ``width`` blocks.
    """
    values = matrix.abs().double().cpu().numpy()
    rows, columns = (
        _part_starts(size, max_parts) for size, max_parts in zip(values.shape, (height, width), strict=True)
    )
    sums = np.add.reduceat(np.add.reduceat(values, rows, axis=0), columns, axis=1)
    sizes = [np.diff(starts, append=size) for starts, size in zip((rows, columns), values.shape, strict=True)]
    return sums / np.outer(*sizes), rows, columns


def _part_starts(size: int, max_parts: int) -> NDArray[np.int64]:
    """The first index of each of at most ``max_parts`` even parts of ``size`` items."""
    parts = min(size, max_parts)
    return np.arange(parts) * size // max(parts, 1)
