"""How well classes stand apart in a space of features, and how far a map of it may be believed (LwPTV, Figs. 7 and 11).

Everything here is computed from the features themselves, scaled to unit length because zero-shot heads see nothing
else; a map is a picture of them, not evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NEIGHBORS = 20  # images that vote on the class of another
NEAR = 12  # neighbors on the map that trustworthiness looks at
Floats = NDArray[np.float64]


class Separability(NamedTuple):
    """How well the classes of some images stand apart; NaN where that is undefined."""

    silhouette: float  # mean over images, cosine distance, in [-1, 1]
    correct: int  # images whose class the majority of their nearest neighbors has, they themselves left out
    scatter: float  # tr(Sb) / tr(Sw): scatter between classes over scatter within them
    classes: int
    n: int


def unit(features: NDArray[Any]) -> Floats:
    """Rows (n, d) scaled to length one in float64; a row of zeros stays."""
    rows = features.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Floats = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return scaled


def separability(features: NDArray[Any], labels: NDArray[Any]) -> Separability:
    """All numbers for features (n, d) of any length with labels (n,)."""
    rows = unit(features)
    _, classes = np.unique(labels, return_inverse=True)
    number = int(classes.max(initial=-1)) + 1
    return Separability(silhouette(rows, classes), knn(rows, classes), scatter(rows, classes), number, len(rows))


def silhouette(rows: Floats, classes: NDArray[np.intp]) -> float:
    """Mean silhouette of unit rows (n, d) by cosine distance; an image alone in its class counts as 0.

    NaN unless there are at least two classes and more images than classes.
    """
    sizes = np.bincount(classes)
    if len(sizes) < 2 or len(rows) <= len(sizes):
        return math.nan
    distances = np.clip(1 - rows @ rows.T, 0, 2)
    np.fill_diagonal(distances, 0)
    sums = distances @ np.eye(len(sizes))[classes]  # (n, classes)
    at = np.arange(len(rows))
    own = sums[at, classes] / np.maximum(sizes[classes] - 1, 1)
    means = sums / sizes
    means[at, classes] = np.inf
    other = means.min(axis=1)
    larger = np.maximum(own, other)
    values = np.divide(other - own, larger, out=np.zeros_like(own), where=(larger > 0) & (sizes[classes] > 1))
    return float(values.mean())


def knn(rows: Floats, classes: NDArray[np.intp], neighbors: int = NEIGHBORS) -> int:
    """Unit rows (n, d) whose class most of their nearest others have (leave one out, cosine).

    Of several classes with as many votes the first counts.
    """
    if len(rows) < 2:
        return 0
    likeness = rows @ rows.T
    np.fill_diagonal(likeness, -np.inf)
    nearest = np.argsort(-likeness, axis=1, kind="stable")[:, : min(neighbors, len(rows) - 1)]
    votes = np.eye(int(classes.max()) + 1, dtype=np.int64)[classes[nearest]].sum(axis=1)
    return int((votes.argmax(axis=1) == classes).sum())


def scatter(rows: Floats, classes: NDArray[np.intp]) -> float:
    """tr(Sb) / tr(Sw) of rows (n, d); NaN with fewer than two classes or no scatter within any."""
    sizes = np.bincount(classes)
    if len(sizes) < 2:
        return math.nan
    means = (np.eye(len(sizes))[classes].T @ rows) / sizes[:, None]
    between = float((sizes * np.square(means - rows.mean(axis=0)).sum(axis=1)).sum())
    within = float(np.square(rows - means[classes]).sum())
    return between / within if within > 0 else math.nan


def trustworthiness(rows: Floats, coordinates: NDArray[Any], neighbors: int = NEAR) -> float:
    """How far neighbors (n, 2) on a map are neighbors in the space of the rows (n, d) too, from 0 to 1.

    1 minus a penalty for every neighbor on the map that is not one in the space, by its rank there. NaN unless
    ``neighbors`` is less than half of n.
    """
    n = len(rows)
    if neighbors >= n / 2:
        return math.nan
    far = _distances(rows)
    on_map = np.argsort(_distances(coordinates.astype(np.float64)), axis=1, kind="stable")[:, :neighbors]
    ranks = np.empty((n, n), np.int64)
    np.put_along_axis(ranks, np.argsort(far, axis=1, kind="stable"), np.arange(1, n + 1)[None], axis=1)
    beyond = np.take_along_axis(ranks, on_map, axis=1) - neighbors
    penalty = int(beyond[beyond > 0].sum())
    return 1 - 2 * penalty / (n * neighbors * (2 * n - 3 * neighbors - 1))


def _distances(rows: Floats) -> Floats:
    """Squared distances (n, n); infinite from a row to itself, which is nobody's neighbor."""
    squares = np.square(rows).sum(axis=1)
    found: Floats = np.maximum(squares[:, None] + squares - 2 * rows @ rows.T, 0)
    np.fill_diagonal(found, np.inf)
    return found


def principal(features: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Floats], Floats]:
    """The first two principal components of several models' unit features, fit on all together, so that they compare.

    Gives {model: coordinates (n, 2)} and the shares of the variance (2,) that the two components hold.
    """
    rows = {name: unit(found) for name, found in features.items()}
    everything = np.concatenate(list(rows.values()))
    mean = everything.mean(axis=0)
    values, vectors = np.linalg.eigh((everything - mean).T @ (everything - mean))
    axes = vectors[:, ::-1][:, :2]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])  # an eigenvector has no sign
    total = float(values.sum())
    shares = values[::-1][:2] / total if total > 0 else np.zeros(2)
    return {name: (found - mean) @ axes for name, found in rows.items()}, shares


def distances(features: NDArray[Any], reference: NDArray[Any], normalized: bool = False) -> Floats:
    """‖f(x) − f₀(x)‖ for every image (n,), of raw features or of features scaled to unit length (LwPTV, Fig. 10)."""
    one, other = (unit(f) if normalized else f.astype(np.float64) for f in (features, reference))
    found: Floats = np.linalg.norm(one - other, axis=1)
    return found
