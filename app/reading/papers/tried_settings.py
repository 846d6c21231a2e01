"""What was tried to show a claim that the bundled experts do not show: gentler fine-tuning of four of the tasks."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import streamlit as st

from app.session import benchmark_choice
from merging.base.text import first_few
from merging.recipes.papers.claims import Claim
from merging.study import training_tables
from merging.study.paper_facts.comparison import Verdict


class Trials(NamedTuple):
    """Of a claim: the number of other settings, those that show it, in words, and whether the stored experts do."""

    settings: int
    shown: list[str]
    stored_shows: bool


def tried_in_words(claim: Claim, verdict: Verdict) -> str:
    """A sentence on the settings of fine-tuning that show a claim; empty if it is shown, or was not tried.

    It also says whether the four stored experts show the claim, since then the other settings are not the reason.
    """
    if verdict is Verdict.SAME or not (trials := _list_trials(benchmark_choice.benchmark_folder()).get(claim.key)):
        return ""
    shown = trials.shown
    tried = f"Of {trials.settings} other settings of fine-tuning, tried on four tasks (Scores, training)"
    shows = "1 shows it" if len(shown) == 1 else f"{len(shown)} show it"
    stored = f"; the four stored experts show it{', too' if shown else ''}" if trials.stored_shows else ""
    return f" {tried}, {f'{shows}: {first_few(shown, 3)}' if shown else 'none shows it'}{stored}."


@st.cache_data(max_entries=4, show_spinner=False)
def _list_trials(folder: Path) -> dict[str, Trials]:
    """By claim, without the setting that differs from the stored experts' in its seed only."""
    tables = training_tables.read_settings(folder)
    if tables is None:
        return {}
    settings, claims = tables
    words = dict(zip(settings["setting"], settings["words"], strict=True))
    others = [key for key in words if key not in (training_tables.STORED, training_tables.CONTROL)]
    found: dict[str, Trials] = {}
    for claim, rows in claims.groupby("claim"):
        same = set(rows.loc[rows["verdict"] == Verdict.SAME, "setting"])
        found[str(claim)] = Trials(
            len(others), [words[key] for key in others if key in same], training_tables.STORED in same
        )
    return found
