"""What was tried to show a claim that the bundled experts do not show: gentler fine-tuning of four of the tasks."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from app.session import benchmark_choice
from merging.base.text import first_few
from merging.recipes.papers.claims import Claim
from merging.study import training_tables
from merging.study.paper_facts.comparison import Verdict


def tried_in_words(claim: Claim, verdict: Verdict) -> str:
    """A sentence on the settings of fine-tuning that show a claim; empty if it is shown, or was not tried."""
    if verdict is Verdict.SAME or not (verdicts := _list_verdicts(benchmark_choice.benchmark_folder()).get(claim.key)):
        return ""
    shown = [words for words, found in verdicts.items() if found == Verdict.SAME]
    tried = f"Of {len(verdicts)} other settings of fine-tuning, tried on four tasks (Scores, training)"
    shows = "1 shows it" if len(shown) == 1 else f"{len(shown)} show it"
    return f" {tried}, {f'{shows}: {first_few(shown, 3)}' if shown else 'none shows it'}."


@st.cache_data(max_entries=4, show_spinner=False)
def _list_verdicts(folder: Path) -> dict[str, dict[str, str]]:
    """{claim: {setting in words: verdict}}, without the stored experts' setting."""
    tables = training_tables.read_settings(folder)
    if tables is None:
        return {}
    settings, claims = tables
    words = dict(zip(settings["setting"], settings["words"], strict=True))
    found: dict[str, dict[str, str]] = {}
    for setting, claim, verdict in zip(claims["setting"], claims["claim"], claims["verdict"], strict=True):
        if setting not in (training_tables.STORED, training_tables.CONTROL):
            found.setdefault(claim, {})[words[setting]] = verdict
    return found
