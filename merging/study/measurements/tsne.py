"""Maps of features by t-SNE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.analysis.separability import MAP_NEIGHBORS, trustworthiness, unit_rows
from merging.study.measurements.features import ALL_DATA_SETS, SEED
from merging.tasks.context import Context

PERPLEXITIES = (5, 30, 50)
READING_STAGE, MAPPING_STAGE = "reading features", "maps"  # stages
STAGE_WEIGHTS = {READING_STAGE: 1.0, MAPPING_STAGE: 5.0}  # of the stages


def measure_tsne(subject: Subject, context: Context) -> MeasurementResult:
    """Maps of images out of domain; see ``_measure_maps``."""
    return _measure_maps(subject, context, "features")


def measure_tsne_in_domain(subject: Subject, context: Context) -> MeasurementResult:
    """Maps of images in domain; see ``_measure_maps``."""
    return _measure_maps(subject, context, "features_in_domain")


def _measure_maps(subject: Subject, context: Context, features_key: str) -> MeasurementResult:
    """Maps by t-SNE of one model's unit features: an array (n, 2) for each map, and the table "quality".

    There is a map of all data sets together and one of each, at every perplexity below its number of images n;
    ``map_name`` is the name of its array. Rows are in the order of the images of the measurement ``features_key``.
    "quality" has the trustworthiness of each map.

    Raises:
        CheckpointError, TaskError: the model's features cannot be computed.
    """
    stages = context.split(STAGE_WEIGHTS)
    assert subject.measure_other is not None  # `measure` passes it
    features = subject.measure_other(features_key, subject.run_id, stages[READING_STAGE])
    images, rows = features.table("images"), unit_rows(features.array("features").astype(np.float32))
    row_masks = {ALL_DATA_SETS: np.ones(len(images), bool)}
    row_masks |= {key: (images["task"] == key).to_numpy() for key in dict.fromkeys(images["task"])}
    planned_maps = [
        (name, row_mask, p) for name, row_mask in row_masks.items() for p in PERPLEXITIES if p < row_mask.sum()
    ]
    meter = stages[MAPPING_STAGE].meter(sum(int(row_mask.sum()) for _, row_mask, _ in planned_maps))
    maps, quality = {}, []
    for name, row_mask, perplexity in planned_maps:
        meter.report_part(0, "Computing maps", f"{name}, perplexity {perplexity}")
        coordinates = tsne(rows[row_mask], perplexity)
        maps[map_name(name, perplexity)] = coordinates.astype(np.float32)
        quality.append((name, perplexity, trustworthiness(rows[row_mask], coordinates), int(row_mask.sum())))
        meter.advance(int(row_mask.sum()), "Computing maps", name)
    notes = {**features.notes, "neighbors": MAP_NEIGHBORS}
    columns = ["map", "perplexity", "trustworthiness", "n"]
    return MeasurementResult({"quality": pd.DataFrame(quality, columns=columns)}, notes, maps)


def map_name(name: str, perplexity: int) -> str:
    """The name of a map's array; ``name`` is a data set's key, or ``ALL_DATA_SETS``."""
    return f"{name}_perplexity_{perplexity}"


def tsne(
    rows: NDArray[Any], perplexity: float, seed: int = SEED, start: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    """A map (n, 2) of rows (n, d), the same on every call; all points coincide if the rows are equal.

    The optimization starts from the rows' first principal components, or from the positions ``start`` (n, 2). For rows
    of unit length, squared distances are twice the cosine distances, so the map is that of cosine distances.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if not np.ptp(rows, axis=0).any():  # TSNE divides by the spread of the rows, and ends the process if there is none
        return np.zeros((len(rows), 2))
    fit = TSNE(perplexity=perplexity, init="pca" if start is None else start, random_state=seed, n_jobs=1)
    with threadpool_limits(1):  # more threads change the order of sums, and with it the map
        coordinates: NDArray[np.float64] = fit.fit_transform(rows.astype(np.float32)).astype(np.float64)
    return coordinates
