"""Published figures, the Methods page, and Home's list when there are many runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import test_app
import tiny_library
from streamlit.testing.v1 import AppTest
from test_app import words

from app.reading import published as published_rows
from app.reading import run_order
from app.views.methods import gallery
from merging.benchmarks.benchmark import Benchmark
from merging.methods import registry
from merging.methods.method import Method
from merging.recipes.papers import published
from merging.recipes.papers.published import B32, FIGURES, L14, REFERENCES, Figure, Printed
from merging.recipes.recipe import Recipe
from merging.runs import execute
from merging.runs.run import PRECOMPUTED, THIS_MACHINE
from merging.runs.store import Store

library, open_app = test_app.library, test_app.open_app  # fixtures
METHODS = registry.methods()
ALL = [*FIGURES, *(figure for figures in REFERENCES.values() for figure in figures)]


def named(figure: Figure) -> str:
    return f"{figure.name}, {figure.model}, {figure.source}"


# Published figures


@pytest.mark.parametrize("figure", ALL, ids=named)
def test_a_figure_agrees_with_itself(figure: Figure) -> None:
    printed = figure.printed
    assert figure.source.split(",")[0] in published.SOURCES
    assert figure.model in (B32, L14)
    assert (figure.experts, figure.model) in published.EXPERTS or figure.normalized == figure.normalized_as_printed
    if printed.tasks:
        assert len(printed.tasks) == len(published.TASKS)
        agrees = sum(printed.tasks) / len(printed.tasks) == pytest.approx(printed.in_domain, abs=0.07)
        assert agrees != (figure.note == published.AVERAGE_DIFFERS)
    if printed.h_score is not None:
        assert printed.out_of_domain is not None
        harmonic = 2 / (1 / printed.in_domain + 1 / printed.out_of_domain)
        assert harmonic == pytest.approx(printed.h_score, abs=0.11)  # of averages that were rounded before


@pytest.mark.parametrize("figure", FIGURES, ids=named)
def test_a_figure_states_values_that_its_methods_take(figure: Figure) -> None:
    """Methods that are not registered yet are left alone; values of those that are must exist."""
    known = {(method.role, method.key): method for method in METHODS}
    for place, (key, stated) in enumerate(figure.chain):
        role = "merge" if place == len(figure.chain) - 1 else "edit"
        if method := known.get((role, key)):
            assert method.params.build(stated)


def test_no_line_of_a_table_is_there_twice() -> None:
    lines = [(figure.name, figure.source, figure.model) for figure in FIGURES]
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize(("name", "value"), [("LOT Merging", 90.877), ("Task Arithmetic", 75.806)])
def test_normalized_accuracy_is_the_mean_of_ratios(name: str, value: float) -> None:
    found = next(figure for figure in FIGURES if figure.name == name and figure.model == B32)
    assert found.normalized == pytest.approx(value, abs=5e-4)


def test_normalized_accuracy_needs_both_parts() -> None:
    figure = FIGURES[0]
    bare = Figure(name="x", chain=figure.chain, model=B32, printed=Printed(70.0), source=figure.source)
    assert bare.normalized is None
    other = Figure(name="x", chain=figure.chain, model=B32, printed=figure.printed, source="DRM", experts="nobody's")
    assert other.normalized is None


def test_published_figures_load_no_torch() -> None:
    code = "import sys, merging.recipes.papers.published; sys.exit('torch' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Which run stands beside a figure


def run(chain: Sequence[tuple[str, Mapping[str, Any]]], provenance: str = PRECOMPUTED, **exemplars: int) -> Any:
    """As much of a stored run as the comparison looks at."""
    *edits, (merge, params) = chain
    recipe = Recipe.build(merge, params, edits, exemplars=exemplars)
    name = f"{recipe.chain_digest}{provenance}"
    keys = tuple(step.key for step in recipe.steps)
    return SimpleNamespace(id=name, title=name, recipe=recipe, chain=keys, provenance=provenance)


def figure(*chain: tuple[str, Mapping[str, Any]], **said: Any) -> Figure:
    return Figure(name="x", chain=chain, model=B32, printed=Printed(50.0), source="LOT", **said)


TIES = {"density": 0.2, "aggregation": "sum", "scaling": 0.3}


@pytest.mark.parametrize(
    ("chain", "beside_it"),
    [
        ([("ties", TIES)], True),
        ([("ties", TIES | {"scope": "tensor"})], True),  # the paper leaves it open
        ([("ties", TIES | {"aggregation": "mean"})], False),
        ([("ties", TIES | {"scaling": 0.4})], False),
        ([("lwptv", {}), ("ties", TIES)], False),
        ([("task_arithmetic", {})], False),
    ],
)
def test_a_run_is_beside_a_figure_of_its_own_chain(chain: list[Any], beside_it: bool) -> None:
    rows = published_rows.rows([figure(("ties", TIES))], [run(chain, THIS_MACHINE)])
    assert [row.run is not None for row in rows] == [beside_it]


def test_defaults_then_precomputed_runs_stand_beside_a_figure() -> None:
    odd, own, stored = run([("ties", {"scope": "tensor"})]), run([("ties", {})], THIS_MACHINE), run([("ties", {})])
    assert published_rows.rows([figure(("ties", TIES))], [odd, own])[0].run is own
    assert published_rows.rows([figure(("ties", TIES))], [odd, own, stored])[0].run is stored


def test_no_run_is_beside_a_figure_with_unknown_values() -> None:
    assert (
        published_rows.rows([figure(("ties", {}), unstated=True)], [run([("ties", {})], THIS_MACHINE)])[0].run is None
    )


def test_exemplars_must_be_as_many_where_a_paper_counts_them() -> None:
    few, many = run([("lot", {})], per_task=16), run([("lot", {})], per_task=64)
    assert published_rows.rows([figure(("lot", {"scaling": 1.2}), exemplars=16)], [many, few])[0].run is few
    assert published_rows.rows([figure(("lot", {"scaling": 1.2}), exemplars=8)], [])[0].run is None


def test_rows_of_one_name_say_whose_they_are() -> None:
    same = [f for f in FIGURES if len(f.chain) == 1 and f.name.casefold() == "task arithmetic"]
    assert [row.name for row in published_rows.rows(same, [])] == [
        "Task Arithmetic (LwPTV)",
        "Task Arithmetic (DRM)",
        "Task arithmetic (FusionBench)",
    ]


def test_both_models_share_a_row_and_other_runs_follow() -> None:
    small = [f for f in FIGURES if f.name == "Ties"]
    other = run([("ties", {"density": 0.5})])
    rows = published_rows.rows(small, [run([("ties", TIES)]), other])
    assert [set(row.figures) for row in rows] == [{B32, L14}, set()]
    assert rows[1].run is other


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


@pytest.mark.slow
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


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.role}-{method.key}")
def test_a_card_says_everything_that_is_registered(method: Method) -> None:
    table = gallery.parameters(method)
    assert len(table) == len(method.params.bounds())
    for bound, takes in zip(method.params.bounds().values(), table.get("Takes", ()), strict=True):
        assert (bound.slider is None or bound.slider == (bound.low, bound.high)) != ("slider from" in takes)
    file, code = gallery.code(method)
    assert file == f"merging/methods/{method.role}s/{method.key}.py"
    assert code.startswith("def ")
    for word in (method.key, method.title, *method.params.bounds()):
        assert method in gallery.matching(METHODS, method.role, str(method.needs), word)


def test_the_page_is_in_order(open_app: Any, library: Path) -> None:
    at = open_app("methods", library)
    assert at.title[0].value == "Methods"
    assert not at.get("plotly_chart")
    order = [element.type for element in at.main if element.type in ("title", "header", "subheader")]
    assert order == ["title", "header", "subheader", "header"]  # no level is left out


def test_a_link_opens_a_card(open_app: Any, library: Path) -> None:
    at = open_app("methods", library, method="lwptv")
    assert titles(at)[0] == "LwPTV"
    assert queries(at, "Open in Merge") == ["chain=lwptv%3Btask_arithmetic"]
    pick(at, "ties")
    assert titles(at)[0] == "TIES"
    assert at.query_params["method"] == ["ties"] or at.query_params["method"] == "ties"
    assert queries(at, "Open in Merge") == ["chain=ties"]


@pytest.mark.parametrize("link", ["tiez", "<img src=x onerror=alert(1)>", "a" * 5000])
def test_a_link_to_no_method_says_so(open_app: Any, library: Path, link: str) -> None:
    at = open_app("methods", library, method=link)
    assert not at.exception
    assert "There is no method named" in at.warning[0].value
    assert len(at.warning[0].value) < 300
    assert "<img" not in words(at).replace("\\<", "")
    assert titles(at)[0] == "Task arithmetic"


def test_filters_leave_what_fits(open_app: Any, library: Path) -> None:
    at = open_app("methods", library, find="saliency", role="edit")
    assert [group.key for group in at.button_group if str(group.key).startswith("methods_")] == ["methods_edit"]
    assert list(frames(at)[-1]["title"]) == ["LwPTV"]
    at.text_input(key="find").set_value("no card says this").run()
    assert "No method matches" in at.info[0].value
    at.text_input(key="find").set_value("").run()
    at.button_group(key="role").set_value("merge").run()
    assert set(frames(at)[-1]["role"]) == {"merge"}
    assert not at.exception


def test_needs_can_be_asked_for(open_app: Any, library: Path) -> None:
    at = open_app("methods", library, needs="unlabeled exemplars")
    assert set(frames(at)[-1]["needs"]) == {"unlabeled exemplars"}
    assert (
        "lot" in at.button_group(key="methods_merge").options or "LOT" in at.button_group(key="methods_merge").options
    )


def test_values_enter_the_formula(open_app: Any, library: Path) -> None:
    at = open_app("methods", library, method="task_arithmetic")
    assert "textcolor" not in at.latex[0].value
    at.toggle(key="filled").set_value(True).run()
    assert "{0.3}" in at.latex[0].value


def test_published_figures_stand_beside_ours(open_app: Any, library: Path) -> None:
    at = open_app("methods", library, method="ties")
    table = frames(at)[0]
    table = getattr(table, "data", table)
    table = table.set_index(("", "Chain"))
    printed, ours = (f"{published_rows.PUBLISHED}, {B32}", "In"), (published_rows.OURS, "In")
    assert table.loc["Ties (LwPTV)", printed] == "72.9%"
    assert table.loc["Ties (LwPTV)", ours].endswith("%")
    assert " to " in table.loc["Ties (LwPTV)", (published_rows.OURS, "In, 95%")]
    assert table.loc["Ties (LwPTV)", (published_rows.OURS, "Setting")] == "CPU"
    assert table.loc["TIES Merging, tuned", ours] == ""
    assert table.loc["Individual experts", printed] == "90.5%"
    assert table.loc["Pretrained", ours].endswith("%")


@pytest.mark.parametrize("method", [m for m in METHODS if published.with_method(m.role, m.key)], ids=lambda m: m.key)
def test_every_printed_figure_says_where_before_what(method: Method) -> None:
    rows = published_rows.rows(published.with_method(method.role, method.key), [])
    table = published_rows.table(rows, [])
    assert list(table.columns[:2]) == [published_rows.CHAIN, published_rows.SOURCE]
    assert (table[published_rows.SOURCE] != "").all()
    assert published.AVERAGE_DIFFERS in list(table[published_rows.NOTE])  # of the model trained on all tasks


def test_costs_come_from_stored_runs(open_app: Any, library: Path) -> None:
    at = open_app("methods", library)
    costs = frames(at)[-1].set_index("title")
    assert list(costs.index) == [method.title for method in METHODS]
    assert costs.loc["TIES", "seconds"] > 0
    assert costs.loc["TIES", "device"] == "CPU, precomputed"
    assert costs.loc["TIES", "passes"] == 4
    assert costs.loc["LwPTV", "run"] == "Task Arithmetic w/ LwPTV"


def test_titles_of_runs_stay_text(open_app: Any, library: Path) -> None:
    at = open_app("methods", library, method="task_arithmetic")
    assert "<img" not in words(at).replace("\\<", "")
    assert tiny_library.NASTY in list(frames(at)[-1]["run"])


@pytest.mark.parametrize("folder", ["empty", "nothing"])
def test_the_page_needs_neither_runs_nor_a_benchmark(
    open_app: Any, tiny_folder: Path, tmp_path: Path, folder: str
) -> None:
    at = open_app("methods", tiny_folder if folder == "empty" else tmp_path / "nothing", method="weight_averaging")
    assert not at.exception
    assert not at.error
    assert frames(at)[-1]["seconds"].isna().all()


# Home


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of thirteen runs on the tiny benchmark."""
    folder = tiny_library.write(tmp_path_factory.mktemp("many"))
    benchmark = Benchmark.load(folder)
    making = Store(folder / "making", libraries=(), dated=False)
    for number in range(9):
        recipe = Recipe.build(
            "task_arithmetic",
            {"scaling": 0.01 + number / 10},
            [],
            benchmark.pretrained,
            benchmark.experts,
            f"Sum {number}",
        )
        made = execute.execute(recipe, making, benchmark=benchmark, keep_model=False)
        made.path.rename(folder / "runs" / made.id)
    return folder


