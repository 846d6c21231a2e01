"""What each command of the command line does."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from threading import Event
from typing import Any

from merging import places, registry
from merging.checkpoints import open_checkpoint
from merging.console import columns, dumps, reporting
from merging.encoder import stating
from merging.errors import MergingError
from merging.evaluate import evaluate
from merging.exit_codes import DONE, UsageError
from merging.measures import kind, measure
from merging.merge_command import score_table
from merging.method import Method
from merging.specs import check_file
from merging.store import Store
from merging.tasks import Benchmark


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


def measure_run(args: argparse.Namespace, stop: Event) -> int:
    """Measure something of a stored run, or of the benchmark; its tables stay in the store."""
    store = Store(args.store, libraries=(places.benchmark_folder() / "runs",))
    with reporting(getattr(args, "events", None)) as progress:
        found = measure(
            args.what, store, Benchmark.load(), args.run, device=args.device, progress=progress, cancel=stop
        )
    if args.json:
        facts = ("key", "run_id", "device", "seconds", "provenance", "notes", "path")
        tables = {name: found.table(name).to_dict("records") for name in found.tables}
        print(dumps({name: getattr(found, name) for name in facts} | {"tables": tables}))
    else:
        print(f"{kind(found.key).title} on {found.device}, {found.seconds:.1f} s: {', '.join(found.tables)}")
        print(f"Written to {found.path}")
    return DONE


def evaluate_checkpoint(args: argparse.Namespace, stop: Event) -> int:
    """Accuracy of one checkpoint on every task."""
    problems: list[str] = []
    check_file(args.checkpoint, "the checkpoint", problems)
    if problems:
        raise UsageError(problems)
    checkpoint, benchmark = stating(open_checkpoint(args.checkpoint), args.activation or ""), Benchmark.load()
    if reason := benchmark.misfit(checkpoint):
        raise MergingError(f"{checkpoint.name} cannot be evaluated: {reason}")
    with reporting(getattr(args, "events", None)) as progress:
        scores = evaluate(checkpoint, benchmark, device=args.device, progress=progress, cancel=stop)
    print(dumps(scores.to_dict("records")) if args.json else score_table(scores, ()))
    return DONE
