"""The command ``methods``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from merging.cli.call import Call
from merging.cli.exit_codes import DONE
from merging.cli.options import Command
from merging.cli.output import encode_json, format_columns

if TYPE_CHECKING:
    from merging.methods.method import Method


@click.command(cls=Command)
@click.pass_obj
def methods(call: Call) -> int:
    """List every edit, merge and adapt with its parameters."""
    from merging.methods import registry

    if call.json:
        work = _compute_method_work()
        print(
            encode_json(
                [
                    _collect_facts(method) | {"work": work.get((method.role, method.key))}
                    for method in registry.list_methods()
                ]
            )
        )
        return DONE
    for method in registry.list_methods():
        print(f"{method.role}  {method.key}  {method.title}  (needs: {method.needs}{_limit_text(method)})")
        bounds = method.params.bounds().items()
        rows = [
            (name, bound.describe(), f"default {_format_default(bound.default)}", bound.help) for name, bound in bounds
        ]
        if rows:
            print(format_columns(rows, indent="    "))
    return DONE


def _limit_text(method: Method) -> str:
    return "" if method.max_experts is None else f"; at most {method.max_experts} experts"


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
    return {**facts, "needs": str(method.needs), "params": params, "citation": method.cite.text()}
