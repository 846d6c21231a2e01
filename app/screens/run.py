"""Run: one merge on one page, with what it did in sentences, the map of the network, and small pictures."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import permissions
from app.reading import page_data, recipes
from app.reading.runs import network_values
from app.session import pages, run_choice
from app.views.report import first_views
from app.views.run_page import run_pictures, run_summary
from app.widgets import page_parts, run_picker
from app.widgets.panels import network_panel
from merging.base.modes import VisitorAction
from merging.study.runs.run import Run

FIRST_RUN_PRESETS = ("task_arithmetic_lwptv",)  # presets of the run that is shown at first, if such a run is stored

PICKER_PX, MAP_PX, STORY_PX = 330, 640, 448


def draw_actions(run: Run, runs: Sequence[Run], stored: Sequence[Run]) -> None:
    """The runs before and after this one, and what can be done with it."""
    position = next(index for index, one in enumerate(runs) if one.id == run.id)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for label, icon, other in (("Previous", "arrow_back", position - 1), ("Next", "arrow_forward", position + 1)):
            is_there = 0 <= other < len(runs)
            st.button(
                label, icon=f":material/{icon}:", type="tertiary", disabled=not is_there, key=f"turn_{label}",
                on_click=run_choice.pick_run, args=(runs[other].id if is_there else "",),
            )  # fmt: skip
        page_parts.draw_page_link(pages.COMPARE, "Compare", "compare", run=run.id)
        if permissions.is_allowed(VisitorAction.EXPORT):
            page_parts.draw_page_link(pages.MODELS, "Export", "output", models_view="runs", selected_runs=run.id)
        st.button(
            "Report with all of it", icon=":material/note_add:", type="tertiary", key="report_run",
            on_click=first_views.add_views, args=(run, stored),
        )  # fmt: skip
        run_picker.draw_recipe_button(run, "run")
        page_parts.draw_link()


def main() -> None:
    """The chosen run."""
    stored = page_data.stored_runs()
    runs = page_data.list_merges(stored)
    first = next(iter(recipes.preset_runs(FIRST_RUN_PRESETS, runs)), None)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="one_screen"):
        page_parts.draw_heading("Run")
        with st.container(width=PICKER_PX):
            picked = run_picker.pick_run(runs, first, draw_text=lambda run: None)
        if picked is None:
            return
        run, _ = picked
        with st.container(width="content"):
            draw_actions(run, runs, stored)
    run_picker.draw_run(run)
    facts = run_summary.read_story(run, stored)
    joint_models, joint_subject = run_pictures.find_joint_models(run, runs, stored)
    with st.container(horizontal=True, gap="medium"):  # one below the other on a narrow page
        with st.container(width=MAP_PX):
            network_panel.draw_panel(
                run, network_values.RESULT_QUANTITIES, compact=False, result=run_pictures.describe_result(run, stored)
            )
        with st.container(width=STORY_PX, gap="small"):
            run_summary.draw_story(facts, run)
            run_summary.offer_measurements(facts, run, joint_subject)
    run_pictures.draw_pictures(run, runs, stored, joint_models)


main()
