"""The command ``methods``: lists methods, and checks your own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merging.base.text import printable, visible_lines
from merging.cli.call import Call
from merging.cli.exit_codes import DONE, FAILED
from merging.cli.option_types import PATH
from merging.cli.options import Command, OrderedGroup, argument, device_option, option
from merging.cli.output import encode_json, format_columns, print_warning

if TYPE_CHECKING:
    from merging.methods.method import Method
    from merging.study.method_checks.run_checks import CheckResult

NOT_LOADED = "Not loaded: "
MAX_ORIGIN = 300  # characters


@click.group(cls=OrderedGroup, invoke_without_command=True, no_args_is_help=False, subcommand_metavar="[ACTION ...]")
@click.option("--json", is_flag=True, help="print JSON")
@click.pass_context
def methods(ctx: click.Context, json: bool) -> int | None:
    """List every edit, merge and adapt with its parameters, or check a method of your own."""
    ctx.obj.json = ctx.obj.json or json
    return None if ctx.invoked_subcommand is not None else _print_methods(ctx.obj)


@methods.command("list", cls=Command)
@click.pass_obj
def list_all(call: Call) -> int:
    """List every method, and say which methods of others could not be loaded."""
    return _print_methods(call)


def _print_methods(call: Call) -> int:
    from merging.methods import own_methods, registry

    registered = registry.list_methods()
    if call.json:
        work = _compute_method_work()
        print(
            encode_json(
                [_collect_facts(method) | {"work": work.get((method.role, method.key))} for method in registered]
            )
        )
    else:
        for method in registered:
            _print_method(method)
    for problem in own_methods.list_problems():
        print_warning(f"{NOT_LOADED}{problem}")
    return DONE


def _print_method(method: Method) -> None:
    own = f"  own method, {printable(str(method.origin), MAX_ORIGIN)}" if method.origin else ""
    print(f"{method.role}  {method.key}  {method.title}  (needs: {method.needs}{_limit_text(method)}){own}")
    bounds = method.params.bounds().items()
    rows = [(name, bound.describe(), f"default {_format_default(bound.default)}", bound.help) for name, bound in bounds]
    if rows:
        print(format_columns(rows, indent="    "))


def _limit_text(method: Method) -> str:
    return "" if method.max_experts is None else f"; at most {method.max_experts} experts"


@methods.command(cls=Command)
@argument("file", type=PATH, help="a file of Python that ends with register(...)")
@option("--skip", multiple=True, metavar="CHECK", help="a check that does not apply to the method, by its name")
@device_option
@click.pass_obj
def check(call: Call, file: Path, skip: Sequence[str], device: str) -> int:
    """Run the checks that every method must pass on the methods of a file, which it executes."""
    from merging.methods import own_methods
    from merging.study.method_checks.run_checks import run_checks

    results: list[CheckResult] = []
    for method in own_methods.load_file(file):
        if not call.json:
            print(f"{method.role}  {method.key}  {method.title}")
        for result in run_checks(method, skip, call.context(None, device)):
            results.append(result)
            if not call.json:
                print(_format_result(result))
    failed = [result for result in results if result.reason]
    if call.json:
        print(encode_json([asdict(result) for result in results]))
    else:
        print(f"{len(failed)} of {len(results)} checks failed." if failed else "All checks passed.")
    return FAILED if failed else DONE


def _format_result(result: CheckResult) -> str:
    """A line for a check: what came of it, its name and its sentence, and below it why it failed."""
    outcome = "skipped" if result.skipped else "FAILED" if result.reason else "passed"
    reason = f"\n           {visible_lines(result.reason)}" if result.reason else ""
    return f"  {outcome:<7}  {result.name}: {result.sentence}{reason}"


def _compute_method_work() -> dict[tuple[str, str], dict[str, Any]]:
    """The work of every method on the models of the benchmark in use, by role and key; empty without one."""
    from merging.base.errors import MergingError
    from merging.engine.evaluation.method_work import method_work
    from merging.images.benchmarks.benchmark import Benchmark

    try:
        return {name: asdict(work) for name, work in method_work(Benchmark.load()).items()}
    except MergingError:
        return {}


def _format_default(value: Any) -> str:
    if value == ():
        return "none"
    return "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _collect_facts(method: Method) -> dict[str, Any]:
    """The facts of a method, for programs."""
    bounds = method.params.bounds()
    params = {name: {**asdict(bound), "describe": bound.describe()} for name, bound in bounds.items()}
    names = ("role", "key", "title", "summary", "formula", "variant", "max_experts", "version")
    facts = {name: getattr(method, name) for name in names}
    origin = str(method.origin) if method.origin else ""
    return {**facts, "needs": str(method.needs), "params": params, "citation": method.cite.text(), "origin": origin}
