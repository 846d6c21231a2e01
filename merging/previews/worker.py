"""What answers previews and other work on models in memory: it reads requests as lines of JSON.

A newer request of a session, or the end of its input, stops older work between two batches. Answers leave as lines of
JSON, one for each stage of a sample; requests of several sessions take turns by batches of images, and one that has
had its time ends with the sample so far while another session waits for its first answer. What else than previews is
asked, such as tables about an image, is begun by functions that the process is given.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.folders import state_of
from merging.errors import Cancelled, MergingError
from merging.previews.memory import Memory
from merging.previews.samples import PreviewSample
from merging.previews.work import Previewer
from merging.recipes.recipe import Recipe
from merging.runs.run import Run
from merging.runs.store import Store
from merging.tasks.context import QUIET, Context

BENCHMARKS = 2  # that are kept at a time
TIME_ENOUGH = 5.0  # seconds after which a smaller sample is the answer while other sessions wait
OUT_OF_MEMORY = "The computer ran out of memory for a preview. Close other programs, or run the recipe instead."
Answer = Callable[[dict[str, Any]], None]


class BenchWork(Protocol):
    """A request under way, in stages; ``each_stage_answers`` says that what is known after a stage is an answer."""

    each_stage_answers: ClassVar[bool]

    @property
    def done(self) -> bool:
        """Whether there is no further stage."""

    def slice(self, context: Context = QUIET) -> bool:
        """Compute for a moment; whether that ended a stage. Raises Cancelled if asked to stop."""

    def answer(self) -> dict[str, Any]:
        """What is known now, as fields of a line of JSON."""


Begin = Callable[[Mapping[str, Any], Context], BenchWork]  # raises MergingError


@dataclass
class _Task:
    """A request under way; ``work`` is there once it has begun."""

    request: Mapping[str, Any]
    work: BenchWork | None = None
    answered: bool = False
    since: float = field(default_factory=time.monotonic)


class Worker:
    """Answers requests; ``take`` may be called from another thread than ``run``."""

    def __init__(self, answer: Answer, device: str, others: Mapping[str, Begin] | None = None) -> None:
        """``others`` begin requests of other kinds than previews."""
        self._answer, self._device, self._others = answer, device, others or {}
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
        """Take requests until the lines end; one without a benchmark only stops what its session asked before."""
        for line in lines:
            request = json.loads(line)
            with self._lock:
                if request.get("benchmark"):
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
            others_wait = any(not other.answered for other in tasks)
            if self._step(task, others_wait):
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

    def _step(self, task: _Task, others_wait: bool) -> bool:
        """Work on a request for a moment, and answer what ended a stage; whether there is more to do."""
        number, session = int(task.request["id"]), str(task.request["session"])

        def cancel() -> bool:
            return self._newest.get(session) != number

        context = Context(cancel=cancel)
        try:
            if cancel():
                return False
            if task.work is None:
                task.work = self._begin(task.request, context)
            if not task.work.slice(context):
                return True
            if cancel():
                return False
            answer = {**task.work.answer(), "done": task.work.done or (others_wait and _had_its_time(task))}
            task.answered = True
        except Cancelled:
            return False
        except MergingError as error:
            answer = {"error": str(error), "done": True}
        except Exception as error:  # the next request may well succeed
            traceback.print_exception(error)
            answer = {"error": _sentence(error), "done": True}
        self._answer({"id": number, **answer})
        return not answer["done"]

    def _begin(self, request: Mapping[str, Any], context: Context) -> BenchWork:
        if begin := self._others.get(request.get("kind", "")):
            return begin(request, context)
        previewer = self._previewer(Path(request["benchmark"]))
        sample = PreviewSample(request["per_task"], request["seed"])
        reference = _reference(request)
        base = Path(request["base"]) if request["base"] else None
        return previewer.begin(Recipe.from_yaml(request["recipe"]), sample, reference, base, context)

    def _previewer(self, folder: Path) -> Previewer:
        """What is kept for a benchmark, begun anew if its files have changed."""
        key = str(folder), state_of(folder)
        if key not in self._previewers:
            kept = [other for other in self._previewers if other[0] != key[0]][-BENCHMARKS + 1 :]
            for other in [other for other in self._previewers if other not in kept]:
                self._memory.leave(self._previewers.pop(other))
            self._previewers[key] = Previewer(Benchmark.load(folder), self._device, memory=self._memory)
        return self._previewers[key]


def _had_its_time(task: _Task) -> bool:
    """Whether a request that was answered on some images may be left at that."""
    whole = task.work is not None and task.work.each_stage_answers
    return whole and time.monotonic() - task.since > TIME_ENOUGH


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
