"""Merging in a notebook: the library's numbers, a bar, an interrupt that leaves nothing, and a result that draws."""

from __future__ import annotations

import inspect
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from tiny_library import NASTY

import merging
import viz
from merging.base.errors import MergingError, ParameterError
from merging.base.progress import Progress
from merging.engine import run as engine


def merged(mergescope: ModuleType, family: tiny.Family, **settings: Any) -> Any:
    return mergescope.merge(family.pretrained, family.experts, "ties", edits=["lwptv"], **settings)


def test_the_result_is_that_of_the_library_and_draws_itself(mergescope: ModuleType, tiny_family: tiny.Family) -> None:
    plain = merging.merge(tiny_family.pretrained, tiny_family.experts, "ties", edits=["lwptv"])
    result = merged(mergescope, tiny_family)
    assert isinstance(result, merging.MergeResult) and result.recipe == plain.recipe
    assert all(torch.equal(value, plain.state_dict[name]) for name, value in result.state_dict.items())
    assert result.plot().to_json() == viz.draw("saliency_matrix", plain.tables["saliency"]).to_json()
    assert result.charts == ["saliency_matrix", "kept_share"] and len(repr(result)) < 1500
    html = result._repr_html_()
    assert "LwPTV" in html and f"{len(result.state_dict)} tensors" in html and "saliency_matrix" in html
    assert inspect.signature(mergescope.merge) == inspect.signature(merging.merge)


@pytest.mark.full
def test_a_result_unpickles_where_mergescope_is_imported(
    mergescope: ModuleType, tiny_family: tiny.Family, tmp_path: Path
) -> None:
    result = merged(mergescope, tiny_family)
    (tmp_path / "result").write_bytes(pickle.dumps(result))
    name = mergescope.__name__
    code = f"import pickle, sys, {name}; result = pickle.loads(open(sys.argv[1], 'rb').read()); print(result.charts)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "result")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == str(result.charts) == "['saliency_matrix', 'kept_share']"


def test_a_chart_without_a_table_is_refused_in_a_sentence(mergescope: ModuleType, tiny_family: tiny.Family) -> None:
    with pytest.raises(MergingError, match=r"no chart 'drift_depth'; it has: saliency_matrix, kept_share\."):
        merged(mergescope, tiny_family).plot("drift_depth")
    plain = mergescope.merge(tiny_family.pretrained, tiny_family.experts)
    with pytest.raises(MergingError, match="it has: none, because no step of its chain wrote a table"):
        plain.plot()


def test_names_of_experts_stay_text(mergescope: ModuleType, tiny_family: tiny.Family) -> None:
    first, *others = tiny_family.experts.values()
    html = mergescope.merge(tiny_family.pretrained, {NASTY: first, "b": others[0]})._repr_html_()
    assert "<img" not in html and "&lt;img" in html


@pytest.mark.full
def test_a_bar_is_drawn_if_it_is_asked_for_or_in_a_notebook(
    mergescope: ModuleType,
    tiny_family: tiny.Family,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def drawn(**settings: Any) -> str:
        merged(mergescope, tiny_family, **settings)
        return capsys.readouterr().err

    assert drawn() == drawn(progress="off") == ""
    assert "100%" in drawn(progress="bar") and not [one for one in threading.enumerate() if "tqdm" in repr(one)]
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=object))
    assert "Merging with TIES" in drawn() and drawn(progress="off") == ""
    reports: list[Progress] = []
    assert drawn(progress=reports.append) == "" and reports[-1].fraction == 1
    with pytest.raises(ParameterError, match='progress is "bar", "off" or a function; got \'line\''):
        drawn(progress="line")


@pytest.mark.parametrize("at", ["the first piece", "a piece half-way", "between two pieces"])
def test_an_interrupt_ends_it_and_leaves_no_thread(
    mergescope: ModuleType, tiny_family: tiny.Family, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, half = set(threading.enumerate()), engine.write_unmerged

    def report(progress: Progress) -> None:
        if at != "between two pieces" and progress.fraction >= (0.5 if "half" in at else 0.0):
            os.kill(os.getpid(), signal.SIGINT)

    def write(*arguments: Any) -> None:
        if at == "between two pieces":
            os.kill(os.getpid(), signal.SIGINT)
        half(*arguments)

    monkeypatch.setattr(engine, "write_unmerged", write)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a program started in the background ignores it
    with pytest.raises(KeyboardInterrupt) as caught:
        mergescope.merge(tiny_family.pretrained, tiny_family.experts, "tsv_m", edits=["lwptv"], progress=report)
    assert set(threading.enumerate()) <= threads and caught.value is not None  # also while its traceback is there
