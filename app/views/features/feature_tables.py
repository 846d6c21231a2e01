"""Models with their stored features, and the tables of the charts on the Features page."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import streamlit as st

from app.page_text import look_up_names
from app.reading import measurements, page_data
from merging.images.benchmarks.metrics import wilson
from merging.study.analysis.measurement_registry import name_in_domain
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import percent

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

ALL_DATA_SETS = "all"  # the name in measurements of all data sets together
BIN_COUNT = 40
FIRST_PRESETS = ("task_arithmetic", "task_arithmetic_lwptv")  # presets that Features shows first, as the paper does


class Model(NamedTuple):
    """One model with the measurement that contains its features."""

    run: Run
    label: str
    measurement: StoredMeasurement

    @property
    def pretrained(self) -> bool:
        """Whether it is the pretrained model, the reference of all others."""
        return self.run.kind == "pretrained"

    @property
    def in_domain(self) -> bool:
        """Whether the features are those of images in domain."""
        return self.measurement.key == name_in_domain(measurements.FEATURES)

    def name_measurement(self, key: str) -> str:
        """The key of a measurement with the images of these features; ``key`` is that with images out of domain."""
        return name_in_domain(key) if self.in_domain else key


def find_references(stored_runs: Sequence[Run]) -> Mapping[str, Run]:
    """{"pretrained", "multitask" or a task: stored evaluation} of the reference models on the benchmark."""
    return page_data.references(page_data.benchmark().digest, stored_runs)


def find_models_with_features(runs: Sequence[Run], key: str = measurements.FEATURES) -> tuple[list[Model], list[Run]]:
    """The models whose features (the measurement ``key``) are stored, with distinct labels, and the other runs."""
    titles = [run.name for run in runs]
    models, unextracted = [], []
    for run in runs:
        label = run.name if titles.count(run.name) == 1 else f"{run.name} ({run.id[:6]})"
        if measurement := measurements.find_measurement(key, run.id):
            models.append(Model(run, label, measurement))
        else:
            unextracted.append(run)
    return models, unextracted


@st.cache_resource(max_entries=16, show_spinner=False)
def _read_features(
    path: str, _measurement: StoredMeasurement
) -> np.ndarray[Any, Any]:  # the path identifies the content
    import numpy as np

    return _measurement.array("features").astype(np.float32)


def read_features(model: Model) -> np.ndarray[Any, Any]:
    """Features of a model, (images, dimensions) float32; shared, so never changed."""
    return _read_features(str(model.measurement.path), model.measurement)


def read_images(model: Model, task: str = ALL_DATA_SETS) -> pd.DataFrame:
    """The images of one data set, or of all, with the model's predictions; the index is the row among all images."""
    table = measurements.measured_table(model.measurement, "images")
    return table if task == ALL_DATA_SETS else table[table["task"] == task]


# Maps


def ask_about_map(model: Model, task: str) -> str:
    """The question that a map answers: its marks are colored by data set, or by class if it is of one data set."""
    images = "in-domain" if model.in_domain else "out-of-domain"
    return f"Do {images} {'data sets' if task == ALL_DATA_SETS else 'classes'} stay apart?"


def list_color_groups(model: Model, task: str) -> list[str]:
    """All data sets, or all classes of one, so that colors do not change when some are left out."""
    table, titles = read_images(model, task), measurements.titles_by_task()
    return list(dict.fromkeys(look_up_names(table["task"], titles) if task == ALL_DATA_SETS else table["truth"]))


def find_components(models: Sequence[Model], task: str) -> tuple[dict[str, pd.DataFrame], tuple[float, ...]]:
    """{run id: image, x, y} in principal components fit on all models, and each component's share of the variance."""
    return _compute_components(tuple(str(model.measurement.path) for model in models), task, models)


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def _compute_components(
    paths: tuple[str, ...], task: str, _models: Sequence[Model]
) -> tuple[dict[str, pd.DataFrame], tuple[float, ...]]:
    from merging.study.analysis.separability import principal_components

    images = read_images(_models[0], task)
    coordinates, shares = principal_components({model.run.id: read_features(model)[images.index] for model in _models})
    coordinates_by_run = {
        run_id: images[["image"]].assign(x=xy[:, 0], y=xy[:, 1]) for run_id, xy in coordinates.items()
    }
    return coordinates_by_run, tuple(float(share) for share in shares)


def read_tsne_map(model: Model, measurement: StoredMeasurement, task: str, perplexity: int) -> pd.DataFrame:
    """``image``, ``x``, ``y`` of a model's stored map; no rows if there is no map of that perplexity."""
    from merging.study.measurements.tsne import map_name

    images = read_images(model, task)[["image"]]
    if not len(_find_quality_row(measurement, task, perplexity)):
        return images.head(0).assign(x=0.0, y=0.0)
    coordinates = measurement.array(map_name(task, perplexity))
    return images.assign(x=coordinates[:, 0], y=coordinates[:, 1])


def read_trustworthiness(measurement: StoredMeasurement, task: str, perplexity: int) -> float:
    """Trustworthiness of a stored map; NaN if it is unknown."""
    row = _find_quality_row(measurement, task, perplexity)
    return float(row["trustworthiness"].iloc[0]) if len(row) else math.nan


def _find_quality_row(measurement: StoredMeasurement, task: str, perplexity: int) -> pd.DataFrame:
    """The row on the quality of one map; empty without such a map."""
    table = measurements.measured_table(measurement, "quality")
    return table[(table["map"] == task) & (table["perplexity"] == perplexity)]


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def _compute_trustworthiness(path: str, task: str, coordinates: pd.DataFrame, _model: Model) -> float:
    from merging.study.analysis.separability import trustworthiness, unit_rows

    images = read_images(_model, task)
    return trustworthiness(unit_rows(read_features(_model)[images.index]), coordinates[["x", "y"]].to_numpy())


