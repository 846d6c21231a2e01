"""The command ``measure``."""

from __future__ import annotations

import argparse
from threading import Event

from merging import settings
from merging.analysis.measure import measure
from merging.analysis.registry import kind
from merging.benchmarks.benchmark import Benchmark
from merging.cli.exit_codes import DONE
from merging.cli.output import dumps, reporting
from merging.runs.store import Store


def measure_run(args: argparse.Namespace, stop: Event) -> int:
    """Measure something of a stored run, or of the benchmark; its tables stay in the store."""
    store = Store(args.store, libraries=(settings.benchmark_folder() / "runs",))
    with reporting(getattr(args, "events", None)) as progress:
        found = measure(
            args.what, store, Benchmark.load(), args.run, device=args.device, progress=progress, cancel=stop
        )
    if args.json:
        facts = ("key", "run_id", "device", "seconds", "provenance", "notes", "path")
        tables = {name: found.table(name).to_dict("records") for name in found.tables}
        print(dumps({name: getattr(found, name) for name in facts} | {"tables": tables}))
    else:
        print(f"{kind(found.key).title} on {found.device}, {found.seconds:.1f} s: {', '.join(found.tables)}")
        print(f"Written to {found.path}")
    return DONE
