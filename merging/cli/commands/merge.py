"""The commands ``run``, ``merge`` and ``export``: from a recipe to a stored run, and from there to files."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from merging import settings
from merging.benchmarks.metrics import PER_TASK, summarize
from merging.checkpoints.references import PRETRAINED
from merging.cli.exit_codes import DONE, UsageError
from merging.cli.output import GB, columns, dumps, hub_ids, reporting, told
from merging.errors import MergingError, StoreError
from merging.export.destination import refusal
from merging.export.export import Exported, export, export_file
from merging.export.provenance import check_hub_ids
from merging.export.weights import WRITING
from merging.progress import Phases, ProgressCallback
from merging.recipes.chain_text import check_file, parse_experts, parse_step
from merging.recipes.recipe import Recipe
from merging.runs.estimate import MERGING
from merging.runs.execute import execute
from merging.runs.run import Run
from merging.runs.store import Store
from merging.text import percent

if TYPE_CHECKING:
    import pandas as pd

SINGLE = ".safetensors"  # with this ending --out is a model's file, otherwise a folder for everything


def run(args: argparse.Namespace, stop: Event) -> int:
    """Run a recipe file into the store, and export what came out if a place is named."""
    recipe = Recipe.load(args.recipe)
    if args.activation:
        recipe = replace(recipe, activation=args.activation)
    out = args.out
    if out is not None and (problems := _export_problems(args, recipe)):
        raise UsageError(problems)
    base = args.base or args.recipe.absolute().parent
    with reporting(getattr(args, "events", None)) as progress:
        found = execute(
            recipe,
            Store(args.store),
            device=args.device,
            progress=progress,
            cancel=stop,
            evaluate=not args.no_evaluate,
            need_model=args.need_model or out is not None,
            base=base,
        )
        written = None if out is None else _write(found, args, progress, stop)
    _report(found, args.json, written)
    return DONE


def merge(args: argparse.Namespace, stop: Event) -> int:
    """Merge checkpoints; the result goes to --out, and stays in the store."""
    problems: list[str] = []
    check_file(args.pretrained, "the pretrained model", problems)
    experts = parse_experts(args.expert, problems)
    edits = [parse_step("edit", text, problems) for text in args.edit]
    key, params = parse_step("merge", args.merge, problems)
    problems += _out_problems(args.out, args.overwrite)
    if problems:
        raise UsageError(problems)
    recipe = Recipe.build(
        key,
        params,
        edits,
        args.pretrained,
        experts,
        args.title,
        count_dead_params=args.count_dead_params,
        activation=args.activation or "",
    )
    if problems := _export_problems(args, recipe):
        raise UsageError(problems)
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
        written = _write(found, args, progress, stop)
    _report(found, args.json, written)
    return DONE


def export_run(args: argparse.Namespace, stop: Event) -> int:
    """Export a stored run; one of which only tables are kept is computed again."""
    store = Store(args.store, libraries=(settings.benchmark_folder() / "runs",))
    found = store.run(args.run)
    if found.recipe is None:
        raise StoreError(f"Run {found.id} is the evaluation of one checkpoint, not a merge; convert that file instead.")
    if problems := _export_problems(args, found.recipe):
        raise UsageError(problems)
    with reporting(args.events) as progress:
        phases = Phases({MERGING: 0.0 if found.has_model else 5.0, WRITING: 1.0}, progress)
        if not found.has_model:
            evaluate = not args.no_evaluate
            found = execute(
                found.recipe,
                store,
                device=args.device,
                progress=phases.callback(MERGING),
                cancel=stop,
                evaluate=evaluate,
                need_model=True,
            )
        written = _write(found, args, phases.callback(WRITING), stop)
    _report(found, args.json, written)
    return DONE


def _export_problems(args: argparse.Namespace, recipe: Recipe) -> list[str]:
    """Why a recipe's model could not be exported in the end; asked before anything is computed."""
    problems = _out_problems(args.out, args.overwrite, recipe)
    try:
        check_hub_ids(hub_ids(args.hub_id), [PRETRAINED, *(name for name, _ in recipe.experts)])
    except MergingError as error:
        problems.append(str(error))
    return problems


def _out_problems(out: Path, overwrite: bool, recipe: Recipe | None = None) -> list[str]:
    """Why nothing can be written to ``out``."""
    if out.suffix != SINGLE:
        why = refusal(out, overwrite=overwrite)
    elif recipe is not None and recipe.per_task:
        why = f"{recipe.text()} gives one model per task; name a folder with --out, not a file."
    else:
        taken = f"{out} exists already; choose another --out, or replace it with --overwrite."
        why = taken if out.is_dir() or (out.exists() and not overwrite) else ""
    return [why] if why else []


def _write(found: Run, args: argparse.Namespace, progress: ProgressCallback | None, stop: Event) -> Exported:
    """Export a run to --out."""
    ids = hub_ids(args.hub_id)
    if args.out.suffix == SINGLE:
        return export_file(found, args.out, activation=args.activation, progress=progress, cancel=stop)
    return export(
        found,
        args.out,
        to=args.to,
        activation=args.activation,
        hub_ids=ids,
        overwrite=args.overwrite,
        shard_bytes=round(args.shard_size * GB),
        progress=progress,
        cancel=stop,
    )


def _report(found: Run, as_json: bool, written: Exported | None) -> None:
    """Say what came out."""
    scores = found.scores
    summary = None if scores is None else summarize(scores, found.experts)
    if as_json:
        facts = ("id", "kind", "title", "device", "seconds", "warnings", "versions", "seed", "provenance", "per_task")
        said = {name: getattr(found, name) for name in facts}
        said |= {"path": found.path, "out": None, "models": found.model_paths}
        said["scores"] = None if scores is None else scores.to_dict("records")
        said["summary"] = None if summary is None else asdict(summary)
        print(dumps(said | ({} if written is None else told(written))))
        return
    print(f"{found.title}: run {found.id} on {found.device}, {sum(found.seconds.values()):.1f} s")
    for warning in (*found.warnings, *([PER_TASK] if found.per_task else []), *(written.warnings if written else ())):
        print(warning)
    if scores is not None and summary is not None:
        print(score_table(scores, found.experts))
        inside = percent(summary.in_domain, summary.in_low, summary.in_high)
        outside = percent(summary.out_of_domain, summary.out_low, summary.out_high)
        print(f"In domain {inside} over {summary.tasks_in} tasks, {summary.n_in} images")
        print(f"Out of domain {outside} over {summary.tasks_out} tasks, {summary.n_out} images")
        print(f"H-score {100 * summary.h_score:.1f}" if summary.tasks_in and summary.tasks_out else "H-score –")
    print(f"Written to {written.folder if written else found.path}")


def score_table(scores: pd.DataFrame, in_domain: tuple[str, ...]) -> str:
    """Accuracies of the reporting split as a table."""
    rows = [("task", "", "accuracy [95 %]", "images")]
    for row in scores[scores["split"] == "reporting"].to_dict("records"):
        domain = "in domain" if row["task"] in in_domain else "out of domain" if in_domain else ""
        rows.append((str(row["task"]), domain, percent(row["accuracy"], row["low"], row["high"]), str(row["n"])))
    return columns(rows)
