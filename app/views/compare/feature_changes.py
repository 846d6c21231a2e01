"""Features of two runs on the Compare page: maps of them, and their distance to the pretrained model's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import measurements, page_data
from app.session import address
from app.views.compare.run_pair import RunPair
from app.views.compare.score_changes import make_file_suffix
from app.views.features import feature_maps
from app.views.features import feature_tables as feature_data
from app.views.features.feature_tables import BIN_COUNT, Model
from app.widgets import chart_view, paper_line
from app.widgets.jobs import measure_button
from merging.base.errors import TaskError

if TYPE_CHECKING:
    import pandas as pd

NOT_EXTRACTED = "Features out of domain have not been extracted for"
ONE_MODEL = (
    "Features can be compared only between single models; a merge with one model per task has none for other data sets."
)
NO_PRETRAINED = "The pretrained model has not been evaluated on this benchmark, so there is no distance to it."


def find_ready_models(pair: RunPair) -> list[Model]:
    """The pretrained model (first), A and B if the features of all are stored; else an empty list and a notice."""
    if any(run.per_task for run in pair.runs):
        st.info(ONE_MODEL)
        return []
    references = feature_data.find_references(page_data.stored_runs())
    if "pretrained" not in references:
        st.info(NO_PRETRAINED)
        return []
    runs = {run.id: run for run in (references["pretrained"], *pair.runs)}
    models, unextracted = feature_data.find_models_with_features(list(runs.values()))
    if unextracted:
        measure_button.draw_missing(
            measurements.FEATURES, unextracted, NOT_EXTRACTED, [model.measurement for model in models]
        )
    return [] if unextracted else [_add_letter(model, pair) for model in models]


def _add_letter(model: Model, pair: RunPair) -> Model:
    """The model with its letter, A or B, in the label."""
    letters = [letter for letter, run in zip("AB", pair.runs, strict=True) if run.id == model.run.id]
    return model._replace(label=f"{' and '.join(letters)}: {model.label}") if letters else model


def draw_maps(pair: RunPair) -> None:
    """Draw maps of the pretrained model, A and B, as on the Features page."""
    if models := find_ready_models(pair):
        try:
            feature_maps.draw_side_by_side(models)
        except TaskError as error:
            st.info(page_text.safe_text(error, 600))


def draw_distance(pair: RunPair) -> None:
    """Draw histograms of the distance of the images' features to the pretrained model's."""
    if not (models := find_ready_models(pair)):
        return
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        task = feature_maps.pick_images(models[0])
        unit_length = st.toggle("Features of unit length", key=address.UNIT_LENGTH, bind=address.BIND)
    axis_title = f"‖f(x) − f₀(x)‖ of {'unit' if unit_length else 'raw'} features"
    table = build_distance_bins(pair, models, task, unit_length)
    caption = (
        "L2 distance between a run's features of an image and the pretrained model's features of the same image "
        f"(LwPTV, Fig. 10), in the same bins for A and B. Images of the choosing half, seed "
        f"{models[0].measurement.notes['seed']}. "
        f"{measure_button.origin_in_words([model.measurement for model in models])}"
    )
    paper_claims = paper_line.claims_in_words("compare/features")
    chart_view.draw_chart(
        "compare_distance", table, name=f"distance_{make_file_suffix(pair)}", **pair.sides, what=axis_title,
        caption=caption, description=paper_claims, sources=pair.runs,
    )  # fmt: skip
    paper_line.draw_claims(paper_claims, pair.runs)


def build_distance_bins(pair: RunPair, models: list[Model], task: str, unit_length: bool) -> pd.DataFrame:
    """Bins of the distances of A, of B, and of their difference image by image, for ``compare_distance``."""
    import numpy as np
    import pandas as pd

    from merging.study.analysis.separability import reference_distances

    by_id = {model.run.id: model for model in models}
    images = feature_data.read_images(models[0], task).index
    pretrained = feature_data.read_features(models[0])[images]
    a, b = (
        reference_distances(feature_data.read_features(by_id[run.id])[images], pretrained, unit_length)
        for run in pair.runs
    )
    largest_distance = max(float(a.max(initial=0)), float(b.max(initial=0))) or 1.0
    largest_difference = float(np.abs(b - a).max(initial=0)) or largest_distance
    frames = []
    for panel, values, ends in (
        ("a", a, (0, largest_distance)),
        ("b", b, (0, largest_distance)),
        ("difference", b - a, (-largest_difference, largest_difference)),
    ):
        edges = np.linspace(*ends, BIN_COUNT + 1)
        counts = np.histogram(values, edges)[0]
        bars = {"low": edges[:-1], "high": edges[1:], "count": counts, "share": counts / max(len(values), 1)}
        frames.append(pd.DataFrame(bars).assign(panel=panel, mean=values.mean(), n=len(values)))
    return pd.concat(frames, ignore_index=True)
