"""The command ``scores``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from merging.cli.call import Call
from merging.cli.exit_codes import DONE
from merging.cli.option_types import PATH
from merging.cli.options import Command, argument, option, store_option
from merging.cli.output import dumps


@click.command(cls=Command)
@argument("run", help="the run's id")
@option("--from", "source", type=PATH, help="CSV with the columns task,split,metric,value,n, or JSON of lm-eval")
@store_option
@click.pass_obj
def scores(call: Call, run: str, source: Path | None, store: Path | None) -> int:
    """List scores that a run was given, or give it those of a file, measured elsewhere."""
    from merging import settings
    from merging.runs.given.scores import given_scores, keep_scores, read_scores
    from merging.runs.store import Store

    runs = Store(store, libraries=(settings.benchmark_folder() / "runs",))
    run_id = runs.run(runs.full_id(run)).id
    if source is not None:
        keep_scores(runs.root, run_id, read_scores(source), source.name)
    file, given = given_scores(runs.root, run_id)
    if call.json:
        print(dumps({"run": run_id, "file": file, "scores": [asdict(score) for score in given]}))
        return DONE
    if not given:
        print(f"Run {run_id} was given no scores; give them with --from FILE.")
        return DONE
    print(f"Run {run_id}, scores given in {file}:")
    for score in given:
        split, counted = f" {score.split}" if score.split else "", f" (n = {score.n})" if score.n else ""
        print(f"  {score.task}{split}  {score.metric}  {score.value:g}{counted}")
    return DONE
