"""Losses of points on lines and in planes, and the barriers between their models.

The loss of an image is the cross-entropy of its task's zero-shot head, whose logits are cosines times the logit scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from merging.engine.evaluation.evaluate import SplitPrediction
from merging.engine.evaluation.image_features import cosines
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.metrics import Z95
from merging.models.model_references import PRETRAINED
from merging.study.sweeps.sweep import MERGED, Sweep

if TYPE_CHECKING:
    import pandas as pd

LOSS, LOSS_ERROR = "loss", "loss_error"  # columns of scores: the mean over images, and its standard error
LOSS_MEANS = ("loss_in", "loss_out")  # columns of averages: means over tasks
LOSS_COLUMNS = tuple(f"{name}{end}" for name in LOSS_MEANS for end in ("", "_low", "_high"))
NO_INTERVAL = "A barrier has no interval: as the largest of several noisy values, it is biased upward."
LACKS_ENDS = "A barrier needs the losses of both models, at 0 and 1, which are not among the values of {}."
LACKS_POINTS = "No point of the sweep lies between {}, so no barrier is known there."
ON_LINE = 1e-9  # how far a point may be off the straight line between two models


class Barrier(NamedTuple):
    """The largest rise of a loss above the straight line between its ends, where it is (0 to 1), and n of points."""

    height: float
    position: float
    points: int


class LossTable:
    """Collects the mean losses of predictions by task, with their standard errors."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._benchmark = benchmark
        self._losses: dict[str, tuple[float, float]] = {}

    def note(self, prediction: SplitPrediction) -> None:
        """Note the losses of the images of a task."""
        losses = cross_entropies(
            prediction.features, self._benchmark.load_head(prediction.task.key), prediction.labels,
            self._benchmark.logit_scale,
        )  # fmt: skip
        self._losses[prediction.task.key] = float(losses.mean()), standard_error(losses)

    def add_to(self, scores: pd.DataFrame) -> pd.DataFrame:
        """The scores of a split with the columns ``LOSS`` and ``LOSS_ERROR``."""
        means, errors = zip(*(self._losses[task] for task in scores["task"]), strict=True)
        return scores.assign(**{LOSS: means, LOSS_ERROR: errors})


def cross_entropies(
    features: torch.Tensor, head: torch.Tensor, labels: NDArray[np.int64], scale: float
) -> NDArray[np.float64]:
    """The loss (n,) of image features (n, embed_dim) with a head (classes, embed_dim) of unit rows; labels (n,)."""
    logits = scale * cosines(features.double(), head.double())
    return torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels), reduction="none").numpy()


def standard_error(values: NDArray[np.float64]) -> float:
    """The standard error of the mean of values (n,); NaN for fewer than two."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def average_losses(tasks: Iterable[tuple[bool, float, float]]) -> tuple[float, ...]:
    """``LOSS_COLUMNS`` from (is in domain, loss, standard error) of each task; NaN in a domain without tasks.

    Tasks weigh equally, and their images are independent samples.
    """
    averages: list[float] = []
    rows = list(tasks)
    for domain in (True, False):
        own = [(loss, error) for is_inside, loss, error in rows if is_inside == domain]
        mean = sum(loss for loss, _ in own) / len(own) if own else math.nan
        half = Z95 * math.sqrt(sum(error**2 for _, error in own)) / len(own) if own else math.nan
        averages += [mean, max(mean - half, 0.0) if own else math.nan, mean + half]
    return tuple(averages)


def find_barrier(positions: Sequence[float], losses: Sequence[float]) -> Barrier | None:
    """max over t in [0, 1] of L(t) - (1 - t) L(0) - t L(1); None without the loss at both ends and between them.

    The barrier of linear interpolation (Frankle et al. 2020; Entezari et al. 2022, eq. 1), over computed points alone.
    """
    by_position = {t: loss for t, loss in zip(positions, losses, strict=True) if 0 <= t <= 1 and math.isfinite(loss)}
    if not {0.0, 1.0} <= by_position.keys() or len(by_position) < 3:
        return None
    start, end = by_position[0.0], by_position[1.0]
    rises = {t: loss - (1 - t) * start - t * end for t, loss in by_position.items()}
    position = max(rises, key=lambda t: rises[t])
    return Barrier(rises[position], position, len(rises))


def explain_barriers(sweep: Sweep, names: Sequence[str] = ()) -> str:
    """Sentences on the certainty of the barriers of a line or a plane, and on why some or all are missing.

    ``names`` are those of its models, by default as in ``through``.
    """
    lacking = [axis.target for axis in sweep.axes if not {0.0, 1.0} <= set(axis.values)]
    if lacking:
        return LACKS_ENDS.format(" and ".join(lacking))
    names = names or sweep.through or (PRETRAINED, MERGED)
    edges = list(_list_edges(np.array([point.values for point in sweep.points if point.values])))
    empty = [
        f"{names[i]} and {names[j]}" for i, j, is_on, shares in edges if not (is_on & (shares > 0) & (shares < 1)).any()
    ]
    sentences = [LACKS_POINTS.format(pair) for pair in empty]
    return " ".join(sentences if len(empty) == len(edges) else [*sentences, NO_INTERVAL])


def _list_edges(values: NDArray[np.float64]) -> Iterator[tuple[int, int, NDArray[np.bool_], NDArray[np.float64]]]:
    """For every two models i and j of a line or a plane: which points (n,) are on the straight line through both, and
    the share (n,) of j in each point. ``values`` (n, axes) are the coordinates of the points.
    """
    weights = np.hstack([1 - values.sum(axis=1, keepdims=True), values, np.zeros_like(values[:, :1])]).T[:3]
    for i, j in ((0, 1),) if values.shape[1] == 1 else ((0, 1), (0, 2), (1, 2)):
        yield i, j, np.abs(weights[3 - i - j]) < ON_LINE, np.round(weights[j], 9)


def list_barriers(sweep: Sweep, averages: pd.DataFrame) -> pd.DataFrame:
    """The barriers, in and out of domain, between every two models of which both and points between them are computed.

    Columns: line, first and second (positions of the models in ``list_models``), loss ("loss_in" or "loss_out"),
    height, at (the share of the way from the first to the second) and points (computed, with both ends).
    """
    import pandas as pd

    rows = []
    for line in sweep.lines:
        own = averages[averages["line"] == line]
        for i, j, is_on, shares in _list_edges(own[[*"xy"[: len(sweep.axes)]]].to_numpy(float)):
            for loss in LOSS_MEANS:
                barrier = find_barrier(shares[is_on].tolist(), own[loss].to_numpy(float)[is_on].tolist())
                if barrier is not None:
                    rows.append((line, i, j, loss, *barrier))
    return pd.DataFrame(rows, columns=["line", "first", "second", "loss", "height", "at", "points"])
