"""The tables of joint maps: positions of several models' images, how far images moved, models along a merge."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app.page_text import look_up_names
from app.reading import benchmark_images, measurements, page_data
from app.reading.figures import cache_table
from app.views.features import feature_tables as feature_data
from app.views.features.feature_tables import Model
from merging.study.analysis.measurement_registry import name_in_domain
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run, join_run_ids
from viz.figures.features.feature_moves import STAYED, TURNED_RIGHT, TURNED_WRONG

if TYPE_CHECKING:
    import pandas as pd

MAX_PICTURES = 300  # images drawn in place of marks
PICTURE_SHARE = 0.042  # the side of such an image, as a share of its panel's
MIN_GAP = 0.8  # between two such images, as a share of their side
PANEL_PIXELS = 560  # the side of a panel's picture
MOVED_MOST = "moved most"


def name_joint_map(runs: Sequence[Run], features_key: str) -> tuple[str, str] | None:
    """The key and the subject of the joint map of these models' features (the measurement ``features_key``).

    None for a single model, or without the pretrained model.
    """
    if len(runs) < 2 or not any(run.kind == "pretrained" for run in runs):
        return None
    in_domain = features_key == name_in_domain(measurements.FEATURES)
    key = name_in_domain(measurements.JOINT_MAP) if in_domain else measurements.JOINT_MAP
    return key, join_run_ids(sorted({run.id for run in runs}))


def find_joint_map(models: Sequence[Model]) -> StoredMeasurement | None:
    """The stored joint map of these models; None if there is none, or no pretrained model among them."""
    order = name_joint_map([model.run for model in models], models[0].measurement.key) if models else None
    return measurements.find_measurement(*order) if order else None


def read_positions(measured: StoredMeasurement, models: Sequence[Model], array: str) -> dict[str, pd.DataFrame]:
    """{run id: image, x, y} on the joint map ("positions") or on each model's own ("alone"), of all images."""
    order = measurements.measured_table(measured, "quality")["run"].tolist()
    positions, images = measured.array(array), feature_data.read_images(models[0])[["image"]]
    return {
        model.run.id: images.assign(
            x=positions[order.index(model.run.id), :, 0].astype(float),
            y=positions[order.index(model.run.id), :, 1].astype(float),
        )
        for model in models
    }


def read_trust(measured: StoredMeasurement, column: str) -> dict[str, float]:
    """{run id: trustworthiness of its part of the joint map, or of its map started from it}."""
    quality = measurements.measured_table(measured, "quality")
    return dict(zip(quality["run"], quality[column].astype(float), strict=True))


def build_moves_table(
    measured: StoredMeasurement, models: Sequence[Model], task: str, classes: Sequence[str]
) -> pd.DataFrame:
    """The rows of ``build_map_table`` of the merged runs, with x0, y0 (pretrained), move, displacement and answer."""
    return _build_moves(
        str(measured.path),
        tuple((model.run.id, model.label) for model in models),
        task,
        tuple(classes),
        measured,
        models,
    )


@cache_table
def _build_moves(
    path: str, labels: tuple[tuple[str, str], ...], task: str, classes: tuple[str, ...], _measured: StoredMeasurement,
    _models: Sequence[Model],
) -> pd.DataFrame:  # fmt: skip
    import numpy as np

    from merging.study.measurements.joint_tsne import measure_moves

    pretrained_model = next(model for model in _models if model.pretrained)
    positions = read_positions(_measured, _models, "positions")
    start = positions[pretrained_model.run.id]
    stacked = np.stack([positions[model.run.id][["x", "y"]].to_numpy() for model in _models])
    features, first = [feature_data.read_features(model) for model in _models], _models.index(pretrained_model)
    with_moves = {}
    for index, model in enumerate(_models):
        if not model.pretrained:
            moves = measure_moves(stacked, features, index, first)
            with_moves[model.run.id] = positions[model.run.id].assign(
                x0=start["x"], y0=start["y"], move=moves.on_map, displacement=moves.of_features
            )
    table = feature_data.build_map_table(_models, with_moves, task, classes)
    was_right = table["before"] == table["truth"]
    table["answer"] = np.select(
        [~was_right & table["correct"], was_right & ~table["correct"]], [TURNED_RIGHT, TURNED_WRONG], STAYED
    )
    return table


