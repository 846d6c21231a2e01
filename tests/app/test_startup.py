"""The modules that the app loads in the background: every name resolves, and a wrong one is an error in the log."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import SimpleNamespace

import pytest
import streamlit as st
from app_server import serve
from page_harness import forget, open_page
from streamlit import config
from streamlit.web import skills

from app import layout, main, startup
from app import serve as server
from app.page_queue import PAGE_QUEUE
from app.reading import page_data
from app.reading.papers import paper_facts
from app.widgets import fit_report
from merging.base import modes
from merging.base.errors import MergingError
from merging.images.benchmarks import resampled_tasks
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.inspection import fit_check
from merging.recipes.papers.claims import CLAIMS


@pytest.mark.parametrize("name", startup.SLOW_MODULES)
def test_every_slow_module_exists(name: str) -> None:
    assert importlib.util.find_spec(name) is not None


def test_a_wrong_name_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger=startup.log.name):
        startup.import_modules(("merging.no_such_module", "json"))
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "merging.no_such_module" in caplog.text


@pytest.mark.parametrize("lifespan", [main.open_browser, server.serve_lifespan], ids=["app", "server"])
def test_what_the_first_page_needs_is_loaded_while_the_browser_starts(
    lifespan: Callable[[object], AbstractAsyncContextManager[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, done = [], threading.Event()

    def load(names: Sequence[str]) -> None:
        asked.append((names, threading.current_thread().daemon))
        done.set()

    async def start() -> None:
        await lifespan(None).__aenter__()

    monkeypatch.setattr(startup, "import_modules", load)
    before = config.get_option("server.headless")
    config.set_option("server.headless", True)
    try:
        asyncio.run(start())
    finally:
        config.set_option("server.headless", before)
    assert done.wait(20) and asked == [(startup.FIRST_MODULES, True)]


@pytest.mark.parametrize("mode", ["", "read"])
def test_after_the_first_page_comes_what_later_ones_need(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()
    for name in ("load_modules", "draw_resamples"):
        monkeypatch.setattr(startup, name, lambda name=name: done.append(name))
    monkeypatch.setenv(modes.MODE_VARIABLE, mode)
    spare = SimpleNamespace(keep_ready=lambda: done.append("spare process"))
    startup.prepare_pages(spare, lambda _is_ending: done.append("pages"))
    assert done == ["load_modules", *(["spare process"] if not mode else []), "draw_resamples", "pages"]


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is computed ahead; the first claim fails."""
    computed = list[object]()

    def fail_once(claim: object) -> None:
        computed.append(claim)
        if claim is CLAIMS[0]:
            raise MergingError("its run is missing")

    monkeypatch.setattr(layout, "QUIET_SECONDS", 0.5)
    monkeypatch.setattr(paper_facts, "compare_claim", fail_once)
    monkeypatch.setattr(paper_facts, "compare_on_other_teams", lambda claim: computed.append(("others", claim)))
    monkeypatch.setattr(fit_report, "check_models", lambda pretrained, experts: computed.append((pretrained, experts)))
    return computed


def test_what_pages_show_first_is_computed_ahead_while_no_page_is_drawn(ahead: list[object]) -> None:
    with PAGE_QUEUE.wait_for_turn():
        thread = threading.Thread(target=layout.read_ahead, args=(lambda: False,))
        thread.start()
        time.sleep(0.7)
        assert not ahead
    time.sleep(0.2)
    assert not ahead  # a browser fetches the files of the page
    thread.join(20)
    models = page_data.benchmark_models()
    assert ahead == [(models.pretrained, dict(models.experts)), *CLAIMS, *(("others", claim) for claim in CLAIMS)]


def test_a_user_s_models_are_not_read_ahead(
    ahead: list[object], library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(library))
    layout.read_ahead(lambda: False)
    assert not ahead


def test_nothing_more_is_computed_when_the_server_ends(ahead: list[object]) -> None:
    states = iter([False] * 20 + [True])
    layout.read_ahead(lambda: next(states) or len(ahead) == 2)
    assert len(ahead) == 2


def test_a_server_waits_at_its_end_for_what_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, done = threading.Event(), threading.Event(), list[str]()
    monkeypatch.setattr(startup, "is_ending", threading.Event())
    monkeypatch.setattr(startup, "load_modules", lambda: (begun.set(), go_on.wait(20), done.append("modules")))
    spare = SimpleNamespace(keep_ready=lambda: done.append("spare process"))
    ahead = (spare, lambda _is_ending: done.append("pages"))
    threading.Thread(target=startup.prepare_pages, args=ahead, name=startup.BACKGROUND).start()
    assert begun.wait(20)
    threading.Timer(0.3, go_on.set).start()
    startup.end_preparing()
    assert done == ["modules"]