def listed(at: AppTest) -> list[str]:
    """Titles in Home's list."""
    return [str(line.value).split("**")[1] for line in at.markdown if ":small[:gray[" in str(line.value)]


def test_home_shows_a_page_of_many_runs(open_app: Any, many: Path) -> None:
    at = open_app("home", many)
    assert not at.exception
    assert len(listed(at)) == 10
    assert "1 to 10 of 13 runs" in words(at)


def test_home_finds_and_orders_runs(open_app: Any, many: Path) -> None:
    at = open_app("home", many)
    at.text_input(key="find_run").set_value("lwptv task").run()
    assert listed(at) == ["Task Arithmetic w/ LwPTV"] or listed(at) == [r"Task Arithmetic w\/ LwPTV"]
    at.text_input(key="find_run").set_value("no such run").run()
    assert "No run has all of these words" in at.info[0].value
    at.text_input(key="find_run").set_value("sum").run()
    assert len(listed(at)) == 9
    at.selectbox(key="order_by").select("H-score").run()
    shown = [float(str(m.value)[:-1]) for m in at.markdown if str(m.value).endswith("%")][2::3]
    assert shown == sorted(shown, reverse=True)
    assert not at.exception


def test_home_has_no_controls_for_a_few_runs(open_app: Any, library: Path) -> None:
    at = open_app("home", library)
    assert not at.text_input
    assert len(listed(at)) == 4


def test_own_runs_can_be_listed_alone(open_app: Any, many: Path, tmp_path: Path) -> None:
    benchmark = Benchmark.load(many)
    recipe = Recipe.build("ties", {"density": 0.9}, [], benchmark.pretrained, benchmark.experts, "Mine")
    execute.execute(recipe, Store(tmp_path / "store", libraries=()), benchmark=benchmark, keep_model=False)
    at = open_app("home", many)
    assert listed(at)[0] == "Mine"
    at.button_group(key="runs_from").set_value("this machine").run()
    assert listed(at) == ["Mine"]
    at.button_group(key="runs_from").set_value("library").run()
    assert "Mine" not in listed(at)
    assert not at.exception


def test_runs_without_scores_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"bad": 0.1, "good": 0.9, "empty": float("nan")}

    def summary(name: Any, stored: object) -> SimpleNamespace | None:
        return SimpleNamespace(h_score=scores[name]) if name in scores else None

    monkeypatch.setattr(run_order.data, "summary", summary)
    names: Any = ["none", "bad", "empty", "good"]
    assert run_order.ordered(names, "H-score", []) == ["good", "bad", "none", "empty"]
    assert run_order.ordered(names, "own runs first", []) == names
