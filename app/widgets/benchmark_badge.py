"""The session's benchmark in the sidebar with its switch to another team, and the warning of a missing benchmark."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import page_data
from app.session import run_choice
from app.session.benchmark_choice import benchmark_folder, benchmark_title, is_bundled, switch_benchmark
from merging.base import settings
from merging.images.benchmarks.benchmark_folders import SERVER, list_bundled
from merging.study.runs.run import PRECOMPUTED
from viz.figure_text import clean_text

TEAM_KEY = "team"
TEAM_NAMES = {"": "First", "gentle": "Gentle"}
TEAM_HELP = (
    "Two teams of eight experts, fine-tuned from the same pretrained model on the same images. The task vectors of the "
    "gentle team are about half as long, nearer to those of CLIP's published experts, because training pulled the "
    "weights back. Runs in hand are replaced by those of the same name."
)


def draw_missing(benchmark_key: str) -> None:
    """Report that a link uses a benchmark that this machine lacks, and offer the server's."""
    name = page_text.safe_text(benchmark_key.partition(":")[2] or benchmark_key, 60)
    st.warning(
        f"This link uses the benchmark “{name}”, which this machine does not have, or whose path was typed in "
        "another session. Scores are compared on one benchmark only, so nothing is shown.",
        icon=":material/link_off:",
    )
    label = f"Switch to {clean_text(benchmark_title(settings.benchmark_folder()), 60)}"
    st.button(label, on_click=switch_benchmark, args=(SERVER,), type="primary")


def draw_badge() -> None:
    """In the sidebar: the switch between bundled teams, or the benchmark, if the server was started with another."""
    if is_bundled() and len(list_bundled()) > 1:
        _draw_team_switch()
    elif benchmark_folder() != settings.benchmark_folder():
        st.markdown(
            f":material/dataset: On the benchmark **{page_text.safe_text(benchmark_title(benchmark_folder()), 60)}**"
        )


def _draw_team_switch() -> None:
    teams = {folder: TEAM_NAMES[team] for team, folder in settings.BUNDLED_TEAMS.items()}
    keys = list_bundled()
    st.session_state[TEAM_KEY] = next(key for key, folder in keys.items() if folder == benchmark_folder())
    st.segmented_control(
        "Team of experts", list(keys), format_func=lambda key: teams[keys[key]], key=TEAM_KEY, help=TEAM_HELP,
        on_change=_switch_team, required=True, width="stretch",
    )  # fmt: skip


def _switch_team() -> None:
    """Callback: switch to the other team, and take its runs with the titles of those in hand."""
    titles = {run.id: run.title for run in page_data.store().list_runs()}
    wanted = [titles[run_id] for run_id in run_choice.runs_in_hand() if run_id in titles]
    switch_benchmark(st.session_state[TEAM_KEY])
    run_choice.clear_link()
    runs = {run.title: run.id for run in page_data.store().list_runs() if run.provenance == PRECOMPUTED}
    if same := [runs[title] for title in wanted if title in runs]:
        if len(same) > 1:
            run_choice.pick_runs(same)
        run_choice.pick_run(same[0])
