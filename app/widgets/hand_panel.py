"""The runs in hand and the pinned ones, at the top of the sidebar; the run started last joins them when it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from app import page_text
from app.reading import page_data
from app.session import run_choice, run_styles, view_state
from app.widgets import page_parts
from merging.base.files.short_digest import resolve_prefix
from merging.study.runs.run import Run
from viz import theme
from viz.figure_text import percent

CHANGE_HELP = "The run in hand goes along: pages with one run show it, pages with several show it first."
FOCUS_HELP = "Put it in focus: every page shows it."
PIN_HELP = "A pinned run keeps its color and its symbol on all pages."
MARK_SIGNS = dict(zip(theme.SYMBOLS[: run_styles.MAX_PINS], "●■◆▲✚★", strict=True))
MARK_HTML = '<span style="color:{}; font-size:1.2em" aria-hidden="true">{}</span>'
_TAKEN_KEY = "_taken_run"  # in the session: the started run that was last taken in hand
_CHANGE_KEY = "hand_change"


def take_finished_run() -> None:
    """Take the run that was started last in hand once it is done, also if it was done when it was started."""
    watched = view_state.watched_run()
    if not watched or st.session_state.get(_TAKEN_KEY) == watched or not (run := page_data.store().find(watched)):
        return
    if any(job.id == watched and job.is_live for job in page_data.job_queue().list_jobs()):
        return  # it is stored before it is evaluated
    st.session_state[_TAKEN_KEY] = watched
    run_choice.pick_run(run.id)
    st.toast(f"**{page_text.safe_text(run.name, 60)}** is done and in hand.", icon=":material/check_circle:")


def draw_panel() -> None:
    """Draw the runs in hand with the scores of the first one, the pinned runs, and the picker of another run."""
    stored = page_data.take_page_runs()
    by_id = {run.id: run for run in page_data.list_merges(stored)}
    in_hand = list(dict.fromkeys(resolve_prefix(run_id, by_id) for run_id in run_choice.runs_in_hand()))
    pinned = [resolve_prefix(run_id, by_id) for run_id in run_styles.pins()]
    if not by_id and not in_hand:
        return
    if in_hand:
        st.markdown("**In hand**", help=CHANGE_HELP)
    for run_id in in_hand:
        _draw_row(run_id, by_id, pinned, in_hand)
        if run_id == in_hand[0] and run_id in by_id and (scores := _scores_in_words(by_id[run_id], stored)):
            st.caption(scores)
    with st.popover("Change" if in_hand else "Take a run in hand", width="stretch", help=CHANGE_HELP):
        st.selectbox(
            "Run", list(by_id), None, lambda run_id: page_text.run_label(by_id[run_id]), key=_CHANGE_KEY,
            on_change=_pick_changed, placeholder="Search by name or id",
        )  # fmt: skip
    if others := [run_id for run_id in pinned if run_id and run_id not in in_hand]:
        st.markdown("**Pinned**", help=PIN_HELP)
        for run_id in others:
            _draw_row(run_id, by_id, pinned, in_hand)


def _pick_changed() -> None:
    """Callback of the picker: take the run in hand, and leave the picker empty for the next one."""
    if st.session_state[_CHANGE_KEY]:
        run_choice.pick_run_from(_CHANGE_KEY)
    st.session_state[_CHANGE_KEY] = None


def _draw_row(run_id: str, by_id: Mapping[str, Run], pinned: Sequence[str], in_hand: Sequence[str]) -> None:
    """Draw the mark of a pinned run, the name, which opens its page, and buttons: focus, pin, put down."""
    name = page_text.safe_text(by_id[run_id].name if run_id in by_id else run_id, 60)
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", key=f"hand_row_{run_id}"):
        if run_id in pinned:
            style = theme.mark_styles(pinned)[run_id]
            st.html(MARK_HTML.format(style.color, MARK_SIGNS[style.symbol]), width=16)
        if run_id not in by_id:
            st.markdown(f":material/link_off: {name}", width="stretch", help="Not among the merges of this machine.")
        else:
            is_first = run_id in in_hand[:1]
            page_parts.draw_run_link(run_id, f"**{name}**" if is_first else name, "hand_open")
            if not is_first:
                _draw_button("focus", ":material/arrow_upward:", run_id, run_choice.pick_run, FOCUS_HELP)
        if run_id in pinned:
            _draw_button("unpin", ":material/keep_off:", run_id, run_styles.unpin_run, f"Unpin. {PIN_HELP}")
        elif sum(map(bool, pinned)) < run_styles.MAX_PINS:
            _draw_button("pin", ":material/keep:", run_id, run_styles.pin_run, f"Pin. {PIN_HELP}")
        if run_id in in_hand:
            _draw_button("put_down", ":material/close:", run_id, run_choice.put_down, "Put this run down.")


def _draw_button(action: str, label: str, run_id: str, callback: Callable[[str], None], help_text: str) -> None:
    st.button(label, key=f"hand_{action}_{run_id}", on_click=callback, args=(run_id,), type="tertiary", help=help_text)


def _scores_in_words(run: Run, stored: Sequence[Run]) -> str:
    """The averages of a run in and out of domain and its H-score; empty if it was not evaluated on this benchmark."""
    if not page_data.belongs_to_benchmark(run) or (summary := page_data.summary(run, stored)) is None:
        return ""
    averages = f"in {percent(summary.in_domain)} · out {percent(summary.out_of_domain)}"
    return f"{averages} · H {percent(summary.h_score)}"
