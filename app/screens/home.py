"""Home: what Mergescope is, links into live views, and the library of runs. No chart, so that it loads fast."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import imported_runs, offered_lessons, page_data, samples
from app.session import address, pages
from app.views.runs import run_order
from app.widgets import page_parts
from merging.study.runs.run import PRECOMPUTED, Run
from merging.study.score_table import H_SCORE, INSIDE, MEAN, OUTSIDE
from viz.figure_text import percent, plural

RUNS_PER_PAGE = 10  # runs per page of the list
IMPORTED_HELP = "Mean {} over tasks, from a file or another program; not measured by this one."

page_parts.draw_heading(
    "Mergescope",
    "Mergescope merges fine-tuned CLIP vision experts into one model. It shows what the merge did to the network: "
    "which layers were kept and which were masked, and what that cost. Everything runs on this machine, on a bundled "
    "benchmark of real images or on your own checkpoints.",
)

stored = page_data.stored_runs()
runs = page_data.merges_of(stored)
if lesson := offered_lessons.lessons().get("why_merging_hurts"):
    FIRST = (
        "Guess first, then see what merging does to accuracy and to features, and read why: a lesson of "
        f"{lesson.minutes} minutes.",
        (
            offered_lessons.step_page(lesson, 1),
            "Begin the lesson",
            "school",
            {address.LESSON: lesson.key, address.STEP: "1"},
        ),
    )
else:
    FIRST = (
        "Accuracy on the merged tasks against the number of experts that are merged, method by method.",
        (pages.CONFLICTS, "Open Conflicts", "call_split", {address.CONFLICTS_VIEW: "number of tasks"}),
    )
LINKS = (
    ("See why merging hurts", *FIRST),
    (
        "Look inside a merge",
        "Which tensors are salient for each expert, and which does the merge keep? Move the prune ratio to see.",
        (pages.MASKS, "Open Masks", "grid_on", {}),
    ),
    (
        "Which merge wins out of domain?",
        "In-domain against out-of-domain accuracy of several merges, beside the pretrained model and the experts.",
        (pages.SCORES, "Open Scores", "monitoring", {}),
    ),
    (
        "How far do features drift?",
        "Layer by layer, how far the merged model's features move from each expert's, and what accuracy that costs.",
        (pages.DRIFT, "Open Drift", "moving", {}),
    ),
    (
        "Merge eight experts",
        "Choose experts, chain edits and one merge, press Run. On the bundled benchmark it takes seconds.",
        (pages.MERGE, "Open Merge", "merge", {"chain": "lwptv;ties"}),
    ),
    (
        "What does each method do?",
        "Every edit, merge and adapt with its formula, its parameters, and published figures beside ours.",
        (pages.METHODS, "Open Methods", "menu_book", {}),
    ),
)
with st.grid(3, min_column_width=220):
    for title, sentence, (page, label, icon, query) in LINKS:
        with st.container(border=True, height="stretch"):
            st.markdown(f"**{title}**")
            st.markdown(sentence)
            page_parts.draw_page_link(page, label, icon, **query)
with st.container(border=True, horizontal=True, vertical_alignment="center"):
    st.markdown(
        "**Your own experts**: choose your checkpoints, from any tool, and your images. See at once which models fit "
        "together, merge them, and export the result.",
        width="stretch",
    )
    page_parts.draw_page_link(pages.MODELS, "Open Models & runs", "inventory_2")


WIDTHS = [3.6, 1.5, 1.5, 1.5, 2.4]
HEADS = {"In": "in-domain", "Out": "out-of-domain", "H-score": "H-score"}  # column of a score -> order of the list
EVERYWHERE, HERE, LIBRARY = "all", "this machine", "library"


def draw_run(run: Run) -> None:
    """One run of the library: title, three scores, links."""
    summary = page_data.summary(run, stored)
    imported = None if summary else imported_runs.find_scores(run.id)
    title, inside, outside, h_score, links = st.columns(WIDTHS, vertical_alignment="center", gap="small")
    facts = ["precomputed" if run.provenance == PRECOMPUTED else HERE, plural(len(run.experts), "expert")]
    facts += [f"{page_text.per_task_in_words(run)} ‡"] if page_text.per_task_in_words(run) else []
    facts += ["† adapted on the scored images"] if run.adapts_on_test else []
    facts += [f"◇ from {page_text.safe_text(imported.origin, 60)}"] if imported else []
    facts += [f"n = {summary.n_in:,} in, {summary.n_out:,} out"] if summary else []
    title.markdown(f"**{page_text.safe_text(run.name)}**  \n:small[:gray[{', '.join(facts)}]]")
    metric, means = imported.means(run.experts) if imported else ("", {})
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
        page_parts.draw_page_link(pages.MASKS, "Masks", "grid_on", run=run.id)
        if summary is not None or means:
            page_parts.draw_page_link(pages.SCORES, "Scores", "monitoring", runs=run.id)


def pick_listed_runs(runs: list[Run]) -> list[Run]:
    """The controls above the list; returns the matching runs in the chosen order."""
    own = sum(run.provenance != PRECOMPUTED for run in runs)
    counts = {EVERYWHERE: len(runs), HERE: own, LIBRARY: len(runs) - own}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        words = st.text_input("Find a run", type="search", live=True, key="find_run", max_chars=80, width=220)
        order = st.selectbox("Order by", run_order.ORDERS, key="order_by", width=180)
        group = EVERYWHERE
        if own and own < len(runs):
            group = st.segmented_control(
                "From", counts, default=EVERYWHERE, required=True, key="runs_from",
                format_func=lambda group_name: f"{group_name} ({counts[group_name]})",
            )  # fmt: skip
    matching = run_order.find_runs(runs, words or "")
    if group != EVERYWHERE:
        matching = [run for run in matching if (run.provenance == PRECOMPUTED) == (group == LIBRARY)]
    return run_order.sort_runs(matching, order, stored)


def draw_library(runs: list[Run]) -> None:
    """The list of runs, a page at a time."""
    listed = pick_listed_runs(runs) if len(runs) > RUNS_PER_PAGE else runs
    if not listed:
        st.info("No run has all of these words in its title, chain or experts.")
        return
    rows = st.container(border=True, gap="xsmall")
    first = RUNS_PER_PAGE * (pick_page(len(listed)) - 1) if len(listed) > RUNS_PER_PAGE else 0
    with rows:
        draw_heads(len(runs) > RUNS_PER_PAGE)
        for run in listed[first : first + RUNS_PER_PAGE]:
            draw_run(run)


def draw_heads(sortable: bool) -> None:
    """The heads of the columns; a click on a score sorts the list by it, best first, and a second click undoes that."""
    run, *scores, _ = st.columns(WIDTHS, gap="small", vertical_alignment="center")
    run.caption("Run")
    for column, (head, order) in zip(scores, HEADS.items(), strict=True):
        if not sortable:
            column.caption(head)
            continue
        ordered = st.session_state.get("order_by") == order
        column.button(
            f"{head} ↓" if ordered else head, key=f"order_{order}", type="tertiary", on_click=order_by,
            args=(next(iter(run_order.ORDERS)) if ordered else order,), help=None if ordered else "Best first",
        )  # fmt: skip


def order_by(order: str) -> None:
    """Callback: order the list, and show its first page."""
    st.session_state["order_by"], st.session_state["runs_page"] = order, 1


def pick_page(count: int) -> int:
    """The pager; returns the page, from 1."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        page = st.pagination(-(-count // RUNS_PER_PAGE), key="runs_page", width=320)
        st.caption(f"{RUNS_PER_PAGE * (page - 1) + 1} to {min(RUNS_PER_PAGE * page, count)} of {plural(count, 'run')}")
    return page


st.header("Runs", anchor=False)
if runs:
    st.caption(
        f"In and Out are mean accuracies in and out of domain, on the {samples.scored_part()}, and the H-score is "
        f"their "
        f"harmonic mean; Scores has every number with its interval.{samples.sampling_sentence()}"
    )
    draw_library(runs)
else:
    page_parts.draw_empty(
        "There is no run yet. Merge some experts and the result appears here.", "Merge experts", pages.MERGE
    )
page_parts.draw_link()
