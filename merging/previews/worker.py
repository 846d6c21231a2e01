"""The process that answers previews: it keeps models, tokens and heads, and reads requests as lines of JSON.

A newer request of a session, or the end of its input, stops older work between two batches. Answers leave as lines of
JSON, one for each stage of a sample; requests of several sessions take turns by stages.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.folders import state_of
from merging.errors import Cancelled, MergingError
from merging.previews.memory import Memory
from merging.previews.samples import PreviewSample
from merging.previews.work import Previewer, PreviewWork
from merging.recipes.recipe import Recipe
from merging.runs.run import Run
from merging.runs.store import Store

BENCHMARKS = 2  # that are kept at a time
OUT_OF_MEMORY = "The computer ran out of memory for a preview. Close other programs, or run the recipe instead."
Answer = Callable[[dict[str, Any]], None]


@dataclass
class _Task:
    """A request under way; ``work`` is there once its models are merged."""

    request: Mapping[str, Any]
    work: PreviewWork | None = None


class Worker:
    """Answers requests; ``take`` may be called from another thread than ``run``."""

    def __init__(self, answer: Answer, device: str) -> None:
        self._answer, self._device = answer, device
        self._requests: queue.Queue[Mapping[str, Any]] = queue.Queue()
        self._newest: dict[str, int] = {}  # session -> its newest request, until that is answered or stopped
        self._lock = threading.Lock()  # for ``_newest``
        self._previewers: dict[tuple[str, tuple[int, ...]], Previewer] = {}
        self._memory = Memory()  # one for all benchmarks

    @property
    def open_requests(self) -> int:
        """How many sessions wait for an answer."""
        return len(self._newest)

    def take(self, lines: Iterable[str]) -> None:
        """Take requests until the lines end; a request without a recipe only stops what its session asked before."""
        for line in lines:
            request = json.loads(line)
            with self._lock:
                if request.get("recipe"):
                    self._newest[request["session"]] = request["id"]
                    self._requests.put(request)
                else:
                    self._newest.pop(request["session"], None)

    def run(self, idle: float) -> None:
        """Answer until nothing was asked for ``idle`` seconds."""
        tasks: deque[_Task] = deque()
        while True:
            try:
                request = self._requests.get(block=not tasks, timeout=idle)
                tasks.append(_Task(request))
                continue
            except queue.Empty:
                if not tasks:
                    return
            task = tasks.popleft()
            if self._step(task):
                tasks.append(task)
                continue
            self._forget(task)
            if not tasks:
                _give_back_memory()

    def _forget(self, task: _Task) -> None:
        """Forget a request that is answered or stopped, unless its session has made another one since."""
        session = str(task.request["session"])
        with self._lock:
            if self._newest.get(session) == int(task.request["id"]):
                del self._newest[session]

    def _step(self, task: _Task) -> bool:
        """Answer one stage of a request; whether there are more."""
        number, session = int(task.request["id"]), str(task.request["session"])

        def cancel() -> bool:
            return self._newest.get(session) != number

        try:
            if cancel():
                return False
            if task.work is None:
                task.work = self._begin(task.request, cancel)
            task.work.advance(cancel)
            if cancel():
                return False
            answer = {"preview": task.work.result().plain(), "done": task.work.done}
        except Cancelled:
            return False
        except MergingError as error:
            answer = {"error": str(error), "done": True}
        except Exception as error:  # the next request may well succeed
            traceback.print_exception(error)
            answer = {"error": _sentence(error), "done": True}
        self._answer({"id": number, **answer})
        return not answer["done"]

    def _begin(self, request: Mapping[str, Any], cancel: Callable[[], bool]) -> PreviewWork:
        previewer = self._previewer(Path(request["benchmark"]))
        sample = PreviewSample(request["per_task"], request["seed"])
        reference = _reference(request)
        base = Path(request["base"]) if request["base"] else None
        return previewer.begin(Recipe.from_yaml(request["recipe"]), sample, reference, base, cancel)

    def _previewer(self, folder: Path) -> Previewer:
        """What is kept for a benchmark, begun anew if its files have changed."""
        key = str(folder), state_of(folder)
        if key not in self._previewers:
            kept = [other for other in self._previewers if other[0] != key[0]][-BENCHMARKS + 1 :]
            for other in [other for other in self._previewers if other not in kept]:
                self._memory.leave(self._previewers.pop(other))
            self._previewers[key] = Previewer(Benchmark.load(folder), self._device, memory=self._memory)
        return self._previewers[key]


def _reference(request: Mapping[str, Any]) -> Recipe | Run | None:
    """The reference of a request: a stored run by its id, a recipe, or None for the pretrained model."""
    if request["run"]:
        store = Store(Path(request["store"]), libraries=(Path(request["benchmark"]) / "runs",))
        return store.run(request["run"])
    return Recipe.from_yaml(request["reference"]) if request["reference"] else None


def _give_back_memory() -> None:
    """Return what was freed to the system; glibc keeps it for later otherwise, and this process waits for minutes."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _sentence(error: Exception) -> str:
    """What to say of an error that nothing raises on purpose."""
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in str(error)):
        return OUT_OF_MEMORY
    return f"Unexpected {type(error).__name__}: {str(error)[:200] or 'no reason given'}"


def main(device: str, idle: float, nice: int) -> None:
    """Answer what comes in on stdin; end with it, or after ``idle`` seconds without a request."""
    os.nice(nice)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not look like an answer

    def answer(line: dict[str, Any]) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    worker = Worker(answer, device)

    def read() -> None:
        worker.take(sys.stdin)
        os._exit(0)  # the server is gone or wants this process to end

    threading.Thread(target=read, daemon=True).start()
    worker.run(idle)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