def test_after_an_error_of_the_program_no_runs_stay(ahead: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    def read_and_fail(claim: object) -> None:
        page_data.stored_runs()
        raise KeyError(claim)

    before = set(st.session_state)
    monkeypatch.setattr(paper_facts, "compare_claim", read_and_fail)
    with pytest.raises(KeyError):
        layout.read_ahead(lambda: False)
    assert set(st.session_state) <= before


def test_what_is_computed_ahead_says_nothing_and_pages_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    warnings, before = list[str](), set(st.session_state)
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: warnings.append(record.getMessage()))
    monkeypatch.setattr(startup, "load_modules", lambda: None)
    monkeypatch.setattr(layout, "QUIET_SECONDS", 0.0)
    startup.context_log.addHandler(handler)
    ahead = (SimpleNamespace(keep_ready=lambda: None), layout.read_ahead)
    try:
        thread = threading.Thread(target=startup.prepare_pages, args=ahead, name=startup.BACKGROUND)
        thread.start()
        thread.join(120)
        assert not thread.is_alive() and warnings == []
        assert set(st.session_state) <= before
    finally:
        startup.context_log.removeHandler(handler)
    monkeypatch.setattr(paper_facts, "FACTS", {})  # nothing can be computed any more
    monkeypatch.setattr(fit_check, "check_fit", None)
    assert [claim for claim in CLAIMS if claim.fact and paper_facts.compare_claim(claim)]
    assert any(side for claim in CLAIMS for _, side in paper_facts.compare_on_other_teams(claim))
    try:
        assert not open_page("merge", {}).exception
    finally:
        page_data.job_queue().close()
        forget()
    assert not any(paper_facts.compare_claim(claim) for claim in CLAIMS)


def test_resamples_are_drawn_for_the_pages_that_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = dict[str, int]()
    benchmark = Benchmark.load()
    monkeypatch.setattr(resampled_tasks, "draw_ahead", sizes.update)
    startup.draw_resamples()
    assert sizes == {task.key: len(benchmark.load_labels(task.key, "reporting")) for task in benchmark.tasks}
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", "/nowhere")
    startup.draw_resamples()  # the pages say that there is no benchmark
    assert len(sizes) == len(benchmark.tasks)


def test_no_popup_of_streamlit_covers_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a coding agent is installed, it would offer, over every page of a new visitor, to install skills."""
    monkeypatch.setattr(skills, "agent_harness_present", lambda: True)
    monkeypatch.setattr(skills, "_nudge_dismissed_marker_path", lambda: Path("/nowhere"))
    before = config.get_option("server.headless")
    config.set_option("server.headless", False)
    try:
        assert skills.nudge_suppression_reason(str(Path(startup.__file__).parent)) == "welcome_hidden"
    finally:
        config.set_option("server.headless", before)


@pytest.mark.parametrize(("headless", "opened"), [("true", False), ("false", True)])
def test_the_browser_opens_the_app_unless_it_is_told_not_to(
    headless: str, opened: bool, library: Path, tmp_path: Path
) -> None:
    browser = tmp_path / "programs" / "xdg-open"
    browser.parent.mkdir()
    browser.write_text(f'#!/bin/sh\necho "$1" > "{tmp_path}/asked"\n')
    browser.chmod(0o755)
    settings = {"PATH": f"{browser.parent}:{os.environ['PATH']}", "STREAMLIT_SERVER_HEADLESS": headless}
    with serve(library, tmp_path, settings) as url:
        limit = time.monotonic() + (20 if opened else 2)
        while not (tmp_path / "asked").exists() and time.monotonic() < limit:
            time.sleep(0.1)
        time.sleep(0.5 if opened else 0)  # until the address is written
    assert (tmp_path / "asked").exists() is opened
    assert not opened or (tmp_path / "asked").read_text("utf-8").strip() == url


def test_a_server_settles_once_and_tries_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    spec = importlib.util.spec_from_file_location("fresh_startup", startup.__file__)  # no other test settles
    assert spec is not None and spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    monkeypatch.setattr(fresh, "_freeze", lambda: None)
    monkeypatch.setattr(fresh, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(fresh, "prepare_pages", lambda *given: begun.append((*given, threading.current_thread().name)))
    monkeypatch.setattr(fresh.sys, "setswitchinterval", lambda _seconds: None)
    warm_up, read_ahead = fresh.warm_up, list

    def fail() -> object:
        raise OSError("no store")

    with pytest.raises(OSError, match="no store"):
        warm_up(fail, read_ahead)
    warm_up(lambda: "first", read_ahead)
    warm_up(lambda: "second", read_ahead)
    time.sleep(0.3)
    assert begun == [("first", read_ahead, startup.BACKGROUND)]
