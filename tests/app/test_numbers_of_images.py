"""Where the tasks of a benchmark have different numbers of images, every caption says the range, not one number."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import small_sweeps
import tiny
import tiny_library
import viz_tables
from page_harness import runs, words

import viz
from app.reading import score_tables
from app.views.drift import by_depth
from merging.cli.commands.sweep import format_points
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run import THIS_MACHINE
from viz.figure_text import span

CHOOSING, REPORTING = (f"{n // 2} to {n}" for n in (tiny.CHOOSING, tiny.REPORTING))
PAGES = [
    ("scores", {"scores_view": "ablations"}, [f"n = {REPORTING} images of each data set"]),
    (
        "drift",
        {"drift_view": "by depth"},
        [f"n = {CHOOSING} images per task of the choosing half", f"n = {REPORTING} images per task of the reporting"],
    ),
    ("drift", {"drift_view": "layer by layer"}, [f"n = {REPORTING} images per task (LOT, Table 7"]),
]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library on a benchmark in which one task in domain and one outside have half as many images."""
    halved = (tiny.EXPERTS[0], tiny.OUTSIDE[0])
    folder = tiny_library.write(tmp_path_factory.mktemp("uneven"), ("ties", "task_arithmetic_lwptv"), halved)
    tiny_library.measure(folder, "Ties")
    return folder


@pytest.mark.full
@pytest.mark.parametrize(("page", "query", "sentences"), PAGES)
def test_a_page_says_the_range(
    open_app: Any, uneven: Path, page: str, query: dict[str, str], sentences: list[str]
) -> None:
    at = open_app(page, uneven, run=runs(uneven)["Ties"].id, **query)
    assert not at.exception
    assert [sentence for sentence in sentences if sentence not in words(at)] == []


def test_captions_of_equal_and_of_different_numbers() -> None:
    table = pd.DataFrame({"n": [120, 240, 240], "n_in": [360, 600, 600], "n_out": [0, 0, 0]})
    measured: Any = SimpleNamespace(device="CPU", provenance=THIS_MACHINE, seconds=1.0, notes={})
    assert score_tables.describe_accuracies(table).startswith("Reporting half of each test set, n = 120 to 240 images ")
    assert "n = 360 to 600 images in domain, n = 0 out of domain." in score_tables.describe_averages(table)
    assert " n = 120 to 240 images per task of the choosing half" in by_depth.lines_in_words(
        table, [measured], "class token"
    )
    assert (span([240, 240]), span([240, 1200]), span([])) == ("240", "240 to 1,200", "—")


def test_runs_of_other_experts_say_that_their_tasks_differ() -> None:
    pairs = [("a", "digits"), ("a", "land"), ("b", "digits")]
    table = pd.DataFrame(pairs, columns=["run", "task"]).assign(n=240)
    measured: Any = SimpleNamespace(device="CPU", provenance=THIS_MACHINE, seconds=1.0, notes={})
    assert "means over 1 to 2 tasks, which differ between the runs" in by_depth.lines_in_words(
        table, [measured], "class token"
    )
    assert "means over tasks;" in by_depth.lines_in_words(table[table["run"] == "a"], [measured], "class token")


def test_a_sweep_of_the_number_of_experts_says_how_many_images(tiny_benchmark: Benchmark) -> None:
    def printed(counts: list[tuple[int, int]], devices: tuple[str, ...] = ("CPU",)) -> str:
        scores = dict.fromkeys(("in_domain", "in_low", "in_high", "out_of_domain", "out_low", "out_high"), 0.5)
        rows = [{"line": 0, "x": x, "n_in": n, "n_out": 30, **scores, "h_score": 0.5} for x, n in counts]
        on = {"device": [devices[n % len(devices)] for n in range(len(rows))]}
        return format_points(small_sweeps.sweep(tiny_benchmark), pd.DataFrame(rows).assign(**on))

    assert "n = 40 images in domain and 30 out of domain at every point." in printed([(1, 40), (2, 40)])
    assert "CPU" not in printed([(1, 40), (2, 40)])
    mixed = printed([(1, 40), (2, 40)], ("CPU", "NVIDIA A100")).splitlines()
    assert [line.split("  ")[-1].strip() for line in mixed[:3]] == ["device", "CPU", "NVIDIA A100"]
    differing = printed([(1, 20), (2, 40)])
    assert "Averages with different n are over different tasks." in differing and "n in" in differing.splitlines()[0]


def test_hover_texts_of_drift_say_the_range() -> None:
    table = viz_tables.drift_depth()
    table.loc[table["task"] == "t0", "n"] = 120
    fig = viz.draw("drift_depth", table, value="cosine", band=None)
    assert "120 to 240 images a task" in fig.to_json() and "240 images a task" not in fig.to_json().replace(
        "to 240", ""
    )
