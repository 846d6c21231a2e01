"""The commands ``scheduler``, ``worker`` and ``workers``: start an engine for several machines, and check workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merging.base.text import duration_text, printable, size_text
from merging.cli.call import Call
from merging.cli.commands.worker_amounts import LIFETIME, MEMORY
from merging.cli.exit_codes import DONE
from merging.cli.option_types import PATH
from merging.cli.options import (
    Command,
    argument,
    device_option,
    option,
    store_option,
    workers_option,
)
from merging.cli.output import encode_json, format_columns, print_warning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from merging.tasks.queue.job_records import Job
    from merging.tasks.workers.workers import Workers


@click.command(cls=Command)
@option(
    "--host", default="127.0.0.1", show_default=True, help="the address to listen at; other machines need certificates"
)
@option("--port", type=int, default=8786, show_default=True, help="0 chooses a free port")
@option("--file", type=PATH, help="write the address to this file; workers and MERGESCOPE_WORKERS accept its path")
@click.pass_obj
def scheduler(call: Call, /, host: str, port: int, file: Path | None) -> int:
    """Distribute units of work to workers, until Ctrl-C."""
    from merging.tasks.workers.dask_servers import serve_scheduler

    serve_scheduler(host, port, file, lambda address: print(f"Scheduler at {address}", flush=True))
    return DONE


@click.command(cls=Command)
@argument("address", metavar="ADDRESS", help="tls://host:8786, tcp://127.0.0.1:8786, or the scheduler's file")
@option("--gpus", is_flag=True, help="one worker for each GPU that is visible")
@option(
    "--count", type=click.IntRange(1, 256), default=1, show_default=True, help="number of workers, of one thread each"
)
@option(
    "--memory", type=MEMORY, help="maximal memory of each worker, such as 15GB (default: a share of the free memory)"
)
@option("--lifetime", type=LIFETIME, help="the time after which a worker stops, such as 7h50m")
@option("--worker-port", "ports", metavar="PORTS", help="the ports to listen at, such as 40000:40100")
@option("--folder", type=PATH, help="for files of the engine (default: the system's temporary folder)")
@click.pass_obj
def worker(call: Call, /, address: str, gpus: bool, count: int, folder: Path | None, **options: Any) -> int:
    """Compute for a scheduler, until Ctrl-C."""
    import tempfile

    from merging.tasks.workers.dask_servers import serve_workers
    from merging.tasks.workers.pools import visible_gpus

    scratch = folder or Path(tempfile.gettempdir()) / "mergescope-workers"
    visible = visible_gpus() if gpus else []
    serve_workers(
        address, visible, count, scratch=scratch, report=lambda text: print(f"Workers: {text}", flush=True), **options
    )
    return DONE


@click.command(cls=Command)
@workers_option
@store_option
@device_option
@click.pass_obj
def workers(call: Call, store: Path | None, device: str) -> int:
    """List the workers, whether they fit this program, and the running jobs of the store."""
    from merging.base.errors import WorkerError, WorkersGone
    from merging.study.runs.run_store import Store
    from merging.tasks.queue.job_records import State
    from merging.tasks.queue.known_jobs import KnownJobs
    from merging.tasks.workers.checking import question_workers
    from merging.tasks.workers.pools import open_pool

    try:
        with open_pool(call.workers, print_warning, device) as pool:
            worker_facts = [] if pool is None else question_workers(pool, device)
    except WorkersGone as gone:  # there is nothing to resume
        raise WorkerError(str(gone)) from None
    jobs = [job for job in KnownJobs(Store(store)).list_jobs() if job.state == State.RUNNING]
    if call.json:
        names = ("id", "title", "kind", "phase", "fraction", "seconds_left")
        facts = [{name: getattr(job, name) for name in names} | {"away": job.is_remote} for job in jobs]
        print(encode_json({"workers": worker_facts, "jobs": facts}))
        return DONE
    _print_workers(pool, worker_facts)
    _print_jobs(jobs)
    return DONE


def _print_workers(pool: Workers | None, worker_facts: Sequence[Mapping[str, Any]]) -> None:
    """Print the workers as a table, or that there are none."""
    if pool is None:
        print("No workers: this process computes. Name workers with MERGESCOPE_WORKERS or --workers.")
    else:
        rows = [("worker", "process", "computes on", "memory", "Mergescope", "torch")]
        rows += [
            (
                each["name"],
                str(each["pid"]),
                each["hardware"],
                size_text(each["memory"]),
                each["version"],
                each["torch"],
            )
            for each in worker_facts
        ]
        print(format_columns(rows))
        print(f"They compute {pool.count} unit{'s' * (pool.count != 1)} of work at a time.")


def _print_jobs(jobs: Sequence[Job]) -> None:
    """Print the running jobs with their last reported phase and the time left."""
    rows = [("job", "now", "left")]
    for job in reversed(jobs):
        left = "" if job.seconds_left is None else f"about {duration_text(job.seconds_left)}"
        rows.append((printable(job.title, 60), printable(job.phase, 80), left))
    print(format_columns(rows) if jobs else "No job of this store is running.")
