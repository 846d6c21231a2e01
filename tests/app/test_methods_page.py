"""The Methods page: a card for every method, links, filters, published figures, costs."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from page_harness import labels, words
from streamlit.testing.v1 import AppTest

from app.reading.papers import published_tables as published_rows
from app.views.methods import method_facts
from merging.base.devices import describe_machine
from merging.images.benchmarks.benchmark import Benchmark
from merging.methods import registry
from merging.recipes.papers import published_figures
from merging.recipes.papers.published_figures import B32
from merging.study.analysis import measurement_store
from merging.study.analysis.measurement_registry import find_measurement
from merging.study.analysis.measurement_subject import MeasurementResult
from merging.study.runs.run_store import Store

METHODS = registry.list_methods()


# The page


def pick(at: AppTest, key: str) -> AppTest:
    """Open the card of a method with its pill."""
    role = next(method.role for method in METHODS if method.key == key)
    return at.button_group(key=f"methods_{role}").set_value(key).run()


def titles(at: AppTest) -> list[str]:
    return [str(header.value) for header in at.header]


def frames(at: AppTest) -> list[Any]:
    return [element.value for element in at.dataframe]


def queries(at: AppTest, label: str) -> list[str]:
    return [link.proto.query_string for link in at.get("page_link") if link.proto.label == label]


def test_every_method_has_a_card(open_app: Any, library: Path) -> None:
    at = open_app("methods", library)
    first = titles(at)[0]
    seen = []
    for _ in METHODS:
        assert not at.exception
        seen.append(titles(at)[0])
        assert at.latex
        at.button(key="Next").click().run()
    assert sorted(seen) == sorted(method.title for method in METHODS)
    assert titles(at)[0] == first
    at.button(key="Previous").click().run()
    assert titles(at)[0] == seen[-1]


def test_a_card_says_everything_that_is_registered() -> None:
    for method in METHODS:
        table = method_facts.build_parameter_table(method)
        assert len(table) == len(method.params.bounds()), method.key
        for bound, takes in zip(method.params.bounds().values(), table.get("Takes", ()), strict=True):
            whole = bound.slider is None or bound.slider == (bound.low, bound.high)
            assert whole != ("slider from" in takes), method.key
        file, code = method_facts.read_code(method)
        assert file == f"merging/methods/{method.role}s/{method.key}.py"
        assert code.startswith("def "), method.key
        for word in (method.key, method.title, *method.params.bounds()):
            assert method in method_facts.find_methods(METHODS, method.role, str(method.needs), word), (
                method.key,
                word,
            )


def test_the_page_is_in_order(look: Any, library: Path) -> None:
    at = look("methods", library)
    assert at.title[0].value == "Methods"
    assert not at.get("plotly_chart")
    order = [element.type for element in at.main if element.type in ("title", "header", "subheader")]
    assert order == ["title", "header", "subheader", "header", "header"]  # no level is left out


def test_a_link_opens_a_card(open_app: Any, library: Path) -> None:
    at = open_app("methods", library, method="lwptv")
    assert titles(at)[0] == "LwPTV"
    assert queries(at, "Open in Merge") == ["chain=lwptv%3Btask_arithmetic"]
    pick(at, "ties")
    assert titles(at)[0] == "TIES"
    assert at.query_params["method"] == ["ties"] or at.query_params["method"] == "ties"
    assert queries(at, "Open in Merge") == ["chain=ties"]


@pytest.mark.parametrize("link", ["tiez", "<img src=x onerror=alert(1)>", "a" * 5000])
def test_a_link_to_no_method_says_so(look: Any, library: Path, link: str) -> None:
    at = look("methods", library, method=link)
    assert not at.exception
    assert "There is no method named" in at.warning[0].value
    assert len(at.warning[0].value) < 300
    assert "<img" not in words(at).replace("\\<", "")
    assert titles(at)[0] == "Task Arithmetic"


@pytest.mark.full
def test_filters_leave_what_fits(open_app: Any, library: Path) -> None:
    at = open_app("methods", library, search="saliency", role="edit")
    assert [group.key for group in at.button_group if str(group.key).startswith("methods_")] == ["methods_edit"]
    assert list(frames(at)[-1]["title"]) == ["LwPTV"]
    at.text_input(key="search").set_value("no card says this").run()
    assert "No method matches" in at.info[0].value
    at.text_input(key="search").set_value("").run()
    at.button_group(key="role").set_value("merge").run()
    assert list(frames(at)[-1]["title"]) == [method.title for method in METHODS if method.role == "merge"]
    assert not at.exception


def test_needs_can_be_asked_for(look: Any, library: Path) -> None:
    at = look("methods", library, needs="unlabeled exemplars")
    assert {words.partition(",")[0] for words in frames(at)[-2]["needs"]} == {"unlabeled exemplars"}
    assert (
        "lot" in at.button_group(key="methods_merge").options or "LOT" in at.button_group(key="methods_merge").options
    )


def test_values_enter_the_formula(open_app: Any, library: Path) -> None:
    at = open_app("methods", library, method="task_arithmetic")
    assert "textcolor" not in at.latex[0].value
    at.toggle(key="filled").set_value(True).run()
    assert "{0.3}" in at.latex[0].value


def test_published_figures_stand_beside_ours(look: Any, library: Path) -> None:
    at = look("methods", library, method="ties")
    table = frames(at)[0]
    table = getattr(table, "data", table)
    table = table.set_index(("", "Chain"))
    printed, ours = (f"{published_rows.PUBLISHED}, {B32}", "In"), (published_rows.OURS, "In")
    assert table.loc["Ties (LwPTV)", printed] == "72.9%"
    assert table.loc["Ties (LwPTV)", ours].endswith("%")
    assert " to " in table.loc["Ties (LwPTV)", (published_rows.OURS, "In, 95%")]
    assert table.loc["Ties (LwPTV)", (published_rows.OURS, "Setting")] == "CPU"
    assert f"● measured here: the benchmark {library.name} on the" in words(at).replace("\\", "")
    assert "Marked *: not printed in the source, but computed by us" in words(at).replace("\\", "")
    assert table.loc["TIES Merging, tuned", ours] == ""
    assert table.loc["Individual experts", printed] == "90.5%"
    assert table.loc["Pretrained", ours].endswith("%")


def test_every_printed_figure_says_where_before_what() -> None:
    printed = [
        figures
        for method in METHODS
        if (figures := published_figures.list_figures_with_method(method.role, method.key))
    ]
    assert len(printed) > 9
    for figures in printed:
        table = published_rows.paper_table(published_rows.match_rows(figures, []), [])
        assert list(table.columns[:2]) == [published_rows.CHAIN, published_rows.SOURCE]
        assert (table[published_rows.SOURCE] != "").all()
        assert published_figures.AVERAGE_DIFFERS in list(
            table[published_rows.NOTE]
        )  # of the model trained on all tasks


def times(measured_on: str = "") -> MeasurementResult:
    """Times as a measurement gives them: TIES took 2.5 times as long as the reference, DRM could not be run."""
    rows = [("merge", "ties", 2.5, 2.25, 2.75, ""), ("merge", "drm", math.nan, math.nan, math.nan, "<b>no room</b>")]
    notes = {
        "reference": "task_arithmetic", "rounds": 5, "clock": "CPU time of one thread", "date": "2026-01-31",
        "machine": measured_on or describe_machine(), "versions": {"mergescope": "0.1.0", "torch": "2.9"},
    }  # fmt: skip
    return MeasurementResult(
        {"times": pd.DataFrame(rows, columns=["role", "key", "ratio", "low", "high", "problem"])}, notes
    )


def store_times(result: MeasurementResult, folder: Path, benchmark: Path) -> None:
    name = measurement_store.entry_name(
        find_measurement("method_times"), Store(folder, libraries=()), Benchmark.load(benchmark), ""
    )
    assert name is not None
    about = {"key": "method_times", "version": 1, "run": "", "device": "CPU"}
    measurement_store.write_measurement(Store(folder, libraries=()), name, result, about, 0.0)


def needs_and_costs(at: Any) -> pd.DataFrame:
    """Both tables of all methods as one, a row for each title."""
    needs, costs = (frame.set_index("title") for frame in frames(at)[-2:])
    return needs.join(costs)


def test_costs_are_work_that_is_the_same_everywhere(look: Any, library: Path) -> None:
    benchmark = Benchmark.load(library)
    at = look("methods", library)
    costs = needs_and_costs(at)
    assert list(costs.index) == [method.title for method in METHODS]
    assert costs.loc["TIES", "passes"] == 3
    assert costs.loc["TIES", "reads"] == 3 * costs.loc["Task Arithmetic", "reads"] > 0
    assert costs.loc["LOT", "operations"] > 0 and costs.loc["LOT", "images"] == "256 forward"
    assert costs.loc["Fisher Merging", "images"] == "256 both ways"
    assert costs.loc["Surgery", "gives"] == "a module per task" and costs.loc["WEMoE", "gives"] == "one routed model"
    assert costs.loc["Surgery", "needs"] == "unlabeled test data, each image's task"
    assert costs.loc["WEMoE", "needs"] == "unlabeled test data, heads" and costs.loc["MASS", "needs"] == "nothing"
    images = {title: costs.loc[title, "images"] for title in ("Surgery", "WEMoE", "Twin-Merging", "MASS")}
    assert images["WEMoE"].endswith(" both ways") and pd.isna(images["MASS"])
    choosing = sum(benchmark.count_images(name, "choosing") for name in benchmark.experts)
    shown = sum(min(64, benchmark.count_images(name, "exemplars")) for name in benchmark.experts)
    assert images["Surgery"] == f"{2 * choosing:,} forward" and images["Twin-Merging"] == f"{shown:,} forward"
    assert costs.loc["MASS", "reads"] > costs.loc["Task Arithmetic", "reads"]
    assert costs["ratio"].isna().all()
    said = words(at)
    assert "Times have not been measured" in said
    assert "Measure" in labels(at, "button")


@pytest.mark.parametrize("where", ["here", "another", "moved"])
def test_times_are_ratios_and_say_where_they_are_from(open_app: Any, library: Path, tmp_path: Path, where: str) -> None:
    """Timed here; in a library; in a store that came from another machine."""
    folder = tmp_path / "benchmark"
    shutil.copytree(library, folder)
    other = "Plan 9 on MIPS, 3 cores" if where == "moved" else ""
    store_times(times(other), folder if where == "another" else tmp_path / "store", folder)
    at = open_app("methods", folder)
    costs, said = needs_and_costs(at), words(at).replace("\\", "")
    assert (costs.loc["TIES", "ratio"], costs.loc["TIES", "range"]) == (2.5, "2.2 to 2.8")
    assert math.isnan(costs.loc["DRM", "ratio"]) and costs.loc["DRM", "range"] == "<b>no room</b>"
    assert ("on this machine" in said) == (where == "here")
    assert ("on another machine" in said) == ("from another machine" in said) == (where != "here")
    assert "2026-01-31" in said and "CPU time of one thread" in said and (not other or other in said)


def test_titles_of_runs_stay_text(look: Any, library: Path) -> None:
    at = look("methods", library, method="task_arithmetic")
    assert "<img" not in words(at).replace("\\<", "")


@pytest.mark.parametrize("folder", ["empty", "nothing"])
def test_the_page_needs_neither_runs_nor_a_benchmark(
    open_app: Any, tiny_folder: Path, tmp_path: Path, folder: str
) -> None:
    at = open_app("methods", tiny_folder if folder == "empty" else tmp_path / "nothing", method="weight_averaging")
    assert not at.exception
    assert not at.error
    assert frames(at)[-1][["ratio"]].isna().all().all()
    assert frames(at)[-1]["reads"].isna().all() == (folder == "nothing")
