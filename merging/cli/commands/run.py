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
from merging.cli.recipe_argument import load_recipe
from merging.models.formats.model_sources import ModelRef
from merging.models.task_checkpoints import flatten_experts

if TYPE_CHECKING:
    from merging.study.runs.execute import RunOptions
    from merging.study.runs.execute_several import RequestedRun


def _list_recipe_models(option_texts: Mapping[str, Any]) -> list[ModelRef]:
    """The models that the first recipe's file names."""
    from merging.base.files.plain_yaml import read_plain_yaml

    path = Path(option_texts["recipes"][0])
    recipe = read_plain_yaml(path.read_text("utf-8"))
    references = [recipe["pretrained"], *flatten_experts(recipe["experts"]).values()]
    base = Path(option_texts.get("base") or path.absolute().parent)
    return [ModelRef(text, base) for text in references if isinstance(text, str)]


@click.command(cls=Command, reads=_list_recipe_models)
@argument(
    "recipes",
    nargs=-1,
    required=True,
    type=PATH,
    metavar="RECIPE...",
    help="recipes in YAML; workers run several at once",
)
@option("--base", type=PATH, help="folder of relative paths (default: that of each recipe)")
@option("--need-model", is_flag=True, help="compute the run again if only its tables are stored")
@option("--out", type=PATH, is_eager=True, help="also export the model: a folder, or a .safetensors file")
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
    export_settings: ExportOptions,
    captured_files: Mapping[str, Mapping[str, str]],
    store: Path | None,
    run_choices: RunChoices,
) -> int:
    """Run recipe files into the store, such as those from the app."""
    from merging.cli.run_and_export import compute_run
    from merging.study.runs.execute import RunOptions
    from merging.study.runs.execute_several import RequestedRun

    data = {
        key: {name: str(Path(file).absolute()) for name, file in files.items()} for key, files in captured_files.items()
    }
    loaded_recipes = [
        load_recipe(path)
        .with_architecture(export_settings.activation or "", export_settings.architecture)
        .with_data(data)
        for path in recipes
    ]
    bases = [base or path.absolute().parent for path in recipes]
    if len(recipes) > 1:
        if out is not None:
            raise UsageError(
                ["--out exports one recipe. Export the runs of several from the store: `export ID --out`."]
            )
        options = RunOptions(evaluate=run_choices.evaluate, need_model=need_model, strict=run_choices.strict)
        requests = [RequestedRun(*pair) for pair in zip(loaded_recipes, bases, strict=True)]
        return _run_several(call, recipes, requests, options, store, run_choices.device)
    compute_run(call, loaded_recipes[0], store, out, export_settings, run_choices, need_model=need_model, base=bases[0])
    return DONE


def _run_several(
    call: Call,
    recipe_paths: Sequence[Path],
    requests: Sequence[RequestedRun],
    options: RunOptions,
    store: Path | None,
    device: str,
) -> int:
    """Run several recipes, and report all of them in their order."""
    from merging.cli.run_and_export import collect_run_facts, measure_by_program, print_run
    from merging.study.runs.execute_several import execute_several
    from merging.study.runs.run_store import Store

    printed_warnings: list[str] = []

    def print_doubt(doubt: str) -> None:
        print_warning(doubt)
        printed_warnings.append(doubt)

    with report_progress(call.events) as progress:
        context = call.context(progress, device, print_doubt)
        results = execute_several(requests, Store(store), context=context, **options)
        run_store = Store(store)
        for result in results:
            if options["evaluate"] and not isinstance(result, Exception):
                measure_by_program(result, run_store, context)
    failures = {
        str(file): str(result)
        for file, result in zip(recipe_paths, results, strict=True)
        if isinstance(result, Exception)
    }
    runs = [result for result in results if not isinstance(result, Exception)]
    if call.json:
        print(encode_json({"runs": [collect_run_facts(result) for result in runs], "failed": failures}))
    else:
        for result in runs:
            print_run(call, result, None, printed_warnings)
    for file, reason in failures.items():
        print(f"{file}: {reason}", file=sys.stderr)
    return FAILED if failures else DONE
