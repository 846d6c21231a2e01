"""How far the signs of experts agree in the space of weights and in the joint spaces of DRM (Fig. 5, Table 4).

The joint spaces are spanned by the singular vectors of all task vectors of a layer side by side (H, horizontal) or on
top of each other (V, vertical). An election finds the sign with the larger sum of entries at a position.

At a position with p positive and q negative entries the agreement is max(p, q) / (p + q). Zeros are not votes,
positions without a vote do not count, and a single vote agrees with itself. So agreement rises with sparsity, and every
number is shown next to that of random signs with the same numbers of votes. All numbers follow from the counts
``(K + 1, K + 1)`` of positions by number of votes and size of the majority.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.devices import choose_device
from merging.base.numerics.drm_space import prune_rank, row_units
from merging.base.numerics.linear_algebra import move_to_float64_device, to_float64
from merging.base.numerics.quantile import kth_smallest
from merging.base.numerics.sign_election import Election, count_election, trim_at_densities, trim_rank, trim_vectors
from merging.engine.run_inputs import RunInputs
from merging.methods.shared.least_squares import as_matrices
from merging.models.families import LINEAR_MAPS, Parameter
from merging.study.analysis.drm_joint_space import JointSpace, compute_joint_space, measure_speed
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.tasks.context import Context

WEIGHTS = "weights"
SPACES = {  # {key: the paper's name} of original weights, decomposed spaces, and those projected back
    WEIGHTS: "Original weights",
    "joint_h": "Joint space H",
    "back_h": "H, projected back",
    "joint_v": "Joint space V",
    "back_v": "V, projected back",
}
DENSITIES = (1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05)
RANK_TOL = 0.01  # DRM's own default
# Shares of an expert's largest entry: smaller entries count as zero after projecting back.
NEGLIGIBLE_SHARES = {torch.float64: 1e-12, torch.float32: 1e-6}
ENTRY_WORK = (
    3000  # multiply-adds that take as long as pruning an entry and counting its votes, twice: see ``inspect_layer``
)
PIECE_POSITIONS = 1 << 14  # positions that are counted at a time, so that they stay in the processor's cache
EDGES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the bins of agreement
PHASE_TEXT = "Counting signs"
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class SignAgreement(NamedTuple):
    """Mean agreement over ``positions`` with a vote, ``null`` for random signs, and the share of entries that vote."""

    mean: float
    null: float
    density: float
    positions: int

    @property
    def excess(self) -> float:
        """The agreement beyond that of random signs."""
        return self.mean - self.null


def count_votes(values: Tensor) -> Counts:
    """Counts (K + 1, K + 1) of the positions of ``values`` (K, *S), by number of votes and size of the majority."""
    size = len(values) + 1
    counts = torch.zeros(size * size, dtype=torch.int64, device=values.device)
    for part in values.flatten(1).split(PIECE_POSITIONS, dim=1):
        signs = part.sign()
        balance = signs.sum(dim=0).abs_()
        votes = signs.abs_().sum(dim=0)
        cells = votes * size + (votes + balance) / 2
        counts += torch.bincount(cells.long(), minlength=size * size)
    return counts.reshape(size, size).cpu().numpy()


def majority_probabilities(votes: int) -> Floats:
    """The probability of each size of the majority (votes + 1,) if every vote's sign is a fair coin."""
    sizes = np.zeros(votes + 1)
    for positive in range(votes + 1):
        sizes[max(positive, votes - positive)] += math.comb(votes, positive) / 2**votes
    return sizes


def random_agreement(votes: int) -> float:
    """The expected agreement of ``votes`` random signs."""
    return float(majority_probabilities(votes) @ np.arange(votes + 1)) / votes


def mean_agreement(counts: Counts) -> SignAgreement:
    """The agreement over all positions of ``counts`` (K + 1, K + 1); NaN if there are no votes."""
    size = len(counts)
    voters = counts.sum(axis=1)
    positions, tasks = int(voters[1:].sum()), size - 1
    density = float(voters @ np.arange(size)) / max(int(voters.sum()) * tasks, 1)
    if not positions:
        return SignAgreement(math.nan, math.nan, density, 0)
    total = sum(float(counts[votes] @ np.arange(size)) / votes for votes in range(1, size))
    null = sum(int(voters[votes]) * random_agreement(votes) for votes in range(1, size))
    return SignAgreement(total / positions, null / positions, density, positions)


