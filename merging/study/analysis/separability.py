"""How well classes are separated in a space of features, and how far a map of it can be trusted (LwPTV, Figs. 7, 11).

All numbers come from the features themselves, scaled to unit length because zero-shot heads use only directions. A map
is only a picture of them, not evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

VOTING_NEIGHBORS = 20  # images that vote on the class of another
MAP_NEIGHBORS = 12  # neighbors on the map that trustworthiness compares
Floats = NDArray[np.float64]


class Separability(NamedTuple):
    """How well the classes of some images are separated; NaN where that is undefined."""

    silhouette: float  # mean over images, cosine distance, in [-1, 1]
    correct: float  # images whose class is the most frequent one among their nearest neighbors, see ``vote``
    scatter: float  # tr(Sb) / tr(Sw): scatter between classes over scatter within them
    classes: int
    n: int


def unit_rows(features: NDArray[Any]) -> Floats:
    """Rows (n, d) scaled to length one in float64; a row of zeros stays zero, a row that is not finite becomes zero."""
    rows = features.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Floats = np.divide(rows, lengths, out=np.zeros_like(rows), where=(lengths > 0) & np.isfinite(lengths))
    return scaled


def separability(features: NDArray[Any], labels: NDArray[Any]) -> Separability:
    """The separability of features (n, d), of any length, with labels (n,)."""
    rows = unit_rows(features)
    _, classes = np.unique(labels, return_inverse=True)
    count = int(classes.max(initial=-1)) + 1
    return Separability(
        silhouette(rows, classes), float(vote(rows, classes).sum()), scatter_ratio(rows, classes), count, len(rows)
    )


def silhouette(rows: Floats, classes: NDArray[np.intp]) -> float:
    """Mean silhouette of unit rows (n, d) with ``classes`` (n,) by cosine distance, in [-1, 1].

    An image alone in its class counts as 0. NaN unless there are at least two classes and more images than classes.
    """
    from sklearn.metrics import silhouette_score

    if not 2 <= len(np.unique(classes)) < len(rows):
        return math.nan
    return float(silhouette_score(rows, classes, metric="cosine"))


def vote(rows: Floats, classes: NDArray[np.intp], neighbors: int = VOTING_NEIGHBORS) -> Floats:
    """Whether the class (n,) of each unit row (n, d) is the most frequent one among its nearest neighbors (n,).

    1 or 0; one of t equally frequent classes counts 1/t, the mean over a random choice between them. Distances are
    cosine distances, and a row is not its own neighbor.
    """
    from sklearn.neighbors import NearestNeighbors

    if len(rows) < 2:
        return np.zeros(len(rows))
    index = NearestNeighbors(n_neighbors=min(neighbors, len(rows) - 1), metric="cosine", algorithm="brute").fit(rows)
    nearest = index.kneighbors(return_distance=False)  # without a query, a row is not its own neighbor
    votes = np.stack([(classes[nearest] == one).sum(axis=1) for one in range(int(classes.max()) + 1)], axis=1)
    is_first = votes == votes.max(axis=1, keepdims=True)  # (n, classes)
    right: Floats = is_first[np.arange(len(rows)), classes] / is_first.sum(axis=1)
    return right


def scatter_ratio(rows: Floats, classes: NDArray[np.intp]) -> float:
    """tr(Sb) / tr(Sw) of rows (n, d) with ``classes`` (n,); NaN below two classes or without scatter within them."""
    sizes = np.bincount(classes)
    if len(sizes) < 2:
        return math.nan
    means = (np.eye(len(sizes))[classes].T @ rows) / sizes[:, None]
    between_scatter = float((sizes * np.square(means - rows.mean(axis=0)).sum(axis=1)).sum())
    within_scatter = float(np.square(rows - means[classes]).sum())
    return between_scatter / within_scatter if within_scatter > 0 else math.nan


def trustworthiness(rows: Floats, coordinates: NDArray[Any], neighbors: int = MAP_NEIGHBORS) -> float:
    """How far neighbors on a map with ``coordinates`` (n, 2) are also neighbors among the rows (n, d), from 0 to 1.

    1 minus a penalty for every neighbor on the map that is not one in the space of rows, by its rank in that space. NaN
    unless ``neighbors`` is less than half of n, and for a map with coordinates that are not finite.
    """
    from sklearn import manifold

    if neighbors >= len(rows) / 2 or not np.isfinite(coordinates).all():
        return math.nan
    return float(manifold.trustworthiness(rows, coordinates.astype(np.float64), n_neighbors=neighbors))


def principal_components(features: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Floats], Floats]:
    """Coordinates {model: (n, 2)} of several models' features {model: (n, d)} on their first two principal components.

    The components are fit on the unit features of all models together, which makes the coordinates comparable. Also
    returns the shares of the variance (2,) that the two components hold, 0 if all rows are equal.
    """
    from sklearn.decomposition import PCA

    rows = {name: unit_rows(of_model) for name, of_model in features.items()}
    all_rows = np.concatenate(list(rows.values()))
    if (all_rows == all_rows[:1]).all():  # no variance
        return {name: np.zeros((len(of_model), 2)) for name, of_model in rows.items()}, np.zeros(2)
    mean = all_rows.mean(axis=0)  # PCA subtracts it only from the products, where digits of similar rows cancel
    pca = PCA(min(2, *all_rows.shape), svd_solver="covariance_eigh").fit(all_rows - mean)
    shares: Floats = pca.explained_variance_ratio_
    return {name: pca.transform(of_model - mean) for name, of_model in rows.items()}, shares


def cosine_distances(features: NDArray[Any], reference: NDArray[Any]) -> Floats:
    """1 - cosine of every image's feature (n, d) and its reference (n, d), from 0 to 2, (n,)."""
    distances: Floats = (1 - (unit_rows(features) * unit_rows(reference)).sum(axis=1)).clip(0, 2)
    return distances


def reference_distances(features: NDArray[Any], reference: NDArray[Any], normalized: bool = False) -> Floats:
    """‖f(x) − f₀(x)‖ for every image (n,), from features (n, d) and those of a reference (n, d) (LwPTV, Fig. 10).

    With ``normalized`` both are scaled to unit length first.
    """
    rows, rows_0 = (unit_rows(f) if normalized else f.astype(np.float64) for f in (features, reference))
    lengths: Floats = np.linalg.norm(rows - rows_0, axis=1)
    return lengths
