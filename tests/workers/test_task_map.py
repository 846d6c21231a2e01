"""Tasks of a kind, one after another here or on workers: the same answers, errors and words."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from contexts import context_of

from merging.base.errors import MergingError, Paused, RecipeError, StoreError, WorkerError
from merging.tasks import kinds
from merging.tasks.context import Context
from merging.tasks.kinds import Request, TaskKind
from merging.tasks.workers import task_map
from merging.tasks.workers.fan_out import WorkerTask
from merging.tasks.workers.task_map import TaskMap, raise_error
from merging.tasks.workers.workers import Workers

NAMES = ("a", "b", "c", "d")


@pytest.fixture(autouse=True)
def unit(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A kind of task that gives its name; what the dictionary holds changes the kind."""
    changes: dict[str, Any] = {}

    def find_kind(_key: str) -> TaskKind:
        def compute(_inputs: Any, request: Request, context: Context) -> Any:
            return {"name": computed(str(request["name"]), context)}

        parts = {"stored": True, "name_task": lambda _, request: request["name"]} | changes
        return TaskKind("unit", lambda request: None, compute, **parts)

    for module in (kinds, task_map):
        monkeypatch.setattr(module, "find_kind", find_kind)
    monkeypatch.setattr("merging.tasks.worker.find_kind", find_kind)
    monkeypatch.setattr("merging.tasks.workers.fan_out.find_kind", find_kind)
    return changes


def computed(name: str, context: Context) -> str:
    if name == "bad":
        raise RecipeError("It makes no sense.")
    if name == "other":
        return "another"
    context.meter(2).advance(1, f"Within {name}")
    context.warn(f"Doubt about {name}.")
    return name


def planned(name: str) -> WorkerTask:
    return WorkerTask(name, partial(dict, name=name), partial(computed, name), work=3)


def answers(names: tuple[str, ...], workers: Workers | None, **said: Any) -> tuple[list[str], dict[str, MergingError]]:
    found, context = list[str](), context_of(said)
    work = TaskMap("unit", context, lambda _, told: str(told["name"]), lambda _, answer: found.append(answer), **said)
    return found, work.run([planned(name) for name in names], workers)


@pytest.mark.parametrize("here", [True, False])
def test_answers_warnings_and_errors_are_the_same_whoever_computes(threads: Workers, here: bool) -> None:
    warned = list[str]()
    found, failures = answers((*NAMES, "bad"), None if here else threads, warn=warned.append)
    assert sorted(found) == [*NAMES] and sorted(warned) == [f"Doubt about {name}." for name in NAMES]
    assert [(name, type(error), str(error)) for name, error in failures.items()] == [
        ("bad", RecipeError, "It makes no sense.")
    ]
    with pytest.raises(RecipeError):
        answers(("bad", "a"), None if here else threads, on_error=raise_error)
    assert answers(("a", "b"), None if here else threads, is_stored=lambda task: task.name == "a")[0] == ["b"]
    assert answers((), None if here else threads) == ([], {})


def test_here_each_has_its_part_of_the_progress_and_a_full_disk_ends_it() -> None:
    said, disk = list[tuple[str, float]](), StoreError("The disk is full.")
    answers(("a", "b"), None, progress=lambda now: said.append((now.phase, now.fraction)), total=5)
    assert said == [("Within a", 0.25), ("Within b", 0.75)]

    def full(_context: Context) -> str:
        raise disk

    task = WorkerTask("a", dict, full)
    with pytest.raises(StoreError, match="The disk is full"):
        TaskMap("unit", Context(), lambda *_: "", lambda *_: None).run([task, planned("b")], None)


@pytest.mark.parametrize("here", [True, False])
def test_it_pauses_between_two_tasks_where_answers_are_stored(
    threads: Workers, unit: dict[str, Any], here: bool
) -> None:
    asked = iter(range(99))
    with pytest.raises(Paused, match=r"^Paused\. 4 of 6 units are stored\.$"):
        answers(NAMES, None if here else threads, pause=lambda: next(asked) >= 2, total=6)
    unit["stored"] = False
    assert len(answers(NAMES, None if here else threads, pause=lambda: True)[0]) == 4


def test_another_answer_than_was_asked_for_is_an_error(threads: Workers) -> None:
    found, failures = answers(("a", "other"), threads)
    assert found == ["a"] and type(failures["other"]) is WorkerError
    assert str(failures["other"]) == "a worker answered with unit another instead of other."


def test_what_lies_in_a_store_that_workers_do_not_see_is_computed_here(
    threads: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: dict[str, Any]
) -> None:
    unit["writes_to_store"] = True
    for sees in (True, False):
        monkeypatch.setattr(
            task_map, "question_workers", lambda *_, sees=sees: [{"sees_store": True}, {"sees_store": sees}]
        )
        phases, warned = set[str](), list[str]()
        said = {"progress": lambda now, phases=phases: phases.add(now.phase), "warn": warned.append}
        assert sorted(answers(NAMES, threads, folder=tmp_path, **said)[0]) == [*NAMES]
        assert ("Within a" in phases) is not sees
        assert any("do not see the store" in sentence for sentence in warned) is not sees
    assert not list(tmp_path.iterdir())
