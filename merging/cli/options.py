"""What the commands take: parameters that report all problems of a call together, their types, and shared options."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from merging.checkpoints.families import ACTIVATIONS
from merging.cli.exit_codes import UsageError, joined
from merging.export.names import TARGETS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from merging.recipes.recipe import Recipe

Function = Callable[..., Any]
Decorated = TypeVar("Decorated", bound=Function)

SPEC_HELP = "SPEC is a key, or key:parameter=value,parameter=value; `methods` lists them. Example: ties:density=0.1"
PROBLEMS = f"{__name__}.problems"  # where the context of a call keeps them, by parameter
SINGLE = ".safetensors"  # with this ending --out is a model's file, otherwise a folder for everything
GB = 1_000_000_000


# Parameters whose problems are reported together


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep an option in the call. It is read before all others, as the report of a failure depends on it."""
    setattr(ctx.obj, str(param.name), value)


class Gathering(click.Parameter):
    """A parameter whose problem is reported with those of all others, not before they are read."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """The value; a wrong one stays in the context as it was written, for checks that depend on it."""
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.UsageError as error:
            ctx.meta.setdefault(PROBLEMS, {})[self.name] = error
            ctx.params.setdefault(self.name, opts.get(self.name))
            return None, args

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert a value, or each of several; the problems of all of them are one error."""
        if value is None or not (self.multiple or self.nargs == -1):
            return super().type_cast_value(ctx, value)
        values, errors = [], []
        for text in value:
            try:
                values.append(self.type(text, self, ctx))
            except click.UsageError as error:
                errors.append(error)
        if errors:
            raise joined(errors)
        return tuple(values)


class Option(Gathering, click.Option):
    """An option whose problem is reported with those of the others."""


class Argument(Gathering, click.Argument):
    """An argument whose problem is reported with those of the others."""


class Command(click.Command):
    """A command that reports every problem of its call at once. All commands take ``--json``."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params.append(
            click.Option(
                ["--json"], is_flag=True, is_eager=True, expose_value=False, callback=_remember, help="print JSON"
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments.

        Raises:
            UsageError: some of them make no sense; the problems come in the order of the help.
        """
        rest, others = [], []
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:  # about the call as a whole, such as an option that does not exist
            error.ctx = error.ctx or ctx
            others.append(error)
        problems: Mapping[str, click.UsageError] = ctx.meta.get(PROBLEMS, {})
        errors = [*(problems[param.name] for param in self.params if param.name in problems), *others]
        if errors and not ctx.resilient_parsing:
            raise joined(errors)
        return rest


class OrderedGroup(click.Group):
    """A group that lists its commands in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in that order."""
        return list(self.commands)


option = functools.partial(click.option, cls=Option)
argument = functools.partial(click.argument, cls=Argument)


# Types


class CheckpointType(click.ParamType[str]):
    """A reference to a checkpoint; a file must be there. ``role`` says in messages what it is to the command."""

    name = "checkpoint"

    def __init__(self, role: str) -> None:
        self.role = role

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The reference as it was given."""
        from merging.recipes.chain_text import check_file

        problems: list[str] = []
        check_file(value, self.role, problems)
        if problems:
            raise UsageError(problems)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Let the shell complete paths."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class StepType(click.ParamType[tuple[str, dict[str, Any]]]):
    """One step of a chain, an "edit" or a "merge": ties:density=0.1 becomes ("ties", {"density": 0.1})."""

    name = "spec"

    def __init__(self, role: str) -> None:
        self.role = role

    def convert(
        self, value: str | tuple[str, dict[str, Any]], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, dict[str, Any]]:
        """The method's key and the parameters that were given; a default is such a pair already."""
        from merging.recipes.chain_text import parse_step

        if not isinstance(value, str):
            return value
        problems: list[str] = []
        step = parse_step(self.role, value, problems)
        if problems:
            raise UsageError(problems)
        return step

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Keys of methods."""
        from click.shell_completion import CompletionItem

        from merging.methods import registry

        methods = [method for method in registry.methods() if method.role == self.role]
        return [
            CompletionItem(method.key, help=method.title) for method in methods if method.key.startswith(incomplete)
        ]


class GigabytesType(click.ParamType[int]):
    """A size in gigabytes above 0, as a number of bytes."""

    name = "gb"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        try:
            gigabytes = float(value)
        except ValueError:
            gigabytes = 0.0
        if not 0 < gigabytes < float("inf"):
            self.fail(f"a number of gigabytes above 0 is expected, got {value!r}.", param, ctx)
        return round(gigabytes * GB)


class PathType(click.Path[Path]):
    """A path that is not looked at yet: whether it can be used, the commands find out and say in their own words."""

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path."""
        return Path(value)