def agreement_histogram(counts: Counts) -> tuple[Floats, Floats]:
    """Shares (5,) of the positions of ``counts`` (K + 1, K + 1) in bins between ``EDGES``, and those of random signs.

    The last bin includes both of its edges.
    """
    bins = len(EDGES) - 1
    observed, null = np.zeros(bins), np.zeros(bins)
    for votes in range(1, len(counts)):
        chances = majority_probabilities(votes) * counts[votes].sum()
        for majority in range(-(-votes // 2), votes + 1):
            index = min(10 * majority // votes - 5, bins - 1)  # in integers, since 0.6 is an edge
            observed[index] += counts[votes, majority]
            null[index] += chances[majority]
    total = max(int(counts[1:].sum()), 1)
    return observed / total, null / total


class LayerSigns(NamedTuple):
    """The votes of one layer by (space, density), its elections by density, and the ranks of its joint spaces H, V."""

    votes: Mapping[tuple[str, float], Counts]
    elections: Mapping[float, Election]
    ranks: tuple[int, int]


def inspect_layer(
    vectors: Tensor,
    densities: Sequence[float] = DENSITIES,
    rank_tol: float = RANK_TOL,
    report_share: Callable[[float], None] = lambda share: None,
    spaces: Iterable[JointSpace] | None = None,
) -> LayerSigns:
    """Votes and elections of the task vectors (K, d_out, d_in) of one linear map, pruned to each of the densities.

    Every expert's matrix is pruned by itself: in the weights as TIES trims one tensor, in the joint spaces as DRM
    prunes the entries of its renormalized rows. The joint ``spaces`` H and V are computed one after the other if they
    are None. ``report_share`` is called with the share of the work done so far.
    """
    votes: dict[tuple[str, float], Counts] = {}
    elections: dict[float, Election] = {}
    for density, kept in zip(densities, trim_at_densities(vectors, densities), strict=True):
        votes[WEIGHTS, density], elections[density] = count_votes(kept), count_election(kept)
    ranks = []
    if spaces is None:
        spaces = (compute_joint_space((), vectors, vertical) for vertical in (False, True))  # (): no names of experts
    report_share(1 / 9)  # of nine parts: one for the weights, four for each joint space
    for step, (direction, full_space) in enumerate(zip("hv", spaces, strict=True)):
        space = full_space.truncate(rank_tol)
        ranks.append(len(space.values))
        renormalized = trim_at_densities(space.entries / row_units(space.entries), densities, prune_rank)
        for index, (density, kept) in enumerate(zip(densities, renormalized, strict=True)):
            votes[f"joint_{direction}", density] = count_votes(kept)
            projected_back = space.basis @ (space.entries * (kept != 0))
            votes[f"back_{direction}", density] = count_votes(_drop_rounding_errors(projected_back))
            report_share((1 + 4 * step + 4 * (index + 1) / len(densities)) / 9)
    return LayerSigns(votes, elections, (ranks[0], ranks[1]))


def estimated_seconds(shape: Sequence[int]) -> float:
    """Seconds that ``inspect_layer`` takes for one density of task vectors of ``shape`` (K, d_out, d_in), roughly.

    The joint spaces are assumed to be computed before.
    """
    tasks, d_out, d_in = shape
    entries = tasks * d_out * d_in
    return entries * (min(d_out, tasks * d_in) + min(d_in, tasks * d_out) + 2 * ENTRY_WORK) / measure_speed()


def _drop_rounding_errors(values: Tensor) -> Tensor:
    """The values (K, d_out, d_in), with zeros for values that are negligible relative to the expert's largest."""
    sizes = values.abs()
    return values * (sizes >= NEGLIGIBLE_SHARES[values.dtype] * sizes.amax(dim=(1, 2), keepdim=True))


def measure_signs(subject: Subject, context: Context) -> MeasurementResult:
    """Sign agreement and elections of a run's experts, for every linear layer, space and density, layer by layer.

    The tables: "layers", facts by order; "agreement", by order, space and density; "votes", the positions of all layers
    together by space, density, number of votes and size of the majority; "elections", by order, density and expert.

    Raises:
        CheckpointError: the checkpoints that the run merged can no longer be read.
    """
    opened = subject.checkpoints
    inputs = RunInputs(opened.pretrained, opened.experts, None, choose_device(context.device))
    sizes = dict(zip((p.name for p in inputs.parameters), inputs.numels, strict=True))
    meter = context.meter(sum(sizes.values()))
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLE_COLUMNS}
    total: dict[tuple[str, float], Counts] = {}
    elections: dict[int, Mapping[float, Election]] = {}  # by the layer's order
    other_votes = dict.fromkeys(DENSITIES, 0)
    for p in inputs.parameters:

        def tick(share: float, name: str = p.name) -> None:
            meter.report_part(round(share * sizes[name]), PHASE_TEXT, name)

        if p.role not in LINEAR_MAPS:
            for density, votes in sum_elected_votes(inputs, p).items():
                other_votes[density] += votes
        else:
            vectors = move_to_float64_device(
                as_matrices(inputs.read_whole(p))
            )  # the precision in which TIES elects signs
            exact = to_float64(vectors)
            spaces = (compute_joint_space((), exact, vertical) for vertical in (False, True))  # (): no names
            layer = inspect_layer(vectors, report_share=tick, spaces=spaces)
            rows["layers"].append((p.name, p.order, p.section, str(p.role), p.part, sizes[p.name], *layer.ranks))
            for (space, density), counts in layer.votes.items():
                stats = mean_agreement(counts)
                rows["agreement"].append(
                    (p.order, space, density, stats.mean, stats.null, stats.density, stats.positions)
                )
                total[space, density] = total.get((space, density), 0) + counts
            elections[p.order] = layer.elections
        meter.advance(sizes[p.name], PHASE_TEXT, p.name)
    rows["votes"] = [
        (space, density, votes, majority, int(counts[votes, majority]))
        for (space, density), counts in total.items()
        for votes, majority in np.argwhere(counts).tolist()
    ]
    rows["elections"] = build_election_rows(elections, other_votes, inputs.names)
    tables = {name: pd.DataFrame(rows[name], columns=columns) for name, columns in TABLE_COLUMNS.items()}
    return MeasurementResult(tables, {"rank_tol": RANK_TOL, "layers": len(elections), "tasks": len(inputs.names)})


def sum_elected_votes(inputs: RunInputs, parameter: Parameter) -> dict[float, int]:
    """The sum of all signs that one tensor elects, by density. The tensor may be large, so it is read in blocks."""
    tensor_inputs = replace(inputs, subset=frozenset({parameter.name}))
    numel = inputs.pretrained.infos[parameter.name].numel

    def blocks() -> Iterator[Tensor]:
        return (slot.task_vectors for slot in tensor_inputs.slots(in_blocks=True, is_dropped=lambda _: False))

    pruned, count = [density for density in DENSITIES if density < 1], len(inputs.names)
    ranks = [trim_rank(numel, density) for density in pruned for _ in inputs.names]
    magnitudes = kth_smallest(lambda: (block.abs() for block in blocks()), ranks)
    thresholds = {density: magnitudes[i * count : (i + 1) * count] for i, density in enumerate(pruned)}
    votes = dict.fromkeys(DENSITIES, 0)
    for block in blocks():
        for density in DENSITIES:
            votes[density] += count_election(trim_vectors(block, thresholds.get(density))).votes
    return votes


def build_election_rows(
    elections: Mapping[int, Mapping[float, Election]], other_votes: Mapping[float, int], experts: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Rows of the table "elections" for layers by order; exact ties take the sign that most of the model elects.

    ``other_votes`` has by density the sum of the signs that all other tensors elect.
    """
    votes = {
        density: sum_of_others + sum(layer[density].votes for layer in elections.values())
        for density, sum_of_others in other_votes.items()
    }
    return [
        (order, density, *row)
        for order, layer in elections.items()
        for density, election in layer.items()
        for row in zip(experts, election.kept, election.count_survivors(votes[density]), strict=True)
    ]


def read_counts(votes: pd.DataFrame, tasks: int) -> dict[tuple[str, float], Counts]:
    """The table "votes" as counts (K + 1, K + 1) by space and density, for K = ``tasks``."""
    counts_by_space: dict[tuple[str, float], Counts] = {}
    for space, density in votes[["space", "density"]].drop_duplicates().to_numpy():
        rows = votes[(votes["space"] == space) & (votes["density"] == density)]
        counts = counts_by_space[str(space), float(density)] = np.zeros((tasks + 1, tasks + 1), np.int64)
        counts[rows["votes"], rows["majority"]] = rows["count"]
    return counts_by_space


TABLE_COLUMNS = {
    "layers": ["tensor", "order", "section", "role", "part", "numel", "rank_h", "rank_v"],
    "agreement": ["order", "space", "density", "mean", "null", "kept", "positions"],
    "votes": ["space", "density", "votes", "majority", "count"],
    "elections": ["order", "density", "expert", "kept", "won"],
}
