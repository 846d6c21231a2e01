"""The entry of the app: ``streamlit run app/main.py``. Draws the frame that all pages share, then runs one of them."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

# Streamlit puts this folder on the path; the packages lie beside it.
if (root := str(Path(__file__).resolve().parent.parent)) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from app import startup, timing, turns
from app.reading import data
from app.session import address, benchmark, clicks, selection, state
from app.session.report import report_keeper
from app.session.runs import run_choice
from app.text import safe_text
from app.views.lessons import player
from app.widgets import benchmark_badge, present
from app.widgets import page as page_parts
from merging import modes, settings
from merging.errors import MergingError, StoreError

ICON = Path(__file__).with_name("icon.png")
SECTIONS = {
    "Start": [("home", "Home", "home", "What Mergescope is, and the library of runs.")],
    "Build": [("merge", "Merge", "merge", "Choose experts and a chain of methods, and merge them.")],
    "Explore": [
        ("masks", "Masks", "grid_on", "Which layers are salient for each expert, and which the merge keeps."),
        ("conflicts", "Conflicts", "call_split", "Where experts disagree: signs, spaces, and who wins the election."),
        (
            "drift",
            "Drift",
            "moving",
            "How far features move from each expert's, layer by layer, and the accuracy this costs.",
        ),
        ("features", "Features", "scatter_plot", "What merging does to the features of images out of domain."),
        ("image", "Image", "image_search", "One image through several models: answers, attention, drift, restoring."),
        ("learning", "Learning", "model_training", "What merges learn from images: coefficients, masks and modules."),
    ],
    "Results": [
        ("scores", "Scores", "monitoring", "Accuracy in and out of domain, run by run, task by task."),
        ("sweeps", "Sweeps", "tune", "A recipe at many values: which to use, and what it costs out of domain."),
        ("compare", "Compare", "compare", "Two runs: recipes, scores, charts with their difference, image by image."),
        ("report", "Report", "article", "Chosen views as one HTML file, with recipes, digests, seeds and versions."),
    ],
    "Learn": [
        ("lessons", "Lessons", "school", "Paths through the pages: predict, do, see, read why."),
        ("methods", "Methods", "menu_book", "What every method does, needs and costs."),
    ],
    "Library": [
        ("models", "Models & runs", "inventory_2", "Your checkpoints, whether they fit, and your runs."),
    ],
}
# A recipe must not make the server download, unless its operator sets "on".
os.environ.setdefault(settings.HUB_SWITCH, "cached")


def pages() -> dict[str, list[StreamlitPage]]:
    """The pages by section, as the menu lists them."""
    return {
        section: [
            st.Page(
                f"screens/{name}.py", title=title, icon=f":material/{icon}:", help=help_text, default=name == "home",
                url_path=None if name == "home" else name,
            )
            for name, title, icon, help_text in entries
        ]
        for section, entries in SECTIONS.items()
    }  # fmt: skip


def main() -> None:
    """Draw the frame and the page in it."""
    begun = time.perf_counter()
    st.set_page_config("Mergescope", page_icon=str(ICON), layout="wide", initial_sidebar_state=240)
    st.logo(str(ICON), size="large")
    page = st.navigation(pages(), expanded=True)  # with more than twelve pages the last ones would be hidden
    if page.url_path:  # tabs and the browser's history name the page
        st.set_page_config(f"{page.title} · Mergescope")
    with st.sidebar:
        jobs = st.container(key="jobs")
        st.toggle("Present", key=address.PRESENT, bind=address.BIND, help=present.HELP)
    page_parts.style()
    player.enter(page.url_path)
    present.enter()
    selection.enter()
    page_parts.clear_cautions()
    report_keeper.enter(state.linked(report_keeper.DRAFT))
    if problem := clicks.problem():
        st.error(safe_text(problem, 1000), icon=":material/error:")
    try:
        modes.mode()  # an unknown one is an error wherever one looks
        settings.jobs_at_once()  # likewise
        if missing := benchmark.enter():
            benchmark_badge.show_missing(missing)
        else:
            run_choice.enter()
            player.run(page.url_path, page.run)
    except MergingError as error:  # its text is meant for people; anything else goes to the log
        clicks.refuse(error, "page")
    present.settle()

    with jobs:
        from app.views.report import notice as report_notice
        from app.views.runs import damage
        from app.widgets import selected
        from app.widgets.jobs.tray import tray

        with contextlib.suppress(StoreError):  # there is no store at all, which the page itself has said
            benchmark_badge.badge()
            damage.notices()
            report_notice.show()
            tray()
            selected.rest()
    with contextlib.suppress(StoreError):
        startup.settle(lambda: data.runner().runner.spare)
    timing.note(page.url_path, time.perf_counter() - begun)


with turns.PAGES.turn():
    main()
