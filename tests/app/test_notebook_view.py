"""An address of the app opened in a notebook's process: the page's charts, and the process as it was before."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
from compared_runs import LWPTV, TIES
from page_harness import runs

from merging.base.errors import MergingError


def test_a_view_has_the_charts_of_its_page(mergescope: ModuleType, notebook_place: Path) -> None:
    run = runs(notebook_place)[LWPTV]
    view = mergescope.view(f"http://localhost:8501/masks?run={run.id}&ratio=0.5")
    assert view.charts == ["network_map", "saliency_matrix", "kept_share"]
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
    assert html.startswith("<iframe srcdoc=") and html.count("plotly-graph-div") >= 3
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


def test_the_process_is_as_it_was(
    mergescope: ModuleType, notebook_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MERGESCOPE_HUB", raising=False)
    main_module, threads = sys.modules["__main__"], set(threading.enumerate())
    mergescope.view(f"masks?run={runs(notebook_place)[LWPTV].id}")
    assert sys.modules["__main__"] is main_module and "MERGESCOPE_HUB" not in os.environ
    assert logging.root.manager.disable == logging.NOTSET and set(threading.enumerate()) <= threads
