"""Filters above a list of runs: words, methods of the chain, experts, protocol, and origin."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from app import page_text
from app.reading import expert_names
from merging.study.runs.run import PRECOMPUTED, Run
from viz.figure_text import clean_text, plural

PLAIN, ON_TEST, BY_TASK = "neither", "† adapted on test", "‡ per task"
FILTER_FROM = 8  # runs from which on a list has filters
LIBRARY_ORIGIN = "library"


def draw_filters(runs: Sequence[Run], key: str) -> list[Run]:
    """Draw the filters that distinguish some of many runs; returns the runs that pass all of them, in the same order.

    Several methods or experts must all be in a run; of several protocols or origins one must be the run's. ``key``
    begins the widgets' keys. Loads the methods, and with them torch.
    """
    if len(runs) < FILTER_FROM:
        return list(runs)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        search_words = st.text_input("Find", type="search", live=True, key=f"{key}_words", max_chars=80, width=150)
        matching = find_runs(runs, search_words or "")
        matching = _draw_filter("Methods in the chain", runs, matching, list_methods, all, f"{key}_methods", 230)
        matching = _draw_filter(
            "Experts", runs, matching, lambda run: list(run.experts), all, f"{key}_experts", 190,
            expert_names.expert_name,
        )  # fmt: skip
        matching = _draw_filter("Protocol", runs, matching, list_protocols, any, f"{key}_protocols", 180)
        matching = _draw_filter("From", runs, matching, _list_origins, any, f"{key}_origins", 150)
    if len(matching) < len(runs):
        st.caption(f"{len(matching)} of {plural(len(runs), 'run')}.")
    return matching


def _list_origins(run: Run) -> list[str]:
    return [LIBRARY_ORIGIN if run.provenance == PRECOMPUTED else clean_text(run.provenance, 80)]


def _draw_filter(
    label: str, runs: Sequence[Run], matching: list[Run], list_values: Callable[[Run], list[str]],
    condition: Callable[[list[bool]], bool], key: str, width: int, format_func: Callable[[str], str] = str,
) -> list[Run]:  # fmt: skip
    """Draw one filter; returns the matching runs of whose values the ``condition`` holds for those chosen."""
    values = {run.id: list_values(run) for run in runs}
    options = list(dict.fromkeys(value for run_values in values.values() for value in run_values))
    if all(len(run_values) == len(options) for run_values in values.values()):
        return matching
    chosen = st.multiselect(label, options, key=key, placeholder="Any", width=width, format_func=format_func)
    return [run for run in matching if not chosen or condition([value in values[run.id] for value in chosen])]


def find_runs(runs: Sequence[Run], query: str) -> list[Run]:
    """The runs whose title, chain, experts or id contain all the words."""
    parts = ([clean_text(f"{run.name} {run.title}", 500), *run.chain, *run.experts, run.id] for run in runs)
    texts = [" ".join(words).casefold() for words in parts]
    return [
        run for run, text in zip(runs, texts, strict=True) if all(word in text for word in query.casefold().split())
    ]


def list_methods(run: Run) -> list[str]:
    """The titles of the methods in a run's chain."""
    return list(dict.fromkeys(page_text.method_title(key) for key in (*run.chain, *filter(None, [run.adapt]))))


def list_protocols(run: Run) -> list[str]:
    """The marks of a run, or that it has neither."""
    return [ON_TEST] * run.adapts_on_test + [BY_TASK] * run.needs_task or [PLAIN]
