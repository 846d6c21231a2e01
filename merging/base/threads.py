"""One thread for each piece of work and several pieces at once, so that no byte depends on the number of cores.

Torch cuts a large product or sum into as many parts as it may use threads, and the last digits depend on the cut. So
what computes numbers that are kept computes them in ``limit_to_one_thread``, and pieces that do not need each other,
such as tensors, batches or tasks, go through ``run_in_threads``. An accelerator has its own threads and is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import local
from typing import TypeVar

import torch

from merging.base.devices import HOST, is_host
from merging.base.free_memory import free_memory
from merging.base.parallel import map_in_threads

T = TypeVar("T")

AT_ONCE = 4 << 30  # bytes that pieces that are worked on at once may take, if as much again is free
ONE_THREAD = partial(torch.set_num_threads, 1)
_allowed = local()  # ``parallel_pieces``: how many threads torch might use before it was told to use one


def parallel_pieces(device: torch.device = HOST) -> int:
    """How many pieces are worked on at once: on the CPU as many as torch may use threads outside of
    ``limit_to_one_thread``.
    """
    return (getattr(_allowed, "cores", 0) or torch.get_num_threads()) if is_host(device) else 1


def piece_memory() -> int:
    """Bytes that pieces that are worked on at once may take."""
    return min(AT_ONCE, free_memory() // 2)


@contextmanager
def limit_to_one_thread(device: torch.device = HOST) -> Iterator[None]:
    """Let torch use one thread for each operation on the CPU for a while; ``parallel_pieces`` does not change."""
    if not is_host(device):
        yield
        return
    before, allowed = torch.get_num_threads(), getattr(_allowed, "cores", 0)
    _allowed.cores = parallel_pieces()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _allowed.cores = allowed


@contextmanager
def run_in_threads(
    tasks: Iterable[Callable[[], T]], device: torch.device = HOST, nbytes: int = 0
) -> Iterator[Iterator[T]]:
    """The results of tasks in their order, each computed by one thread, several at once where there are cores.

    ``nbytes`` is the memory that a task takes with its result; as many run as fit into the ``piece_memory``. Whether a
    task records gradients is for the task to say: it may run in another thread.
    """
    workers = parallel_pieces(device)
    if workers > 1 and nbytes > 0:
        workers = max(1, min(workers, piece_memory() // nbytes - 1))  # a result may wait beside those that run
    with limit_to_one_thread(device):
        if workers == 1:
            yield (task() for task in tasks)
            return
        with map_in_threads(tasks, workers, workers + 1, ONE_THREAD) as results:
            yield results
