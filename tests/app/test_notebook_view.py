"""An address of the app opened in a notebook's process: the page's charts, and the process as it was before."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
from compared_runs import LWPTV, TIES
from page_harness import runs
from streamlit import config, runtime

from app.notebook.page_view import run_as_app
from app.reading import previews
from app.settings_file import apply_settings
from merging.base.errors import MergingError
from merging.tasks.kinds import Plain
from merging.tasks.queue import child_process, spare_process


def test_a_view_has_the_charts_of_its_page(mergescope: ModuleType, notebook_place: Path) -> None:
    run = runs(notebook_place)[LWPTV]
    view = mergescope.view(f"http://localhost:8501/masks?run={run.id}&ratio=0.5")
    assert view.charts == ["network_map", "saliency_matrix", "kept_share"]
    assert repr(view) == f"View('masks?run={run.id}&ratio=0.5', charts={view.charts})"
    table = view.table("saliency_matrix")
    assert len(table) == len(run.table("saliency")) and view.find("saliency_matrix")[1][0].id == run.id
    kept = table.groupby("expert")["kept"].mean()
    assert kept.between(0.4, 0.6).all()
    assert view["saliency_matrix"].layout.meta["key"] == "saliency_matrix"
    with pytest.raises(MergingError, match="draws no chart 'pair_depth'; its charts are: network_map, saliency"):
        view["pair_depth"]


def test_the_page_of_a_view_contains_its_figures_and_asks_nothing_of_the_network(
    mergescope: ModuleType, notebook_place: Path
) -> None:
    html = mergescope.view(f"masks?run={runs(notebook_place)[LWPTV].id}")._repr_html_()
    assert (
        html.startswith('<iframe sandbox="allow-scripts allow-downloads" style=')
        and html.count("plotly-graph-div") >= 3
    )
    assert "Which tensors are salient for each expert" in html and "u000a" not in html
    assert not re.search(r"&lt;(?:script|link|img)[^&]{0,200}(?:src|href)=", html)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("mask", "there is no page 'mask' with charts; pages are compare"),
        ("masks?run=ffffffffffff", "There is no run 'ffffffffffff' on this machine"),
        ("scores?runs=ffffffffffff", "There is no run 'ffffffffffff' on this machine"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused(
    mergescope: ModuleType, notebook_place: Path, address: str, message: str
) -> None:
    with pytest.raises(MergingError, match=message):
        mergescope.view(address)


def test_a_view_says_why_a_chart_is_missing(mergescope: ModuleType, notebook_place: Path) -> None:
    run = runs(notebook_place)[TIES].id
    view = mergescope.view(f"conflicts?run={run}&conflicts_view=experts+against+experts")
    with pytest.raises(MergingError, match=r"its charts are: .*pair_matrix\. .*choose two experts"):
        view.table("pair_depth")


@pytest.mark.parametrize(
    ("page", "is_interrupted"),
    [
        ("masks", False),
        pytest.param("image", False, marks=pytest.mark.full),
        pytest.param("image", True, marks=pytest.mark.full),
    ],
)
def test_the_process_is_as_it_was(
    mergescope: ModuleType, notebook_place: Path, page: str, is_interrupted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state() -> list[Any]:
        options = [config.get_option("server.maxUploadSize"), config.get_option("server.address")]
        where = config.get_where_defined("server.maxUploadSize")
        return [sys.modules["__main__"], list(sys.path), logging.root.manager.disable, options, where, runtime.exists()]

    monkeypatch.delenv("MERGESCOPE_HUB", raising=False)
    run = runs(notebook_place)[LWPTV].id
    for option, value in (("server.maxUploadSize", 7), ("server.address", None)):
        config.set_option(option, value, "here")
    before, threads, children = state(), set(threading.enumerate()), set(psutil.Process().children())
    started, start = [], child_process.start_answering

    def start_and_interrupt(order: Plain) -> child_process.WorkerProcess:
        started.append(start(order))
        if is_interrupted:
            os.kill(os.getpid(), signal.SIGINT)
        return started[-1]

    monkeypatch.setattr(spare_process, "start_answering", start_and_interrupt)
    try:
        with pytest.raises(KeyboardInterrupt) if is_interrupted else contextlib.nullcontext():
            assert mergescope.view(f"{page}?run={run}").charts
        assert state() == before and "MERGESCOPE_HUB" not in os.environ and bool(started) == (page == "image")
        limit = time.monotonic() + 5
        while not set(threading.enumerate()) <= threads and time.monotonic() < limit:
            time.sleep(0.05)  # the threads of a process see that it has ended
        assert set(threading.enumerate()) <= threads and set(psutil.Process().children()) <= children
    finally:
        apply_settings()


@pytest.mark.parametrize("is_served", [True, False])
def test_a_server_in_this_process_keeps_its_options_and_its_previews(
    notebook_place: Path, is_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime.Runtime, "_instance", object() if is_served else None)
    config.set_option("server.maxUploadSize", 7, "here")
    process = previews.preview_process()
    with run_as_app():
        apply_settings()
        assert (config.get_option("server.maxUploadSize") == 7) == is_served
    assert config.get_option("server.maxUploadSize") == 7 and runtime.exists() == is_served
    assert (previews.preview_process() is process) == is_served
    monkeypatch.undo()
    apply_settings()
