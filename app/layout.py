"""The parts that all pages share: menu and sidebar, with the page between them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from app import page_queue, page_times, startup
from app.page_text import safe_text
from app.reading import page_data
from app.session import (
    address,
    benchmark_choice,
    click_errors,
    report_keeper,
    run_choice,
    run_styles,
    selection,
    view_state,
)
from app.views.lessons import player
from app.widgets import benchmark_badge, chart_stage, hand_panel, page_parts
from merging.base import modes, settings
from merging.base.errors import MergingError, StoreError

QUIET_SECONDS = 3.0  # without a page, after which what other pages show is computed: browsers fetch files meanwhile
ICON = Path(__file__).with_name("icon.png")
# A recipe must not make the server download, unless its operator sets "on".
os.environ.setdefault(settings.HUB_VARIABLE, "cached")


Sections = Mapping[str, Sequence[tuple[str, str, str, str]]]  # name, title, icon and help of each page


def pages(sections: Sections) -> dict[str, list[StreamlitPage]]:
    """The pages by section, as the menu lists them."""
    return {
        section: [
            st.Page(
                f"screens/{name}.py", title=title, icon=f":material/{icon}:", help=help_text, default=name == "home",
                url_path=None if name == "home" else name,
            )
            for name, title, icon, help_text in entries
        ]
        for section, entries in sections.items()
    }  # fmt: skip


def draw_page(sections: Sections) -> None:
    """Draw the page in the address and the shared parts, when it is the page's turn."""
    with page_queue.PAGE_QUEUE.wait_for_turn():
        _draw_in_turn(sections)


def _draw_in_turn(sections: Sections) -> None:
    start = time.perf_counter()
    startup.use_plain_texts()  # before the first table
    st.set_page_config("Mergescope", page_icon=str(ICON), layout="wide", initial_sidebar_state=240)
    st.logo(str(ICON), size="large")
    page = st.navigation(pages(sections), expanded=True)  # with more than twelve pages the last ones would be hidden
    if page.url_path:  # so that tabs and the browser's history name the page
        st.set_page_config(f"{page.title} · Mergescope")
    with st.sidebar:
        benchmark_area, hand_area = st.container(key="benchmark"), st.container(key="in_hand")
        job_area = st.container(key="jobs")
        st.toggle("Present", key=address.PRESENTATION, bind=address.BIND, help=chart_stage.PRESENT_HELP)
    page_parts.draw_style()
    player.enter_page(page.url_path)
    chart_stage.begin_page()
    selection.follow_link()
    page_parts.clear_cautions()
    report_keeper.open_linked_report(view_state.value_from_link(address.REPORT_TOKEN))
    if problem := click_errors.take_problem():
        st.error(safe_text(problem, 1000), icon=":material/error:")
    try:
        modes.server_mode()  # an unknown mode is an error on every page
        settings.max_running_jobs()  # likewise
        if missing := benchmark_choice.follow_link():
            benchmark_badge.draw_missing(missing)
        else:
            with benchmark_area, contextlib.suppress(StoreError):
                benchmark_badge.draw_badge()
            run_choice.enter_page()
            run_styles.follow_link()
            with contextlib.suppress(StoreError):  # there is no store, as the page itself reports
                hand_panel.take_finished_run()
            player.draw_page(page.url_path, page.run)
    except MergingError as error:  # its text is for people; other errors go to the log
        click_errors.draw_error(error, "page")
    chart_stage.end_page()

    with hand_area, contextlib.suppress(StoreError):
        hand_panel.draw_panel()
    with job_area:
        from app.views.report import stored_reports
        from app.views.runs import damaged_results
        from app.widgets import selection_pickers
        from app.widgets.jobs.tray import draw_tray

        with contextlib.suppress(StoreError):  # there is no store, as the page itself reports
            damaged_results.draw_notices()
            stored_reports.draw_problem(st.caption)  # in the sidebar of every page
            draw_tray()
            selection_pickers.draw_not_shown()  # the chosen tensor, expert or image, if the page does not show it
    with contextlib.suppress(StoreError):
        startup.warm_up(lambda: page_data.job_queue().runner.spare, read_ahead)
    page_times.note_time(page.url_path, time.perf_counter() - start)


def read_ahead(is_ending: Callable[[], bool]) -> None:
    """Compute what pages show first of the server's benchmark, if it is bundled, until the server ends.

    Merge shows whether the experts fit, and pages with claims of papers compare them on all bundled teams. Each part is
    computed once no page was drawn for a while; a page that is opened meanwhile shares the processor with it. Other
    benchmarks may have large models, which take minutes.
    """
    from app.reading.papers import paper_facts
    from app.widgets import fit_report
    from merging.recipes.papers.claims import CLAIMS

    def check_experts() -> None:
        models = page_data.benchmark_models()
        fit_report.check_models(models.pretrained, dict(models.experts))

    if not benchmark_choice.is_bundled():
        return
    comparisons = (paper_facts.compare_claim, paper_facts.compare_on_other_teams)
    try:
        for part in (check_experts, *(partial(compare, claim) for compare in comparisons for claim in CLAIMS)):
            if not page_queue.PAGE_QUEUE.wait_until_idle(QUIET_SECONDS, is_ending):
                return
            with contextlib.suppress(MergingError):  # the page says what is wrong
                part()
    finally:
        page_data.forget_page_runs()  # outside of a session, they would be stored for later readers
