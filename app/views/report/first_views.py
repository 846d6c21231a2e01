"""The beginning of a report: the first views of one run, added by one click."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import expert_names, measurements, page_data, report_sources, score_tables
from app.session import address, report_keeper
from app.views.drift import by_depth
from app.views.masks import kept_share
from merging.base.errors import MergingError
from merging.study.runs import run as stored_run
from merging.study.runs.run import Run
from viz.report.report_contents import ReportView

if TYPE_CHECKING:
    import pandas as pd

BUTTON_NAME = "starter"
CHARTS_HELP = "Its scores, its kept share, its masks if it pruned, and its drift if that was measured."


def draw_picker(stored_runs: Sequence[Run]) -> None:
    """Draw a picker of a run and a button that adds its views."""
    runs = {run.id: run for run in page_data.list_merges(stored_runs)}
    if not runs:
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        chosen = st.selectbox(
            "Add the charts of a run", runs, format_func=lambda run_id: page_text.run_label(runs[run_id]),
            key="starter_run",
            help=CHARTS_HELP, width=360,
        )  # fmt: skip
        st.button(
            "Add", key="starter_add", icon=":material/note_add:", on_click=add_views, args=(runs[chosen], stored_runs)
        )
    if problem := report_keeper.current_report().refused.pop(BUTTON_NAME, ""):
        st.caption(f":material/error: {problem}")


def add_views(run: Run, stored_runs: Sequence[Run]) -> None:
    """Callback: add the views that the report does not contain yet."""
    try:
        source = report_sources.make_source(run)
        for view in list_first_views(run, stored_runs):
            if not report_keeper.current_report().find(view.key, view.table, view.options):
                report_sources.add_view(view, [source], BUTTON_NAME)
    except MergingError as error:
        report_keeper.current_report().refused[BUTTON_NAME] = page_text.safe_text(error, 600)


def list_first_views(run: Run, stored_runs: Sequence[Run]) -> Iterator[ReportView]:
    """The views of a run as its pages show them by default."""
    if run.has_scores:
        averages = score_tables.averages_table([run], stored_runs)
        accuracies = score_tables.accuracies_table([run], stored_runs)
        page_address = f"scores?{address.RUNS}={run.id}"
        marks = "".join(f" {sentence}" for sentence in page_text.marks_in_words([run]))
        yield _make_view(
            run, "id_ood_scatter", averages, {}, score_tables.describe_averages(averages) + marks, page_address
        )
        options = {"normalized": False, "runs": [run.id]}
        yield _make_view(
            run,
            "task_accuracy",
            accuracies,
            options,
            score_tables.describe_accuracies(accuracies) + marks,
            page_address,
        )
    yield from _list_mask_views(run, stored_runs)
    if measurement := measurements.find_measurement(measurements.DRIFT, run.id):
        token, distance = next(iter(by_depth.TOKENS)), next(iter(by_depth.DISTANCES.values()))
        table = measurements.drift_by_depth([(run, measurement)], by_depth.TOKENS[token])
        options = {"value": distance, "runs": [run.id], "band": run.id}
        caption = by_depth.lines_in_words(table, [measurement], token)
        yield _make_view(run, "drift_depth", table, options, caption, f"drift?{address.RUNS}={run.id}")


def _list_mask_views(run: Run, stored_runs: Sequence[Run]) -> Iterator[ReportView]:
    """The masks and the share that they keep of each role; for a run that did not prune, the share that it changed."""
    from merging.methods.shared.saliency import apply_ratio
    from merging.recipes.presets import read_settings
    from merging.study.runs.edit_pairs import find_same_saliency

    page_address = f"masks?{address.RUN}={run.id}"
    table, caption = kept_share.list_tensors_by_weights(run)
    if stored_run.SALIENCY in run.tables or find_same_saliency(run, stored_runs):
        ratio, shares_masks = read_settings(run.recipe)
        masks = apply_ratio(page_data.saliency(run, stored_runs)[0], ratio, shares_masks)
        caption = kept_share.kept_in_words(masks, ratio, ratio)
        yield _make_view(
            run,
            "saliency_matrix",
            masks,
            {"selected": (None, None), "group": "order", "guides": False},  # as on Masks before a click
            caption,
            page_address,
        )
        table, caption = kept_share.list_tensors_by_masks(masks), f"Counted from the masks at prune ratio {ratio:g}."
    yield _make_view(run, "kept_share", table, {"by": "role"}, caption, page_address)


def _make_view(
    run: Run, key: str, table: pd.DataFrame, options: Mapping[str, Any], caption: str, page_address: str
) -> ReportView:
    table, options, _ = expert_names.show_names(table, options)
    return ReportView(key, table, options, caption=page_text.plain_text(caption), place=page_address, sources=(run.id,))
