"""One thread for each piece of work and several pieces at once, so that no byte depends on the number of cores.

Torch splits a large product or sum into as many parts as it may use threads, and the last digits depend on the split.
So code whose numbers are stored runs in ``limit_to_one_thread``, and ``run_in_threads`` computes independent pieces,
such as tensors, batches or tasks, in parallel. Accelerators have their own threads and are not limited.
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

MAX_PIECES_BYTES = 4 << 30  # bytes that all pieces computed at once may take, if twice as much is free
ONE_THREAD = partial(torch.set_num_threads, 1)
_allowed = local()  # ``cores``: how many threads torch could use before ``limit_to_one_thread``


def parallel_pieces(device: torch.device = HOST) -> int:
    """How many pieces are computed at once.

    On the CPU: the number of threads that torch may use outside of ``limit_to_one_thread``. On an accelerator: one.
    """
    return (getattr(_allowed, "cores", 0) or torch.get_num_threads()) if is_host(device) else 1


def piece_memory() -> int:
    """Bytes that all pieces computed at once may take."""
    return min(MAX_PIECES_BYTES, free_memory() // 2)


@contextmanager
def limit_to_one_thread(device: torch.device = HOST) -> Iterator[None]:
    """Let torch use one thread for each operation on the CPU in the block; ``parallel_pieces`` does not change."""
    if not is_host(device):
        yield
        return
    thread_count, allowed_cores = torch.get_num_threads(), getattr(_allowed, "cores", 0)
    _allowed.cores = parallel_pieces()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(thread_count)
        _allowed.cores = allowed_cores


@contextmanager
def run_in_threads(
    tasks: Iterable[Callable[[], T]], device: torch.device = HOST, nbytes: int = 0
) -> Iterator[Iterator[T]]:
    """The results of tasks in their order, each computed by one thread, several at once if there are several cores.

    ``nbytes`` is the memory that a task takes with its result; as many tasks run as fit into ``piece_memory``. A task
    must itself enable or disable gradients, because it may run in another thread.
    """
    workers = parallel_pieces(device)
    if workers > 1 and nbytes > 0:
        workers = max(1, min(workers, piece_memory() // nbytes - 1))  # one result may wait while others are computed
    with limit_to_one_thread(device):
        if workers == 1:
            yield (task() for task in tasks)
            return
        with map_in_threads(tasks, workers, workers + 1, ONE_THREAD) as results:
            yield results