def list_moved(table: pd.DataFrame, run_id: str, kind: str) -> pd.DataFrame:
    """The images of one run that moved most, or whose answer turned right or wrong, the farthest moved first."""
    rows = table[table["run"] == run_id].sort_values("move", ascending=False, kind="stable")
    return rows if kind == MOVED_MOST else rows[rows["answer"] == kind]


# Along the merge


@cache_table
def build_path_table(measured: StoredMeasurement, run_id: str, label: str, task: str) -> pd.DataFrame:
    """One row for each model on the way and image, as ``build_map_table`` makes them, with the share of the merge."""
    import pandas as pd

    images = measurements.measured_table(measured, "images")
    answers, positions = measurements.measured_table(measured, "answers"), measured.array("positions").astype(float)
    shares = measurements.measured_table(measured, "quality")["share"].tolist()
    frames = [
        answers[answers["share"] == share].drop(columns="share").merge(
            images.assign(x=flat[:, 0], y=flat[:, 1]), on="image", validate="one_to_one"
        ).assign(share=share)
        for share, flat in zip(shares, positions, strict=True)
    ]  # fmt: skip
    table = pd.concat(frames, ignore_index=True)
    first = table[table["share"] == shares[0]].set_index("image")["predicted"].to_dict()
    table = table.assign(before=look_up_names(table["image"], first, "—"), run=run_id, label=label)
    table["title"] = look_up_names(table["task"], measurements.titles_by_task())
    table["group"] = table["title"] if task == feature_data.ALL_DATA_SETS else table["truth"]
    return table if task == feature_data.ALL_DATA_SETS else table[table["task"] == task].reset_index(drop=True)


# Images in place of marks


def thin_images(table: pd.DataFrame, shared: bool) -> pd.DataFrame:
    """The rows of at most ``MAX_PICTURES`` images, evenly from all, without those that would cover others.

    In each panel of a map's table, images are placed in a seeded order.
    """
    import numpy as np
    import pandas as pd

    from viz.figures.features.feature_map_figure import square_ranges

    images, panels = list(dict.fromkeys(table["image"])), []
    thinned = table[table["image"].isin(images[:: -(-len(images) // MAX_PICTURES) or 1])]
    for _, rows in thinned.groupby("run", sort=False):
        (left, right), _ = square_ranges(thinned if shared else rows)
        places, shown = rows[["x", "y"]].to_numpy(float), list[int]()
        for place in np.random.default_rng(0).permutation(len(rows)):
            gaps = np.abs(places[shown] - places[place]).max(axis=1)
            if (gaps > MIN_GAP * PICTURE_SHARE * (right - left)).all():
                shown.append(int(place))
        panels.append(rows.iloc[sorted(shown)])
    return pd.concat(panels, ignore_index=True)


def draw_panel_pictures(table: pd.DataFrame, shared: bool) -> dict[str, str]:
    """{run: all its images at their places, as one PNG (data URI)} of a map's table."""
    from viz.figures.features.feature_map_figure import square_ranges

    pictures = {}
    for run, rows in table.groupby("run", sort=False):
        frame = square_ranges(table if shared else rows)
        places = tuple(zip(rows["image"], rows["x"], rows["y"], strict=True))
        pictures[str(run)] = _compose_picture(page_data.benchmark().digest, places, (tuple(frame[0]), tuple(frame[1])))
    return pictures


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def _compose_picture(
    digest: str, places: tuple[tuple[str, float, float], ...], frame: tuple[tuple[float, ...], tuple[float, ...]]
) -> str:
    from PIL import Image

    from merging.study.measurements.features import SPLIT

    side, canvas = round(PICTURE_SHARE * PANEL_PIXELS), Image.new("RGBA", (PANEL_PIXELS, PANEL_PIXELS), (0, 0, 0, 0))
    (left, right), (bottom, top) = frame
    for image, x, y in places:
        task, _, index = image.rpartition(":")
        small = Image.fromarray(benchmark_images.split_images(task, SPLIT)[int(index)]).convert("RGBA")
        at = (PANEL_PIXELS * (x - left) / (right - left), PANEL_PIXELS * (top - y) / (top - bottom))
        canvas.paste(small.resize((side, side)), tuple(round(middle - side / 2) for middle in at))
    buffer = io.BytesIO()
    canvas.quantize(255, Image.Quantize.FASTOCTREE).save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
