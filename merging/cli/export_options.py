"""The options of exports: the format of a model's files, and their destination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merging.cli.exit_codes import UsageError
from merging.cli.model_options import ModelType, activation_option, architecture_option
from merging.cli.option_types import GigabytesType
from merging.cli.options import option, option_group
from merging.models.formats.model_sources import ModelRef
from merging.sharing.export.export_names import NO_TEXT, PEFT, TARGETS

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe

NOT_PLAIN_REASON = "its weights differ from image to image, so a plain checkpoint cannot hold it; name a folder"
TARGET_NAMED_KEY = f"{__name__}.named"  # key in the context of a call: whether the user wrote --to
SINGLE_FILE_SUFFIX = ".safetensors"  # an --out with this ending is one file of weights, any other a folder


@dataclass(frozen=True)
class ExportOptions:
    """The settings of an export, as ``merging.sharing.export.model_export`` takes them.

    ``to`` is the target's name, ``activation`` overrides the activation that the files state (None: as stated),
    ``architecture`` has the fields that they do not state, ``text_tower`` is the model whose text tower is written
    (None: the pretrained model), ``hub_ids`` are repositories by the model's name, ``shard_bytes`` is the most bytes of
    a file, ``overwrite`` replaces an earlier export, and ``task`` is the expert whose head a network other than CLIP
    gets. ``rank`` is that of an adapter; with ``force`` an adapter is written even if it is a poor approximation.
    """

    to: str
    activation: str | None
    architecture: str
    text_tower: ModelRef | str | None
    hub_ids: Mapping[str, str]
    shard_bytes: int
    overwrite: bool
    task: str = ""
    rank: int = 0
    force: bool = False


def _parse_hub_ids(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """{name: repository}. They are not checked if nothing is exported: --out, which is parsed before, may be unset."""
    pairs = [text.partition("=") for text in texts]
    wrong = [text for text, (name, _, value) in zip(texts, pairs, strict=True) if not name or not value]
    if wrong and ctx.params.get("out", True) is not None:
        raise UsageError([f"Write a repository as NAME=ID; got {text!r}." for text in wrong])
    return {name: value for name, _, value in pairs}


def _make_export_settings(
    to: str | None, overwrite: bool, force: bool, rank: int | None, **others: Any
) -> dict[str, Any]:
    """{"export_settings": settings}. Raises UsageError for a rank without an adapter, or an adapter without a rank."""
    settings = ExportOptions(to or TARGETS[0], overwrite=overwrite or force, force=force, rank=rank or 0, **others)
    if (settings.to == PEFT) != (rank is not None):
        raise UsageError(["Only an adapter (--to peft) has a rank: give --to peft and --rank, or neither."])
    click.get_current_context().meta[TARGET_NAMED_KEY] = to is not None
    return {"export_settings": settings}


export_options = option_group(  # the settings of an export; the command gets ``export_settings``, an ``ExportOptions``
    _make_export_settings,
    option(
        "--to",
        type=click.Choice((*TARGETS, PEFT)),
        help=f"for Transformers (hf), for open_clip, or as an adapter for PEFT (default: {TARGETS[0]})",
    ),
    activation_option,
    architecture_option,
    option(
        "--text-tower",
        type=ModelType("the text tower", NO_TEXT),
        metavar="CHECKPOINT",
        help="take the text tower of this model, or write the image tower alone with none (default: the pretrained "
        "model's)",
    ),
    option(
        "--hub-id",
        "hub_ids",
        multiple=True,
        callback=_parse_hub_ids,
        metavar="NAME=ID",
        help="repository of an expert, or of pretrained, for the model card; repeatable",
    ),
    option(
        "--shard-size",
        "shard_bytes",
        type=GigabytesType(),
        default=5.0,
        show_default=True,
        metavar="GB",
        help="divide larger weights into files of this size",
    ),
    option(
        "--overwrite",
        is_flag=True,
        is_eager=True,  # --out depends on it
        help="replace an earlier export at --out",
    ),
    option(
        "--force",
        is_flag=True,
        is_eager=True,
        help="also replace it, and write an adapter that keeps less than half of some tensor's change",
    ),
    option("--rank", type=click.IntRange(1), default=None, metavar="R", help="the rank of an adapter (--to peft)"),
    option("--task", default="", metavar="EXPERT", help="of networks other than CLIP: also write this expert's head"),
    names=[field.name for field in fields(ExportOptions)],
)


def list_destination_problems(out: Path, overwrite: bool, recipe: Recipe | None = None, target: str = "") -> list[str]:
    """At most one sentence on why nothing can be exported to ``out``; ``target`` is empty unless the user named it."""
    from merging.sharing.export.destination import find_path_problem, why_not_writable

    if out.suffix != SINGLE_FILE_SUFFIX:
        reason = why_not_writable(out, overwrite=overwrite)
        if recipe is not None and recipe.is_routed and target:
            reason = f"{recipe.text()} cannot be written for {target}: {NOT_PLAIN_REASON}, without --to."
    elif recipe is not None and recipe.per_task:
        reason = f"{recipe.text()} gives one model per task; name a folder with --out, not a file."
    elif recipe is not None and recipe.is_routed:
        reason = f"{recipe.text()} cannot be one file: {NOT_PLAIN_REASON}."
    else:
        exists_problem = f"{out} exists already; choose another --out, or replace it with --overwrite."
        reason = find_path_problem(out) or (exists_problem if out.is_dir() or (out.exists() and not overwrite) else "")
    return [reason] if reason else []