def compute_trustworthiness(model: Model, task: str, coordinates: pd.DataFrame) -> float:
    """Trustworthiness of a model's principal components."""
    return _compute_trustworthiness(str(model.measurement.path), task, coordinates, model)


def build_map_table(
    models: Sequence[Model],
    coordinates_by_panel: Mapping[str, pd.DataFrame],
    task: str = ALL_DATA_SETS,
    classes: Sequence[str] = (),
) -> pd.DataFrame:
    """One row for each panel and image; the keys of ``coordinates_by_panel`` are "run id" or "run id:subtitle"."""
    import pandas as pd

    from merging.study.analysis.separability import reference_distances

    by_id = {model.run.id: model for model in models}
    pretrained_model = next((model for model in models if model.pretrained), None)
    predicted_before = (
        read_images(pretrained_model).set_index("image")["predicted"].to_dict() if pretrained_model else {}
    )
    titles, frames = measurements.titles_by_task(), []
    for panel, coordinates in coordinates_by_panel.items():
        run_id, _, subtitle = panel.partition(":")
        model = by_id[run_id]
        table = read_images(model, task)
        if pretrained_model is not None:
            table = table.assign(
                distance=reference_distances(
                    read_features(model)[table.index], read_features(pretrained_model)[table.index]
                )
            )
        table = table.merge(coordinates, on="image", validate="one_to_one")
        table["before"] = look_up_names(table["image"], predicted_before, "—")
        frames.append(table.assign(run=panel, label=f"{model.label}, {subtitle}" if subtitle else model.label))
    all_rows = pd.concat(frames, ignore_index=True)
    all_rows["title"] = look_up_names(all_rows["task"], titles)
    all_rows["group"] = all_rows["title"] if task == ALL_DATA_SETS else all_rows["truth"]
    return all_rows[all_rows["truth"].isin(list(classes))].reset_index(drop=True) if classes else all_rows


# Numbers


def read_separability(models: Sequence[Model]) -> pd.DataFrame:
    """One row for each model and data set, and one for all data sets together, with intervals."""
    import pandas as pd

    frames = [
        measurements.measured_table(model.measurement, "separability").assign(run=model.run.id, label=model.label)
        for model in models
    ]
    table = pd.concat(frames, ignore_index=True)
    table["title"] = look_up_names(table["task"], measurements.titles_by_task(), "All together")
    table["knn"] = table["correct"] / table["n"]
    intervals = [wilson(correct, n) for correct, n in zip(table["correct"], table["n"], strict=True)]
    return table.assign(low=[low for low, _ in intervals], high=[high for _, high in intervals])


def build_numbers_table(models: Sequence[Model], task: str, trust: Mapping[str, float]) -> pd.DataFrame:
    """One row for each model: the numbers below its map, as text with intervals."""
    table = read_separability(models)
    table = table[table["task"] == task].copy()
    correct_by_model = [read_images(model, task)["correct"] for model in models]
    table["zero"] = [_share_in_words(int(correct.sum()), len(correct)) for correct in correct_by_model]
    table["neighbors"] = [_share_in_words(c, int(n)) for c, n in zip(table["correct"], table["n"], strict=True)]
    table["trust"] = [trust.get(model.run.id, math.nan) for model in models]
    return table[["label", "silhouette", "neighbors", "scatter", "zero", "trust", "classes", "n"]]


def _share_in_words(correct: float, n: int) -> str:
    if not n:
        return "—"
    low, high = wilson(correct, n)
    return f"{percent(correct / n)} ({percent(low, 0)} to {percent(high, 0)})"


def count_distances(models: Sequence[Model], task: str, normalized: bool) -> pd.DataFrame:
    """Distances to the pretrained features in bins that all runs share; no rows without a pretrained model."""
    import numpy as np
    import pandas as pd

    from merging.study.analysis.separability import reference_distances

    columns = ["run", "label", "low", "high", "count", "share", "mean", "n"]
    pretrained_model = next((model for model in models if model.pretrained), None)
    other_models = [model for model in models if not model.pretrained]
    if pretrained_model is None or not other_models:
        return pd.DataFrame(columns=columns)
    images = read_images(pretrained_model, task).index
    distances = [
        reference_distances(read_features(model)[images], read_features(pretrained_model)[images], normalized)
        for model in other_models
    ]
    edges = np.linspace(0, max(float(np.max(values)) for values in distances) or 1.0, BIN_COUNT + 1)
    frames = []
    for model, values in zip(other_models, distances, strict=True):
        counts = np.histogram(values, edges)[0]
        bars = {"low": edges[:-1], "high": edges[1:], "count": counts, "share": counts / len(values)}
        frames.append(pd.DataFrame(bars).assign(run=model.run.id, label=model.label, mean=values.mean(), n=len(values)))
    return pd.concat(frames, ignore_index=True)[columns]


def make_npz(models: Sequence[Model]) -> bytes:
    """Features of all models with the names of the images, their data sets and classes, as an npz file."""
    import numpy as np

    table, buffer = read_images(models[0]), io.BytesIO()
    features = {f"features_{model.run.id}": read_features(model) for model in models}
    image_columns = {name: table[name].to_numpy(str) for name in ("image", "task", "truth")}
    labels = np.array([model.label for model in models])
    np.savez_compressed(
        buffer, **features, **image_columns, models=np.array([model.run.id for model in models]), labels=labels
    )
    return buffer.getvalue()
