"""Workers of Dask distributed, the engine for several machines. With dask_servers.py all that knows it.

Three of its defaults are not ours: calls with equal arguments are not one call, its futures end in CancelledError when
the scheduler is gone (``fan_out`` takes that for a loss), and a port is open to this machine only, or has TLS.
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
from merging.tasks.workers.certificates import AUTHORITY, CERTIFICATE, KEY, require_safe
from merging.tasks.workers.workers import Workers

CONNECTING = 10.0  # seconds
FIRST = 60.0  # seconds that the first worker has to be there
FRESH = 2.0  # seconds for which it is believed who is there


def import_dask() -> Any:
    """The package. Raises WorkerError if it is not installed."""
    try:
        import distributed
    except ImportError:
        raise WorkerError("An address needs Dask: pip install -r requirements-workers.txt") from None
    return distributed


def tls_settings(certificates: Path | None) -> Any:
    """What the engine takes for TLS; None without."""
    if certificates is None:
        return None
    files: dict[str, Any] = {"tls_ca_file": str(certificates / AUTHORITY), "require_encryption": True}
    for role in ("client", "scheduler", "worker"):
        files |= {f"tls_{role}_cert": str(certificates / CERTIFICATE), f"tls_{role}_key": str(certificates / KEY)}
    return import_dask().Security(**files)


def read_address(spec: str) -> str:
    """The address of a scheduler, which may lie in the JSON file that it wrote. Raises WorkerError."""
    if not spec.endswith(".json"):
        return spec
    try:
        return str(json.loads(Path(spec).expanduser().read_text("utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError):
        raise WorkerError(f"{spec} is not the file of a scheduler that runs; start one with --file {spec}.") from None


def connect(spec: str) -> Workers:
    """The workers of a scheduler.

    Raises:
        WorkerError: the address is not safe. WorkersGone: nothing answers there, or there is no worker; they may come.
    """
    try:
        address = read_address(spec)
    except WorkerError as error:
        raise WorkersGone(str(error)) from None
    certificates = require_safe(address)
    try:
        client = import_dask().Client(
            address, security=tls_settings(certificates), timeout=CONNECTING, set_as_default=False, name="mergescope"
        )
    except (OSError, TimeoutError) as error:
        reason = str(error).splitlines()[0][:200]
        raise WorkersGone(f"No scheduler answers at {address} ({reason}). Start one: see docs/cluster.md.") from None
    workers = _select_workers(client, f"the workers at {address}", set())
    since = time.monotonic()
    while not workers.present():
        if time.monotonic() - since > FIRST:
            client.close()
            raise WorkersGone(f"There is no worker at {address}. Start some: python -m merging worker {spec}")
        time.sleep(FRESH / 4)
    return workers


def count_threads(client: Any, kinds: Collection[str], hosts: Collection[str] = ()) -> dict[str, int]:
    """{address of a worker of all these kinds: tasks that it runs at once}; none while the scheduler is gone.

    ``hosts``: on one of these alone.
    """
    if client.status != "running":
        return {}
    try:
        found = client.scheduler_info(n_workers=-1)["workers"]
    except (OSError, TimeoutError, RuntimeError):  # the scheduler is gone, or the connection is being made again
        return {}
    fitting = {at: each for at, each in found.items() if set(kinds) <= set(each["resources"])}
    return {at: int(each["nthreads"]) for at, each in fitting.items() if not hosts or urlsplit(at).hostname in hosts}


def _select_workers(client: Any, called: str, kinds: Collection[str], hosts: Collection[str] = ()) -> Workers:
    """The workers of a client of all these kinds, on these hosts or on all; those that come later count, too."""
    checked = 0.0

    def present() -> bool:
        nonlocal checked
        if client.status != "running":  # nothing that is lost now is the fault of what was computed
            workers.count = 0
        elif workers.count == 0 or time.monotonic() - checked > FRESH:
            workers.count = sum(count_threads(client, kinds, hosts).values())
            checked = time.monotonic()
        return workers.count > 0

    def each(kind: str, request: bytes) -> Mapping[str, bytes]:
        places = list(count_threads(client, kinds, hosts))
        answers: Mapping[str, bytes] = client.run(answer_request, kind, request, workers=places, on_error="ignore")
        return answers  # without those of workers that have just gone

    def only(kept: Collection[Mapping[str, Any]], named: bool) -> Workers:
        alike = {str(each["kind"]) for each in kept}
        if len(alike) > 1:  # they are mixed, and of one program
            alike = {str(each["program"]) for each in kept}
        places = {str(urlsplit(each["at"]).hostname) for each in kept} if named else set()
        found = _select_workers(client, called, alike, places)
        if not found.present() and {each["at"] for each in kept} & {*count_threads(client, ())}:
            raise WorkerError(
                f"{called[:1].upper()}{called[1:]} do not say what they are. Start them with python -m merging worker."
            )
        return found

    def close(_executor: Any) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            client.close(timeout=CONNECTING)

    places = {"workers": list(hosts)} if hosts else {}
    executor = client.get_executor(pure=False, resources=dict.fromkeys(kinds, 1), **places)
    lost = (BrokenExecutor, import_dask().scheduler.KilledWorker)
    workers = Workers(executor, 0, lost, called=called, present=present, close=close, each=each, only=only)
    return workers
