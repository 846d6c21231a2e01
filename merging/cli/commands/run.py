"""The command ``run``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merging.cli.call import Call
from merging.cli.exit_codes import DONE, FAILED, UsageError
from merging.cli.export_options import ExportOptions, export_options
from merging.cli.model_options import data_options
from merging.cli.option_types import PATH
from merging.cli.options import Command, RunChoices, argument, job_options, option, run_options
from merging.cli.output import encode_json, print_warning, report_progress
from merging.models.formats.model_sources import ModelRef

if TYPE_CHECKING:
    from merging.study.runs.execute import RunOptions
    from merging.study.runs.execute_several import WantedRun


def _models_of_recipe(written: Mapping[str, Any]) -> list[ModelRef]:
    """The models that the first recipe's file names."""
    from merging.base.files.plain_yaml import read_plain_yaml

    path = Path(written["recipes"][0])
    recipe = read_plain_yaml(path.read_text("utf-8"))
    references = [recipe["pretrained"], *dict(recipe["experts"]).values()]
    base = Path(written.get("base") or path.absolute().parent)
    return [ModelRef(text, base) for text in references if isinstance(text, str)]


@click.command(cls=Command, reads=_models_of_recipe)
@argument(
    "recipes",
    nargs=-1,
    required=True,
    type=PATH,
    metavar="RECIPE...",
    help="recipes in YAML; workers run several at once",
)
@option("--base", type=PATH, help="folder from which relative paths count (default: each recipe's)")
@option("--need-model", is_flag=True, help="compute again if only tables are stored")
@option("--out", type=PATH, is_eager=True, help="export the model, too: a folder, or a .safetensors file")
@export_options
@data_options
@job_options
@run_options
@click.pass_obj
def run(
    call: Call,
    *,
    recipes: Sequence[Path],
    base: Path | None,
    need_model: bool,
    out: Path | None,
    how: ExportOptions,
    given: Mapping[str, Mapping[str, str]],
    store: Path | None,
    choices: RunChoices,
) -> int:
    """Run recipe files into the store, such as those from the app."""
    from merging.cli.run_and_export import compute_run
    from merging.recipes.recipe import Recipe
    from merging.study.runs.execute import RunOptions
    from merging.study.runs.execute_several import WantedRun

    data = {key: {name: str(Path(file).absolute()) for name, file in files.items()} for key, files in given.items()}
    chains = [
        Recipe.load(path).with_architecture(how.activation or "", how.architecture).with_data(data) for path in recipes
    ]
    bases = [base or path.absolute().parent for path in recipes]
    if len(recipes) > 1:
        if out is not None:
            raise UsageError(["--out is for one recipe. Export the others from the store: `export ID --out`."])
        options = RunOptions(evaluate=choices.evaluate, need_model=need_model, strict=choices.strict)
        wanted = [WantedRun(*pair) for pair in zip(chains, bases, strict=True)]
        return _run_several(call, recipes, wanted, options, store, choices.device)
    compute_run(call, chains[0], store, out, how, choices, need_model=need_model, base=bases[0])
    return DONE


def _run_several(
    call: Call,
    files: Sequence[Path],
    wanted: Sequence[WantedRun],
    options: RunOptions,
    store: Path | None,
    device: str,
) -> int:
    """Run several recipes, and report all of them in their order."""
    from merging.cli.run_and_export import measure_by_program, print_run, run_facts
    from merging.study.runs.execute_several import execute_several
    from merging.study.runs.run_store import Store

    printed: list[str] = []

    def print_doubt(doubt: str) -> None:
        print_warning(doubt)
        printed.append(doubt)

    with report_progress(call.events) as progress:
        context = call.context(progress, device, print_doubt)
        found = execute_several(wanted, Store(store), context=context, **options)
        computed = Store(store)
        for each in found:
            if options["evaluate"] and not isinstance(each, Exception):
                measure_by_program(each, computed, context)
    failures = {str(file): str(each) for file, each in zip(files, found, strict=True) if isinstance(each, Exception)}
    runs = [each for each in found if not isinstance(each, Exception)]
    if call.json:
        print(encode_json({"runs": [run_facts(each) for each in runs], "failed": failures}))
    else:
        for each in runs:
            print_run(call, each, None, printed)
    for file, reason in failures.items():
        print(f"{file}: {reason}", file=sys.stderr)
    return FAILED if failures else DONE
