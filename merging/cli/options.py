"""Parameters of commands that report all problems of a call together, and options that several commands share."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from merging.cli.exit_codes import UsageError, join_errors
from merging.cli.option_types import PATH
from merging.models.formats.model_sources import ModelRef

Function = Callable[..., Any]
Decorated = TypeVar("Decorated", bound=Function)
ModelReader = Callable[[Mapping[str, Any]], Iterable[ModelRef]]  # the models in {parameter: text of the option}

SPEC_HELP = "SPEC is a key, or key:parameter=value,parameter=value; `methods` lists them. Example: ties:density=0.1"
PROBLEMS_KEY = f"{__name__}.problems"  # key in the context of a call: {parameter: problem}
WORKER_OPTIONS_KEY = f"{__name__}.chosen"  # key in the context of a call: the options that choose workers
GROUPS_ATTRIBUTE = "option_groups"  # attribute of a command's function: its groups of options

# Parameters whose problems are reported together


def _store_in_call(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Store an option in the call. Such options are parsed first, because the report of a failure depends on them."""
    setattr(ctx.obj, str(param.name), value)


def _store_in_context(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Store an option that chooses workers in the context."""
    ctx.meta.setdefault(WORKER_OPTIONS_KEY, {})[param.name] = value


class GatheringParameter(click.Parameter):
    """A parameter whose problem is reported together with those of all others, after all are parsed."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """The value; a wrong value stays in the context as written, for checks that depend on it."""
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.UsageError as error:
            ctx.meta.setdefault(PROBLEMS_KEY, {})[self.name] = error
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
            raise join_errors(errors)
        return tuple(values)


class Option(GatheringParameter, click.Option):
    """An option whose problem is reported with those of the others."""


class Argument(GatheringParameter, click.Argument):
    """An argument whose problem is reported with those of the others."""


class Command(click.Command):
    """A command that reports every problem of its call at once. All commands take ``--json``.

    ``reads`` returns the models that the options name, from their texts. The digests of these models are computed while
    the options are parsed, which may load torch.
    """

    def __init__(self, *args: Any, reads: ModelReader | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._reads = reads
        self.params.append(
            click.Option(
                ["--json"], is_flag=True, is_eager=True, expose_value=False, callback=_store_in_call, help="print JSON"
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises:
            UsageError: some of them are wrong; the problems are in the order of the help.
        """
        remaining, call_errors = [], []
        if self._reads is not None and not ctx.resilient_parsing:
            self._start_digests(ctx, args, self._reads)
        try:
            remaining = super().parse_args(ctx, args)
        except click.UsageError as error:  # about the call as a whole, such as an option that does not exist
            error.ctx = error.ctx or ctx
            call_errors.append(error)
        if WORKER_OPTIONS_KEY in ctx.meta and not ctx.resilient_parsing:
            try:
                ctx.obj.workers = _choose_workers(ctx.meta[WORKER_OPTIONS_KEY])
            except UsageError as error:
                call_errors.append(error)
        problems: Mapping[str, click.UsageError] = ctx.meta.get(PROBLEMS_KEY, {})
        errors = [*(problems[param.name] for param in self.params if param.name in problems), *call_errors]
        if errors and not ctx.resilient_parsing:
            raise join_errors(errors)
        return remaining

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; objects that ``mergescope`` has created before are never garbage-collected."""
        _start_garbage_collection()
        for make, names in reversed(getattr(self.callback, GROUPS_ATTRIBUTE, ())):
            ctx.params |= make(**{name: ctx.params.pop(name) for name in names})
        return super().invoke(ctx)

    def _start_digests(self, ctx: click.Context, args: Sequence[str], reads: ModelReader) -> None:
        """Start to compute the digests of the named checkpoints; wrong options are reported later."""
        from merging.base.errors import MergingError
        from merging.models.formats.early_digests import early_digests

        with contextlib.suppress(
            click.UsageError, MergingError, OSError, ValueError, LookupError, TypeError, AttributeError
        ):
            option_texts, _, _ = self.make_parser(ctx).parse_args(list(args))
            ctx.with_resource(early_digests(reads(option_texts)))


class OrderedGroup(click.Group):
    """A group that lists its commands in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in that order."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the group or one of its commands; a group may be a command of its own."""
        _start_garbage_collection()
        return super().invoke(ctx)


def _start_garbage_collection() -> None:
    """Collect garbage from now on, but never the objects that exist already."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


option = functools.partial(click.option, cls=Option)
argument = functools.partial(click.argument, cls=Argument)


def option_group(
    make: Callable[..., Mapping[str, Any]], *options: Callable[[Function], Function], names: Iterable[str] = ()
) -> Callable[[Decorated], Decorated]:
    """A decorator that adds options to a command. The command gets the result of ``make``, {parameter: value}, instead.

    ``make`` takes the options by the names of its parameters, or by ``names``.
    """
    option_names = tuple(names) or tuple(inspect.signature(make).parameters)

    def add(function: Decorated) -> Decorated:
        setattr(function, GROUPS_ATTRIBUTE, [*getattr(function, GROUPS_ATTRIBUTE, ()), (make, option_names)])
        for add_option in reversed(options):
            add_option(function)
        return function

    return add


# Options that several commands share


def _apply_nice(ctx: click.Context, param: click.Parameter, value: int) -> None:
    if value and not ctx.resilient_parsing:
        os.nice(value)


device_option = option("--device", default="auto", show_default=True, help="auto, cpu, cuda, mps")
strict_option = option(
    "--strict", is_flag=True, help="refuse experts that probably do not fit the pretrained model (see fit)"
)
no_evaluate_option = option("--no-evaluate", is_flag=True, help="merge only")
store_option = option("--store", type=PATH, help="folder of the runs (default: $MERGESCOPE_STORE or the cache)")
workers_spec_option = option(
    "--workers", metavar="SPEC", expose_value=False, callback=_store_in_context,
    help="who computes: 4 processes, gpus, an address (default: $MERGESCOPE_WORKERS)",
)  # fmt: skip
only_option = option(
    "--only",
    metavar="NAME,NAME",
    expose_value=False,
    callback=_store_in_context,
    help="use only the workers on these machines",
)
mixed_option = option(
    "--mixed",
    is_flag=True,
    expose_value=False,
    callback=_store_in_context,
    help="allow workers of several kinds of hardware",
)
events_option = option(
    "--events",
    type=PATH,
    is_eager=True,
    expose_value=False,
    callback=_store_in_call,
    help="append progress to this file, one JSON object per line",
)


def _make_pause_option(help_text: str) -> Callable[[Decorated], Decorated]:
    return option("--pause-file", type=PATH, is_eager=True, expose_value=False, callback=_store_in_call, help=help_text)


pause_option = _make_pause_option(
    "stop learning as soon as this file exists; the same command then continues from that point"
)
pause_sweep_option = _make_pause_option("stop between two points as soon as this file exists")
nice_option = option(
    "--nice", type=int, default=0, expose_value=False, callback=_apply_nice, help="lower the priority by this much"
)


def workers_option(function: Decorated) -> Decorated:
    """Add ``--workers`` and ``--only``, which choose the workers of the call's context."""
    return workers_spec_option(only_option(function))


def read_workers_option() -> str:
    """The text of ``--workers`` in the current command; empty without it."""
    return click.get_current_context().meta[WORKER_OPTIONS_KEY]["workers"] or ""


def _choose_workers(worker_options: Mapping[str, Any]) -> str:
    """The text of ``--workers``, else of the environment, with ``--only`` and ``--mixed``; empty: no workers.

    Raises:
        UsageError: ``--only`` or ``--mixed`` is stated without workers to choose from.
    """
    from merging.base import settings
    from merging.tasks.workers.worker_choice import parse_choice

    choice = parse_choice(
        settings.workers_setting() if worker_options["workers"] is None else worker_options["workers"]
    )
    if (worker_options.get("only") or worker_options.get("mixed")) and not choice.spec:
        raise UsageError(["--only and --mixed choose among workers. Name some with --workers, or MERGESCOPE_WORKERS."])
    only = tuple(name.strip() for name in (worker_options.get("only") or "").split(",") if name.strip())
    return choice._replace(only=only or choice.only, mixed=choice.mixed or bool(worker_options.get("mixed"))).text


@dataclass(frozen=True)
class RunChoices:
    """The device of a run, whether it is evaluated, and whether doubtful experts are refused."""

    device: str
    evaluate: bool
    strict: bool


def _make_run_choices(no_evaluate: bool, strict: bool, device: str) -> dict[str, Any]:
    return {"run_choices": RunChoices(device, not no_evaluate, strict)}


run_options = option_group(  # the settings of a run; the command gets ``run_choices``
    _make_run_choices, no_evaluate_option, strict_option, pause_option, workers_option, device_option
)


def job_options(function: Decorated) -> Decorated:
    """Add ``--events``, ``--nice`` and ``--store``, which the queue of jobs sets; the command gets ``store``."""
    return events_option(nice_option(store_option(function)))
