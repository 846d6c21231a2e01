"""The command ``run``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from merging.cli.call import Call
from merging.cli.exit_codes import DONE
from merging.cli.export_options import ExportOptions, export_options
from merging.cli.model_options import data_options
from merging.cli.option_types import PATH
from merging.cli.options import (
    Command,
    argument,
    chosen_workers,
    device_option,
    job_options,
    no_evaluate_option,
    option,
    pause_option,
    strict_option,
    workers_option,
)


def _of_recipe(written: Mapping[str, Any]) -> tuple[list[str], Path]:
    """The checkpoints that a recipe's file names, and the folder from which they count."""
    from merging.files.plain_yaml import plain_yaml

    path = Path(written["recipe"])
    recipe = plain_yaml(path.read_text("utf-8"))
    references = [recipe["pretrained"], *dict(recipe["experts"]).values()]
    return [text for text in references if isinstance(text, str)], Path(written.get("base") or path.absolute().parent)


@click.command(cls=Command, reads=_of_recipe)
@argument("recipe", type=PATH, help="a recipe in YAML")
@option("--base", type=PATH, help="folder from which relative paths count (default: the recipe's)")
@option("--need-model", is_flag=True, help="compute again if only tables are stored")
@option("--out", type=PATH, is_eager=True, help="export the model, too: a folder, or a .safetensors file")
@export_options
@data_options
@job_options
@no_evaluate_option
@strict_option
@pause_option
@workers_option
@device_option
@click.pass_obj
def run(  # noqa: PLR0913 - an argument for each option
    call: Call,
    *,
    recipe: Path,
    base: Path | None,
    need_model: bool,
    out: Path | None,
    how: ExportOptions,
    given: Mapping[str, Mapping[str, str]],
    store: Path | None,
    no_evaluate: bool,
    strict: bool,
    workers: str | None,
    device: str,
) -> int:
    """Run a recipe file into the store, such as one from the app."""
    from merging.cli.exporting import compute
    from merging.recipes.recipe import Recipe

    chain = Recipe.load(recipe)
    chain = chain.stating(how.activation or "", how.architecture)
    here = {key: {name: str(Path(file).absolute()) for name, file in files.items()} for key, files in given.items()}
    chain = chain.with_data(here)
    base = base or recipe.absolute().parent
    evaluate = not no_evaluate
    compute(
        call, chain, store, out, how, device=device, evaluate=evaluate, strict=strict, need_model=need_model,
        base=base, workers=chosen_workers(workers),
    )  # fmt: skip
    return DONE
