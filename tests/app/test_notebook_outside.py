"""A chart of another package in a notebook: drawn from the tables of runs and results, named where it is broken."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import own_code
import pytest
import tiny
from compared_runs import LWPTV
from page_harness import runs

from app.notebook import outside_charts
from merging.base.errors import MergingError, StoreError
from merging.base.outside_code import CHARTS
from viz import chart_registry

SOURCE = """
from viz.figures.masks.mask_sections import kept_share
import dataclasses

lab_share = dataclasses.replace(kept_share, key="lab_share", title="Share kept, our way")
lab_nothing = dataclasses.replace(kept_share, key="lab_nothing", columns=("no_such_column",))
kept_share = kept_share
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes an installed package with entry points for charts."""
    outside_charts.load_outside.cache_clear()
    yield partial(own_code.install, tmp_path / "site", monkeypatch, SOURCE, group=CHARTS)
    own_code.forget_modules()
    own_code.forget_packages()
    outside_charts.load_outside.cache_clear()
    chart_registry.add_outside([])


def test_it_draws_runs_and_results(
    mergescope: ModuleType, notebook_place: Path, tiny_family: tiny.Family, package: Any
) -> None:
    package("lab_share = lab_merges:lab_share\nlab_nothing = lab_merges:lab_nothing")
    run = mergescope.run(runs(notebook_place)[LWPTV].id)
    assert run.plot("lab_share").data
    with pytest.raises(StoreError, match="no table with the columns no_such_column of lab_nothing; its tables: "):
        run.plot("lab_nothing")
    with pytest.raises(MergingError, match=r"Of packages: lab_nothing, lab_share\."):
        run.plot("lab_shares")
    result = mergescope.merge(tiny_family.pretrained, tiny_family.experts, "ties", edits=["lwptv"])
    assert "lab_share" in result.charts and "lab_nothing" not in result.charts
    assert result.plot("lab_share").data


@pytest.mark.parametrize(
    "entries, says",
    [
        ("lab_share = lab_merges:none", "module 'lab_merges' has no attribute 'none'"),
        ("lab_share = lab_nowhere:none", "No module named 'lab_nowhere'"),
        ("kept_share = lab_merges:kept_share", "kept_share: the key is that of a chart of Mergescope"),
    ],
)
def test_a_broken_one_is_named(
    mergescope: ModuleType, tiny_family: tiny.Family, package: Any, entries: str, says: str
) -> None:
    package(entries)
    result = mergescope.merge(tiny_family.pretrained, tiny_family.experts, "ties", edits=["lwptv"])
    assert result.charts == ["saliency_matrix", "kept_share"] and result.plot("kept_share").data
    with pytest.raises(MergingError, match="Not loaded: ") as refused:
        result.plot("lab_share")
    assert says in str(refused.value)
