"""What each command of the command line does."""

from __future__ import annotations

import argparse
import shutil
import uuid
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from merging import places, registry
from merging.checkpoints import open_checkpoint
from merging.cli import DONE, FAILED, UsageError
from merging.console import columns, dumps, percent, reporting
from merging.errors import MergingError
from merging.evaluate import evaluate
from merging.fit import fit
from merging.measures import kind, measure
from merging.method import Method
from merging.pipeline import execute, misfit
from merging.recipe import Recipe
from merging.runs import FACTS, Run
from merging.specs import check_file, parse_experts, parse_step
from merging.store import Store
from merging.summary import PER_TASK, summarize
from merging.sweep_command import sweep
from merging.tasks import Benchmark

if TYPE_CHECKING:
    import pandas as pd

SINGLE = ".safetensors"  # with this ending --out is a model's file, otherwise a folder for everything


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


def run(args: argparse.Namespace, stop: Event) -> int:
    """Run a recipe file into the store."""
    recipe = Recipe.load(args.recipe)
    base = args.base or args.recipe.absolute().parent
    with reporting(getattr(args, "events", None)) as progress:
        found = execute(
            recipe,
            Store(args.store),
            device=args.device,
            progress=progress,
            cancel=stop,
            evaluate=not args.no_evaluate,
            need_model=args.need_model,
            base=base,
        )
    _report(found, args.json)
    return DONE


def merge(args: argparse.Namespace, stop: Event) -> int:
    """Merge checkpoints; the result goes to --out, and stays in the store."""
    problems: list[str] = []
    check_file(args.pretrained, "the pretrained model", problems)
    experts = parse_experts(args.expert, problems)
    edits = [parse_step("edit", text, problems) for text in args.edit]
    key, params = parse_step("merge", args.merge, problems)
    if args.out.exists() and not args.force:
        problems.append(f"{args.out} exists already; choose another --out, or replace it with --force.")
    if args.out.is_dir() and any(args.out.iterdir()) and not (args.out / FACTS).is_file():
        problems.append(f"{args.out} is a folder with other things in it; it is not replaced. Choose another --out.")
    if problems:
        raise UsageError(problems)
    recipe = Recipe.build(
        key, params, edits, args.pretrained, experts, args.title, count_dead_params=args.count_dead_params
    )
    if recipe.per_task and args.out.suffix == SINGLE:
        raise UsageError([f"{recipe.text()} gives one model per task; name a folder with --out, not a file."])
    with reporting(getattr(args, "events", None)) as progress:
        found = execute(
            recipe,
            Store(args.store),
            device=args.device,
            progress=progress,
            cancel=stop,
            evaluate=not args.no_evaluate,
            need_model=True,
        )
    _export(found, args.out)
    _report(found, args.json, args.out)
    return DONE


def _export(found: Run, out: Path) -> None:
    """Put a run's model, or everything, in its place at once."""
    paths = found.model_paths
    single = out.suffix == SINGLE
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".tmp-{uuid.uuid4().hex}")
    try:
        if single:
            shutil.copyfile(next(iter(paths.values())), partial)
        else:
            shutil.copytree(found.path, partial, copy_function=shutil.copyfile)
            if out.is_dir():
                shutil.rmtree(out)
        partial.replace(out)
    except OSError as error:
        raise MergingError(f"{out} cannot be written: {error.strerror}.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True) if partial.is_dir() else partial.unlink(missing_ok=True)


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
    checkpoint, benchmark = open_checkpoint(args.checkpoint), Benchmark.load()
    if reason := misfit(checkpoint, benchmark):
        raise MergingError(f"{checkpoint.name} cannot be evaluated: {reason}")
    with reporting(getattr(args, "events", None)) as progress:
        scores = evaluate(checkpoint, benchmark, device=args.device, progress=progress, cancel=stop)
    print(dumps(scores.to_dict("records")) if args.json else _scores(scores, ()))
    return DONE


def check_fit(args: argparse.Namespace, stop: Event) -> int:
    """Whether checkpoints fit together; exit code 1 if not."""
    problems: list[str] = []
    check_file(args.pretrained, "the pretrained model", problems)
    experts = parse_experts(args.expert, problems)
    if problems:
        raise UsageError(problems)
    pretrained = open_checkpoint(args.pretrained, "pretrained")
    opened = {name: open_checkpoint(reference, name) for name, reference in experts.items()}
    report = fit(pretrained, opened, values=args.values, sample=True)
    if args.json:
        rows = [asdict(problem) for problem in report.problems]
        print(dumps({"ok": report.mergeable, "tensors": report.tensors, "problems": rows, "notes": report.notes}))
    else:
        print("\n".join((report.text(), *report.notes)))
    return DONE if report.mergeable else FAILED


COMMANDS: dict[str, Callable[[argparse.Namespace, Event], int]] = {
    "methods": list_methods,
    "run": run,
    "merge": merge,
    "measure": measure_run,
    "sweep": sweep,
    "evaluate": evaluate_checkpoint,
    "fit": check_fit,
}


def _report(found: Run, as_json: bool, out: Path | None = None) -> None:
    """Say what came out."""
    scores = found.scores
    summary = None if scores is None else summarize(scores, found.experts)
    if as_json:
        facts = ("id", "kind", "title", "device", "seconds", "warnings", "versions", "seed", "provenance", "per_task")
        said = {name: getattr(found, name) for name in facts}
        said["path"], said["out"] = found.path, out
        said["models"] = found.model_paths
        said["scores"] = None if scores is None else scores.to_dict("records")
        said["summary"] = None if summary is None else asdict(summary)
        print(dumps(said))
        return
    print(f"{found.title}: run {found.id} on {found.device}, {sum(found.seconds.values()):.1f} s")
    for warning in (*found.warnings, *([PER_TASK] if found.per_task else [])):
        print(warning)
    if scores is not None and summary is not None:
        print(_scores(scores, found.experts))
        inside = percent(summary.in_domain, summary.in_low, summary.in_high)
        outside = percent(summary.out_of_domain, summary.out_low, summary.out_high)
        print(f"In domain {inside} over {summary.tasks_in} tasks, {summary.n_in} images")
        print(f"Out of domain {outside} over {summary.tasks_out} tasks, {summary.n_out} images")
        print(f"H-score {100 * summary.h_score:.1f}" if summary.tasks_in and summary.tasks_out else "H-score –")
    print(f"Written to {out or found.path}")


def _scores(scores: pd.DataFrame, in_domain: tuple[str, ...]) -> str:
    """Accuracies of the reporting split as a table."""
    rows = [("task", "", "accuracy [95 %]", "images")]
    for row in scores[scores["split"] == "reporting"].to_dict("records"):
        domain = "in domain" if row["task"] in in_domain else "out of domain" if in_domain else ""
        rows.append((str(row["task"]), domain, percent(row["accuracy"], row["low"], row["high"]), str(row["n"])))
    return columns(rows)
