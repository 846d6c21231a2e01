"""The small pictures of a run's page, each of which leads to its own page, and the run's averages in short."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app.reading import measurements, page_data, recipes, score_tables
from app.session import address, pages, run_choice
from app.views.drift import by_depth
from app.views.features import feature_tables, joint_tables
from app.views.features.feature_tables import Model
from app.widgets import chart_view
from merging.study.runs.run import Run, have_same_models, join_run_ids
from viz.figure_text import percent
from viz.figures.features.feature_map_figure import square_ranges

PICTURE_PX = 180  # height of a small picture


def describe_result(run: Run, stored: Sequence[Run]) -> str:
    """The averages of a run in lines, for the end of the streams on the map."""
    summary = page_data.summary(run, stored)
    return "merged" if summary is None else describe_averages(dataclasses.asdict(summary))


def describe_averages(scores: Mapping[str, Any]) -> str:
    """Averages in lines, by the names of a run's summary."""
    shown = {"in": scores["in_domain"], "out": scores["out_of_domain"], "H": scores["h_score"]}
    return "\n".join(["merged", *(f"{name} {percent(value)}" for name, value in shown.items())])


def find_joint_models(run: Run, runs: Sequence[Run], stored: Sequence[Run]) -> tuple[list[Model], str]:
    """The models of a stored joint map with this run; if there is none, the subject of the one to measure.

    Both are empty for a run that cannot be on such a map.
    """
    pretrained = page_data.references(run.benchmark, stored).get("pretrained")
    if pretrained is None or not run.has_scores or run.per_task or run.network:
        return [], ""
    in_hand = [one for one in runs if one.id in run_choice.runs_in_hand()]
    for merges in (recipes.preset_runs(feature_tables.FIRST_PRESETS, runs), in_hand, [run]):
        models, _ = feature_tables.find_models_with_features([pretrained, *merges])
        if run in merges and joint_tables.find_joint_map(models):
            return models, ""
    return [], join_run_ids(sorted((pretrained.id, run.id)))


def draw_pictures(run: Run, runs: Sequence[Run], stored: Sequence[Run], joint_models: Sequence[Model]) -> None:
    """Small pictures that lead to their pages: the run among others, its tasks, its drift, and its map of features."""
    of_run, pictures = {address.RUNS: run.id}, list[tuple[Any, ...]]()
    if run.has_scores:
        peers = [one for one in runs if one.id != run.id and one.has_scores and have_same_models(one, run)]
        averages = score_tables.averages_table([run, *peers], stored)
        pictures.append(("run_plane", averages, pages.SCORES, "monitoring", of_run, {"selected": run.id}))
        accuracies = score_tables.accuracies_table([run], stored)
        in_domain = accuracies[accuracies["task"].isin(run.experts)]
        pictures.append(("task_accuracy", in_domain, pages.SCORES, "bar_chart", of_run, {"runs": [run.id]}))
    if drift := measurements.find_measurement(measurements.DRIFT, run.id):
        table = measurements.drift_by_depth([(run, drift)], next(iter(by_depth.TOKENS.values())))
        options = {"value": next(iter(by_depth.DISTANCES.values())), "runs": [run.id], "band": run.id}
        pictures.append(("drift_depth", table, pages.DRIFT, "moving", of_run, options))
    if joint := joint_tables.find_joint_map(joint_models):
        positions = joint_tables.read_positions(joint, joint_models, "positions")
        whole = feature_tables.build_map_table(joint_models, positions)
        merges = [model.run.id for model in joint_models if not model.pretrained]
        query = {address.RUNS: ",".join(sorted(merges, key=lambda run_id: run_id != run.id))}
        options = {"frame": square_ranges(whole), "groups": list(dict.fromkeys(whole["group"])), "per_row": 1}
        table = whole[whole["run"] == run.id].reset_index(drop=True)
        pictures.append(("feature_map", table, pages.FEATURES, "scatter_plot", query, options))
    if pictures:
        with st.grid(len(pictures), min_column_width=230, gap="small"):
            for key, table, page, icon, query, options in pictures:
                with st.container(border=True, gap="xsmall", key=f"small_of_{key}"):
                    chart_view.draw_small_chart(key, table, PICTURE_PX, page, icon, query, **options)
