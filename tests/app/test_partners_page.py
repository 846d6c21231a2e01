"""The Partners page: asked for, as subsets arrive, measured, with its report, and for a run's own chain."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_library
from page_harness import chart_keys, charts, click, find_buttons, press, words

from app.reading import page_data, sweeps
from app.session import click_errors, pages
from app.views.lessons.guess_widgets import list_cell_names
from app.views.partners.partner_data import Team
from app.widgets import page_parts
from app.widgets.jobs import tray
from merging.base import settings
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.image_draws import REPORTING
from merging.recipes.presets import find_preset
from merging.study.partners.best_subsets import choose_best, list_chosen
from merging.study.partners.packed_subsets import FOLDER, find_packed, write_packed
from merging.study.partners.stored_subsets import read_subsets
from merging.study.partners.subsets import plan_subsets
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_storage
from merging.study.sweeps.sweep import SUBSETS
from merging.study.sweeps.sweep_session import plan_sweep, run_sweep
from merging.tasks.queue.job_kinds import SWEEP
from merging.tasks.queue.job_records import Job, name_job
from merging.teaching.fact import Cell, Fact

VALUES, BEST, REPORT = "what each brings", "leave one out", "Measure on the reporting half"
POLL_SECONDS = 4.0


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with all subsets under task arithmetic, and the report of the best ones."""
    folder = tiny_library.write(tmp_path_factory.mktemp("partners"), ("ties",))
    benchmark, making = Benchmark.load(folder), Store(folder / "making", libraries=(), dated=False)
    recipe = find_preset("task_arithmetic").recipe(benchmark.pretrained, benchmark.experts)
    choosing = plan_subsets(recipe)
    run_sweep(choosing, making, benchmark)
    chosen = list_chosen(choose_best(read_subsets(choosing, making, benchmark)))
    for sweep in (choosing, plan_subsets(recipe, 0, split=REPORTING, subsets=chosen)):
        run_sweep(sweep, making, benchmark)
        write_packed(making, plan_sweep(sweep, benchmark), read_subsets(sweep, making, benchmark))
    (making.root / FOLDER).rename(folder / FOLDER)
    return folder


def test_the_page_says_what_it_takes_before_it_measures(open_app: Any, library: Path) -> None:
    at = open_app("partners", library, partners_chain="tsv_m")  # of which the library has no run
    assert not at.exception and not at.error and charts(at) == 0
    assert re.search(r"\*\*\d+ subsets\*\*: \d+ subsets × .*, about \*\*", words(at))
    assert "can be paused and resumed" in words(at) and "Nothing of this chain is measured yet" in words(at)
    press(at, "Measure")
    (sweep,) = sweep_storage.list_sweeps(page_data.store(), (SUBSETS,)).values()
    assert (
        sweep.images == 64
        and sweeps.sweep_title(sweep) == "Subsets of experts, TSV-M"
        and not sweep_storage.list_sweeps(page_data.store())
    )


def test_what_is_measured_so_far_is_drawn(open_app: Any, library: Path) -> None:
    at = open_app("partners", library)
    benchmark = Benchmark.load(library)
    recipe = find_preset("task_arithmetic").recipe(benchmark.pretrained, benchmark.experts)
    run_sweep(plan_subsets(recipe), page_data.store(), benchmark, share=(0, 3))
    at.run()
    assert chart_keys(at) == ["partner_losses"] and [button.label for button in find_buttons(at, "Resume")]
    at.button_group(key="partners_view").set_value(VALUES).run()
    assert not at.exception and chart_keys(at) == ["shapley_matrix"], "a notice in place of values"


def test_all_views_of_a_measured_team(look: Any, measured: Path) -> None:
    at = look("partners", measured)
    assert not at.exception and not at.error and not find_buttons(at, "Measure", "Resume")
    assert chart_keys(at) == ["partner_losses"] and "paired by image" in words(at)
    assert "after all experts are merged" in words(at) and re.search(r"\d+ of \d+ intervals exclude zero", words(at))
    at = look("partners", measured, company="in pairs")
    assert "merged with its own expert alone" in words(at)
    at = look("partners", measured, partners_view=BEST)
    assert chart_keys(at) == ["best_subsets"] and not find_buttons(at, REPORT)
    assert "Mean optimism of" in words(at) and "too optimistic**" not in words(at)


