"""Maps of features by t-SNE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.analysis.context import MeasurementContext, MeasurementResult
from merging.analysis.measurements.features import SEED, TOGETHER
from merging.analysis.separability import NEAR, trustworthiness, unit
from merging.progress import Meter, Phases

PERPLEXITIES = (5, 30, 50)
READING, MAPPING = "reading features", "maps"  # phases
WAIT = {READING: 1.0, MAPPING: 5.0}


def measure_tsne(subject: MeasurementContext) -> MeasurementResult:
    """Maps by t-SNE of one model's unit features: an array (n, 2) for each, and the table "quality".

    There is one of all data sets together and of each by itself, at every perplexity below its n; ``map_name`` says
    what its array is called. Rows are in the order of the images of "features". "quality" has its trustworthiness.

    Raises:
        CheckpointError, TaskError: the model's features cannot be computed.
    """
    phases = Phases(WAIT, subject.progress)
    assert subject.measurement is not None  # `measure` hands it in
    known = subject.measurement("features", phases.callback(READING))
    images, rows = known.table("images"), unit(known.array("features").astype(np.float32))
    parts = {TOGETHER: np.ones(len(images), bool)}
    parts |= {key: (images["task"] == key).to_numpy() for key in dict.fromkeys(images["task"])}
    work = [(name, at, p) for name, at in parts.items() for p in PERPLEXITIES if p < at.sum()]
    meter = Meter(sum(int(at.sum()) for _, at, _ in work), phases.callback(MAPPING), subject.cancel)
    maps, quality = {}, []
    for name, at, perplexity in work:
        meter.within(0, "Drawing maps", f"{name}, perplexity {perplexity}")
        coordinates = tsne(rows[at], perplexity)
        maps[map_name(name, perplexity)] = coordinates.astype(np.float32)
        quality.append((name, perplexity, trustworthiness(rows[at], coordinates), int(at.sum())))
        meter.advance(int(at.sum()), "Drawing maps", name)
    notes = {**known.notes, "neighbors": NEAR}
    columns = ["map", "perplexity", "trustworthiness", "n"]
    return MeasurementResult({"quality": pd.DataFrame(quality, columns=columns)}, notes, maps)


def map_name(name: str, perplexity: int) -> str:
    """What the array of a map is called; ``name`` is a data set's key, or that of all together."""
    return f"{name}_perplexity_{perplexity}"


def tsne(rows: NDArray[Any], perplexity: float, seed: int = SEED) -> NDArray[np.float64]:
    """A map (n, 2) of rows (n, d); the same on every call, whatever else the machine does."""
    from sklearn.manifold import TSNE

    # one thread: with more, sums are taken in another order, and the map is another one
    fit = TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=1)
    found: NDArray[np.float64] = fit.fit_transform(rows.astype(np.float32)).astype(np.float64)
    return found
