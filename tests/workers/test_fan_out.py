"""Units of work on many workers: windows, losses, errors, cancel. Threads stand for workers where nothing dies."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import stand_in_units
from contexts import context_of

from merging.base import free_memory
from merging.base.errors import Cancelled, MergingError, WorkersGone
from merging.tasks import kinds
from merging.tasks.context import Context
from merging.tasks.workers import fan_out as fan_out_module
from merging.tasks.workers.fan_out import WINDOW, FanOut, WorkerTask
from merging.tasks.workers.pools import open_processes
from merging.tasks.workers.workers import Workers


class Counting(Executor):
    """Threads that count the futures that are alive; ``drop`` makes the engine cancel units as it goes."""

    def __init__(self, count: int, drop: int = 0) -> None:
        self.pool, self.alive, self.most, self.drop = ThreadPoolExecutor(count), 0, 0, drop
        self.lock = threading.Lock()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        with self.lock:
            self.alive += 1
            self.most = max(self.most, self.alive)
        if self.drop:
            self.drop -= 1
            lost: Future[Any] = Future()
            lost.set_exception(CancelledError())
            self._ended(lost)
            return lost
        future = self.pool.submit(fn, *args, **kwargs)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _future: Future[Any]) -> None:
        with self.lock:
            self.alive -= 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.pool.shutdown(wait, cancel_futures=cancel_futures)


class Heard:
    """What a fan-out told, and how it is begun."""

    def __init__(self) -> None:
        self.done: dict[str, dict[str, Any]] = {}
        self.failed: dict[str, MergingError] = {}
        self.warned: list[str] = []

    def run(self, workers: Workers, requests: dict[str, dict[str, Any]], **said: Any) -> None:
        nbytes = said.pop("nbytes", {})
        tasks = [
            WorkerTask(name, partial(dict, request, name=name), nbytes=nbytes.get(name, 0))
            for name, request in requests.items()
        ]

        def take(task: WorkerTask, answer: dict[str, Any]) -> None:
            self.done[task.name] = answer

        def fail(task: WorkerTask, error: MergingError) -> None:
            self.failed[task.name] = error

        context = context_of({"warn": self.warned.append, **said})
        FanOut("stand_in", workers, take, fail, context, len(tasks)).run(tasks)


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out_module, "answer_request", stand_in_units.call)
    monkeypatch.setattr(kinds, "KINDS", {"stand_in": "stand_in_units:KIND"})


@pytest.fixture(scope="module")
def pool() -> Iterator[Workers]:
    """Two real processes, for all tests of this file."""
    workers = open_processes(["", ""], "two processes")
    yield workers
    workers.close(workers.executor)


def test_no_more_than_a_window_is_in_flight() -> None:
    executor, heard = Counting(3), Heard()
    heard.run(Workers(executor, 3), {str(n): {"seconds": 0.002} for n in range(60)})
    executor.shutdown()
    assert len(heard.done) == 60 and executor.most == WINDOW * 3


def test_a_cancelled_error_that_was_not_asked_for_is_a_loss() -> None:
    executor, heard = Counting(2, drop=2), Heard()
    heard.run(Workers(executor, 2), {str(n): {} for n in range(5)})
    executor.shutdown()
    assert len(heard.done) == 5 and not heard.failed
    assert " ".join(heard.warned).count("computed again") >= 1


def test_short_work_beside_long_work_gets_its_turns() -> None:
    executor, long, short, stop = Counting(4), Heard(), Heard(), threading.Event()

    def beside_it() -> None:
        with pytest.raises(Cancelled):
            long.run(Workers(executor, 4), {str(n): {"seconds": 0.05} for n in range(200)}, cancel=stop)

    beside = threading.Thread(target=beside_it)
    beside.start()
    time.sleep(0.1)
    short.run(Workers(executor, 4), {str(n): {"seconds": 0.05} for n in range(20)})
    stop.set()
    beside.join()
    executor.shutdown()
    assert len(short.done) == 20 and len(long.done) < 80, "the long one must not be finished first"


def test_without_workers_the_rest_is_left_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out_module, "GONE", 0.3)
    executor, heard = Counting(1, drop=99), Heard()
    with pytest.raises(WorkersGone, match=r"^The workers at tls://a are gone\.$"):
        heard.run(Workers(executor, 1, called="the workers at tls://a", present=lambda: False), {"0": {}})
    executor.shutdown()
    assert not heard.failed, "that nobody is there is not the unit's fault"


def test_workers_that_are_not_there_yet_are_waited_for() -> None:
    heard, executor = Heard(), Counting(1)
    workers = Workers(executor, 0)

    def present() -> bool:
        workers.count = 1
        return True

    workers.present = present
    heard.run(workers, {"a": {}, "b": {}})
    assert set(heard.done) == {"a", "b"}
    executor.shutdown()


@pytest.mark.full
def test_a_unit_that_kills_its_worker_is_named_once(pool: Workers, tmp_path: Path) -> None:
    heard, begun, once = Heard(), tmp_path / "begun", tmp_path / "once"
    wanted = {str(n): {"begun": str(begun), "seconds": 0.05} for n in range(12)}
    wanted["4"] |= {"kills": True}
    wanted["7"] |= {"kills": True, "unless": str(once)}  # a loss that is not its fault
    heard.run(pool, wanted)
    assert set(heard.failed) == {"4"} and set(heard.done) == set(wanted) - {"4"}
    assert "three workers down" in str(heard.failed["4"]) and "nothing here shows that memory" in str(heard.failed["4"])
    runs = begun.read_text("utf-8").split()
    assert runs.count("4") == 3 and all(runs.count(name) <= 3 for name in wanted)
    assert all(sentence.startswith("A worker was lost; ") for sentence in heard.warned) and len(heard.warned) >= 3


@pytest.mark.full
def test_a_killed_worker_ran_out_of_memory_where_hardly_any_is_free(
    pool: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_memory, "free_memory", lambda: free_memory.LOW - 1)
    heard = Heard()
    heard.run(pool, {"4": {"kills": True}})
    assert "the likely cause is memory" in str(heard.failed["4"])


@pytest.mark.full
def test_a_process_has_one_thread_and_no_trim_threshold(pool: Workers) -> None:
    heard = Heard()
    heard.run(pool, {str(n): {} for n in range(4)})
    found = [json.dumps(answer["environment"], sort_keys=True) for answer in heard.done.values()]
    expected = {"CUDA_VISIBLE_DEVICES": None, "MALLOC_TRIM_THRESHOLD_": None, "OMP_NUM_THREADS": "1"}
    assert set(found) == {json.dumps(expected)}


def test_answers_in_flight_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out_module, "MOST_BYTES", 100)
    counting, heard, sizes = Counting(4), Heard(), {"a": 300, "b": 60, "c": 60, "d": 40}
    heard.run(Workers(counting, 4), {name: {"seconds": 0.02} for name in sizes}, nbytes=sizes)
    assert next(iter(heard.done)) == "a" and set(heard.done) == set(sizes)
    assert counting.most == 2, "of eight in the window: c and d, the others alone"


def test_it_says_who_computes_at_first_and_when_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, said, hold = iter([2, 1, 0, 0]), list[str](), threading.Event()

    def present() -> bool:
        workers.count = next(counts, 2)
        if said[-1:] == ["Unit 0 of 1, on 0 workers, 2 lost"] and workers.count:
            hold.set()
        return workers.count > 0

    def wait(_unit: str, _request: bytes) -> bytes:
        assert hold.wait(20)
        return b"{}"

    monkeypatch.setattr(fan_out_module, "WAKE", 0.05)
    monkeypatch.setattr(fan_out_module, "answer_request", wait)
    with ThreadPoolExecutor(2) as pool:
        workers = Workers(pool, 2, present=present)
        context = Context(progress=lambda now: said.append(now.phase))
        FanOut("stand_in", workers, lambda *_: None, lambda *_: None, context, 1).run([WorkerTask("one", lambda: {})])
    assert said[:3] == [f"Unit 0 of 1, on {words}" for words in ("2 workers", "1 worker, 1 lost", "0 workers, 2 lost")]