PATH = PathType()


# Options that several commands share


def _lower_priority(ctx: click.Context, param: click.Parameter, value: int) -> None:
    if value and not ctx.resilient_parsing:
        os.nice(value)


activation_option = option(
    "--activation", type=click.Choice(ACTIVATIONS), help="of the models, where nothing beside their weights says so"
)
device_option = option("--device", default="auto", show_default=True, help="auto, cpu, cuda, mps")
strict_option = option("--strict", is_flag=True, help="refuse experts that probably do not belong here (see fit)")
no_evaluate_option = option("--no-evaluate", is_flag=True, help="merge only")
store_option = option("--store", type=PATH, help="folder of the runs (default: $MERGESCOPE_STORE or the cache)")
events_option = option(
    "--events",
    type=PATH,
    is_eager=True,
    expose_value=False,
    callback=_remember,
    help="append progress to this file, one JSON object a line",
)
nice_option = option(
    "--nice", type=int, default=0, expose_value=False, callback=_lower_priority, help="lower the priority by this much"
)


def job_options(function: Decorated) -> Decorated:
    """What the runner of jobs sets: ``--events``, ``--nice`` and ``--store``; the command gets ``store``."""
    return events_option(nice_option(store_option(function)))


def _experts(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """{name: checkpoint}."""
    from merging.recipes.chain_text import parse_experts

    problems: list[str] = []
    experts = parse_experts(texts, problems)
    if problems:
        raise UsageError(problems)
    return experts


def checkpoint_options(function: Decorated) -> Decorated:
    """The options ``--pretrained`` and ``--expert``; the command gets ``pretrained`` and ``experts``, {name: file}."""
    pretrained = option(
        "--pretrained", type=CheckpointType("the pretrained model"), required=True, help="a file, or bundled:pretrained"
    )
    expert = option(
        "--expert",
        "experts",
        multiple=True,
        callback=_experts,
        metavar="NAME=FILE",
        help="an expert; give one for each",
    )
    return pretrained(expert(function))


@dataclass(frozen=True)
class ExportOptions:
    """How a model is written, as ``merging.export.export`` takes it.

    The target's name, the activation (None: the one that the files state), repositories of models by name, bytes of
    one file at most, and whether an earlier export is replaced.
    """

    to: str
    activation: str | None
    hub_ids: Mapping[str, str]
    shard_bytes: int
    overwrite: bool


def _hub_ids(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """{name: repository}. They are not checked where nothing is exported: `run` without --out, which is read before."""
    pairs = [text.partition("=") for text in texts]
    wrong = [text for text, (name, _, value) in zip(texts, pairs, strict=True) if not name or not value]
    if wrong and ctx.params.get("out", True) is not None:
        raise UsageError([f"Write a repository as NAME=ID; got {text!r}." for text in wrong])
    return {name: value for name, _, value in pairs}


def export_options(function: Function) -> Function:
    """The options that say how a model is written; the command gets ``how``, an ``ExportOptions``."""

    @option(
        "--to",
        type=click.Choice(TARGETS),
        default=TARGETS[0],
        show_default=True,
        help="for Transformers (hf) or open_clip",
    )
    @activation_option
    @option(
        "--hub-id",
        "hub_ids",
        multiple=True,
        callback=_hub_ids,
        metavar="NAME=ID",
        help="repository of an expert, or of pretrained, for the model card; may be given repeatedly",
    )
    @option(
        "--shard-size", type=GigabytesType(), default=5.0, show_default=True, metavar="GB", help="divide larger weights"
    )
    @option(
        "--overwrite",
        "--force",
        is_flag=True,
        is_eager=True,  # --out depends on it
        help="replace what an earlier export has left at --out",
    )
    @functools.wraps(function)
    def with_options(
        *args: Any,
        to: str,
        activation: str | None,
        hub_ids: Mapping[str, str],
        shard_size: int,
        overwrite: bool,
        **others: Any,
    ) -> Any:
        how = ExportOptions(to, activation, hub_ids, shard_size, overwrite)
        return function(*args, how=how, **others)

    return with_options


def out_problems(out: Path, overwrite: bool, recipe: Recipe | None = None) -> list[str]:
    """Why nothing can be written to ``out``."""
    from merging.export.destination import refusal

    if out.suffix != SINGLE:
        reason = refusal(out, overwrite=overwrite)
    elif recipe is not None and recipe.per_task:
        reason = f"{recipe.text()} gives one model per task; name a folder with --out, not a file."
    else:
        taken = f"{out} exists already; choose another --out, or replace it with --overwrite."
        reason = taken if out.is_dir() or (out.exists() and not overwrite) else ""
    return [reason] if reason else []
