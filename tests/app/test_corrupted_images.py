"""Corrupted images on Scores: offered for runs without them, drawn with the reference models, beside the averages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tiny_library
from page_harness import charts, press, words

from app.views.scores.robustness_view import describe_losses
from merging.images.benchmarks.benchmark import Benchmark
from merging.study import measure
from merging.study.analysis import measurement_subject
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

VIEW = "corrupted images"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StoredMeasurement]:
    """A library with two runs, one of which is measured on corrupted images."""
    folder = tiny_library.write(tmp_path_factory.mktemp("corrupted"), ("ties", "task_arithmetic"))
    store = Store(folder / "measuring", libraries=(folder / "runs",), dated=False)
    run = next(run for run in store.list_runs() if run.kind == "merge")
    stored = measure.measure("robustness", store, Benchmark.load(folder), run.id, context=Context(device="cpu"))
    (folder / "measuring" / measurement_subject.FOLDER).rename(folder / measurement_subject.FOLDER)
    return folder, measure.find_measurement_result(
        "robustness", Store(folder / "none", libraries=(folder / "runs",)), Benchmark.load(folder), stored.run_id
    )  # type: ignore[return-value]


def test_a_run_without_them_offers_to_measure(open_app: Any, library: Path, asked: list[tuple[str, str]]) -> None:
    at = open_app("scores", library, scores_view=VIEW)
    assert not at.exception and charts(at) == 0
    assert "has not been measured for" in words(at) and "That takes about" in words(at)
    press(at, "Measure")
    assert {key for key, _ in asked} == {"robustness"}


def test_the_choosing_half_is_offered_by_itself(open_app: Any, measured: Any, asked: list[tuple[str, str]]) -> None:
    at = open_app("scores", measured[0], scores_view=VIEW, corrupted_half="choosing half")
    assert not at.exception and charts(at) == 0
    press(at, "Measure")
    assert {key for key, _ in asked} == {"robustness_choosing"}


@pytest.mark.parametrize(("domain", "over"), [("In domain", "in domain"), ("Out of domain", "out of domain")])
def test_the_losses_are_those_that_are_stored(open_app: Any, measured: Any, domain: str, over: str) -> None:
    folder, stored = measured
    at = open_app("scores", folder, scores_view=VIEW, corrupted_domain=domain, runs=stored.run_id)
    assert not at.exception and charts(at) == 1
    rows = stored.table("domains").set_index(["over", "corruption", "severity"])
    row = rows.loc[(over, "all", "all")]
    table = at.dataframe[0].value
    interval = f"({100 * row['loss_low']:.1f} to {100 * row['loss_high']:.1f})".replace("-", "\N{MINUS SIGN}")
    assert table["Relative loss"].iloc[0].replace("\N{MINUS SIGN}", "-").startswith(f"{100 * row['loss']:.1f}% (")
    assert table["Relative loss"].iloc[0].endswith(interval)
    blur = rows.loc[(over, "blur", "all")]
    low, high = (f"{100 * blur[name]:.1f}" for name in ("loss_low", "loss_high"))
    words_of_blur = table["Blur, loss"].iloc[0].replace("\N{MINUS SIGN}", "-")
    assert words_of_blur == f"{100 * blur['loss']:.1f}% ({low} to {high})"
    experts = ["Individual experts"] if over == "in domain" else []
    assert list(table["Model"])[1:] == ["Pretrained", *experts]
    assert interval in words(at) and "resamples" in words(at)


@pytest.mark.full
def test_the_averages_have_them_as_another_column(open_app: Any, measured: Any, library: Path) -> None:
    folder, stored = measured
    row = stored.table("domains").set_index(["over", "corruption", "severity"]).loc[("in domain", "all", "all")]
    at = open_app("scores", folder, scores_view="runs")
    table = at.dataframe[0].value.set_index("run")
    assert not at.exception and "Rel. loss the share" in words(at)
    assert table.loc[stored.run_id, "corrupted"] == pytest.approx(100 * row["accuracy"])
    losses = ["relative_loss", "loss_low", "loss_high"]
    assert table.loc[stored.run_id, losses].tolist() == pytest.approx(100 * row[["loss", *losses[1:]]].to_numpy(float))
    assert table.loc["pretrained", "corrupted"] > 0 and table["corrupted"].isna().any()
    assert "corrupted" not in open_app("scores", library, scores_view="runs").dataframe[0].value


def test_losses_say_whether_their_intervals_overlap_or_that_they_are_undefined() -> None:
    rows = pd.DataFrame({"label": ["A", "B", "C"], "loss": [0.2, 0.1, float("nan")]}).assign(
        corruption="all", kind="merge"
    )
    rows = rows.assign(loss_low=rows["loss"] - 0.04, loss_high=rows["loss"] + 0.05)
    expected = "cost from **B** 10.0% (6.0 to 15.0) to **A** 20.0% (16.0 to 25.0); these two intervals do not overlap."
    assert describe_losses(rows, "in domain").endswith(expected)
    wider = rows.assign(loss_high=rows["loss"] + 0.06)
    assert describe_losses(wider, "in domain").endswith("these two intervals overlap.")
    assert "are undefined" in describe_losses(rows.iloc[2:], "in domain")
    unknown = rows.iloc[:1].assign(loss_low=float("nan"), loss_high=float("nan"))
    assert describe_losses(unknown, "in domain").endswith("cost **A** 20.0% (interval undefined).")
