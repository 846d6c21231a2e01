"""The result of a merge on the Merge page: its averages beside the references, and links to its charts."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text, permissions
from app.reading import page_data, samples, score_tables
from app.reading.runs import network_values
from app.session import address, benchmark_choice, pages
from app.widgets import chart_view, page_parts, run_picker
from merging.base.errors import MergingError
from merging.base.modes import VisitorAction
from merging.images.benchmarks.metrics import Summary
from merging.study.runs.run import Run, have_same_models
from viz.figure_text import percent, plural, span

if TYPE_CHECKING:
    import pandas as pd

MAP_PX = 150  # height of the map of the network
INTERVAL_TO = "\u00a0to\u00a0"  # non-breaking spaces, so that an interval does not wrap
THIS_RUN, BEST_RUN = "This run", "Best stored run"
NO_OTHER_RUN = "No other stored run merges these experts into one model, so there is no best one to show."
MISSING_REFERENCES = "{} {} not stored for these models and this benchmark."
RANKED_NOTE = "The best stored run has the highest {} of {} that merge{} the same experts, chosen on these same images."
IMAGES_NOTE = "All rows: the same tasks, the {}, 95% intervals; n = {} images in domain, {} out of domain.{}"


def draw_result(run: Run, stored_runs: Sequence[Run], last: Run | None) -> None:
    """Draw the run's map, its averages beside those of the reference models, and links to its charts.

    ``last`` is the run that was started before, from which its differences are stated.
    """
    summary = page_data.summary(run, stored_runs)
    with st.container(border=True, key="result", gap="small"):
        st.markdown(f":material/check_circle: **{page_text.safe_text(run.name)}** is done. Run {run.id[:8]}.")
        if st.button("Open the run", type="primary", icon=":material/hub:"):
            st.switch_page(pages.RUN, query_params={address.RUN: run.id} | benchmark_choice.link_query())
        run_picker.draw_cautions(run)
        if summary is None:
            reasons = " ".join(page_text.safe_text(reason, 300) for reason in run.evaluation_warnings)
            st.caption(reasons or "It was not evaluated.")
        else:
            _draw_averages(summary)
        if changes := _describe_changes(run, last, stored_runs) if last else "":
            st.markdown(changes)
        _draw_map(run)
        best = None if summary is None else _draw_comparison(run, stored_runs)
        for sentence in page_text.marks_in_words([run]):
            st.caption(sentence)
        with st.container(horizontal=True, vertical_alignment="center"):
            page_parts.draw_page_link(pages.MASKS, "See its masks", "grid_on", run=run.id)
            if run.adapted_on:
                page_parts.draw_page_link(pages.LEARNING, "See what it learned", "model_training", run=run.id)
            if summary is not None:
                page_parts.draw_page_link(pages.SCORES, "See its scores", "monitoring", runs=run.id)
            if best is not None:
                page_parts.draw_page_link(pages.COMPARE, "Compare with the best", "compare", run=run.id, run_b=best.id)
            if permissions.is_allowed(VisitorAction.EXPORT):
                page_parts.draw_page_link(pages.MODELS, "Export", "output", models_view="runs", selected_runs=run.id)
            run_picker.draw_recipe_button(run, "result")


def _draw_map(run: Run) -> None:
    """Draw the small map of the run, of its most telling quantity that is stored."""
    from viz.figures.network.quantities import QUANTITIES

    quantity = network_values.choose_quantity(run, network_values.RESULT_QUANTITIES)
    with contextlib.suppress(MergingError):  # the page of the run states what is missing
        table = network_values.read_map(run, quantity)
        chart_view.draw_small_chart(
            "network_map", table, MAP_PX, pages.RUN, "hub", {address.RUN: run.id}, quantity=quantity, size="small",
            experts=list(run.experts),
        )  # fmt: skip
        st.caption(f"{QUANTITIES[quantity].title_with_unit(False)}, tensor by tensor.")


def _describe_changes(run: Run, last: Run, stored_runs: Sequence[Run]) -> str:
    """What differs from the last run in averages and in the number of kept tensors, in a line; Markdown.

    Empty if the two runs merge other models, or were scored on other images.
    """
    tables = [page_data.run_table(one.id, network_values.TENSORS) for one in (run, last) if "tensors" in one.tables]
    if run.benchmark != last.benchmark or len(tables) < 2 or not have_same_models(run, last):
        return ""
    new, old = (page_data.summary(one, stored_runs) for one in (run, last))
    parts = [
        f"{name} {page_text.format_signed(100 * (getattr(new, score) - getattr(old, score)))}"
        for name, score in (("in", "in_domain"), ("out", "out_of_domain"), ("H", "h_score"))
        if new and old and math.isfinite(getattr(new, score) - getattr(old, score))
    ]
    scores = [f"{', '.join(parts)} points (n = {new.n_in:,} in, {new.n_out:,} out)"] if new and parts else []
    kept, kept_before = (int((table["kept_numel"] > 0).sum()) for table in tables)
    tensors = f"it keeps {kept} of {plural(len(tables[0]), 'tensor')}, the last one kept {kept_before}"
    return f"Against the last run, **{page_text.safe_text(last.name, 60)}**: {'; '.join([*scores, tensors])}."


def _draw_averages(summary: Summary) -> None:
    """Draw the three averages of the run, the first two with their intervals and numbers of tasks and images."""
    with st.grid(3, min_column_width=130):
        values = {"in": ("In-domain", summary.in_domain), "out": ("Out-of-domain", summary.out_of_domain)}
        for side, (name, value) in values.items():
            low, high = (percent(getattr(summary, f"{side}_{end}")) for end in ("low", "high"))
            task_count, images = getattr(summary, f"tasks_{side}"), getattr(summary, f"n_{side}")
            counts = f"{low} to {high}, {plural(task_count, 'task')}, n = {images:,}"
            with st.container(gap="xsmall"):
                st.metric(name, percent(value))
                st.caption(counts if task_count else "the benchmark has no such task")
        with st.container(gap="xsmall"):
            st.metric("H-score", percent(summary.h_score))
            st.caption("harmonic mean of the two")


def _draw_comparison(run: Run, stored_runs: Sequence[Run]) -> Run | None:
    """Draw a table of the run, the reference models and the best other run on the same tasks; returns the best run."""
    other_runs = [
        other_run
        # The first group has the runs on the same models, this run first.
        for other_run in run_picker.group_by_models([run, *page_data.scored_runs(stored_runs)])[0][1:]
        if other_run.id != run.id and not other_run.needs_task and other_run.benchmark == run.benchmark
    ]
    table = score_tables.averages_table([run, *other_runs], stored_runs)
    score_name = "H-score" if table["h_score"].notna().any() else "in-domain average"
    best = _find_best(table, other_runs, "h_score" if score_name == "H-score" else "in_domain")
    rows = list(_list_rows(table, run, best))
    columns = ("", "In-domain", "Out-of-domain", "H-score")
    st.table(
        {name: [row[index] for row in rows] for index, name in enumerate(columns)},
        border="horizontal", hide_index=True, alt="Averages of this run, of the reference models and of the best run",
    )  # fmt: skip
    # The first two: the pretrained model and the individual experts.
    missing_names = [name for kind, name in score_tables.REFERENCE_NAMES.items() if kind not in set(table["kind"])][:2]
    ranked_note = RANKED_NOTE.format(
        score_name, plural(len(other_runs), "stored run"), "s" if len(other_runs) == 1 else ""
    )
    sentences = [
        IMAGES_NOTE.format(
            samples.scored_part(), span(table["n_in"]), span(table["n_out"]), samples.sampling_sentence()
        ),
        ranked_note if best else NO_OTHER_RUN,
    ]
    if missing_names:
        sentences.append(
            MISSING_REFERENCES.format(page_text.join_words(missing_names), "is" if len(missing_names) == 1 else "are")
        )
    st.caption(" ".join(sentences))
    return best


def _find_best(table: pd.DataFrame, other_runs: Sequence[Run], score: str) -> Run | None:
    """The run with the highest score; None if no run has a score."""
    scores = dict(zip(table["run"], table[score], strict=True))
    scored_runs = [other_run for other_run in other_runs if not math.isnan(scores.get(other_run.id, math.nan))]
    return max(scored_runs, key=lambda other_run: float(scores[other_run.id]), default=None)


def _list_rows(table: pd.DataFrame, run: Run, best: Run | None) -> Iterator[list[str]]:
    """The Markdown cells of each row: name, both averages with their intervals, H-score."""
    by_run: dict[str, dict[Any, Any]] = {row["run"]: row for row in table.to_dict("records")}
    names = {run.id: f"**{THIS_RUN}**", **score_tables.REFERENCE_NAMES}
    if best is not None:
        names[best.id] = f"{BEST_RUN}: {page_text.safe_text(best.name, 60)}"
    for key, name in names.items():
        if row := by_run.get(key):
            inside, outside = (
                f"{percent(row[mean])} ({percent(row[f'{side}_low'])}{INTERVAL_TO}{percent(row[f'{side}_high'])})"
                if row[f"tasks_{side}"]
                else "no such task"
                for mean, side in (("in_domain", "in"), ("out_of_domain", "out"))
            )
            yield [name, inside, outside, percent(row["h_score"])]
