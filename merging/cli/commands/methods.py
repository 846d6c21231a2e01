"""What each command of the command line does."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from threading import Event
from typing import Any

from merging.cli.exit_codes import DONE
from merging.cli.output import columns, dumps
from merging.methods import registry
from merging.methods.method import Method


def list_methods(args: argparse.Namespace, stop: Event) -> int:
    """Every method with what it needs and takes."""
    if args.json:
        print(dumps([_method(method) for method in registry.methods()]))
        return DONE
    for method in registry.methods():
        print(f"{method.role}  {method.key}  {method.title}  (needs: {method.needs})")
        rows = [(n, b.describe(), f"default {_default(b.default)}", b.help) for n, b in method.params.bounds().items()]
        if rows:
            print(columns(rows, indent="    "))
    return DONE


def _default(value: Any) -> str:
    return "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _method(method: Method) -> dict[str, Any]:
    bounds = method.params.bounds()
    params = {n: {**asdict(b), "describe": b.describe()} for n, b in bounds.items()}
    facts = ("role", "key", "title", "summary", "formula", "variant", "version")
    said = {name: getattr(method, name) for name in facts}
    return {**said, "needs": str(method.needs), "params": params, "citation": method.cite.text()}
