"""The command ``merge``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from merging.cli.call import Call
from merging.cli.exit_codes import DONE, UsageError
from merging.cli.export_options import ExportOptions, export_options, out_problems
from merging.cli.model_options import (
    checkpoint_options,
    data_options,
    family_option,
    named_checkpoints,
    vocabulary_option,
)
from merging.cli.option_types import PATH, StepType, TestDataType
from merging.cli.options import (
    SPEC_HELP,
    Command,
    device_option,
    no_evaluate_option,
    option,
    pause_option,
    store_option,
    strict_option,
    workers_option,
)


def _free(ctx: click.Context, param: click.Parameter, out: Path | None) -> Path | None:
    """A place that can be written to."""
    if out is not None and (problems := out_problems(out, ctx.params["overwrite"] or ctx.params["force"])):
        raise UsageError(problems)
    return out


def _at_most_one(
    ctx: click.Context, param: click.Parameter, steps: Sequence[tuple[str, Mapping[str, Any]]]
) -> tuple[str, Mapping[str, Any]] | None:
    """The adapt, if there is one."""
    if len(steps) > 1:
        raise UsageError([f"A recipe has at most one adapt; got {' and '.join(key for key, _ in steps)}."])
    return steps[0] if steps else None


@click.command(cls=Command, epilog=SPEC_HELP, reads=named_checkpoints)
@checkpoint_options
@option(
    "--edit", "edits", type=StepType("edit"), multiple=True, metavar="SPEC", help="an edit; may be given repeatedly"
)
@option(
    "--merge",
    type=StepType("merge"),
    default=("task_arithmetic", {}),
    metavar="SPEC",
    help="the merge (default: task_arithmetic)",
)
@option("--adapt", "adapt", type=StepType("adapt"), multiple=True, callback=_at_most_one, metavar="SPEC",
        help="what is put on top of the merged model, such as surgery:rank=16")  # fmt: skip
@option("--test-data", type=TestDataType(), default={}, metavar="SPLIT[:per_task=N,seed=N]",
        help="images that are learned from without labels: choosing (default), reporting or exemplars")  # fmt: skip
@data_options
@family_option
@option("--count-dead-params", is_flag=True, help="count unused text tensors in quantiles, as papers' presets do")
@vocabulary_option
@option("--title", default="", help="what to call the run")
@option(
    "--out",
    type=PATH,
    required=True,
    callback=_free,
    help="a folder for everything, or a .safetensors file for the weights alone",
)
@export_options
@store_option
@no_evaluate_option
@strict_option
@pause_option
@workers_option
@device_option
@click.pass_obj
def merge(  # noqa: PLR0913 - an argument for each option
    call: Call,
    *,
    pretrained: str,
    experts: Mapping[str, str],
    edits: Sequence[tuple[str, Mapping[str, Any]]],
    merge: tuple[str, Mapping[str, Any]],
    adapt: tuple[str, Mapping[str, Any]] | None,
    test_data: Mapping[str, Any],
    given: Mapping[str, Mapping[str, str]],
    family: str,
    count_dead_params: bool,
    vocabulary: str,
    title: str,
    out: Path,
    how: ExportOptions,
    store: Path | None,
    no_evaluate: bool,
    strict: bool,
    device: str,
) -> int:
    """Merge checkpoints and export the model."""
    from merging.cli.exporting import compute
    from merging.errors import RecipeError
    from merging.recipes.recipe import Recipe

    key, params = merge
    recipe = Recipe.build(
        key,
        params,
        edits,
        pretrained,
        experts,
        title,
        count_dead_params=count_dead_params,
        adapt=adapt,
        test_data=test_data,
        vocabulary=vocabulary,
        family=family,
        layer_inputs=given.get("layer_inputs"),
        gradients=given.get("gradients"),
    )
    recipe = recipe.stating(how.activation or "", how.architecture)
    recipe.refuse_unread(given)
    if test_data and recipe.test_data is None:
        raise RecipeError("No step of this chain learns from test data; leave out --test-data.")
    compute(call, recipe, store, out, how, device=device, evaluate=not no_evaluate, strict=strict)
    return DONE
