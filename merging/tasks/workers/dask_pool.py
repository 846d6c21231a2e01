"""Workers of Dask distributed, the backend for several machines. Only this module and dask_servers.py use Dask.

Dask differs from our needs in three ways. It would treat calls with equal arguments as one call, so calls are declared
impure. Its futures end in CancelledError when the scheduler is gone, which ``fan_out`` treats as a loss. Its ports are
open to all machines, so ours are open to this machine only, or have TLS.

The kinds of a worker are digests of its program, alone and with its hardware (``worker_facts``). The worker declares
them as Dask's resources, so that a task can demand them.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection, Mapping
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from merging.base.errors import WorkerError, WorkersGone
from merging.tasks.worker import answer_request
from merging.tasks.workers.certificates import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE, require_safe_address
from merging.tasks.workers.workers import Workers

CONNECT_SECONDS = 10.0  # to connect to the scheduler, and to close the connection
FIRST_WORKER_SECONDS = 60.0  # seconds within which the first worker must connect
COUNT_SECONDS = 2.0  # seconds for which the count of workers is reused


def import_dask() -> Any:
    """The package ``distributed``. Raises WorkerError if it is not installed."""
    try:
        import distributed
    except ImportError:
        raise WorkerError("An address needs Dask: pip install -r requirements-workers.txt") from None
    return distributed


def tls_settings(certificates: Path | None) -> Any:
    """Dask's TLS settings with these certificates; None without certificates."""
    if certificates is None:
        return None
    files: dict[str, Any] = {"tls_ca_file": str(certificates / AUTHORITY_FILE), "require_encryption": True}
    for role in ("client", "scheduler", "worker"):
        files |= {
            f"tls_{role}_cert": str(certificates / CERTIFICATE_FILE),
            f"tls_{role}_key": str(certificates / KEY_FILE),
        }
    return import_dask().Security(**files)


def read_address(spec: str) -> str:
    """The address of a scheduler: ``spec`` itself, or read from the JSON file that the scheduler wrote.

    Raises:
        WorkerError: the file cannot be read.
    """
    if not spec.endswith(".json"):
        return spec
    try:
        return str(json.loads(Path(spec).expanduser().read_text("utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError):
        raise WorkerError(f"{spec} is not the file of a scheduler that runs; start one with --file {spec}.") from None


def connect(spec: str) -> Workers:
    """The workers of a scheduler.

    Raises:
        WorkerError: the address is not safe.
        WorkersGone: no scheduler answers, or it has no workers; both may start later.
    """
    try:
        address = read_address(spec)
    except WorkerError as error:
        raise WorkersGone(str(error)) from None
    certificates = require_safe_address(address)
    try:
        client = import_dask().Client(
            address,
            security=tls_settings(certificates),
            timeout=CONNECT_SECONDS,
            set_as_default=False,
            name="mergescope",
        )
    except (OSError, TimeoutError) as error:
        reason = str(error).splitlines()[0][:200]
        raise WorkersGone(f"No scheduler answers at {address} ({reason}). Start one: see docs/cluster.md.") from None
    workers = _select_workers(client, f"the workers at {address}", set())
    began = time.monotonic()
    while not workers.has_workers():
        if time.monotonic() - began > FIRST_WORKER_SECONDS:
            client.close()
            raise WorkersGone(f"There is no worker at {address}. Start some: mergescope worker {spec}")
        time.sleep(COUNT_SECONDS / 4)  # several checks within the time for which a count is reused
    return workers


def count_threads(client: Any, kinds: Collection[str], hosts: Collection[str] = ()) -> dict[str, int]:
    """{address of a worker that has all these kinds: tasks that it runs at once}; empty while the scheduler is gone.

    With ``hosts``, only workers on these hosts.
    """
    if client.status != "running":
        return {}
    try:
        infos = client.scheduler_info(n_workers=-1)["workers"]  # -1: of all workers
    except (OSError, TimeoutError, RuntimeError):  # the scheduler is gone, or the client is reconnecting
        return {}
    fitting = {address: info for address, info in infos.items() if set(kinds) <= set(info["resources"])}
    return {
        address: int(info["nthreads"])
        for address, info in fitting.items()
        if not hosts or urlsplit(address).hostname in hosts
    }


def _select_workers(client: Any, title: str, kinds: Collection[str], hosts: Collection[str] = ()) -> Workers:
    """The workers of a client that have all these kinds, on these hosts or on all; later ones are included, too."""
    counted_at = 0.0  # time of the last count, on the monotonic clock

    def has_workers() -> bool:
        nonlocal counted_at
        if client.status != "running":  # the scheduler is gone: a count of 0, so that no lost task is blamed
            workers.count = 0
        elif workers.count == 0 or time.monotonic() - counted_at > COUNT_SECONDS:
            workers.count = sum(count_threads(client, kinds, hosts).values())
            counted_at = time.monotonic()
        return workers.count > 0

    def ask_each(kind: str, request: bytes) -> Mapping[str, bytes]:
        addresses = list(count_threads(client, kinds, hosts))
        answers: Mapping[str, bytes] = client.run(answer_request, kind, request, workers=addresses, on_error="ignore")
        return answers  # without the answers of workers that have just gone

    def restrict(selected: Collection[Mapping[str, Any]], same_machines: bool) -> Workers:
        common_kinds = {str(facts["kind"]) for facts in selected}
        if len(common_kinds) > 1:  # mixed hardware, but one program
            common_kinds = {str(facts["program"]) for facts in selected}
        selected_hosts = {str(urlsplit(facts["at"]).hostname) for facts in selected} if same_machines else set()
        restricted = _select_workers(client, title, common_kinds, selected_hosts)
        # The workers are there, but declare no kinds.
        if not restricted.has_workers() and {facts["at"] for facts in selected} & {*count_threads(client, ())}:
            raise WorkerError(
                f"{title[:1].upper()}{title[1:]} do not state their program and hardware. "
                "Start them with mergescope worker."
            )
        return restricted

    def close(_executor: Any) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            client.close(timeout=CONNECT_SECONDS)

    restriction = {"workers": list(hosts)} if hosts else {}
    executor = client.get_executor(pure=False, resources=dict.fromkeys(kinds, 1), **restriction)
    loss_errors = (BrokenExecutor, import_dask().scheduler.KilledWorker)
    workers = Workers(
        executor, 0, loss_errors, title=title, has_workers=has_workers, close=close, ask_each=ask_each,
        restrict=restrict,
    )  # fmt: skip
    return workers
