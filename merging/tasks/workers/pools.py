"""Who computes, by the text of ``MERGESCOPE_WORKERS``: this process, other processes, one for each GPU, an engine.

Processes are spawned, have one thread of torch each and end with the process that started them. They only read, so
that they are killed when they are no longer needed, or when their work is cancelled.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import connection, get_context, parent_process
from typing import Any

from merging.base.errors import ParameterError, WorkerError
from merging.tasks.context import Context
from merging.tasks.workers.checking import check_workers
from merging.tasks.workers.worker_choice import parse_choice
from merging.tasks.workers.worker_facts import GPUS
from merging.tasks.workers.workers import Workers

PINNED = "gpus"
MOST = 256  # processes
FORMS = (
    "a number of processes, gpus, the address of a scheduler (tls://host:8786 or the path of its JSON file), or "
    "module:function"
)
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
ENDED = 5.0  # seconds that a killed process has to be gone


@contextlib.contextmanager
def open_pool(
    text: str, warn: Callable[[str], None] = lambda sentence: None, device: str = "auto", mixable: bool = False
) -> Iterator[Workers | None]:
    """The workers that a text names, checked, as long as the block runs; None for no text: this process computes.

    ``warn`` gets a sentence about workers that are left out. ``mixable`` work may be done by several kinds of hardware,
    if the text says "mixed".

    Raises:
        ParameterError: the text names none. WorkerError: they cannot be started, or do not fit this program.
    """
    spec, only, mixed = parse_choice(text)
    if not spec:
        yield None
        return
    workers = _open_spec(spec)
    try:
        workers = check_workers(workers, warn, device, only, mixed and mixable)
        yield workers
    finally:
        workers.close(workers.executor)


@contextlib.contextmanager
def open_workers(context: Context, mixable: bool = False) -> Iterator[Workers | None]:
    """The workers of a context, as long as the block runs; None: this process computes. See ``open_pool``."""
    if isinstance(context.workers, str):
        with open_pool(context.workers, context.warn, context.device, mixable) as workers:
            yield workers
    else:
        assert isinstance(context.workers, Workers)
        yield context.workers


def _open_spec(spec: str) -> Workers:
    if spec.isdecimal() and 1 <= int(spec) <= MOST:
        return open_processes([""] * int(spec), f"the {spec} worker processes")
    if spec == PINNED:
        return pin_to_gpus(visible_gpus())
    if "://" in spec or spec.endswith(".json"):
        from merging.tasks.workers.dask_pool import connect

        return connect(spec)
    if ":" in spec:
        return _open_own_pool(spec)
    raise ParameterError(f"Workers are {FORMS} (at most {MOST} processes); got {spec[:60]!r}.")


# Processes of this machine


def open_processes(gpus: Sequence[str], called: str) -> Workers:
    """A spawned process for each entry, which is the GPU that alone it sees; empty: whatever is visible."""
    context = get_context("spawn")

    def start() -> Executor:
        places: Any = context.SimpleQueue()
        for gpu in gpus:
            places.put(gpu)
        return ProcessPoolExecutor(len(gpus), context, initializer=begin_worker, initargs=(places,))

    return Workers(start(), len(gpus), renew=start, called=called, close=_kill)


def pin_to_gpus(gpus: Sequence[str]) -> Workers:
    """A process for each of these GPUs."""
    workers = open_processes(gpus, f"the worker processes of {len(gpus)} GPUs")

    def only(kept: Collection[Mapping[str, Any]], _named: bool) -> Workers:
        if len(kept) == len(gpus):
            return workers
        _kill(workers.executor)
        return pin_to_gpus([str(each["gpu"]) for each in kept])

    workers.only = only
    return workers


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them. Raises WorkerError if there is none."""
    if (listed := os.environ.get(GPUS)) is not None:
        gpus = [part.strip() for part in listed.split(",") if part.strip()]
    else:
        import torch

        gpus = [str(index) for index in range(torch.cuda.device_count())]
    if not gpus:
        raise WorkerError("There is no GPU here that torch sees. Give a number of processes instead of gpus.")
    return gpus


def begin_worker(places: Any) -> None:
    """Prepare a new process, before it loads torch: which GPU it sees, one thread, and its end with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; who asked for the work decides
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    if gpu := places.get():
        os.environ[GPUS] = gpu
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the end of the process that started this one. Nothing else would tell: the pipes stay open."""
    if (parent := parent_process()) is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _kill(executor: Executor) -> None:
    """End the processes of a pool at once, whatever they do."""
    found = getattr(executor, "_processes", None) or {}  # ``kill_workers`` comes with Python 3.14
    running = list(found.values())
    executor.shutdown(wait=False, cancel_futures=True)
    for process in running:
        process.kill()
    for process in running:
        process.join(ENDED)


# Executors that a laboratory brings along


def _open_own_pool(spec: str) -> Workers:
    """The workers that a function of the user's own gives: an Executor, or Workers with what we cannot know of it."""
    module, _, name = spec.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        given = function()
    except Exception as error:
        raise WorkerError(
            f"The workers {spec[:80]!r} could not be opened: {type(error).__name__}: {str(error)[:200]} "
            "The function takes nothing and returns an Executor, or merging.tasks.workers.workers.Workers."
        ) from error
    if isinstance(given, Workers):
        return given
    if not isinstance(given, Executor):
        raise WorkerError(f"{spec[:80]} gave a {type(given).__name__}; an Executor of concurrent.futures is expected.")
    count = getattr(given, "_max_workers", None) or os.cpu_count() or 1
    renew = function if isinstance(given, ProcessPoolExecutor) else None
    return Workers(given, int(count), renew=renew, called=f"the workers of {spec[:80]}")
