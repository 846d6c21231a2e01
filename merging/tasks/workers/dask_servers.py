"""The scheduler and the workers of Dask distributed, started with our settings instead of Dask's defaults.

A nanny (Dask's parent process of a worker) would set MALLOC_TRIM_THRESHOLD_, with which glibc returns the memory of
every tensor to the system at once: the same points then take two and a half times the CPU seconds. Disabling the
dashboard alone would still leave a port open to everybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from merging.base.errors import WorkerError
from merging.base.files.records import write_text
from merging.base.free_memory import free_memory
from merging.tasks.workers.certificates import TCP, TLS, find_certificates, is_this_machine, require_safe_address
from merging.tasks.workers.dask_pool import import_dask, read_address, tls_settings
from merging.tasks.workers.worker_facts import GPUS_VARIABLE, MEMORY_VARIABLE, local_kinds

DEFAULT_PORT = 8786
LOOPBACK = "127.0.0.1"
NO_DASHBOARD = {"dashboard": False, "dashboard_address": f"{LOOPBACK}:0"}  # even without a dashboard a port stays open
ONE_THREAD_VARIABLES = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
DASK_SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,  # ``fan_out`` counts and reports the losses of a task itself
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
}


def serve_scheduler(host: str, port: int, file: Path | None, report: Callable[[str], None]) -> None:
    """Run a scheduler until a signal ends it, with TLS if there are certificates.

    Its address is written to ``file``, and passed to ``report``.

    Raises:
        WorkerError: the host is not this machine and there are no certificates, or the port cannot be opened.
    """
    scheme = TCP if is_this_machine(host) and find_certificates() is None else TLS
    certificates = require_safe_address(f"{scheme}://{host}:{port}")
    distributed = _configure_dask()

    async def serve() -> None:
        options: dict[str, Any] = {"security": tls_settings(certificates), **NO_DASHBOARD}
        async with distributed.Scheduler(host=host, port=port, protocol=scheme, **options) as scheduler:
            if file is not None:
                write_text(file, f'{{"address": "{scheduler.address}"}}\n')
            report(scheduler.address)
            await _await_end(scheduler)
        if file is not None:
            file.unlink(missing_ok=True)

    try:
        asyncio.run(serve())
    except (OSError, RuntimeError) as error:
        reason = str(error.__cause__ or error).splitlines()[0][:200]
        raise WorkerError(f"The scheduler cannot listen at {host}:{port} ({reason}). Try another --port.") from error


def serve_workers(
    spec: str,
    gpus: list[str],
    count: int,
    memory: int | None,
    lifetime: int | None,
    ports: str | None,
    scratch: Path,
    report: Callable[[str], None],
) -> None:
    """Run workers of one thread each until a signal ends them: one for each of ``gpus``, else ``count`` of them.

    Each worker takes at most ``memory`` bytes, and ends by itself after ``lifetime`` seconds.

    Raises:
        WorkerError: the address is not safe, or the workers cannot join the scheduler.
    """
    address = read_address(spec)
    certificates = require_safe_address(address)
    distributed = _configure_dask()
    parts, worker_gpus = urlsplit(address), gpus or [""] * count
    limit = memory or free_memory() // len(worker_gpus)
    environment = {**ONE_THREAD_VARIABLES, MEMORY_VARIABLE: str(limit)}
    options: dict[str, Any] = {
        "nthreads": 1,
        "security": tls_settings(certificates),
        "protocol": parts.scheme,
        "host": distributed.utils.get_ip(parts.hostname),  # only the interface that reaches the scheduler
        "memory_limit": limit,
        "worker_port": ports or 0,
        "local_directory": str(scratch),
        "lifetime": lifetime,
        "preload": [__name__],  # each worker imports this module and calls its ``dask_setup``
        "silence_logs": logging.WARNING,
        **NO_DASHBOARD,
    }

    async def serve() -> None:
        async with contextlib.AsyncExitStack() as stack:
            nannies = [
                distributed.Nanny(address, env={**environment, **({GPUS_VARIABLE: gpu} if gpu else {})}, **options)
                for gpu in worker_gpus
            ]
            await asyncio.gather(*map(stack.enter_async_context, nannies))
            report(f"{len(nannies)} at {address}")
            await asyncio.wait(
                [asyncio.ensure_future(_await_end(nanny)) for nanny in nannies], return_when="FIRST_COMPLETED"
            )

    try:
        asyncio.run(serve())
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error.__cause__ or error).splitlines()[0][:200]
        raise WorkerError(f"The workers could not join the scheduler at {address} ({reason}).") from error


def dask_setup(worker: Any) -> None:
    """Declare a worker's kinds as resources before it joins, so that it receives only tasks of its kinds.

    Kinds are digests of the program and the hardware, see ``worker_facts``.
    """
    amounts = dict.fromkeys(local_kinds(), float(2**20))  # in effect unlimited: a task needs one unit
    worker.state.total_resources.update(amounts)
    worker.state.available_resources.update(amounts)


async def _await_end(server: Any) -> None:
    """Wait until a server ends, or for a signal."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    waiting = [asyncio.ensure_future(server.finished()), asyncio.ensure_future(stop.wait())]
    _, pending = await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
    for task in pending:
        task.cancel()


def _configure_dask() -> Any:
    """The package ``distributed``, with our settings in place of its defaults."""
    distributed = import_dask()
    import dask

    logging.getLogger("distributed").setLevel(logging.WARNING)
    os.environ.pop("MALLOC_TRIM_THRESHOLD_", None)
    dask.config.set(DASK_SETTINGS)
    return distributed
