"""Facts that compare layers, masks and features, from the tables that the pages plot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from merging.base.text import plural
from merging.images.benchmarks.metrics import wilson
from merging.study.paper_facts.accuracy_facts import CHOOSING, compare_answers
from merging.study.paper_facts.comparison import (
    RANGE,
    BoundedValue,
    Comparison,
    Floats,
    compare_correlation_with_zero,
    compare_counts,
    compare_estimates,
    compare_pairs,
    compare_shares,
    compare_spreads,
)

if TYPE_CHECKING:
    import pandas as pd

COMPONENTS = {"attn": "Attention", "mlp": "MLP"}  # by the first word of a tensor's part; all others are OTHER_COMPONENT
OTHER_COMPONENT = "Other"
BLOCK_PREFIX = "block"
NEIGHBORS = "neighbors"


def find_components(table: pd.DataFrame) -> pd.Series[str]:
    """The component of every tensor of a table with ``part``: Attention, MLP or Other (LwPTV, section B.11)."""
    return table["part"].astype(str).str.partition(".")[0].map(lambda kind: COMPONENTS.get(kind, OTHER_COMPONENT))


def compare_components(masks: pd.DataFrame) -> Comparison:
    """The share of tensors that experts' own masks (whole tensors kept or pruned) keep, in attention and in MLPs.

    ``masks`` has part, tensor, expert and kept, a row per expert and tensor.
    """
    kinds, kept = find_components(masks), masks["kept"].astype(bool)
    attention, mlp = ((int(kept[kinds == kind].sum()), int((kinds == kind).sum())) for kind in COMPONENTS.values())
    sample = " of ".join(plural(masks[column].nunique(), column) for column in ("tensor", "expert"))
    return compare_shares(attention, mlp, sample)


def compare_mask_overlap(masks: pd.DataFrame, ratio: float) -> Comparison:
    """The share of tensors that every expert's own mask prunes, and that of independent masks of the same ratio."""
    kept = masks.groupby("tensor", sort=False)["kept"].any()
    pruned, n = int((~kept).sum()), len(kept)
    chance = ratio ** masks["expert"].nunique()
    share = BoundedValue(pruned / n, *wilson(pruned, n))
    return compare_estimates(share, BoundedValue(chance, chance, chance), plural(n, "tensor"))


def compare_drift_by_depth(cumulative: pd.DataFrame) -> Comparison | None:
    """The drift of a merge's class token after the last block and after the first, paired by task."""
    rows = cumulative[(cumulative["model"] == "merged") & (cumulative["token"] == "class")]
    rows = rows[rows["place"].astype(str).str.startswith(BLOCK_PREFIX)]
    if rows["position"].nunique() < 2:
        return None
    wide = rows.pivot(index="task", columns="position", values="cosine").sort_index(axis=1)
    sample = f"{len(wide)} tasks, n = {int(rows['n'].iloc[0]):,} images each, {CHOOSING}"
    return compare_pairs(wide.iloc[:, -1].to_numpy(), wide.iloc[:, 0].to_numpy(), sample)


def correlate_drift_with_loss(points: pd.DataFrame) -> Comparison:
    """The correlation of final drift (cosine) with accuracy lost over all points of runs and tasks."""
    sample = f"{len(points)} points of {points['run'].nunique()} merges and {points['task'].nunique()} tasks"
    return compare_correlation_with_zero(points["cosine"].to_numpy(float), points["lost"].to_numpy(float), sample)


def compare_evenness(first: pd.Series[float], second: pd.Series[float]) -> Comparison:
    """The standard deviations over tasks of the accuracies lost by two merges, which are fractions by task."""
    shared = [task for task in first.index if task in second.index]
    return compare_spreads(list(100 * first[shared]), list(100 * second[shared]), f"{len(shared)} tasks", "points")


def compare_neighbors(first: Floats, second: Floats) -> Comparison:
    """The shares of images with the class of their nearest neighbors, from the votes (n,), (n,) of two models."""
    return compare_answers({NEIGHBORS: first}, {NEIGHBORS: second}, [NEIGHBORS], half=CHOOSING)


def compare_distances(first: Floats, second: Floats) -> Comparison:
    """Mean distances (n,), (n,) of two models' features from the pretrained ones, on the same images."""
    return compare_pairs(first, second, f"n = {len(first):,} images, {CHOOSING}", unit="", scale=1.0)


def compare_dropped_ranges(dropped: pd.DataFrame) -> Comparison:
    """The ranges of the shares that pruning drops from the rows of one layer, without and with renormalization.

    ``dropped`` has renorm and dropped, a row per direction, expert and renorm.
    """
    spans = {
        bool(renorm): (100 * float(rows["dropped"].min()), 100 * float(rows["dropped"].max()))
        for renorm, rows in dropped.groupby("renorm")
    }
    (low, high), (lower, higher) = spans[False], spans[True]
    texts = (f"{low:.0f} to {high:.0f}%", f"{lower:.0f} to {higher:.0f}%")
    count = int((~dropped["renorm"].astype(bool)).sum())
    return compare_counts(high - low, higher - lower, f"{count:,} basis vectors of this layer", "points", texts)


def compare_agreement(first: tuple[float, int], second: tuple[float, int]) -> Comparison:
    """Two sign agreements (mean, positions), which are counted over all positions with a vote."""
    return compare_counts(100 * first[0], 100 * second[0], f"{first[1]:,} and {second[1]:,} positions with a vote", "%")


def compare_times(first: pd.Series[Any], second: pd.Series[Any]) -> Comparison:
    """Two multiples of the reference merge's time, with the range of their rounds."""
    ratio_first, ratio_second = (
        BoundedValue(float(row["ratio"]), float(row["low"]), float(row["high"])) for row in (first, second)
    )
    sample = f"at most {int(max(first['rounds'], second['rounds']))} rounds"
    return compare_estimates(ratio_first, ratio_second, sample, unit="×", scale=1.0, interval=RANGE)


def compare_coefficient_sums(first: pd.DataFrame, second: pd.DataFrame) -> Comparison:
    """The coefficients of two merges, summed over experts and paired by tensor, for the tensors that both have.

    Both tables have tensor and coefficient, a row for each expert and tensor.
    """
    sums = [table.groupby("tensor")["coefficient"].sum(min_count=1).dropna() for table in (first, second)]
    shared = sums[0].index.intersection(sums[1].index)
    sums_first, sums_second = (sums_of_merge[shared].to_numpy(float) for sums_of_merge in sums)
    sample = plural(len(shared), "tensor that is kept", "tensors that are kept")
    return replace(compare_pairs(sums_first, sums_second, sample, unit="", scale=1.0), digits=2)


def compare_file_sizes(first: float, second: float) -> Comparison:
    """Two sizes in bytes, counted in full, in MiB."""
    mib = 1 << 20
    return compare_counts(first / mib, second / mib, "all scalars", "MiB")
