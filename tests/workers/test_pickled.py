"""What is pickled between a program and its workers: the name of ``worker.answer_request``, and byte strings."""

from __future__ import annotations

import io
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar

import pytest
from small_sweeps import run, sweep

from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run_store import Store
from merging.tasks.workers.pools import open_processes

OF_THE_POOL = {("concurrent.futures.process", "_ResultItem")}


class Noting(pickle.Unpickler):
    """Notes every name that a pickle asks for."""

    asked: ClassVar[set[tuple[str, str]]] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.asked.add((module, name))
        return super().find_class(module, name)


def test_workers_are_given_one_function_and_bytes_and_give_bytes(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[Any, ...]] = []
    found: list[Any] = []
    submit = ProcessPoolExecutor.submit

    def noted(pool: ProcessPoolExecutor, *parts: Any) -> Any:
        given.append(parts)
        return submit(pool, *parts)

    def load(raw: Any, **how: Any) -> Any:
        item = Noting(io.BytesIO(raw), **how).load()
        found.append(item)
        return item

    workers = open_processes([""], "one process")
    monkeypatch.setattr(ProcessPoolExecutor, "submit", noted)
    monkeypatch.setattr(ForkingPickler, "loads", load)
    run(sweep(tiny_benchmark), store, tiny_benchmark, workers=workers)
    workers.close(workers.executor)

    assert len(given) >= 3  # a point each
    for function, *parts in given:
        assert (function.__module__, function.__qualname__) == ("merging.tasks.worker", "answer_request")
        assert [type(part) for part in parts] == [str, bytes]
    assert found and Noting.asked <= OF_THE_POOL
    assert {type(item.result) for item in found if not isinstance(item, int)} == {bytes}
