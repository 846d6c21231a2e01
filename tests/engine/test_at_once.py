"""Layers that are worked on at once: the same bytes in the same order for any number of them, within a budget."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import tiny
import torch
from method_chains import chain_of, images_of
from torch_threads import torch_threads

from merging.base.errors import Cancelled
from merging.base.parallel import Report, Unit, peak_bytes, run_units
from merging.base.progress import Meter, Progress
from merging.base.threads import MAX_PIECES_BYTES
from merging.engine import run as engine
from merging.engine import stream
from merging.engine.adapt import adapt
from merging.engine.run_inputs import RunInputs, layer_bytes
from merging.methods import registry
from merging.models.families import Role
from merging.models.tensor_info import TensorInfo
from merging.recipes.recipe import Recipe
from merging.study.runs.opened_recipe import open_inputs
from merging.tasks.context import Context

METHODS = registry.list_methods()
PATIENCE = 60.0  # seconds that a busy machine may take


def ignore(done: int, detail: str, name: str) -> None:
    pass


def unit(name: str, run: Any, nbytes: int = 1, **options: Any) -> Unit[Any]:
    return Unit(name, 10, nbytes, 0, run, **options)


def results(units: Iterable[Unit[Any]], count: int = 2, budget: int = 100, listen: Any = ignore) -> list[Any]:
    return list(run_units(units, count, budget, listen, lambda: None))


def marked(method: Any) -> Any:
    """A method as a parameter of a test: those that learn or need gradients run their networks many times."""
    quick = method.gradients is None and method.learn is None and method.role != "adapt"
    return method if quick else pytest.param(method, marks=pytest.mark.full)


@pytest.mark.full
@pytest.mark.parametrize("method", [*map(marked, METHODS)], ids=lambda method: f"{method.role}-{method.key}")
def test_bytes_and_order_do_not_depend_on_the_number_of_workers(method: Any, tiny_benchmark: Any) -> None:
    recipe = chain_of(method, pretrained=tiny_benchmark.pretrained, experts=tiny_benchmark.experts)
    inputs, data = open_inputs(recipe, benchmark=tiny_benchmark), images_of(recipe, tiny_benchmark)
    outcomes = []
    for count in (1, 4):
        with torch_threads(count):
            result = engine.run_recipe(recipe, inputs.pretrained, inputs.experts, context=Context(device="cpu"), **data)
            if recipe.adapt:
                merged = tiny.checkpoint(result.state_dict)
                result = adapt(
                    recipe, inputs.pretrained, inputs.experts, merged, context=Context(device="cpu"), **data
                ).add_to(result)
        states = result.task_state_dicts or {"merged": result.state_dict}
        stored = result.modules.stored if result.modules else {}
        parts = {task: {name: file.read(name) for name in file.infos} for task, file in stored.items()}
        outcomes.append(({**states, **parts}, result.tables))
    (first, tables), *others = outcomes
    for states, rows in others:
        assert list(states) == list(first)
        for key, state in states.items():
            assert list(state) == list(first[key])
            assert all(torch.equal(tensor, first[key][name]) for name, tensor in state.items())
        assert list(rows) == list(tables)
        if method.learn is not None:  # what is noted while it learns is no work on layers
            continue
        assert all(table.equals(tables[name]) for name, table in rows.items())


def test_results_come_in_order_though_the_last_is_done_first() -> None:
    last = threading.Event()

    def slow(report: Report) -> str:
        assert last.wait(PATIENCE)
        return "first"

    def fast(report: Report) -> str:
        last.set()
        return "second"

    assert results([unit("a", slow), unit("b", fast)]) == ["first", "second"]


@pytest.mark.parametrize("nbytes,group,most", [(1, None, 3), (40, None, 2), (200, None, 1), (1, "own", 1)])
def test_the_budget_and_the_groups_limit_how_many_run(nbytes: int, group: str | None, most: int) -> None:
    full, counted, drawn, started = threading.Barrier(most), threading.Event(), list[int](), list[int]()

    def run(report: Report) -> None:
        full.wait(PATIENCE)  # as many as are allowed do run at once
        assert counted.wait(PATIENCE)

    def units() -> Iterator[Unit[None]]:
        for n in range(6):
            drawn.append(n)
            yield unit(str(n), run, nbytes, group=group and f"{group}{n}")

    def listen(*_: Any) -> None:  # first when all that fit are started, and the next one is drawn
        started.append(len(drawn) - 1)
        counted.set()

    assert len(results(units(), 3, budget=100, listen=listen)) == 6
    assert started[0] == most


def test_the_first_error_in_order_is_raised_and_the_others_stop() -> None:
    failed, going, heard = threading.Event(), threading.Event(), list[str]()

    def fails_first(report: Report) -> None:
        failed.set()
        raise KeyError("second")

    def fails_in_its_turn(report: Report) -> None:
        assert failed.wait(PATIENCE)
        assert going.wait(PATIENCE)
        raise ValueError("first")

    def goes_on(report: Report) -> None:
        going.set()
        try:
            while True:
                report(0.5, "")
                threading.Event().wait(0.001)
        except Cancelled:
            heard.append("stopped")
            raise

    with pytest.raises(ValueError, match="first"):
        results([unit("a", fails_in_its_turn), unit("b", fails_first), unit("c", goes_on)], 3)
    assert heard == ["stopped"]


def test_progress_adds_up_what_units_report_and_cancels_all() -> None:
    reported: list[tuple[int, str, str]] = []
    half = threading.Barrier(2)

    def run(report: Report) -> None:
        half.wait(PATIENCE)
        report(0.5, "")
        while True:
            threading.Event().wait(0.001)
            report(None, "")

    def listen(done: int, detail: str, name: str) -> None:
        reported.append((done, detail, name))
        if done == 10:  # half of both
            raise Cancelled("enough")

    with pytest.raises(Cancelled, match="enough"):
        results([unit("a", run), unit("b", run)], listen=listen)
    assert {name for done, _, name in reported if done} == {"a", "b"}


@pytest.mark.parametrize("count", [1, 2])
def test_a_merge_of_several_layers_at_once_reports_and_cancels(count: int) -> None:
    base, tuned = tiny.family()
    pretrained, experts = tiny.checkpoint(base), {name: tiny.checkpoint(state) for name, state in tuned.items()}
    recipe, reports = Recipe.build("tsv_m"), list[Progress]()
    with torch_threads(count):
        engine.run_recipe(recipe, pretrained, experts, context=Context(device="cpu", progress=reports.append))
        assert all(one.done <= other.done for one, other in itertools.pairwise(reports) if not one.detail)
        assert reports[-1].fraction == 1.0
        assert all(report.phase == "Merging with TSV-M" for report in reports)

        def cancel() -> bool:
            return len(reports) > 5

        reports.clear()
        with pytest.raises(Cancelled):
            engine.run_recipe(
                recipe, pretrained, experts, context=Context("cpu", progress=reports.append, cancel=cancel)
            )
        assert torch.get_num_threads() == count


def test_several_layers_are_worked_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    base, tuned = tiny.family()
    pretrained, experts = tiny.checkpoint(base), {name: tiny.checkpoint(state) for name, state in tuned.items()}
    asked: list[tuple[int, int]] = []

    def noted(units: Any, count: int, budget: int, *rest: Any) -> Any:
        asked.append((count, budget))
        return run_units(units, count, budget, *rest)

    monkeypatch.setattr(stream, "run_units", noted)
    with torch_threads(3):
        engine.run_recipe(Recipe.build("drm"), pretrained, experts, context=Context(device="cpu"))
    assert [count for count, _ in asked] == [3]
    assert 0 < asked[0][1] <= MAX_PIECES_BYTES


@pytest.mark.parametrize("count", [1, 2, 3])
def test_whole_tensors_have_one_thread_wherever_they_are_worked_on(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the survey of an edit, in that of the merge after it, which reads tensors one by one, and in the merge."""
    base, tuned = tiny.family()
    pretrained, experts = tiny.checkpoint(base), {name: tiny.checkpoint(state) for name, state in tuned.items()}
    images = {name: torch.randn(2, 3, tiny.SIZE, tiny.SIZE) for name in experts}
    seen, edit = list[int](), stream.Stage.run

    def noted(stage: stream.Stage, slot: Any) -> Any:
        seen.append(torch.get_num_threads())
        return edit(stage, slot)

    monkeypatch.setattr(stream.Stage, "run", noted)
    with torch_threads(count):
        engine.run_recipe(
            Recipe.build("ties", edits=["cat"]), pretrained, experts, exemplars=images, context=Context("cpu")
        )
    assert len(seen) >= 2 * len(base) and set(seen) == {1}


