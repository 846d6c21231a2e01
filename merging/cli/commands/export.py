"""The command ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from merging.cli.call import Call
from merging.cli.exit_codes import DONE, UsageError
from merging.cli.export_options import ExportOptions, export_options
from merging.cli.option_types import PATH
from merging.cli.options import Command, argument, device_option, job_options, no_evaluate_option, option

if TYPE_CHECKING:
    from merging.study.runs.run import Run


def _require_out(ctx: click.Context, param: click.Parameter, out: Path | None) -> Path | None:
    """The path to write to; None with --recipe, which is then printed."""
    if out is None and not ctx.params.get("recipe_format"):
        raise click.MissingParameter(ctx=ctx, param=param)
    return out


@click.command(cls=Command)
@argument("run", help="the run's id")
@option("--recipe", "recipe_format", type=click.Choice(("mergekit",)), is_eager=True,
        help="write the recipe for this program instead of the model; without --out it is printed")  # fmt: skip
@option("--out", type=PATH, callback=_require_out, help="a folder, or a .safetensors file  [required]")
@export_options
@job_options
@no_evaluate_option
@device_option
@click.pass_obj
def export(
    call: Call,
    /,
    *,
    run: str,
    recipe_format: str | None,
    out: Path | None,
    export_settings: ExportOptions,
    store: Path | None,
    no_evaluate: bool,
    device: str,
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
    if recipe_format is not None or out is None:
        return _write_recipe(call, stored_run, out, export_settings.overwrite)
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


def _write_recipe(call: Call, run: Run, out: Path | None, overwrite: bool) -> int:
    """Write the recipe of a run as a config of mergekit, or print it. Raises UsageError if the file exists."""
    from merging.base.files.atomic import replace_file
    from merging.cli.output import encode_json
    from merging.models.formats.model_sources import ModelRef
    from merging.recipes.mergekit.tensors import read_network_tensors
    from merging.recipes.mergekit.writing import write_mergekit

    assert run.recipe is not None
    if out is not None and out.exists() and not overwrite:
        raise UsageError([f"{out} exists already; choose another --out, or replace it with --overwrite."])
    recipe = run.recipe
    infos = ModelRef(recipe.pretrained).open(family=recipe.family).infos.values()
    dtypes = {str(info.dtype).removeprefix("torch.") for info in infos if info.dtype.is_floating_point}
    tensors = read_network_tensors(recipe.pretrained, family=recipe.family)
    text = write_mergekit(recipe, tensors, dtypes.pop() if len(dtypes) == 1 else "")
    if out is not None:
        with replace_file(out) as temporary:
            temporary.write_text(text, "utf-8")
    if call.json:
        print(encode_json({"id": run.id, "recipe": text, "out": None if out is None else str(out)}))
    else:
        print(text if out is None else f"Written to {out}")
    return DONE
