"""Every kind of task, whoever computes: the same bytes, and nothing lost but what was under way."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from dask_cluster import Cluster, wait_until
from every_kind import ALL_KINDS, SHORT_KINDS, Bytes, RecordingPool, call_before_each_task, stored_bytes
from torch_threads import torch_threads

from merging.base.errors import Cancelled, Paused, WorkersGone
from merging.base.progress import Progress
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from merging.tasks.kinds import ABOUT, TASK_KINDS, Request
from merging.tasks.workers import fan_out
from merging.tasks.workers.checking import question_workers
from merging.tasks.workers.pools import open_pool
from merging.tasks.workers.workers import Workers

pytestmark = pytest.mark.usefixtures("smaller_measurements")
DASK = "dask"  # stands for the file of a scheduler that the tests have started
ENGINE = [pytest.mark.full, pytest.mark.engine, pytest.mark.filterwarnings("default")]  # of the engines' own making
ENGINES = (DASK, "own_pool:open_pool")
FULLY = [("own_pool:open_threads", 2), *((processes, threads) for processes in "123" for threads in (1, 2))]


@pytest.fixture(scope="module")
def executor(request: pytest.FixtureRequest) -> Iterator[Workers | None]:
    """The workers that a text names, opened once for all tests; None for the empty one.

    Those of an own pool may have two threads of torch each; all others have one.
    """
    text = request.param
    if text == DASK:
        cluster: Cluster = request.getfixturevalue("cluster")
        wait_until(lambda: len(cluster.workers()) == 2)
        text = str(cluster.file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "2")
        with open_pool(text, device="cpu") as workers:
            yield workers


def test_every_kind_is_tested() -> None:
    assert {*ALL_KINDS, ABOUT} == set(TASK_KINDS)


@pytest.mark.parametrize(
    ("executor", "count"),
    [
        ("", 2), ("own_pool:open_threads", 1),
        *(pytest.param(text, count, marks=pytest.mark.full) for text, count in FULLY),
        *(pytest.param(text, count, marks=ENGINE) for text in ENGINES for count in (1, 2)),
    ],
    indirect=["executor"],
)  # fmt: skip
@pytest.mark.parametrize("kind", SHORT_KINDS)
def test_it_is_the_same_bytes_whoever_computes(
    tiny_benchmark: Benchmark, here: Bytes, tmp_path: Path, executor: Workers | None, count: int, kind: str
) -> None:
    (noun, compute), store, said = ALL_KINDS[kind], Store(tmp_path, libraries=()), list[str]()
    with torch_threads(count):
        compute(tiny_benchmark, store, executor, Context("cpu", lambda now: said.append(now.phase)))
    assert stored_bytes(store) == here(kind)
    words = [phase for phase in said if re.match(rf"{noun} \d+ of \d+, on ", phase)]
    if executor is None:
        assert not words
    else:
        assert words and all(phase.endswith(f", on {executor.describe_count()}") for phase in words)
    assert not list(store.root.rglob("*tmp-*"))


@pytest.mark.parametrize(
    ("executor", "kind"),
    [
        *(pytest.param("2", kind, marks=pytest.mark.full) for kind in ALL_KINDS),
        *(pytest.param(text, kind, marks=ENGINE) for text in ENGINES for kind in ("point", "run")),
    ],
    indirect=["executor"],
)
def test_a_killed_worker_loses_nothing(
    tiny_benchmark: Benchmark, here: Bytes, tmp_path: Path, executor: Workers, kind: str
) -> None:
    (noun, compute), store, warned = ALL_KINDS[kind], Store(tmp_path, libraries=()), list[str]()
    wait_until(lambda: executor.has_workers() and executor.count == 2)  # the one that was killed before is back
    victims = [int(each["pid"]) for each in question_workers(executor)][:1]

    def kill(now: Progress) -> None:
        if now.phase.startswith(noun) and victims:
            os.kill(victims.pop(), signal.SIGKILL)

    compute(tiny_benchmark, store, executor, Context("cpu", kill, warn=warned.append))
    assert not victims and stored_bytes(store) == here(kind)
    assert re.search(f"A worker was lost; .* {noun.lower()}s? (is|are) computed again", " ".join(warned))
    assert not list(Store(store.root, libraries=()).root.rglob("*tmp-*"))


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_cancel_waits_for_no_task(
    tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (_, compute), store = ALL_KINDS[kind], Store(tmp_path, libraries=())
    stop, release, begun = threading.Event(), threading.Event(), list[bool]()

    def hold(_kind: str, _request: Request) -> None:
        stop.set()
        begun.append(release.wait(20))

    call_before_each_task(monkeypatch, hold)
    threads.executor = RecordingPool()
    with pytest.raises(Cancelled):
        compute(tiny_benchmark, store, threads, Context("cpu", cancel=stop))
    assert not begun and len(threads.executor.asked) <= fan_out.WINDOW_FACTOR * 2
    release.set()
    threads.executor.shutdown()
    assert len(begun) <= 2, "what waited was dropped"
    assert not list(store.root.rglob("*tmp-*"))


@pytest.mark.parametrize("stop", [1, 2])
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_cancel_ends_what_is_computed_here(tiny_benchmark: Benchmark, tmp_path: Path, kind: str, stop: int) -> None:
    store, seen = Store(tmp_path, libraries=()), dict[str, None]()
    context = Context("cpu", lambda now: seen.update({now.phase: None}), lambda: len(seen) >= stop)
    with pytest.raises(Cancelled):
        ALL_KINDS[kind][1](tiny_benchmark, store, None, context)
    assert not list(store.root.rglob("*tmp-*"))


STORED = {  # what is said when all workers are gone; an evaluation is then computed here
    "point": r"[1-9] of 6 points are stored\. Resume", "trial": r"[1-9] of 10 trials are stored\. Resume",
    "tensor": r"No part of this merge is stored\. Resume", "run": r"[1-3] of 4 runs are stored\.",
    "measure": r"[1-3] of 4 measurements are stored\.",
}  # fmt: skip


@pytest.mark.parametrize("kind", STORED)
def test_what_is_finished_is_kept_when_all_workers_are_gone(
    tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(fan_out, "MAX_SECONDS_WITHOUT_WORKERS", 0.1)
    (noun, compute), store, gone = ALL_KINDS[kind], Store(tmp_path, libraries=()), threading.Event()
    leaving = replace(
        threads,
        has_workers=lambda: not gone.is_set(),
        loss_errors=(RuntimeError,),
        title="the workers at tls://a",
        kind="a kind",
    )

    def leave(now: Progress) -> None:
        if re.match(f"{noun} 1 of", now.phase):
            gone.set()
            threads.executor.shutdown(wait=False, cancel_futures=True)

    with pytest.raises(WorkersGone, match=rf"^The workers at tls://a are gone\. {STORED[kind]}"):
        compute(tiny_benchmark, store, leaving, Context("cpu", leave))


@pytest.mark.parametrize(("kind", "words"), [("point", ""), ("run", "Paused. 2 of 4 runs are stored.")])
def test_a_pause_lets_the_window_finish(
    tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers, kind: str, words: str
) -> None:
    (_, compute), store, asked = ALL_KINDS[kind], Store(tmp_path, libraries=()), iter(range(99))
    context = Context("cpu", pause=lambda: next(asked) >= 2)
    with pytest.raises(Paused, match=words) if words else contextlib.nullcontext():
        compute(tiny_benchmark, store, threads, context)
    finished = [name for name in stored_bytes(store) if name.endswith(("point.json", "run.json"))]
    assert len(finished) == 2
