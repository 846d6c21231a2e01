"""The command ``pack``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from merging.cli.call import Call
from merging.cli.exit_codes import DONE
from merging.cli.option_types import PATH
from merging.cli.options import Command, argument, job_options, option
from merging.cli.output import encode_json, print_warning


@click.command(cls=Command)
@argument("runs", nargs=-1, required=True, metavar="RUN...", help="the runs' ids")
@option("--out", type=PATH, required=True, help="the file to write, such as results.msc")
@option(
    "--sweep", "sweeps", multiple=True, metavar="ID", help="also a sweep that comes with the benchmark (repeatable)"
)
@option("--allow", multiple=True, metavar="WORD", help="a name of this machine or user that is an ordinary word")
@job_options
@click.pass_obj
def pack(
    call: Call, runs: tuple[str, ...], out: Path, sweeps: tuple[str, ...], allow: tuple[str, ...], store: Path | None
) -> int:
    """Write stored runs with their scores, tables, measurements and sweeps to one file, without weights and paths."""
    from merging.base import settings
    from merging.base.text import size_text
    from merging.sharing.packs.pack_runs import list_benchmarks, pack_runs
    from merging.study.runs.run_store import Store
    from merging.tasks.pack_folders import list_libraries

    run_store = Store(store, libraries=list_libraries(settings.benchmark_folder(), store))
    run_ids = [run_store.resolve_id(run) for run in runs]
    written = pack_runs(run_ids, run_store, list_benchmarks(run_store.root), out, sweep_ids=sweeps, allowed=allow)
    for warning in written.warnings:
        print_warning(warning)
    if call.json:
        print(encode_json({**asdict(written), "path": str(out)}))
        return DONE
    counts = ", ".join(f"{count} {kind}" for kind, count in written.counts.items())
    print(f"{out.name}: {size_text(written.size)}, digest {written.digest}, without weights. It has: {counts}.")
    print(f"To look at it: mergescope app --open {out.name}")
    return DONE
