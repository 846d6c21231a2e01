"""The Methods page: a card for every method, links, filters, published figures, costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_library
from page_harness import words
from streamlit.testing.v1 import AppTest

from app.reading import published as published_rows
from app.views.methods import gallery
from merging.methods import registry
from merging.methods.method import Method
from merging.recipes.papers import published
from merging.recipes.papers.published import B32

METHODS = registry.methods()


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
    assert f"● measured here: the benchmark {library.name} on the" in words(at).replace("\\", "")
    assert "Marked *: not printed in the source, but computed by us" in words(at).replace("\\", "")
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
