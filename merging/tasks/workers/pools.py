"""Opens the workers that ``MERGESCOPE_WORKERS`` names: processes, one process per GPU, or workers of a scheduler.

Processes are spawned, have one thread of torch each, and end with the process that started them. They only read files,
so they are killed when they are no longer needed, or when their work is cancelled.
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
from merging.tasks.workers.worker_facts import GPUS_VARIABLE
from merging.tasks.workers.workers import Workers

GPUS_SPEC = "gpus"
MAX_PROCESSES = 256  # that a number in the text may start
SPEC_FORMS = (
    "a number of processes, gpus, the address of a scheduler (tls://host:8786 or the path of its JSON file), or "
    "module:function"
)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
KILL_SECONDS = 5.0  # to wait for the end of a killed process


@contextlib.contextmanager
def open_pool(
    text: str, warn: Callable[[str], None] = lambda sentence: None, device: str = "auto", mixable: bool = False
) -> Iterator[Workers | None]:
    """The workers that a text names, checked, while the block runs; None for an empty text: this process computes.

    ``warn`` is called with a sentence about workers that are left out. Several kinds of hardware, whose results differ
    by rounding, compute together only if the text says "mixed" and the work admits it (``mixable``).

    Raises:
        ParameterError: the text names no workers. WorkerError: they cannot be started, or do not fit this program.
    """
    spec, machines, mixed = parse_choice(text)
    if not spec:
        yield None
        return
    workers = _open_spec(spec)
    try:
        workers = check_workers(workers, warn, device, machines, mixed and mixable)
        yield workers
    finally:
        workers.close(workers.executor)


@contextlib.contextmanager
def open_workers(context: Context, mixable: bool = False) -> Iterator[Workers | None]:
    """The workers of a context while the block runs; None if this process computes. See ``open_pool``."""
    if isinstance(context.workers, str):
        with open_pool(context.workers, context.warn, context.device, mixable) as workers:
            yield workers
    else:
        assert isinstance(context.workers, Workers)
        yield context.workers


def _open_spec(spec: str) -> Workers:
    if spec.isdecimal() and 1 <= int(spec) <= MAX_PROCESSES:
        return open_processes([""] * int(spec), f"the {spec} worker processes")
    if spec == GPUS_SPEC:
        return pin_to_gpus(visible_gpus())
    if "://" in spec or spec.endswith(".json"):
        from merging.tasks.workers.dask_pool import connect

        return connect(spec)
    if ":" in spec:
        return _open_user_pool(spec)
    raise ParameterError(f"Workers are {SPEC_FORMS} (with at most {MAX_PROCESSES} processes); got {spec[:60]!r}.")


# Processes of this machine


def open_processes(gpus: Sequence[str], title: str) -> Workers:
    """A spawned process for each entry: the only GPU that the process sees, or empty for all visible GPUs."""
    context = get_context("spawn")

    def start() -> Executor:
        gpu_queue: Any = context.SimpleQueue()
        for gpu in gpus:
            gpu_queue.put(gpu)
        return ProcessPoolExecutor(len(gpus), context, initializer=begin_worker, initargs=(gpu_queue,))

    return Workers(start(), len(gpus), make_executor=start, title=title, close=_kill)


def pin_to_gpus(gpus: Sequence[str]) -> Workers:
    """A worker process for each of these GPUs."""
    workers = open_processes(gpus, f"the worker processes of {len(gpus)} GPUs")

    # All processes are on this machine, and none joins later.
    def restrict(selected: Collection[Mapping[str, Any]], _same_machines: bool) -> Workers:
        if len(selected) == len(gpus):
            return workers
        _kill(workers.executor)
        return pin_to_gpus([str(facts["gpu"]) for facts in selected])

    workers.restrict = restrict
    return workers


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them. Raises WorkerError if there is none."""
    if (gpu_list := os.environ.get(GPUS_VARIABLE)) is not None:
        gpus = [part.strip() for part in gpu_list.split(",") if part.strip()]
    else:
        import torch

        gpus = [str(index) for index in range(torch.cuda.device_count())]
    if not gpus:
        raise WorkerError("torch sees no GPU on this machine. Give a number of processes instead of gpus.")
    return gpus


def begin_worker(gpu_queue: Any) -> None:
    """Prepare a new worker process before it loads torch.

    The process takes its GPU from the queue, computes with one thread, and ends when its parent ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the requesting process decides
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    if gpu := gpu_queue.get():
        os.environ[GPUS_VARIABLE] = gpu
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent ends; other workers keep the pipes open, so that their end shows nothing."""
    if (parent := parent_process()) is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _kill(executor: Executor) -> None:
    """Kill the processes of a pool at once."""
    processes = getattr(executor, "_processes", None) or {}  # Python 3.14 has ``kill_workers`` instead
    running = list(processes.values())
    executor.shutdown(wait=False, cancel_futures=True)
    for process in running:
        process.kill()
    for process in running:
        process.join(KILL_SECONDS)


# Executors of the user


def _open_user_pool(spec: str) -> Workers:
    """The workers that the user's function returns, as an Executor, or as Workers with further facts."""
    module, _, name = spec.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        result = function()
    except Exception as error:
        raise WorkerError(
            f"The workers {spec[:80]!r} could not be opened: {type(error).__name__}: {str(error)[:200]} "
            "The function has no parameters and returns an Executor, or merging.tasks.workers.workers.Workers."
        ) from error
    if isinstance(result, Workers):
        return result
    if not isinstance(result, Executor):
        raise WorkerError(
            f"{spec[:80]} returned a {type(result).__name__}; an Executor of concurrent.futures is expected."
        )
    count = getattr(result, "_max_workers", None) or os.cpu_count() or 1
    make_executor = function if isinstance(result, ProcessPoolExecutor) else None
    return Workers(result, int(count), make_executor=make_executor, title=f"the workers of {spec[:80]}")
