"""The command ``measure``."""

from __future__ import annotations

from pathlib import Path

import click

from merging.cli.call import Call
from merging.cli.exit_codes import DONE
from merging.cli.options import Command, argument, chosen_workers, device_option, job_options, workers_option
from merging.cli.output import dumps, reporting, warn


@click.command(cls=Command)
@argument(
    "what",
    help="drift, ablation, put_back, first_order, predictions, features, tsne, along_steps, modules, depths or "
    "feature_bank of a run; signs or pairs of its experts; exemplars, drm_ablations, task_counts or method_times of "
    "the benchmark",
)
@argument("run", default="", help="the run's id, or six of its first digits")
@workers_option
@job_options
@device_option
@click.pass_obj
def measure(call: Call, what: str, run: str, workers: str | None, store: Path | None, device: str) -> int:
    """Measure something of a stored run, such as feature drift."""
    from merging import settings
    from merging.analysis import measure as measuring
    from merging.analysis import registry, stored
    from merging.benchmarks.benchmark import Benchmark
    from merging.runs.run import PRECOMPUTED
    from merging.runs.store import Store
    from merging.workers.pools import opened

    runs = Store(store, libraries=(settings.benchmark_folder() / "runs",))
    with reporting(call.events) as progress:
        result = measuring.measure(
            what, runs, Benchmark.load(), run and runs.full_id(run), device=device, progress=progress, cancel=call.stop,
            workers=opened(chosen_workers(workers), warn, device), warn=warn,
        )  # fmt: skip
    if call.json:
        names = ("key", "run_id", "device", "seconds", "provenance", "notes", "path")
        tables = {name: result.table(name).to_dict("records") for name in result.tables}
        print(dumps({name: getattr(result, name) for name in names} | {"tables": tables}))
    else:
        title = registry.kind(result.key).title
        took = (
            "precomputed"
            if result.seconds is None or result.provenance == PRECOMPUTED
            else f"{result.seconds:.1f} s on this machine"
        )
        print(f"{title} on {result.device}, {took}: {', '.join(result.tables)}")
        if memory := result.notes.get(stored.MEMORY):
            print(memory)
        print(f"Written to {result.path}")
    return DONE
