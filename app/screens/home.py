"""Home: the map of one merge under a slider, the ways to begin, and the library of runs."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import offered_lessons, page_data, samples
from app.reading.runs import imported_runs
from app.session import address, pages
from app.views.run_page import first_picture
from app.views.runs import run_order
from app.widgets import page_parts
from merging.study.runs.run import PRECOMPUTED, Run
from merging.study.score_table import H_SCORE, INSIDE, MEAN, OUTSIDE
from viz.figure_text import percent, plural

RUNS_PER_PAGE = 10  # runs per page of the list
IMPORTED_HELP = "Mean {} over tasks, imported from a file or another program; not measured by Mergescope."

page_parts.draw_heading(
    "Mergescope",
    "Merges fine-tuned CLIP vision experts into one model, and shows what the merge did to the network and what that "
    "cost. Everything runs on this machine.",
)

stored = page_data.stored_runs()
runs = page_data.list_merges(stored)
picture_area = st.container()  # filled last: it loads more than the list
with st.container(horizontal=True, gap="medium"):
    page_parts.draw_page_link(pages.MERGE, "Merge eight experts", "merge", chain="lwptv;ties")
    if lesson := offered_lessons.lessons().get("why_merging_hurts"):
        begin = {address.LESSON: lesson.key, address.STEP: "1"}
        label = f"Take a lesson of {lesson.minutes} minutes: why merging hurts"
        page_parts.draw_page_link(offered_lessons.step_page(lesson, 1), label, "school", **begin)
    else:
        view = {address.CONFLICTS_VIEW: "number of tasks"}
        page_parts.draw_page_link(pages.CONFLICTS, "Open Conflicts", "call_split", **view)
    page_parts.draw_page_link(pages.MODELS, "Your own experts", "inventory_2")


COLUMN_WIDTHS = [3.6, 1.5, 1.5, 1.5, 2.4]
SCORE_ORDERS = {
    "In": "in-domain",
    "Out": "out-of-domain",
    "H-score": "H-score",
}  # head of a score's column -> name of the list's order by this score
ALL_RUNS, OWN_RUNS, LIBRARY_RUNS = "all", "this machine", "library"


def draw_run(run: Run) -> None:
    """One row of the list: the run's title, its three scores, and links."""
    summary = page_data.summary(run, stored)
    imported = None if summary else imported_runs.find_scores(run.id)
    title, inside, outside, h_score, links = st.columns(COLUMN_WIDTHS, vertical_alignment="center", gap="small")
    facts = ["precomputed" if run.provenance == PRECOMPUTED else OWN_RUNS, plural(len(run.experts), "expert")]
    facts += [f"{page_text.per_task_in_words(run)} ‡"] if page_text.per_task_in_words(run) else []
    facts += ["† adapted on the scored images"] if run.adapts_on_test else []
    facts += [f"◇ from {page_text.safe_text(imported.origin, 60)}"] if imported else []
    facts += [f"n = {summary.n_in:,} in, {summary.n_out:,} out"] if summary else []
    title.markdown(f"**{page_text.safe_text(run.name)}**  \n:small[:gray[{', '.join(facts)}]]")
    metric, means = imported.means(run.experts) if imported else ("", {})  # name -> (mean, number of tasks)
    if summary is None and not means:
        inside.markdown(":gray[not evaluated]")
    for column, score, name in (
        (inside, "in_domain", INSIDE),
        (outside, "out_of_domain", OUTSIDE if OUTSIDE in means else MEAN),
        (h_score, "h_score", H_SCORE),
    ):
        if summary is not None:
            column.markdown(percent(getattr(summary, score)))
        elif means:
            column.markdown(f"◇ {percent(means[name][0])}" if name in means else "—", help=IMPORTED_HELP.format(metric))
    with links, st.container(horizontal=True, horizontal_alignment="right", gap="xsmall"):
        page_parts.draw_page_link(pages.RUN, "Open", "hub", run=run.id)
        if summary is not None or means:
            page_parts.draw_page_link(pages.SCORES, "Scores", "monitoring", runs=run.id)


def draw_list_controls(runs: list[Run]) -> list[Run]:
    """Draw the controls above the list; returns the matching runs in the chosen order."""
    own_count = sum(run.provenance != PRECOMPUTED for run in runs)
    counts = {ALL_RUNS: len(runs), OWN_RUNS: own_count, LIBRARY_RUNS: len(runs) - own_count}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        search_words = st.text_input("Find a run", type="search", live=True, key="find_run", max_chars=80, width=220)
        order_name = st.selectbox("Order by", run_order.ORDER_FIELDS, key="order_by", width=180)
        source = ALL_RUNS
        if own_count and own_count < len(runs):
            source = st.segmented_control(
                "From", counts, default=ALL_RUNS, required=True, key="runs_from",
                format_func=lambda group_name: f"{group_name} ({counts[group_name]})",
            )  # fmt: skip
    matching_runs = run_order.find_runs(runs, search_words or "")
    if source != ALL_RUNS:
        matching_runs = [run for run in matching_runs if (run.provenance == PRECOMPUTED) == (source == LIBRARY_RUNS)]
    return run_order.sort_runs(matching_runs, order_name, stored)


def draw_library(runs: list[Run]) -> None:
    """The list of runs, a page at a time."""
    listed = draw_list_controls(runs) if len(runs) > RUNS_PER_PAGE else runs
    if not listed:
        st.info("No run has all of these words in its title, chain or experts.")
        return
    rows = st.container(border=True, gap="xsmall")
    first = RUNS_PER_PAGE * (draw_pager(len(listed)) - 1) if len(listed) > RUNS_PER_PAGE else 0
    with rows:
        draw_column_heads(len(runs) > RUNS_PER_PAGE)
        for run in listed[first : first + RUNS_PER_PAGE]:
            draw_run(run)


def draw_column_heads(sortable: bool) -> None:
    """Draw the heads of the columns; a click on a score sorts by it, best first, and a second click undoes that."""
    run, *scores, _ = st.columns(COLUMN_WIDTHS, gap="small", vertical_alignment="center")
    run.caption("Run")
    for column, (head, order) in zip(scores, SCORE_ORDERS.items(), strict=True):
        if not sortable:
            column.caption(head)
            continue
        ordered = st.session_state.get("order_by") == order
        column.button(
            f"{head} ↓" if ordered else head, key=f"order_{order}", type="tertiary", on_click=order_by,
            args=(next(iter(run_order.ORDER_FIELDS)) if ordered else order,), help=None if ordered else "Best first",
        )  # fmt: skip


def order_by(order: str) -> None:
    """Callback: order the list, and show its first page."""
    st.session_state["order_by"], st.session_state["runs_page"] = order, 1


def draw_pager(count: int) -> int:
    """Draw the pager; returns the chosen page, from 1."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        page = st.pagination(-(-count // RUNS_PER_PAGE), key="runs_page", width=320)
        st.caption(f"{RUNS_PER_PAGE * (page - 1) + 1} to {min(RUNS_PER_PAGE * page, count)} of {plural(count, 'run')}")
    return page


st.header("Runs", anchor=False)
if runs:
    st.caption(
        f"In and Out are mean accuracies in and out of domain, on the {samples.scored_part()}, and the H-score is "
        f"their harmonic mean; Scores has every number with its interval.{samples.sampling_sentence()}"
    )
    draw_library(runs)
else:
    page_parts.draw_empty(
        "There is no run yet. Merge some experts and the result appears here.", "Merge experts", pages.MERGE
    )
page_parts.draw_link()
with picture_area:
    first_picture.draw_picture(runs, stored)