def test_chains_that_learn_from_choosing_images_have_a_caution(look: Any, measured: Path) -> None:
    cautions = [warning.value for warning in look("partners", measured, partners_chain="surgery").warning]
    assert len(cautions) == 1 and "from choosing images, by which subsets are compared, so another" in cautions[0]
    assert not look("partners", measured).warning


def test_values_add_up_on_the_page(open_app: Any, measured: Path) -> None:
    at = open_app("partners", measured, partners_view=VALUES)
    assert chart_keys(at) == ["shapley_matrix", "shapley_waterfall"]
    task = list(Benchmark.load(measured).experts)[1]
    at = click(at, "shapley_matrix", task, task)
    assert at.selectbox(key="gained_task").value == task
    added, total = re.search(r"add up to ([+-][\d.]+) points; .* = ([+-][\d.]+) points", words(at)).groups()
    assert added == total


@pytest.mark.full
def test_a_report_is_offered_and_followed(open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = open_app("partners", library, partners_view=BEST)
    benchmark = Benchmark.load(library)
    recipe = find_preset("task_arithmetic").recipe(benchmark.pretrained, benchmark.experts)
    run_sweep(plan_subsets(recipe), page_data.store(), benchmark)
    at.run()
    assert chart_keys(at) == ["best_subsets"] and "**too optimistic**" in words(at)
    press(at, REPORT)
    (sweep,) = sweep_storage.list_sweeps(page_data.store(), (SUBSETS,)).values()
    assert (sweep.split, sweep.images) == (REPORTING, 0)

    guarded_fragment, seconds = click_errors.guarded_fragment, []

    def note_polling(function: Any, run_every: float | None = None) -> Any:
        seconds.append(run_every)
        return guarded_fragment(function)

    running = Job(name_job(SWEEP, sweep.id), "", "running", "Subset 3 of 9", kind=SWEEP)
    monkeypatch.setattr(sweeps, "sweep_job", lambda one: running if one.id == sweep.id else None)
    monkeypatch.setattr(click_errors, "guarded_fragment", note_polling)
    at.run()
    assert not at.exception and POLL_SECONDS in seconds, "the page follows the report"
    bars = [bar.proto.text.replace("\\", "") for bar in at.get("progress")]
    assert any(re.match(r"0 of \d+ subsets: computing", bar) for bar in bars), bars
    monkeypatch.setattr(sweeps, "sweep_job", lambda one: running)
    assert not at.run().exception, "both measurements are live"


def test_other_answers_have_other_tables(open_app: Any, library: Path) -> None:
    open_app("partners", library)
    benchmark, store = Benchmark.load(library), page_data.store()
    recipe = find_preset("task_arithmetic").recipe(benchmark.pretrained, benchmark.experts)
    sweep = plan_subsets(recipe)
    plan, keys = plan_sweep(sweep, benchmark), []
    for subsets in ([0, 1], [1, 3]):  # as many
        run_sweep(plan_subsets(recipe, subsets=subsets), store, benchmark)
        stored = Team(sweep).stored_subsets
        keys.append(stored.key)
        assert sorted(stored.answers.right) == subsets
        for point in plan:
            shutil.rmtree(store.root / "points" / point.name, ignore_errors=True)
    assert keys[0] != keys[1]


def test_the_link_of_a_job_opens_its_chain_and_images(
    open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_app("home", library)
    drawn: list[Any] = []
    monkeypatch.setattr(page_parts, "draw_page_link", lambda path, *_, **query: drawn.append((path, query)))
    benchmark = Benchmark.load(library)
    recipe = replace(find_preset("ties").recipe(benchmark.pretrained, benchmark.experts), title="")
    for sweep, query in (
        (plan_subsets(recipe, 32), {"partners_chain": "ties", "partners_images": "32"}),
        (plan_subsets(recipe, 0, split=REPORTING, subsets=[0, 1]), {"partners_chain": "ties", "partners_view": BEST}),
    ):
        sweep_storage.store_sweep(sweep, page_data.store())
        tray.draw_sweep_link(Job(name_job(SWEEP, sweep.id), "", "done", kind=SWEEP, subject=sweep.id))
        assert drawn.pop() == (pages.PARTNERS, query)


def test_other_numbers_of_images_can_be_chosen_where_they_are_stored(open_app: Any, library: Path) -> None:
    open_app("home", library)
    benchmark = Benchmark.load(library)
    recipe = find_preset("ties").recipe(benchmark.pretrained, benchmark.experts)
    for sweep in (plan_subsets(recipe, 100), plan_subsets(recipe, 90, split=REPORTING), plan_subsets(recipe, 80, 1)):
        sweep_storage.store_sweep(sweep, page_data.store())
    at = open_app("partners", library, partners_chain="ties", partners_images="100")
    picker = at.selectbox(key="partners_images")
    assert (picker.options, picker.value) == (["64", "16", "32", "128", "all", "100"], "100")
    at.selectbox(key="partners_chain_picker").set_value("task_arithmetic").run()
    picker = at.selectbox(key="partners_images")
    assert not at.exception and "100" not in picker.options and picker.value == "64"


def test_a_run_brings_its_own_chain_and_experts(open_app: Any, compared: Path) -> None:
    (few,) = [run for run in Store(compared / "none", libraries=(compared / "runs",)).list_runs()
              if run.kind == "merge" and len(run.experts) == 3]  # fmt: skip
    at = open_app("partners", compared, partners_chain=few.id)
    assert not at.exception and not at.error
    assert at.selectbox(key="partners_chain_picker").value == few.id
    assert "**8 subsets**" in words(at) and "learns from images" in words(at)


def test_packed_subsets_are_those_of_the_points(measured: Path) -> None:
    benchmark, store = Benchmark.load(measured), Store(measured / "own", libraries=(measured / "runs",))
    recipe = find_preset("task_arithmetic").recipe(benchmark.pretrained, benchmark.experts)
    sweep = plan_subsets(recipe)
    packed = find_packed(store, plan_sweep(sweep, benchmark))
    points = read_subsets(sweep, Store(measured / "making", libraries=()), benchmark)
    assert packed is not None and packed.complete and packed.accuracy == points.accuracy
    assert all((packed.right[subset][task] == right).all() for subset, by_task in points.right.items()
               for task, right in by_task.items())  # fmt: skip


def test_cells_of_a_guess_are_named_as_on_pages(open_app: Any, library: Path) -> None:
    open_app("home", library)
    cells = (Cell("digits", "Handwriting digits", True), Cell("flags", "Flags", False))
    names = list_cell_names(Fact(0.5, cells=cells))
    assert [column for _, column in names] == ["Handwritten digits", "Flags"]


@pytest.mark.full
def test_pairs_of_a_library_are_shown_before_all_subsets_are_measured(open_app: Any) -> None:
    at = open_app("partners", settings.BUNDLED_FOLDER, partners_chain="task_arithmetic_lwptv")
    assert not at.exception and chart_keys(at) == ["partner_losses"] and "93 of 256 subsets measured" in words(at)
    assert "merged with its own expert alone" in words(at) and "returns the pretrained model" in words(at)
    at = open_app("partners", settings.BUNDLED_FOLDER, partners_chain="ties")
    assert not at.exception and "returns the pretrained model" not in words(at)


def test_one_expert_has_no_partner(open_app: Any, library: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(library, tmp_path / "one", ignore=shutil.ignore_patterns("runs")))
    facts = json.loads((folder / "tasks.json").read_text())
    inside = [task for task in facts["tasks"] if task["group"] == "in_domain"]
    facts["tasks"] = [task for task in facts["tasks"] if task not in inside[1:]]
    (folder / "tasks.json").write_text(json.dumps(facts))
    at = open_app("partners", folder)
    assert not at.exception and "fewer than two" in words(at)