def test_what_a_survey_adds_up_as_results_come_does_not_depend_on_the_number_of_threads() -> None:
    base, tuned = tiny.family(("a",))
    numbers = torch.randn(1 << 18, generator=torch.Generator().manual_seed(0))
    sums = []
    for count in (1, 3):
        with torch_threads(count):
            inputs = RunInputs(tiny.checkpoint(base), {"a": tiny.checkpoint(tuned["a"])}, None, torch.device("cpu"))
            slots = stream.Stream(inputs, (), in_pieces=False, meter=Meter(inputs.work), phase="Surveying")
            sums.append([float(numbers[seen:].sum()) for seen, _ in enumerate(slots.map(lambda slot: slot.name))])
    assert len(sums[0]) == len(base) and sums[0] == sums[1]


def test_the_memory_of_a_layer() -> None:
    """By hand: four times eight experts' (4096, 1024) in float32, four squares of 4096 in float64, and its inputs."""
    parameter = next(p for p in tiny.checkpoint(tiny.family()[0]).parameters if p.role == Role.LINEAR)
    info = TensorInfo((4096, 1024), torch.float32)
    slot, square = 4 * 9 * 4096 * 1024 * 4, 4096**2 * 8
    assert layer_bytes(parameter, info, 8, 4, decomposes=False) == slot
    assert layer_bytes(parameter, info, 8, 4) == slot + 4 * square < MAX_PIECES_BYTES / 2
    assert layer_bytes(parameter, info, 8, 4, rows=100) == slot + 4 * square + 8 * 100 * 1024 * 4
    assert layer_bytes(parameter, info, 8, 4, rows=math.inf) == slot + 4 * square + 8 * 1024**2 * 8
    flat = TensorInfo((1024,), torch.float32)
    assert layer_bytes(parameter, flat, 8, 4, rows=math.inf) == 4 * 9 * 1024 * 4


@pytest.mark.parametrize("count,budget,most", [(1, 100, 60), (2, 100, 90), (3, 100, 100), (9, 50, 60)])
def test_the_memory_of_several_layers_is_that_of_the_largest_within_the_budget(
    count: int, budget: int, most: int
) -> None:
    assert peak_bytes([10, 60, 20, 30], count, budget) == most
    assert peak_bytes([], count, budget) == 0
