"""The estimated scores of a recipe on a sample: a button, a switch for updates, and a chart of the changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text, permissions
from app.reading import previews, samples
from app.session import view_state as session
from app.session.click_errors import guarded_fragment
from app.widgets.chart_view import draw_chart
from app.widgets.jobs import refused_action
from merging.base.modes import VisitorAction
from merging.images.benchmarks.paired_scores import AVERAGE
from merging.images.benchmarks.resampled_tasks import DRAWS
from merging.recipes.recipe import Recipe
from merging.study.runs.run import Run
from viz.figure_text import count, percent

if TYPE_CHECKING:
    from merging.study.previews.preview import Preview
    from merging.study.previews.preview_process import PreviewRequest, PreviewState

POLL_SECONDS = 0.4  # between two checks while a preview is computed
CHART_KEY = "preview_change"
SHORT_SECONDS = 5.0  # previews whose first answer takes less are live without asking
# Keys of the session, whose values are by the preview's key.
_LIVE_KEYS = "_preview_live"  # whether the visitor chose automatic updates
_OPEN_KEY = "_preview_open"  # the key of the preview whose chart is drawn
_RECIPES_KEY = "_preview_recipes"  # the last two recipes that were previewed on a benchmark
_ANSWER_KEY = "_preview_answer"  # the last answer on a benchmark, with its reference
PREVIEW_HELP = (
    "Merges in memory and evaluates 8 images of every task, then 16, 32, 64 and all of the choosing half. "
    "A preview is not a run: nothing is stored."
)
LIVE_HELP = "Preview again at every change."
LAST_LABEL, LAST_HELP = "against the last setting", "Compare with the recipe that was previewed before this one."
EARLIER_NOTE = "Numbers of the last setting, until the new ones come."
KINDS = {True: "Stored scores (not sampled)", False: "Preview (sampled)"}  # by ``Preview.is_from_stored``
NO_INTERVALS_NOTE = ". The answers to each image are not stored, so there are no intervals; *Preview* computes them."
NO_PREVIEW_NOTE = (
    "No previews: this benchmark reports on whole test sets, so it has no images on which chains may be tried."
)


def draw_preview(recipe: Recipe, reference: Run | None, key: str, seconds: float = math.inf) -> None:
    """Draw the preview of a recipe against a run (None: the pretrained model), or against the last previewed recipe.

    Where the scores of both are stored, they are drawn at once, with *live* too, until *Preview* is pressed; a preview
    of an earlier recipe stops. ``key`` makes the widget unique on the page. The numbers of an earlier recipe are only
    drawn, faintly, while those of this one are computed. ``seconds`` to the first answer: short previews start live.
    """
    if samples.is_whole_test_set():
        st.caption(NO_PREVIEW_NOTE)
        return
    if refused_action.draw_recipe_refusal(recipe, f"preview_{key}", VisitorAction.PREVIEW):
        return
    recipe = replace(recipe, title=recipe.title or page_text.chain_title(recipe))
    request = previews.preview_request(recipe, reference)
    last = find_last(recipe, request, key)
    if compares_last := bool(last and st.session_state.get(f"preview_last_{key}")):
        request = replace(request, run="", reference=last)
    stored = previews.find_stored_change(recipe, request, reference)
    live = _session_values(_LIVE_KEYS).get(key, seconds < SHORT_SECONDS and not permissions.has_others())
    if stored:
        _note_recipe(request, key)
        previews.cancel_other_preview(request, key)
    elif live and not session.is_single_chart() and previews.preview_state(request, key) is None:
        request_preview(request, key)
    state = previews.preview_state(request, key)
    running = state is not None and not state.done
    draw_panel = guarded_fragment(_draw_panel, run_every=POLL_SECONDS if running else None)
    draw_panel(request, None if compares_last else reference, key, running, live, bool(last), stored)


def _draw_panel(
    request: PreviewRequest, reference: Run | None, key: str, was_running: bool, live: bool, has_last: bool,
    stored: Preview | None,
) -> None:  # fmt: skip
    state = previews.preview_state(request, key)
    running = state is not None and not state.done
    if running != was_running:
        st.rerun()  # the whole page, which starts or stops to poll
    with st.container(border=True, key=f"preview_{key}", gap="small"):
        _draw_controls(request, key, state, live, has_last)
        if state is not None and state.error:
            st.caption(f":material/error: {page_text.safe_text(state.error, 600)}")
        elif state is not None and state.preview is None:
            st.caption(":material/hourglass_top: Merging; the first answer takes a few seconds.")
        if preview := (state.preview if state is not None else None) or stored:
            _session_values(_ANSWER_KEY)[key, request.benchmark] = preview, reference
            with st.container(key=f"preview_result_{key}", gap="small"):  # faint while it belongs to an earlier recipe
                _draw_result(preview, reference, key, running)
        elif running and (answer := _session_values(_ANSWER_KEY).get((key, request.benchmark))):
            with st.container(key=f"preview_earlier_{key}", gap="small"):
                st.caption(EARLIER_NOTE)
                _draw_result(*answer, key, False)


def _draw_controls(request: PreviewRequest, key: str, state: PreviewState | None, live: bool, has_last: bool) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Preview", key=f"preview_button_{key}", icon=":material/bolt:", help=PREVIEW_HELP):
            request_preview(request, key)
            st.rerun()  # the whole page, which then polls
        if _draw_live_switch(key, live) != live:
            st.rerun()  # the whole page, which then previews
        if has_last and st.toggle(LAST_LABEL, key=f"preview_last_{key}", help=LAST_HELP) != bool(request.reference):
            st.rerun()  # the whole page, which then asks for the other comparison
        if state is not None and not state.done:
            st.button("Stop", key=f"preview_stop_{key}", type="tertiary", on_click=_stop_preview, args=(key,))


def _draw_live_switch(key: str, live: bool) -> bool:
    """Draw the switch for automatic updates; returns whether it is on."""
    switch_key, choices = f"preview_live_{key}", _session_values(_LIVE_KEYS)
    is_on = choices.get(key, live)
    # Its value is its default: one that the session sets is lost in the browser where another run follows at once. Only
    # a switch that exists and differs is set, for example where another recipe has another default.
    if differs := st.session_state.get(switch_key, is_on) != is_on:
        st.session_state[switch_key] = is_on
    keep_choice = lambda: choices.update({key: st.session_state[switch_key]})  # noqa: E731
    return st.toggle("live", value=is_on and not differs, key=switch_key, help=LIVE_HELP, on_change=keep_choice)


def _session_values(name: str) -> dict[Any, Any]:
    values: dict[Any, Any] = st.session_state.setdefault(name, {})
    return values


def find_last(recipe: Recipe, request: PreviewRequest, key: str) -> str:
    """The recipe, as YAML, that was previewed before this one with the same models and benchmark; empty if none was."""
    texts = [text for text in _session_values(_RECIPES_KEY).get((key, request.benchmark), ()) if text != request.recipe]
    models = recipe.pretrained, recipe.experts
    others = ((text, Recipe.from_yaml(text)) for text in texts)
    return next((text for text, other in others if (other.pretrained, other.experts) == models), "")


def _stop_preview(key: str) -> None:
    _session_values(_LIVE_KEYS)[key] = False
    previews.cancel_preview(key)


def request_preview(request: PreviewRequest, key: str) -> None:
    st.session_state[_OPEN_KEY] = key
    _note_recipe(request, key)
    previews.request_preview(request, key)


def _note_recipe(request: PreviewRequest, key: str) -> None:
    """Remember the recipe of a request, with which the next one may be compared."""
    recipes, place = _session_values(_RECIPES_KEY), (key, request.benchmark)
    recipes[place] = list(dict.fromkeys([request.recipe, *recipes.get(place, ())]))[:2]


def _draw_result(preview: Preview, reference: Run | None, key: str, running: bool) -> None:
    """Draw the averages, then the chart; of several previews on a page only the newest one's chart is drawn."""
    more_note = "; more images follow" if running and not preview.is_from_stored else ""
    st.markdown(
        f"**{KINDS[preview.is_from_stored]}**: change against {page_text.safe_text(preview.reference, 60)}{more_note}."
    )
    averages = [row for row in preview.changes.to_dict("records") if row["group"] == AVERAGE]
    with st.grid(3, min_column_width=130):
        for row in averages:
            with st.container(gap="xsmall"):
                st.metric(page_text.safe_text(row["title"]), page_text.format_signed(100 * row["difference"]))
                st.caption(_change_in_words(row))
    if st.session_state.setdefault(_OPEN_KEY, key) == key:
        caption = _caption(preview)
        table = previews.preview_table(preview)
        draw_chart(
            CHART_KEY, table, name=CHART_KEY, caption=caption, sources=[reference] if reference is not None else []
        )
    elif st.button("Draw it by data set", key=f"preview_open_{key}", type="tertiary", icon=":material/bar_chart:"):
        st.session_state[_OPEN_KEY] = key
        st.rerun()  # the whole page, to remove the other chart


