"""The command ``export``."""

from __future__ import annotations

from pathlib import Path

import click

from merging.cli.call import Call
from merging.cli.exit_codes import DONE
from merging.cli.export_options import ExportOptions, export_options
from merging.cli.option_types import PATH
from merging.cli.options import Command, argument, device_option, job_options, no_evaluate_option, option


@click.command(cls=Command)
@argument("run", help="the run's id")
@option("--out", type=PATH, required=True, help="a folder, or a .safetensors file")
@export_options
@job_options
@no_evaluate_option
@device_option
@click.pass_obj
def export(
    call: Call, run: str, out: Path, export_settings: ExportOptions, store: Path | None, no_evaluate: bool, device: str
) -> int:
    """Export the model of a stored run as a folder."""
    from merging.base import settings
    from merging.base.errors import StoreError
    from merging.cli.output import report_progress
    from merging.cli.run_and_export import announce_run_export, check_export, print_run, write_export
    from merging.sharing.export.weight_files import WRITING_PHASE
    from merging.study.runs.estimate import MERGING
    from merging.study.runs.execute import execute
    from merging.study.runs.run_store import Store
    from merging.tasks.pack_folders import list_libraries

    run_store = Store(store, libraries=list_libraries(settings.benchmark_folder(), store))
    stored_run = run_store.get_run(run_store.resolve_id(run))
    recipe = stored_run.recipe
    if recipe is None:
        raise StoreError(
            f"Run {stored_run.id} is the evaluation of one checkpoint, not a merge; convert that file instead."
        )
    check_export(recipe, out, export_settings)
    announced = announce_run_export(stored_run, recipe, export_settings, out)
    with report_progress(call.events) as progress:
        contexts = call.context(progress, device).split(
            {MERGING: 0.0 if stored_run.has_model else 5.0, WRITING_PHASE: 1.0}  # shares of the time, a guess
        )
        if not stored_run.has_model:  # only the tables of some runs are stored
            stored_run = execute(
                recipe, run_store, evaluate=not no_evaluate, need_model=True, context=contexts[MERGING]
            )
        exported = write_export(stored_run, out, export_settings, contexts[WRITING_PHASE])
    print_run(call, stored_run, exported, announced=announced)
    return DONE
