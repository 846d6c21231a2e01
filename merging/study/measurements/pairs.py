"""Experts against experts: cosines of task vectors, signs that differ, and how far the largest entries coincide.

The tables hold sums per tensor and pair (inner products in float64, counts of entries); adding them gives the values of
any part of the network, and of the whole. A density is the share of each tensor's entries, the largest ones, that an
expert keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.devices import choose_device
from merging.base.numerics.linear_algebra import to_float64
from merging.base.numerics.sign_election import trim_at_densities
from merging.engine.run_inputs import RunInputs
from merging.engine.stream import Stream
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.measurements.signs import DENSITIES
from merging.tasks.context import QUIET, Context

COSINE, CONFLICT, OVERLAP = "cosine", "conflict", "overlap"
PAIR_VALUES = (COSINE, CONFLICT, OVERLAP)
TENSOR_COLUMNS = ["tensor", "order", "section", "role", "part", "numel"]
MAX_EXACT_COUNT = 1 << 24  # the largest count that float32 holds exactly
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class PairSums:
    """Sums for L tensors and pairs of K experts: inner products ``dot`` (L, K, K), and ``both`` and ``opposed``.

    These two (D, L, K, K) are by density: the number of entries that both experts keep, and of those among them with
    different signs. The diagonals hold the squared norms and counts of single experts.
    """

    experts: tuple[str, ...]
    tensors: pd.DataFrame  # TENSOR_COLUMNS; L rows
    dot: Floats
    both: Counts
    opposed: Counts

    def sum_rows(self, rows: NDArray[np.bool_] | slice = slice(None)) -> PairSums:
        """The sums over the tensors at ``rows`` (L,), as one tensor with the facts of the first."""
        facts = self.tensors[rows]
        facts = facts.iloc[:1].assign(numel=facts["numel"].sum())
        sums = [
            matrices[..., rows, :, :].sum(axis=-3, keepdims=True) for matrices in (self.dot, self.both, self.opposed)
        ]
        return PairSums(self.experts, facts, *sums)

    def values(self, value: str, density: float = 1.0) -> Floats:
        """One of ``PAIR_VALUES`` for every tensor and pair (L, K, K); NaN where undefined, as for a zero vector."""
        index = DENSITIES.index(density)
        if value == COSINE:
            return _divide(self.dot, np.sqrt(_combine_diagonals(self.dot, np.multiply)))
        if value == CONFLICT:
            return _divide(self.opposed[index], self.both[index])
        return _divide(self.both[index], _combine_diagonals(self.both[index], np.add) - self.both[index])

    def chance(self, value: str, density: float = 1.0) -> Floats:
        """The expected value (L, K, K) if every expert kept equally many entries at random positions."""
        if value != OVERLAP:
            return np.full(self.dot.shape, 0.0 if value == COSINE else 0.5)
        kept = self.both[DENSITIES.index(density)]
        numels = np.maximum(self.tensors["numel"].to_numpy(np.float64), 1)[:, None, None]
        expected = _combine_diagonals(kept, np.multiply) / numels
        return _divide(expected, _combine_diagonals(kept, np.add) - expected)


def _combine_diagonals(matrices: NDArray[Any], operation: np.ufunc) -> Floats:
    """The operation on the two diagonal entries of every pair: (..., K, K) -> (..., K, K)."""
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1).astype(np.float64)
    values: Floats = operation(diagonal[..., :, None], diagonal[..., None, :])
    return values


def _divide(numerator: NDArray[Any], denominator: NDArray[Any]) -> Floats:
    """part / whole, elementwise; NaN where the whole is not positive."""
    divisor = denominator.astype(np.float64)
    ratio: Floats = np.divide(
        numerator.astype(np.float64), divisor, out=np.full(divisor.shape, np.nan), where=divisor > 0
    )
    return ratio


# Measuring


def measure_pairs(subject: Subject, context: Context) -> MeasurementResult:
    """The tables of ``build_tables`` for the experts of a run; raises CheckpointError if they can no longer be read."""
    opened = subject.checkpoints
    inputs = RunInputs(opened.pretrained, opened.experts, None, choose_device(context.device))
    notes = {"experts": len(inputs.names), "tensors": len(inputs.parameters), "numel": sum(inputs.numels)}
    return MeasurementResult(build_tables(compare_experts(inputs, context)), notes)


def compare_experts(inputs: RunInputs, context: Context = QUIET) -> PairSums:
    """The sums of all pairs, tensor by tensor. Every tensor of every expert is pruned by itself. Raises Cancelled."""
    count, rows = len(inputs.names), {p.name: row for row, p in enumerate(inputs.parameters)}
    dot = np.zeros((len(rows), count, count))
    both, opposed = (np.zeros((len(DENSITIES), *dot.shape), np.int64) for _ in range(2))
    meter = context.meter(inputs.work)
    for slot in Stream(inputs, stages=(), in_pieces=False, meter=meter, phase="Comparing experts"):
        row, vectors = rows[slot.name], slot.task_vectors.reshape(count, -1)
        exact = to_float64(vectors)
        dot[row] = (exact @ exact.T).cpu().numpy()
        for index, trimmed in enumerate(trim_at_densities(vectors, DENSITIES)):
            signs = trimmed.sign().to(torch.float32 if trimmed.shape[1] < MAX_EXACT_COUNT else torch.float64)
            both[index, row] = kept_by_both = _sign_product(signs.abs())
            opposed[index, row] = (kept_by_both - _sign_product(signs)) // 2
    facts = [
        (p.name, p.order, p.section, str(p.role), p.part, numel)
        for p, numel in zip(inputs.parameters, inputs.numels, strict=True)
    ]
    return PairSums(inputs.names, pd.DataFrame(facts, columns=TENSOR_COLUMNS), dot, both, opposed)


def _sign_product(signs: Tensor) -> Counts:
    """Inner products (K, K) of rows (K, n) of 0 and ±1, which are whole numbers."""
    products: Counts = (signs @ signs.T).round().long().cpu().numpy()
    return products


# Tables that are stored


def build_tables(pairs: PairSums) -> dict[str, pd.DataFrame]:
    """The tables "tensors", "experts" (a row per tensor, by its order, and expert), "pairs" (per tensor and pair)."""
    diagonal = [(k, k) for k in range(len(pairs.experts))]
    upper = list(combinations(range(len(pairs.experts)), 2))
    expert_sums = {"square": pairs.dot} | _by_density("kept", pairs.both)
    pair_sums = {"dot": pairs.dot} | _by_density("both", pairs.both) | _by_density("opposed", pairs.opposed)
    return {
        "tensors": pairs.tensors,
        "experts": _build_table(pairs, diagonal, ("expert",), expert_sums),
        "pairs": _build_table(pairs, upper, ("first", "second"), pair_sums),
    }


def _by_density(name: str, counts: Counts) -> dict[str, NDArray[Any]]:
    return {f"{name}_{density:g}": matrices for density, matrices in zip(DENSITIES, counts, strict=True)}


def _build_table(
    pairs: PairSums, index_pairs: Sequence[tuple[int, int]], names: Sequence[str], sums: Mapping[str, NDArray[Any]]
) -> pd.DataFrame:
    """A row per tensor and chosen entry (first, second) of the matrices; ``names`` are the columns of the experts."""
    indices = np.array(index_pairs, int).reshape(-1, 2).T
    order, experts = pairs.tensors["order"].to_numpy(), np.array(pairs.experts, object)
    expert_columns = {name: np.tile(experts[indices[side]], len(order)) for side, name in enumerate(names)}
    numbers = {name: matrices[:, indices[0], indices[1]].ravel() for name, matrices in sums.items()}
    return pd.DataFrame({"order": np.repeat(order, len(index_pairs)), **expert_columns, **numbers})


def read_tables(tables: Mapping[str, pd.DataFrame]) -> PairSums:
    """The sums that ``build_tables`` wrote."""
    tensors, by_expert, by_pair = tables["tensors"], tables["experts"], tables["pairs"]
    experts = tuple(dict.fromkeys(by_expert["expert"]))
    length, count = len(tensors), len(experts)
    first, second = np.triu_indices(count, 1)

    def square(expert_column: str, pair_column: str) -> Floats:
        matrices = np.zeros((length, count, count))
        if expert_column:
            matrices[:, range(count), range(count)] = by_expert[expert_column].to_numpy().reshape(length, count)
        matrices[:, first, second] = matrices[:, second, first] = (
            by_pair[pair_column].to_numpy().reshape(length, len(first))
        )
        return matrices

    both = np.stack([square(f"kept_{density:g}", f"both_{density:g}") for density in DENSITIES])
    opposed = np.stack([square("", f"opposed_{density:g}") for density in DENSITIES])
    return PairSums(experts, tensors, square("square", "dot"), both.astype(np.int64), opposed.astype(np.int64))


# Tables that are plotted


def matrix_table(sums: PairSums, density: float = 1.0) -> pd.DataFrame:
    """All values of all ordered pairs of different experts, for one tensor or a sum over tensors.

    Columns: first, second, cosine, conflict, overlap, chance (of the overlap), both and opposed (entries).
    """
    index = DENSITIES.index(density)
    first, second = np.nonzero(~np.eye(len(sums.experts), dtype=bool))
    experts = np.array(sums.experts, object)
    numbers = {value: sums.values(value, density)[0] for value in PAIR_VALUES}
    numbers |= {
        "chance": sums.chance(OVERLAP, density)[0],
        "both": sums.both[index, 0],
        "opposed": sums.opposed[index, 0],
    }
    columns = {name: matrix[first, second] for name, matrix in numbers.items()}
    return pd.DataFrame({"first": experts[first], "second": experts[second], **columns})


def pair_by_depth(pairs: PairSums, pair: tuple[str, str], value: str, density: float = 1.0) -> pd.DataFrame:
    """One pair by tensor: ``TENSOR_COLUMNS``, value, chance, whole (the value of the whole section), low and high.

    low and high are the range over all pairs. Undefined numbers are NaN.
    """
    a, b = (pairs.experts.index(name) for name in pair)
    values, chance = pairs.values(value, density), pairs.chance(value, density)
    all_pairs = values[:, *np.triu_indices(len(pairs.experts), 1)]
    finite = np.isfinite(all_pairs).any(axis=1)
    low, high = np.full((2, len(values)), np.nan)
    low[finite], high[finite] = np.nanmin(all_pairs[finite], axis=1), np.nanmax(all_pairs[finite], axis=1)
    sections = pairs.tensors["section"].to_numpy()
    section_values = {s: pairs.sum_rows(sections == s).values(value, density)[0, a, b] for s in dict.fromkeys(sections)}
    return pairs.tensors.assign(
        value=values[:, a, b], chance=chance[:, a, b], whole=[section_values[s] for s in sections], low=low, high=high
    )


def pairs_by_tensor(pairs: PairSums, value: str, density: float = 1.0) -> pd.DataFrame:
    """Every pair by tensor: ``TENSOR_COLUMNS``, first, second, value (NaN if it is undefined)."""
    values = pairs.values(value, density)
    frames = [
        pairs.tensors.assign(first=pairs.experts[a], second=pairs.experts[b], value=values[:, a, b])
        for a, b in combinations(range(len(pairs.experts)), 2)
    ]
    return pd.concat(frames, ignore_index=True)


def expert_distances(sums: PairSums, value: str, density: float = 1.0) -> Floats:
    """The distances (K, K) of experts: 1 - cosine, the share in conflict, or 1 - overlap."""
    values: Floats = sums.values(value, density)[0]
    return values if value == CONFLICT else 1.0 - values


def cluster_order(distance: Floats) -> list[int]:
    """The order (K,) of the leaves of an average-linkage tree of ``distance`` (K, K), with near leaves side by side.

    An undefined distance counts as the largest one.
    """
    count = len(distance)
    if count < 3:
        return list(range(count))
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    finite = np.isfinite(distance)
    filled = np.where(finite, distance, distance[finite].max(initial=1.0))
    symmetric = np.maximum((filled + filled.T) / 2, 0.0)
    np.fill_diagonal(symmetric, 0.0)
    tree = linkage(squareform(symmetric, checks=False), "average", optimal_ordering=True)
    return [int(leaf) for leaf in leaves_list(tree)]
