"""The options of the command ``benchmark make`` that describe the tasks and models of a new benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merging.cli.exit_codes import UsageError
from merging.cli.option_types import PATH
from merging.cli.options import option, option_group
from merging.models.families import ACTIVATIONS

if TYPE_CHECKING:
    from merging.images.benchmarks.build.benchmark_description import Description

MODEL_OPTIONS = ("pretrained", "text", "multitask")
OTHER_OPTIONS = (
    "activation", "architecture", "images", "exemplars", "seed", "balanced", "whole", "by_reference",
)  # fmt: skip
TASK_HELP = (
    "a data set: NAME=PATH, then perhaps ,prompts=KEY ,wording=hub ,classes=FILE ,head=FILE ,expert=FILE ,title=TEXT "
    ",configuration=NAME ,test_split=NAME ,image_column=NAME ,label_column=NAME; repeat it for each, or describe them "
    "in a file with --from"
)


BY_REFERENCE_HELP = (
    "leave images in the files of the data sets, which must stay, and decode them when they are needed: saves 150,528 "
    "bytes per image at 224 × 224 pixels"
)


class AmountType(click.ParamType[int]):
    """A number of images; "all" becomes 0, which means all images."""

    name = "amount"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if value == "all":
            return 0
        try:
            return int(value)
        except ValueError:
            raise UsageError([f"Give a number of images, or all; got {value!r}."]) from None


AMOUNT = AmountType()


class TaskType(click.ParamType[tuple[str, dict[str, str]]]):
    """A task of the benchmark: cars=data/cars,prompts=cars is ("cars", {"images": "data/cars", "prompts": "cars"})."""

    name = "task"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, dict[str, str]]:
        """The task's name and its options."""
        pairs = [part.partition("=") for part in value.split(",")]
        if not all(equals and name.strip() and text.strip() for name, equals, text in pairs):
            raise UsageError(
                [f"Write a task as NAME=PATH,option=value; got {value!r}. Paths with commas need a file of --from."]
            )
        (task, _, path), *settings = pairs
        return task.strip(), {"images": path.strip(), **{name.strip(): text.strip() for name, _, text in settings}}


def _collect_description(**values: Any) -> dict[str, Any]:
    return {"description": {name: value for name, value in values.items() if value is not None}}


description_options = option_group(  # describe a benchmark; the command gets ``description``, {option: value}
    _collect_description,
    option("--from", "source", type=PATH, metavar="FILE", help="a description in YAML"),
    option("--pretrained", metavar="MODEL", help="a file, a folder, hf-hub:ORGANIZATION/NAME or MODEL/TAG"),
    option("--text", metavar="MODEL", help="the model with the text tower (default: the pretrained model)"),
    option("--multitask", metavar="MODEL", help="a model trained on all tasks"),
    option("--activation", type=click.Choice(ACTIVATIONS), help="of the models, if no file states it"),
    option("--architecture", metavar="TEXT", help="of the models: heads=12, a name such as ViT-B-32, or a config.json"),
    option("--task", "tasks", type=TaskType(), multiple=True, metavar="NAME=PATH[,...]", help=TASK_HELP),
    option(
        "--images", type=AMOUNT, metavar="N|all", help="maximal number of images in each half, or all (default: 250)"
    ),
    option(
        "--whole", is_flag=True, default=None, help="report on whole test sets, or on N images of each, without halves"
    ),
    option("--balanced", is_flag=True, default=None, help="sample equally many images of every class"),
    option("--by-reference", is_flag=True, default=None, help=BY_REFERENCE_HELP),
    option("--exemplars", type=AMOUNT, metavar="N|all", help="maximal number of training images, or all (default: 96)"),
    option("--seed", type=int, metavar="N", help="the seed with which images are sampled (default: 0)"),
    names=("source", "tasks", *MODEL_OPTIONS, *OTHER_OPTIONS),
)


def build_description(description: Mapping[str, Any]) -> Description:
    """The description in a file, or in the options; options take precedence over the file.

    Raises:
        UsageError: the options contradict each other, or a required option is missing.
        TaskError: the description cannot be used.
    """
    from dataclasses import replace

    from merging.images.benchmarks.build.benchmark_description import Description
    from merging.models.formats.named_architecture import named_architecture

    options = dict(description)
    source, tasks = options.pop("source", None), dict(options.pop("tasks"))
    if source is not None:
        problems = ["Tasks are described in the file of --from, or by --task, not both."] if tasks else []
        problems += [f"--{name} belongs into the file of --from." for name in MODEL_OPTIONS if name in options]
        if problems:
            raise UsageError(problems)
        if "architecture" in options:
            options["architecture"] = named_architecture(options["architecture"]).text()
        return replace(Description.load(source), **options)
    if "pretrained" not in options or not tasks:
        raise UsageError(["Give --pretrained and at least one --task NAME=PATH, or a description with --from FILE."])
    return Description.from_plain({**options, "tasks": tasks}, Path.cwd())
