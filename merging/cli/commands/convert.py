"""The command ``convert``."""

from __future__ import annotations

from pathlib import Path

import click

from merging.cli.call import Call
from merging.cli.exit_codes import DONE, UsageError
from merging.cli.export_options import SINGLE_FILE_SUFFIX, ExportOptions, export_options
from merging.cli.model_options import ModelType
from merging.cli.option_types import PATH
from merging.cli.options import Command, argument, option
from merging.cli.output import collect_export_facts, encode_json, report_progress
from merging.models.formats.model_sources import ModelRef


def _choose_folder(ctx: click.Context, param: click.Parameter, out: Path | None) -> Path | None:
    """The folder to write; by default it is named after the checkpoint and the target.

    Raises:
        UsageError: the folder cannot be written.
    """
    from merging.sharing.export.destination import why_not_writable

    model, to = ctx.params.get("checkpoint"), ctx.params.get("to")
    if out is None and model is not None:
        out = Path(
            f"{_make_folder_name(getattr(model, 'text', model))}-{to}"
        )  # a model that was not found is still text
    if out is not None and out.suffix == SINGLE_FILE_SUFFIX and not out.is_dir():
        raise UsageError([f"{out} is named like a file, and convert writes a folder; choose another --out."])
    if out is not None and (reason := why_not_writable(out, overwrite=ctx.params["overwrite"] or ctx.params["force"])):
        raise UsageError([reason])
    return out


def _make_folder_name(reference: str) -> str:
    """The name of a folder that is written from a checkpoint."""
    from merging.models.formats.configs import WEIGHT_SUFFIXES
    from merging.models.model_references import BUNDLED_PREFIX, HUB_PREFIX, strip_folders

    name = strip_folders(reference).removeprefix(BUNDLED_PREFIX).removeprefix(HUB_PREFIX).partition("@")[0]
    for suffix in WEIGHT_SUFFIXES:
        name = name.removesuffix(suffix)
    return name.replace("/", "-") or "model"


# --out is the last option, because its default depends on the others.
@click.command(cls=Command)
@argument(
    "checkpoint",
    type=ModelType("the checkpoint"),
    help="a file or folder of any known format, or bundled:NAME or bundled:gentle/NAME",
)
@option(
    "--base",
    type=ModelType("the pretrained model"),
    help="the pretrained model: of an adapter, or for the projection and text side that a file lacks",
)
@export_options
@option(
    "--out",
    type=PATH,
    callback=_choose_folder,
    help="the folder to write (default: the checkpoint's name and the target's)",
)
@click.pass_obj
def convert(call: Call, checkpoint: ModelRef, base: ModelRef | None, export_settings: ExportOptions, out: Path) -> int:
    """Write a checkpoint of any format for Transformers or open_clip."""
    from merging.cli.run_and_export import announce_export
    from merging.sharing.export.model_export import export

    announced = announce_export(checkpoint, base, export_settings, out)
    with report_progress(None) as progress:
        result = export(checkpoint, out, base=base, context=call.context(progress), **vars(export_settings))
    if call.json:
        print(encode_json(collect_export_facts(result)))
    else:
        notes = () if announced else result.missing_parts
        print("\n".join((*result.warnings, *notes, f"Written to {result.folder}: {', '.join(result.files)}")))
    return DONE
