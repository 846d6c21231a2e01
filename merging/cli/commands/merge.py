"""The command ``merge``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from merging.cli.call import Call
from merging.cli.exit_codes import DONE, UsageError
from merging.cli.export_options import ExportOptions, export_options, list_destination_problems
from merging.cli.model_options import (
    checkpoint_options,
    data_options,
    family_option,
    list_named_models,
    vocabulary_option,
)
from merging.cli.option_types import PATH, StepType, TestDataType
from merging.cli.options import SPEC_HELP, Command, RunChoices, option, run_options, store_option
from merging.models.formats.model_sources import ModelRef


def _check_destination(ctx: click.Context, param: click.Parameter, out: Path | None) -> Path | None:
    """The path to write to. Raises UsageError if it cannot be written."""
    if out is not None and (problems := list_destination_problems(out, ctx.params["overwrite"] or ctx.params["force"])):
        raise UsageError(problems)
    return out


def _check_adapt(
    ctx: click.Context, param: click.Parameter, steps: Sequence[tuple[str, Mapping[str, Any]]]
) -> tuple[str, Mapping[str, Any]] | None:
    """The adapt of the chain, or None. Raises UsageError if there are several."""
    if len(steps) > 1:
        raise UsageError([f"A recipe has at most one adapt; got {' and '.join(key for key, _ in steps)}."])
    return steps[0] if steps else None


def _check_config(ctx: click.Context, param: click.Parameter, config: Path | None) -> Path | None:
    """The config of mergekit, or None. Raises UsageError if the file is missing."""
    if config is not None and not config.is_file():
        raise UsageError([f"The config of mergekit was not found: {config}."])
    return config


@click.command(cls=Command, epilog=SPEC_HELP, reads=list_named_models)
@checkpoint_options
@option("--mergekit", type=PATH, is_eager=True, callback=_check_config, metavar="CONFIG.YML",
        help="merge as mergekit does with this config; its models are paths, or names of --expert")  # fmt: skip
@option("--edit", "edits", type=StepType("edit"), multiple=True, metavar="SPEC", help="an edit; repeatable")
@option(
    "--merge",
    type=StepType("merge"),
    default=("task_arithmetic", {}),
    metavar="SPEC",
    help="the merge (default: task_arithmetic)",
)
@option("--adapt", "adapt", type=StepType("adapt"), multiple=True, callback=_check_adapt, metavar="SPEC",
        help="the adapt on top of the merged model, such as surgery:rank=16")  # fmt: skip
@option("--test-data", type=TestDataType(), default={}, metavar="SPLIT[:per_task=N,seed=N]",
        help="unlabeled images to learn from: choosing (default), reporting or exemplars")  # fmt: skip
@data_options
@family_option
@option("--count-dead-params", is_flag=True, help="count unused text tensors in quantiles, as papers' presets do")
@vocabulary_option
@option("--title", default="", help="the title of the run")
@option(
    "--out",
    type=PATH,
    required=True,
    callback=_check_destination,
    help="a folder for everything, or a .safetensors file for the weights alone",
)
@export_options
@store_option
@run_options
@click.pass_obj
def merge(
    call: Call,
    /,
    *,
    pretrained: ModelRef | None,
    experts: Mapping[str, ModelRef],
    mergekit: Path | None,
    merge: tuple[str, Mapping[str, Any]],
    captured_files: Mapping[str, Mapping[str, str]],
    out: Path,
    export_settings: ExportOptions,
    store: Path | None,
    run_choices: RunChoices,
    **recipe_fields: Any,  # the options whose names are those of a recipe's fields
) -> int:
    """Merge checkpoints and export the model."""
    from merging.base.errors import RecipeError
    from merging.cli.recipe_argument import read_mergekit_file
    from merging.cli.run_and_export import compute_run
    from merging.recipes.recipe import Recipe

    if mergekit is not None:
        _refuse_steps_beside_config()
        fields = {name: recipe_fields[name] for name in ("title", "count_dead_params", "vocabulary", "family")}
        recipe = read_mergekit_file(mergekit, pretrained, experts, **fields)
    else:
        assert pretrained is not None  # only --mergekit and --layout can replace --pretrained
        references = {name: model.text for name, model in experts.items()}
        recipe = Recipe.build(
            *merge, pretrained=pretrained.text, experts=references, layer_inputs=captured_files["layer_inputs"],
            gradients=captured_files["gradients"], **recipe_fields,
        )  # fmt: skip
    recipe = recipe.with_architecture(export_settings.activation or "", export_settings.architecture)
    recipe.refuse_unread(captured_files)
    if recipe_fields["test_data"] and recipe.test_data is None:
        raise RecipeError("No step of this chain learns from test data; leave out --test-data.")
    compute_run(call, recipe, store, out, export_settings, run_choices)
    return DONE


def _refuse_steps_beside_config() -> None:
    """Raise UsageError if the call has steps of its own besides a config of mergekit, which has all."""
    ctx = click.get_current_context()
    stated = [f"--{name.removesuffix('s')}" for name in ("edits", "merge", "adapt")
              if ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE]  # fmt: skip
    if stated:
        raise UsageError([f"A config of mergekit has all steps: leave out {' and '.join(stated)}, or --mergekit."])
