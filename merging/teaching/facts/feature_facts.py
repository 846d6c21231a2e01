"""Facts about stored features and their maps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from merging.base.errors import LessonError, StoreError
from merging.teaching.fact import PERCENT, POINTS, Fact

if TYPE_CHECKING:
    import pandas as pd

    from merging.teaching.lesson_context import LessonContext

FEATURES, TSNE = "features", "tsne"
ALL_DATA_SETS = "all"
Z95 = 1.959963984540054


def distance(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The mean distance of a run's features from those of the pretrained model; with ``unit``, both have unit length.

    The interval is that of a mean over images.
    """
    from merging.study.analysis.separability import reference_distances

    alias = str(arguments["run"])
    measured = context.find_measurement(FEATURES, context.require_run(alias))
    pretrained_features = context.find_measurement(FEATURES, context.require_run("pretrained"))
    images, pretrained_images = measured.table("images"), pretrained_features.table("images")
    if images["image"].tolist() != pretrained_images["image"].tolist():
        raise StoreError("The features of the run and of the pretrained model are not of the same images.")
    selection = _select_task(images, arguments)
    lengths = reference_distances(
        measured.array("features")[selection],
        pretrained_features.array("features")[selection],
        bool(arguments.get("unit", False)),
    )
    mean, n = float(lengths.mean()), len(lengths)
    half_width = Z95 * float(lengths.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    notes = measured.notes
    return Fact(
        mean, "", mean - half_width, mean + half_width, n, str(notes["split"]), notes["seed"], "distance to pretrained"
    )


def neighbors(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The share of images with the class of most of their nearest neighbors.

    With ``against``, the fact is the difference from that run in points.
    """
    from merging.images.benchmarks.metrics import wilson
    from merging.images.benchmarks.paired_scores import compare_models
    from merging.study.measurements.features import vote_on_images

    row, notes = _read_separability(context, arguments, str(arguments["run"]))
    n, seed, task = int(row["n"]), notes["seed"], str(row["task"])
    if against := arguments.get("against"):
        _read_separability(context, arguments, str(against))  # raises LessonError if that run lacks the data set
        runs = (context.require_run(str(alias)) for alias in (arguments["run"], against))
        ours, theirs = ({task: vote_on_images(context.find_measurement(FEATURES, run), task)} for run in runs)
        change = compare_models(ours, theirs, ()).iloc[-1]
        ends = float(change["low"]), float(change["high"])
        return Fact(float(change["difference"]), POINTS, *ends, n, str(notes["split"]), seed, "image by image")
    value, (low, high) = row["correct"] / n, wilson(row["correct"], n)
    return Fact(float(value), PERCENT, low, high, n, str(notes["split"]), seed, "nearest neighbors' classes")


def separability(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The mean silhouette of the classes by cosine distance, from -1 to 1."""
    row, notes = _read_separability(context, arguments, str(arguments["run"]))
    n, half = int(row["n"]), str(notes["split"])
    return Fact(float(row["silhouette"]), "", n=n, half=half, seed=notes["seed"], source="silhouette", digits=3)


def map_trustworthiness(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The trustworthiness of a stored t-SNE map, from 0 to 1: how well its neighbors match those of the features."""
    measured = context.find_measurement(TSNE, context.require_run(str(arguments["run"])))
    task = str(arguments.get("task", ALL_DATA_SETS))
    rows = measured.table("quality")
    rows = rows[(rows["map"] == task) & (rows["perplexity"] == arguments["perplexity"])]
    if rows.empty:
        raise LessonError(f"There is no map of {task!r} with perplexity {arguments['perplexity']!r}.")
    notes, value, n = measured.notes, float(rows["trustworthiness"].iloc[0]), int(rows["n"].iloc[0])
    return Fact(value, "", n=n, half=str(notes["split"]), seed=notes["seed"], source="trustworthiness", digits=3)


def _read_separability(
    context: LessonContext, arguments: Mapping[str, Any], alias: str
) -> tuple[pd.Series, Mapping[str, Any]]:
    measured = context.find_measurement(FEATURES, context.require_run(alias))
    task = str(arguments.get("task", ALL_DATA_SETS))
    rows = measured.table("separability")
    rows = rows[rows["task"] == task]
    if rows.empty:
        raise LessonError(
            f"The features hold no data set {task!r}; only data sets out of domain are measured, and all together."
        )
    return rows.iloc[0], measured.notes


def _select_task(images: pd.DataFrame, arguments: Mapping[str, Any]) -> Any:
    """Booleans (n,) for the images of the data set ``task``, by default all. Raises LessonError."""
    from merging.study.measurements.features import select_images

    task = str(arguments.get("task", ALL_DATA_SETS))
    selection = select_images(images, task)
    if not selection.any():
        raise LessonError(f"The features hold no data set {task!r}.")
    return selection
