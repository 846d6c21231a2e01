"""Mix: merging while sliders move, in the visitor's browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.live import component
from app.live.desk import build_chain
from app.page_text import safe_text
from app.reading import page_data, recipes, samples
from app.session import address, benchmark_choice, pages
from app.widgets import page_parts
from merging.base.errors import CheckpointError, MergingError
from merging.recipes.recipe import Recipe
from merging.study.runs.opened_recipe import open_inputs
from merging.study.sweeps.points import PointSample, find_scores_of_merge

MADE_KEY, SEEN_KEY = "_desk_made", "_desk_seen"  # in the session: the last desk made a run, and its number
MAX_LINK = 8000  # characters of a desk in the address


def draw_instead(reason: str) -> None:
    """Draw why there is no desk, and the way to the previews of the server."""
    page_parts.draw_empty(
        f"{safe_text(reason, 400)} Merge previews the same chains on the server.", "Open Merge", pages.MERGE
    )


def make_recipe(desk: Mapping[str, Any]) -> Recipe:
    """The recipe of a desk. Raises MergingError if it is not one of this benchmark."""
    benchmark = page_data.benchmark()
    try:
        edits, merge, params = build_chain(desk)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MergingError("The browser sent something else than a desk.") from None
    return Recipe.build(merge, params, edits, benchmark.pretrained, benchmark.experts)


def read_engine_scores(desk: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """{task: (correct, n)} of the stored run that is this desk, on the choosing half; empty if there is none."""
    try:
        opened = open_inputs(make_recipe(desk), benchmark=page_data.benchmark())
        point = find_scores_of_merge(page_data.store(), opened.run_id(), page_data.benchmark(), PointSample())
    except MergingError:  # Merge says what is wrong with the chain
        return {}
    if point is None:
        return {}
    columns = (point.scores[name].tolist() for name in ("task", "correct", "n"))
    return {task: (int(correct), int(n)) for task, correct, n in zip(*columns, strict=True)}


def open_on_merge(desk: Mapping[str, Any]) -> None:
    """Go to Merge with the recipe of a desk."""
    query = recipes.merge_query(make_recipe(desk))
    if query is None:
        raise MergingError("The models of this desk are not among those that Merge offers.")
    st.session_state[MADE_KEY] = desk
    st.switch_page(pages.MERGE, query_params=query | benchmark_choice.link_query())


def draw_mix() -> None:
    """The desk, or why there is none."""
    benchmark = page_data.benchmark()
    if samples.is_whole_test_set():
        draw_instead("This benchmark reports on whole test sets, so it has no images on which chains may be tried.")
        return
    try:
        with st.spinner("Writing the models for browsers, once for this benchmark …"):
            folder = component.find_desk(benchmark, page_data.current_digest())
    except CheckpointError as error:
        draw_instead(str(error))
        return
    made: Mapping[str, Any] | None = st.session_state.get(MADE_KEY)
    scores = read_engine_scores(made) if made else {}
    engine = {"desk": made, "scores": scores} if scores else None
    sent = component.draw_desk(folder, st.query_params.get(address.DESK, "")[:MAX_LINK], engine)
    if isinstance(sent, dict) and sent.get("count") != st.session_state.get(SEEN_KEY):
        st.session_state[SEEN_KEY] = sent.get("count")
        open_on_merge(sent.get("make"))


page_parts.draw_heading(
    "Mix",
    "How much of each expert do you add, and which layers need it? Drag, and your browser answers at once.",
)
draw_mix()
