"""Views of one map of several models: how far it can be trusted, arrows, models along a merge, lists of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import measurements
from app.session import address, view_state
from app.session.click_errors import guarded_fragment
from app.views.features import circled_images, joint_tables
from app.views.features import feature_tables as feature_data
from app.views.features.feature_tables import Model
from app.widgets import chart_view, thumbnails
from app.widgets.jobs import measure_button
from app.widgets.run_picker import pick_one
from app.widgets.thumbnails import Thumbnail
from merging.study.analysis.measurement_store import StoredMeasurement
from viz.figure_text import clean_text, percent, plural
from viz.figures.features.feature_map_figure import square_ranges
from viz.figures.features.feature_moves import STAYED, TURNED_RIGHT, TURNED_WRONG

if TYPE_CHECKING:
    import pandas as pd

NOT_TOGETHER = "One map of these models together has not been computed: {}."
NO_PATH = "The models along the merge have not been put on one map for"
NEEDS_PRETRAINED = "A joint map needs the pretrained model, which has not been evaluated on this benchmark."
NO_MERGE = "Choose a run above to see where its images move."
BY_GROUP, BY_ANSWER = "data set or class", "answer"  # what colors of arrows stand for
LISTS = (joint_tables.MOVED_MOST, TURNED_WRONG, TURNED_RIGHT)
MAX_LISTED = 12
LISTED_TITLE = "the images that are listed under the joint map"
SECONDS_PER_MODEL = 1.2  # while the models along the merge are played


def draw_missing(models: Sequence[Model]) -> None:
    """Draw the offer to compute the joint map of these models."""
    order = joint_tables.name_joint_map([model.run for model in models], models[0].measurement.key)
    if order:
        titles = page_text.join_words([f"**{page_text.safe_text(model.label, 60)}**" for model in models])
        measure_button.draw_missing_benchmark(order[0], NOT_TOGETHER.format(titles), order[1])
    else:
        st.info(NO_MERGE if any(model.pretrained for model in models) else NEEDS_PRETRAINED)


def describe_joint(measured: StoredMeasurement, models: Sequence[Model]) -> str:
    """The caption of a joint map: what can be compared, how moves agree with features, and its checks."""
    quality = measurements.measured_table(measured, "quality").set_index("run")
    checks = measurements.measured_table(measured, "checks").set_index("check")
    agreements = [
        f"{clean_text(model.label, 40)} {quality.loc[model.run.id, 'agreement']:.2f}"
        for model in models
        if not model.pretrained and math.isfinite(quality.loc[model.run.id, "agreement"])
    ]
    equal, planted, lost = (
        checks.loc[name, ["value", "limit"]] for name in ("equal features", "planted moves", "trustworthiness lost")
    )
    count = int(checks.loc["planted moves", "n"])
    return (
        "Rank correlation of how far images moved on the map and how far their features moved (1 − cosine): "
        f"{'; '.join(agreements) or 'none'}. One t-SNE of the unit features of all models together (all share the "
        "frozen zero-shot heads), so positions can be compared between panels: perplexity "
        f"{measured.notes['perplexity']:g}, seed {measured.notes['seed']}. Checks: features given twice move by "
        f"{percent(equal['value'], 3)} of the width (at most {percent(equal['limit'])}); moves find the {count} images "
        f"whose features were exchanged with an AUC of {planted['value']:.3f} (at least {planted['limit']:g}); "
        f"trustworthiness is at most {lost['value']:.3f} below that of maps fitted alone (limit {lost['limit']:g}, "
        f"{measured.notes['neighbors']} neighbors). {measure_button.origin_in_words([measured])}"
    )


@guarded_fragment
def draw_arrows(measured: StoredMeasurement, models: Sequence[Model], task: str, classes: Sequence[str]) -> None:
    """Draw an arrow for each image, from its place in the pretrained model to that in each merged one."""
    colors = st.segmented_control(
        "Colors", (BY_ANSWER, BY_GROUP), default=BY_ANSWER, key=address.ARROW_COLORS, bind=address.BIND, required=True
    )
    table = joint_tables.build_moves_table(measured, models, task, classes)
    groups = feature_data.list_color_groups(models[0], task)
    if colors == BY_ANSWER:
        table["group"], groups = table["answer"], [STAYED, TURNED_WRONG, TURNED_RIGHT]
    trust = joint_tables.read_trust(measured, "trustworthiness")
    run_id, circled = circled_images.find_circled()
    chart_view.draw_chart(
        "feature_moves", table, name=f"features_arrows_{task}", groups=groups, selected=circled,
        notes={run_id: f"trustworthiness {value:.3f}" for run_id, value in trust.items() if math.isfinite(value)},
        on_click=chart_view.Gesture("lasso", lambda: circled_images.store_circled("feature_moves")),
        caption=f"The longest tenth of the arrows is emphasized. {describe_joint(measured, models)}",
        sources=[model.run for model in models],
    )  # fmt: skip
    circled_images.draw_thumbnails(models, table, run_id, circled)
    _draw_list(table, models)


def draw_lists(measured: StoredMeasurement, models: Sequence[Model], task: str, classes: Sequence[str]) -> None:
    """Draw the list of images that moved most, or whose answer turned, of one run."""
    guarded_fragment(_draw_list)(joint_tables.build_moves_table(measured, models, task, classes), models)


def _draw_list(table: pd.DataFrame, models: Sequence[Model]) -> None:
    from merging.study.measurements.features import SPLIT

    merged = [model for model in models if not model.pretrained]
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        kind = st.segmented_control(
            "Images that", LISTS, default=LISTS[0], key=address.MOVED_IMAGES, bind=address.BIND, required=True
        )
        run = pick_one([model.run for model in merged], "In") if len(merged) > 1 else merged[0].run
    rows = joint_tables.list_moved(table, run.id, kind)
    st.caption(
        f"**{plural(len(rows), 'image')}**, the farthest moved first; shown are {min(len(rows), MAX_LISTED)}. Moved: "
        "on the map, as a share of its width, and 1 − cosine of the features."
    )
    tiles = [
        Thumbnail(
            row["image"], row["truth"],
            (("before", row["before"]), ("after", row["predicted"]),
             ("moved", f"{percent(row['move'])}, {row['displacement']:.3f}")),
        )
        for row in rows.head(MAX_LISTED).to_dict("records")
    ]  # fmt: skip
    shown_runs = [run, *(model.run for model in models if model.run.id != run.id)]
    thumbnails.draw_strip(tiles, SPLIT, shown_runs, LISTED_TITLE, key="moved")


# Along the merge


def draw_along(models: Sequence[Model], task: str) -> None:
    """Draw the models on the way to one merged run, one after the other on the same map."""
    merges = {model.run.id: model for model in models if model.run.kind == "merge"}
    if not merges:
        st.info(NO_MERGE)
        return
    key = models[0].name_measurement(measurements.MERGE_PATH)
    stored = {run_id: found for run_id in merges if (found := measurements.find_measurement(key, run_id))}
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        run = pick_one([model.run for model in merges.values()], "Merge", [merges[run_id].run for run_id in stored])
        playing = st.toggle("Play", key="path_playing") if run.id in stored else False
    if run.id not in stored:
        measure_button.draw_missing(key, [run], NO_PATH, list(stored.values()))
    elif playing and not view_state.is_single_chart():
        _play_steps(stored[run.id], merges[run.id], task)
    else:
        guarded_fragment(_draw_step)(stored[run.id], merges[run.id], task)


def _play_steps(measured: StoredMeasurement, model: Model, task: str) -> None:
    """Draw the maps of all models on the way at one place, one after the other, again and again."""
    st.header(feature_data.ask_about_map(model, task), anchor=False)
    chart_view.draw_film("feature_map", list(_list_steps(measured, model, task).values()), SECONDS_PER_MODEL)
    st.caption("Switch *Play* off to choose a model on the way, and to select images.")


def _list_steps(measured: StoredMeasurement, model: Model, task: str) -> dict[str, tuple[pd.DataFrame, dict[str, Any]]]:
    """{share of the merge in words: table and options of the map of the model that has it}, for all on the way."""
    whole, steps = joint_tables.build_path_table(measured, model.run.id, model.label, task), {}
    groups = feature_data.list_color_groups(model, task)
    options = {"kind": "t-SNE", "groups": groups, "frame": square_ranges(whole), "per_row": 1}
    for row in measurements.measured_table(measured, "quality").itertuples():
        table, name = whole[whole["share"] == row.share].drop(columns="share"), percent(row.share, 0)
        note = f"{int(table['correct'].sum())} of {len(table)} right, trustworthiness {row.trustworthiness:.3f}"
        table = table.assign(label=f"{model.label}, {name} of the merge")
        steps[name] = (table, options | {"notes": {model.run.id: note}})
    return steps


def _draw_step(measured: StoredMeasurement, model: Model, task: str) -> None:
    """Draw the map of one model on the way, and the circled images."""
    steps = _list_steps(measured, model, task)
    names = list(steps)
    name = st.select_slider(
        "Share of the merge's change to the weights", names, names[-1], key=address.PATH_STEP, bind=address.BIND
    )
    table, options = steps[name]
    on_map, question = set(table["image"]), feature_data.ask_about_map(model, task)
    run_id, circled_names = circled_images.find_circled()
    circled = [image for image in circled_names if image in on_map]
    st.header(question, anchor=False)
    chart_view.draw_chart(
        "feature_map", table, name=f"features_along_{model.run.id[:8]}_{names.index(name)}", question_drawn=True,
        heading=question, selected=circled, on_click=chart_view.Gesture("lasso", circled_images.store_circled),
        **options,
        caption=(
            f"{len(names)} real models, each with the pretrained weights plus a share of what the merge added, and "
            f"each with its own features of {plural(len(table), 'image')}, on one t-SNE (perplexity "
            f"{measured.notes['perplexity']:g}, seed {measured.notes['seed']}). Nothing is interpolated. For a merge "
            f"with a scaling, the models are those of smaller scalings. {measure_button.origin_in_words([measured])}"
        ),
        sources=[model.run],
    )  # fmt: skip
    step_model = model._replace(label=f"{model.label}, {name} of the merge")
    circled_images.draw_thumbnails([step_model], table, run_id, circled)
