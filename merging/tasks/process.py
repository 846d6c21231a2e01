"""A process that waits for an order: to become a command of the command line, or to stay and answer requests.

The process loads the modules that its arguments name, and reads lines of JSON on stdin. The first line is an order,
which the process acknowledges with one byte on stdout. An order with a "command" has the words after ``python -m``, an
environment, and the file to print to: the process exits with that command's code, and outlives the sender of the order.
Any other order has the device, the seconds after which the process ends without a request, and its niceness. Requests
follow on stdin and answers on stdout, as lines of JSON. Until it becomes a command, the process ends when stdin closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import queue
import runpy
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from merging.base.errors import Cancelled, MergingError, describe_unexpected, is_out_of_memory
from merging.tasks.context import Context
from merging.tasks.kinds import Plain, Request, StageAnswer, Stages, find_staged_kind

LOADING_NICENESS = 10  # niceness of the thread that loads modules
ACKNOWLEDGEMENT = b"\n"  # the byte that acknowledges an order
SECONDS_BEFORE_YIELDING = 5.0  # after which a sufficient stage is the last one if other sessions wait
OUT_OF_MEMORY = "The computer ran out of memory for this. Close other programs, or use fewer or smaller models."


@dataclass
class _Task:
    """A request in progress; ``stages`` is None until it begins, ``is_answered`` is whether a stage is answered."""

    number: int
    session: str
    request: Request
    stages: Stages | None = None
    is_answered: bool = False
    started_at: float = field(default_factory=time.monotonic)


class RequestLoop:
    """Answers requests in stages, computed in pieces; ``add_requests`` may be called from another thread than ``run``.

    A session is one browser tab. A newer request of a session stops the session's older one after its current piece.
    Requests of several sessions take turns, one piece each. While another session waits for its first answer, a request
    that has run for ``SECONDS_BEFORE_YIELDING`` seconds ends at the first stage that suffices.
    """

    def __init__(self, send_answer: Callable[[Plain], None], device: str) -> None:
        self._send_answer, self._device = send_answer, device
        self._requests: queue.Queue[Request] = queue.Queue()
        self._newest_requests: dict[str, int] = {}  # session -> its newest request, until that is answered or stopped
        self._lock = threading.Lock()  # for ``_newest_requests``

    def add_requests(self, lines: Iterable[str]) -> None:
        """Queue requests until the lines end; a request without a kind only stops its session's earlier one."""
        for line in lines:
            request = json.loads(line)
            with self._lock:
                if request.get("kind"):
                    self._newest_requests[request["session"]] = request["id"]
                    self._requests.put(request)
                else:
                    self._newest_requests.pop(request["session"], None)

    def run(self, idle_seconds: float) -> None:
        """Answer requests until none has arrived for ``idle_seconds``."""
        tasks: deque[_Task] = deque()
        while True:
            try:
                request = self._requests.get(block=not tasks, timeout=idle_seconds)
                tasks.append(_Task(request["id"], request["session"], request))
                continue
            except queue.Empty:
                if not tasks:
                    return
            task = tasks.popleft()
            sessions_wait = any(not other.is_answered for other in tasks)
            if self._compute_piece(task, sessions_wait):
                tasks.append(task)
                continue
            self._forget(task)
            if not tasks:
                _release_memory()

    def _forget(self, task: _Task) -> None:
        """Forget a request that is answered or stopped, unless its session has sent another one since."""
        with self._lock:
            if self._newest_requests.get(task.session) == task.number:
                del self._newest_requests[task.session]

    def _compute_piece(self, task: _Task, sessions_wait: bool) -> bool:
        """Compute a piece of a request, and answer if that ends a stage. Returns whether more pieces remain."""

        def is_stopped() -> bool:
            return self._newest_requests.get(task.session) != task.number

        answer: Plain
        try:
            if is_stopped():
                return False
            if task.stages is None:
                answer_in_stages = find_staged_kind(str(task.request["kind"]))
                task.stages = answer_in_stages(task.request, Context(self._device, cancel=is_stopped))
            stage = next(task.stages, StageAnswer({}, done=True))
            if stage is None:
                return True
            if is_stopped():
                return False
            suffices = stage.suffices and sessions_wait and time.monotonic() - task.started_at > SECONDS_BEFORE_YIELDING
            answer = {**stage.answer, "done": stage.done or suffices}
            task.is_answered = True
        except Cancelled:
            return False
        except MergingError as error:
            answer = {"error": str(error), "done": True}
        except Exception as error:  # the next request may succeed
            traceback.print_exception(error)
            sentence = OUT_OF_MEMORY if is_out_of_memory(error) else describe_unexpected(error)
            answer = {"error": sentence, "done": True}
        self._send_answer({"id": task.number, **answer})
        return not answer["done"]


def _release_memory() -> None:
    """Return freed memory to the system; otherwise glibc holds it while this process waits for minutes."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def load_modules(names: Sequence[str]) -> None:
    """Import modules; an ImportError is ignored, because it is raised again where the module is used."""
    if sys.platform == "linux":  # on Linux, niceness belongs to the calling thread alone
        os.nice(LOADING_NICENESS)
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def follow_order(order: Request) -> int:
    """Follow an order; return the exit code."""
    if "environment" in order:
        os.environ.clear()
        os.environ.update(order["environment"])
    if "command" in order:
        return _become_command(order["command"], order["output"])
    _answer_requests(order["device"], order["idle"], order["nice"])
    return 0


def _become_command(words: Sequence[str], output: str) -> int:
    """Run a module as ``python -m`` does; stdout and stderr append to a file, and stdin is empty."""
    for name, flags, numbers in ((os.devnull, os.O_RDONLY, (0,)), (output, os.O_WRONLY | os.O_APPEND, (1, 2))):
        descriptor = os.open(name, flags)
        for number in numbers:
            os.dup2(descriptor, number)
        os.close(descriptor)
    sys.argv = list(words)
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _answer_requests(device: str, idle_seconds: float, niceness: int) -> None:
    """Answer the requests on stdin; end when it closes, or after ``idle_seconds`` without a request."""
    os.nice(niceness)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries that print to stdout write to stderr, so that their output does not look like an answer

    def send_answer(line: Plain) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    loop = RequestLoop(send_answer, device)

    def read_requests() -> None:
        loop.add_requests(sys.stdin)
        os._exit(0)  # the server is gone or wants this process to end

    threading.Thread(target=read_requests, daemon=True).start()
    loop.run(idle_seconds)


def main(modules: Sequence[str]) -> None:
    """Load modules, wait for an order and follow it; then exit at once, without Python's cleanup of modules."""
    thread = threading.Thread(target=load_modules, args=(modules,))
    thread.start()
    line = sys.stdin.buffer.readline()
    code = 0
    if line.endswith(b"\n"):
        try:
            os.write(1, ACKNOWLEDGEMENT)
            thread.join()
            code = follow_order(json.loads(line))
        except BaseException:
            traceback.print_exc()
            code = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