def _change_in_words(row: Mapping[Any, Any]) -> str:
    """The interval of a change in words; for an insignificant change, the number of images, too."""
    n = count(row["n"])
    if math.isnan(row["low"]):
        return f"points; {percent(row['reference'])} → {percent(row['accuracy'])}, n = {n}"
    if row["low"] <= 0 <= row["high"]:
        return f"no significant difference with n = {n} ({_interval_in_words(row)})"
    return f"points, {_interval_in_words(row)}; {percent(row['reference'])} → {percent(row['accuracy'])}, n = {n}"


def _interval_in_words(row: Mapping[Any, Any]) -> str:
    return f"{page_text.format_signed(100 * row['low'])} to {page_text.format_signed(100 * row['high'])}"


def _caption(preview: Preview) -> str:
    per_task = preview.sample.per_task
    images = "all images" if per_task is None else f"at most {per_task} images of each task"
    rounded = "; intermediate results were rounded, so close calls may differ from a run’s" if preview.rounded else ""
    title, reference = page_text.safe_text(preview.title, 80), page_text.safe_text(preview.reference, 80)
    intervals = f"; paired 95% intervals, those of averages from {DRAWS:,} bootstrap draws{rounded}."
    if preview.changes["low"].isna().all():
        intervals = NO_INTERVALS_NOTE
    return (
        f"{KINDS[preview.is_from_stored]} of “{title}” against “{reference}”: "
        f"{images} of the {preview.half} half, n = {count(preview.n)}, seed {preview.seed}, on "
        f"{page_text.safe_text(preview.device, 40)}{intervals}"
    )
