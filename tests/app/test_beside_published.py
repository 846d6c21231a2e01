"""Published figures agree with themselves, and a run stands beside a figure of its own chain only."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from app.reading.papers import published_tables as published_rows
from merging.images.benchmarks.metrics import Summary
from merging.methods import registry
from merging.recipes.papers import published_figures
from merging.recipes.papers.published_figures import B16, B32, FIGURES, H14, L14, REFERENCES, Figure, Printed
from merging.recipes.recipe import Recipe
from merging.study.runs.run import PRECOMPUTED, THIS_MACHINE

MODELS = published_rows.TOWER_HEADS.values()
ALL = [*FIGURES, *(figure for figures in REFERENCES.values() for figure in figures)]


def named(figure: Figure) -> str:
    return f"{figure.name}, {figure.model}, {figure.source}"


# Published figures


def test_every_figure_agrees_with_itself() -> None:
    for figure in ALL:
        printed, name = figure.printed, named(figure)
        assert figure.source.split(",")[0] in published_figures.SOURCES, name
        assert figure.model in published_figures.TOWER_NAMES, name
        known = (figure.experts, figure.model) in published_figures.EXPERTS
        assert known or figure.normalized == figure.normalized_by_source, name
        if printed.tasks:
            assert len(printed.tasks) == len(published_figures.IN_DOMAIN_TASKS), name
            agrees = sum(printed.tasks) / len(printed.tasks) == pytest.approx(printed.in_domain, abs=0.09)
            assert agrees != (figure.note == published_figures.AVERAGE_DIFFERS), name
        if printed.h_score is not None:
            assert printed.out_of_domain is not None, name
            other = re.search(r"its H-score is that of ([0-9.]+)", figure.note)
            harmonic = 2 / (1 / (float(other[1]) if other else printed.in_domain) + 1 / printed.out_of_domain)
            assert harmonic == pytest.approx(printed.h_score, abs=0.11), name  # of averages that were rounded before


def test_figures_state_values_that_their_methods_take() -> None:
    """Methods that are not registered yet are left alone; values of those that are must exist."""
    known = {(method.role, method.key): method for method in registry.list_methods()}
    for figure in FIGURES:
        for place, (key, stated) in enumerate(figure.chain):
            role = "merge" if place == len(figure.chain) - 1 else "edit"
            if method := known.get((role, key)):
                assert method.params.build(stated), named(figure)


def test_no_paper_has_two_lines_of_one_name_for_a_tower() -> None:
    """Lines of one name share a row of the table, in which each tower has its place."""
    lines = [(figure.name, figure.source.split(",")[0], figure.model) for figure in FIGURES]
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


def test_what_a_source_does_not_print_is_marked_as_computed() -> None:
    """No paper prints normalized accuracy, and TSV-M's authors give one file for each task; all else is printed."""
    averages = [
        (figure, average) for figure in ALL for average in (*published_figures.AVERAGES, published_figures.NORMALIZED)
    ]
    known = [(figure, average) for figure, average in averages if value_of(figure, average) is not None]
    computed = [(figure, average) for figure, average in known if not figure.is_printed(average)]
    assert {average for figure, average in computed if figure.source != "TSV-M"} == {published_figures.NORMALIZED}
    assert not any(figure.is_printed(average) for figure, average in known if figure.source == "TSV-M")
    assert not any(figure.is_printed(published_figures.NORMALIZED) for figure in ALL)
    assert sum(figure in FIGURES and figure.source != "TSV-M" for figure, _ in computed) == 148


def value_of(figure: Figure, average: str) -> float | None:
    return figure.normalized if average == published_figures.NORMALIZED else getattr(figure.printed, average)


def test_a_cell_is_marked_if_its_value_is_computed() -> None:
    table = published_rows.paper_table([published_rows.PaperRow(f.name, {f.model: f}, None) for f in FIGURES], [])
    heads = tuple(
        zip(published_rows.AVERAGES, (*published_figures.AVERAGES, published_figures.NORMALIZED), strict=True)
    )
    for place, figure in enumerate(FIGURES):
        for head, average in heads:
            column = (published_rows.TOWER_HEADS[figure.model], head)
            cell = table[column].iloc[place] if column in table.columns else ""
            assert bool(cell) == (value_of(figure, average) is not None), (figure, average)
            assert cell.endswith(" *") == (bool(cell) and not figure.is_printed(average)), (figure, average)


