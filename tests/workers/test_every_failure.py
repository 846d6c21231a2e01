"""Every kind of task on workers: errors, memory and disks that do not suffice, other files, and what is stored.

Workers are threads of this process, where what they do can be changed.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from every_kind import ALL_KINDS, SHORT_KINDS, Bytes, RecordingPool, call_before_each_task, stored_bytes

from merging.base.errors import MergingError, WorkerError
from merging.base.files import atomic
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from merging.tasks.kinds import Request, find_kind
from merging.tasks.store_mark import write_mark
from merging.tasks.worker import answer_request, decode_answer, encode_request, last_inputs
from merging.tasks.workers.workers import Workers

pytestmark = pytest.mark.usefixtures("smaller_measurements")
FAILING = {  # what is said of a task that fails; an evaluation is then made here
    "point": r"1 of \d+ points .* lwptv\.prune_ratio \S+: {}", "trial": "^{}$", "tensor": r"^Tensor \S+: {}$",
    "score": "^This machine evaluates the remaining images: {}$", "run": "^{}$", "measure": "^{}$",
}  # fmt: skip
FILES = [kind for kind in SHORT_KINDS if kind != "score"]  # which is about a model that this program has just made


@pytest.fixture
def threads(threads: Workers) -> Workers:
    """Two workers in this process that note what they are asked."""
    threads.executor = RecordingPool()
    last_inputs.clear()
    return threads


def asked_of(workers: Workers) -> list[tuple[str, dict[str, Any]]]:
    """The kinds and requests of tasks."""
    return workers.executor.asked  # type: ignore[attr-defined, no-any-return]


def compute(kind: str, benchmark: Benchmark, folder: Path, workers: Workers) -> tuple[Mapping[str, Any], list[str]]:
    """What a store holds when a kind of work has ended, and the warnings."""
    store, warned = Store(folder, libraries=()), list[str]()
    ALL_KINDS[kind][1](benchmark, store, workers, Context("cpu", warn=warned.append))
    return stored_bytes(store), warned


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        *((kind, MergingError("It overflows.")) for kind in ALL_KINDS if kind != "trial"),
        pytest.param("trial", MergingError("It overflows."), marks=pytest.mark.full),
        ("point", MemoryError()),
        ("tensor", MemoryError()),
    ],
)
def test_an_error_is_an_answer_and_the_rest_is_computed_later(
    tiny_benchmark: Benchmark, here: Bytes, tmp_path: Path, threads: Workers, monkeypatch: pytest.MonkeyPatch,
    kind: str, error: Exception,
) -> None:  # fmt: skip
    failing, begun = list[str](), list[str]()

    def fail(_kind: str, request: Request) -> None:
        begun.append(str(request["name"]))
        if len(begun) == 2 or request["name"] in failing:
            failing.append(begun[-1])
            raise error

    with monkeypatch.context() as patch:
        call_before_each_task(patch, fail)
        try:
            _, said = compute(kind, tiny_benchmark, tmp_path, threads)
        except MergingError as raised:
            said = [str(raised)]
            assert kind != "score"
    words = str(error) or "A worker ran out of memory"
    assert re.search(FAILING[kind].format(re.escape(words) if str(error) else f"{words}.*"), said[-1]), said
    assert len(begun) == len(set(begun)), "it is not tried again"
    threads.executor = RecordingPool()  # the first has work left
    assert compute(kind, tiny_benchmark, tmp_path, threads)[0] == here(kind)
    assert not list(tmp_path.rglob("*tmp-*"))


@pytest.mark.parametrize("kind", FILES)
def test_work_that_needs_more_memory_than_workers_have_is_refused_before(
    tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers, kind: str
) -> None:
    threads.memory = 1000
    words = rf"^A {find_kind(kind).noun} needs about .* of memory; the workers have 1 kB each\. Start fewer"
    with pytest.raises(WorkerError, match=words):
        compute(kind, tiny_benchmark, tmp_path, threads)
    assert not asked_of(threads)


@pytest.mark.full
@pytest.mark.parametrize("kind", SHORT_KINDS)
def test_a_disk_that_was_full_once_ends_it_and_the_rest_is_computed_later(
    tiny_benchmark: Benchmark, here: Bytes, tmp_path: Path, threads: Workers, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    seal, times = atomic.seal, count()

    def full(folder: Path) -> Any:
        if next(times) == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return seal(folder)

    monkeypatch.setattr(atomic, "seal", full)
    with pytest.raises(MergingError, match="disk is full"):
        compute(kind, tiny_benchmark, tmp_path, threads)
    assert not list(tmp_path.rglob("*tmp-*"))
    assert compute(kind, tiny_benchmark, tmp_path, threads)[0] == here(kind)


@pytest.mark.full
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_what_is_stored_is_not_asked_for(
    tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers, kind: str
) -> None:
    before, _ = compute(kind, tiny_benchmark, tmp_path, threads)
    asked = list(asked_of(threads))
    names = [request["name"] for each, request in asked if each == kind]
    assert names and (kind == "tensor" or len(set(names)) == len(names))
    assert all(len(encode_request(request)) < 10_000 for _, request in asked)
    assert compute(kind, tiny_benchmark, tmp_path, threads)[0] == before and asked_of(threads) == asked


@pytest.mark.full
@pytest.mark.parametrize("kind", FILES)
def test_a_worker_refuses_other_files_and_names_a_missing_one(
    copied: Benchmark, tmp_path: Path, threads: Workers, kind: str
) -> None:
    store, noun = Store(tmp_path / "store", libraries=()), find_kind(kind).noun
    models, images = copied.folder / "models", copied.folder / "data"

    def first_request() -> dict[str, Any]:
        asked_of(threads).clear()
        compute(kind, Benchmark.load(copied.folder), store.root, threads)
        return next(request for each, request in asked_of(threads) if each == kind)

    def replace(file: Path, other: str) -> None:
        shutil.copy(file.with_name(other), file.with_suffix(".new"))
        file.with_suffix(".new").replace(file)

    other = f"(sees other checkpoints or images than the program that requested this {noun}|no longer the ones of)"
    with write_mark(store.root) as mark:

        def again() -> Any:
            last_inputs.clear()
            return decode_answer(answer_request(kind, encode_request({**request, "probe": mark})))

        request = first_request()
        assert again()
        if kind != "tensor":  # whose request is named by its tensor
            with pytest.raises(WorkerError, match=other):
                decode_answer(answer_request(kind, encode_request({**request, "probe": mark, "name": "0" * 12})))
        shutil.rmtree(store.root / "measured", ignore_errors=True)  # what is there would be found
        replace(models / "digits.safetensors", "circles.safetensors")
        with pytest.raises(MergingError, match=other):
            again()
        request, before = first_request(), request
        assert request != before and again(), "files are opened anew"
        (models / "digits.safetensors").rename(models / "away")
        with pytest.raises(WorkerError, match=r"does not see .*digits.*; set MERGESCOPE_\w+ there"):
            again()
        (models / "away").rename(models / "digits.safetensors")
        if kind != "tensor":
            replace(images / "digits.npz", "circles.npz")
            with pytest.raises(WorkerError, match=other):
                again()
