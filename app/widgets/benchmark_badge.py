"""The session's benchmark in the sidebar with its switch to another team, and the warning of a missing benchmark."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import page_data
from app.session import run_choice
from app.session.benchmark_choice import benchmark_folder, benchmark_title, is_bundled, switch_benchmark, team_in_words
from merging.base import settings
from merging.base.files.short_digest import resolve_prefix
from merging.images.benchmarks.benchmark_folders import SERVER, list_bundled
from viz.figure_text import clean_text

TEAM_KEY = "team"
TEAM_HELP = (
    "Two teams of eight experts, fine-tuned from the same pretrained model on the same images. The task vectors of the "
    "gentle team are about half as long, because training pulled the weights back; those of CLIP's published experts "
    "are said to be small, too. Runs in hand are replaced by those of the same name, if the other team has them."
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
    """In the sidebar: the switch between bundled teams, and the benchmark, if the server was started with another."""
    if is_bundled() and len(list_bundled()) > 1:
        _draw_team_switch()
    is_servers = benchmark_folder() == settings.benchmark_folder()
    if not is_servers and not (is_bundled() and is_bundled(settings.benchmark_folder())):
        st.markdown(
            f":material/dataset: On the benchmark **{page_text.safe_text(benchmark_title(benchmark_folder()), 60)}**"
        )


def _draw_team_switch() -> None:
    keys = list_bundled()
    st.session_state[TEAM_KEY] = next(key for key, folder in keys.items() if folder == benchmark_folder())
    names = {key: team_in_words(folder).removesuffix(" team").capitalize() for key, folder in keys.items()}
    st.segmented_control(
        "Team of experts", list(keys), format_func=names.__getitem__, key=TEAM_KEY, help=TEAM_HELP,
        on_change=_switch_team, required=True, width="stretch",
    )  # fmt: skip


def _switch_team() -> None:
    """Callback: switch to the other team, and take its runs with the titles of those in hand."""
    titles = {run.id: page_data.library_title(run) or run.title for run in page_data.stored_runs()}
    wanted = [titles.get(resolve_prefix(run_id, titles), "") for run_id in run_choice.runs_in_hand()]
    switch_benchmark(st.session_state[TEAM_KEY])
    run_choice.clear_link()
    stored = page_data.stored_runs()
    runs = {run.title: run.id for run in stored} | {page_data.library_title(run): run.id for run in stored}
    if same := [runs[title] for title in wanted if title and title in runs]:
        if len(same) > 1:
            run_choice.pick_runs(same)
        run_choice.pick_run(same[0])