def test_published_figures_load_no_torch() -> None:
    code = (
        "import sys, merging.recipes.papers.published_figures; sys.exit('torch' in sys.modules or "
        "'pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Which run stands beside a figure


def run(chain: Sequence[tuple[str, Mapping[str, Any]]], provenance: str = PRECOMPUTED, **exemplars: int) -> Any:
    """As much of a stored run as the comparison looks at."""
    *edits, (merge, params) = chain
    recipe = Recipe.build(merge, params, edits, exemplars=exemplars)
    name = f"{recipe.chain_digest}{provenance}"
    keys = tuple(step.key for step in recipe.steps)
    return SimpleNamespace(id=name, title=name, name=name, recipe=recipe, chain=keys, provenance=provenance)


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
    rows = published_rows.match_rows([figure(("ties", TIES))], [run(chain, THIS_MACHINE)])
    assert [row.run is not None for row in rows] == [beside_it]


def test_defaults_then_precomputed_runs_stand_beside_a_figure() -> None:
    odd, own, stored = run([("ties", {"scope": "tensor"})]), run([("ties", {})], THIS_MACHINE), run([("ties", {})])
    assert published_rows.match_rows([figure(("ties", TIES))], [odd, own])[0].run is own
    assert published_rows.match_rows([figure(("ties", TIES))], [odd, own, stored])[0].run is stored


def test_no_run_is_beside_a_figure_with_unknown_values() -> None:
    unknown = figure(("ties", {}), uses_unstated_values=True)
    assert published_rows.match_rows([unknown], [run([("ties", {})], THIS_MACHINE)])[0].run is None


def test_exemplars_must_be_as_many_where_a_paper_counts_them() -> None:
    few, many = run([("lot", {})], per_task=16), run([("lot", {})], per_task=64)
    assert published_rows.match_rows([figure(("lot", {"scaling": 1.2}), exemplars=16)], [many, few])[0].run is few
    assert published_rows.match_rows([figure(("lot", {"scaling": 1.2}), exemplars=8)], [])[0].run is None


def test_rows_of_one_name_say_whose_they_are() -> None:
    same = [f for f in FIGURES if len(f.chain) == 1 and f.name.casefold() == "task arithmetic"]
    assert [row.name for row in published_rows.match_rows(same, [])] == [
        "Task Arithmetic (LwPTV)",
        "Task Arithmetic (LOT)",
        "Task Arithmetic (DRM)",
        "Task arithmetic (FusionBench)",
    ]


def test_all_towers_share_a_row_and_other_runs_follow() -> None:
    small = [f for f in FIGURES if f.name == "Ties"]
    other = run([("ties", {"density": 0.5})])
    rows = published_rows.match_rows(small, [run([("ties", TIES)]), other])
    assert [set(row.figures) for row in rows] == [{B32, L14, H14}, set()]
    assert rows[1].run is other


def test_every_tower_has_columns_of_its_own() -> None:
    table = published_rows.paper_table(
        published_rows.match_rows([f for f in FIGURES if f.name == "LOT Merging"], []), []
    )
    shown = {tower: table[published_rows.TOWER_HEADS[tower], "In"].tolist() for tower in (B32, L14, B16)}
    assert shown == {B32: ["82.7%", "48.0%", "90.5%", "88.9%"], L14: ["90.5%", "64.5%", "94.2%", "93.5%"],
                     B16: ["85.7%", "55.0%", "92.9%", ""]}  # fmt: skip
    assert table[published_rows.SOURCE].tolist()[:2] == [
        "LOT, Tables 1 and 2; LOT, Table 5", "LwPTV, Tables 2 and 5; LOT, Table 5",
    ]  # fmt: skip
    assert "ViT-B/16: scaling and number" in table[published_rows.NOTE].iloc[0]


def test_a_printed_time_names_its_tower() -> None:
    rows = published_rows.match_rows([f for f in FIGURES if f.name == "PCB-Merging"], [])
    table = published_rows.paper_table(rows, [])
    assert table[published_rows.NOTE].iloc[0] == "ViT-H/14: merging took 1861 s, device not stated"


# Columns


@pytest.mark.parametrize("key", ["drm", "ties", "lot"])
def test_both_heads_of_every_column_fit(key: str) -> None:
    table = published_rows.paper_table(
        published_rows.match_rows(published_figures.list_figures_with_method("merge", key), []), []
    )
    widths = [column["width"] for _, column in sorted(published_rows.column_settings(table).items())]
    for group in {group for group, _ in table.columns}:
        together = sum(width for width, (other, _) in zip(widths, table.columns, strict=True) if other == group)
        assert together > 6 * len(group)  # px of a character in the font of tables
    for width, (group, name) in zip(widths, table.columns, strict=True):
        longest = max(len(cell) for cell in (name, *table[group, name]))
        assert width >= min(6 * longest, published_rows.MAX_CELL_WIDTH)


def test_the_setting_of_a_measured_row_has_its_marks_and_exemplars(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = Summary(*[0.5] * 8, normalized_tasks=2, tasks_in=2, tasks_out=1, n_in=20, n_out=10)
    monkeypatch.setattr(published_rows.page_data, "summary", lambda run, stored: summary)
    monkeypatch.setattr(published_rows.page_data, "reference_scores", lambda benchmark, experts, stored: {})
    monkeypatch.setattr(published_rows.page_data, "expert_scores", lambda benchmark, stored: {})
    lot = run([("lot", {})], per_task=16)
    marked = run([("ties", {})])
    for one, adapts, needs_task in ((lot, False, False), (marked, True, True)):
        vars(one).update(seed=7, device="CPU", per_task=False, needs_task=needs_task, adapts_on_test=adapts)
        vars(one).update(adapt="", benchmark="no such benchmark", experts=())
    rows = [published_rows.PaperRow("x", {}, one) for one in (lot, marked)]
    assert list(published_rows.paper_table(rows, [])[published_rows.OURS, "Setting"]) == [
        "16 exemplars per task, seed 7, CPU",
        "a module per task ‡, † adapted on the scored images, seed 7, CPU",
    ]
