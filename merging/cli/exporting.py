"""From a recipe to a stored run, and from there to files: what the commands merge, run and export share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from merging.benchmarks.metrics import PER_TASK, summarize
from merging.checkpoints.references import PRETRAINED
from merging.cli.call import Call
from merging.cli.exit_codes import UsageError
from merging.cli.options import SINGLE, ExportOptions, out_problems
from merging.cli.output import dumps, export_facts, reporting, score_table, warn
from merging.errors import MergingError
from merging.export.export import Exported, export, export_file
from merging.export.provenance import check_hub_ids
from merging.progress import ProgressCallback
from merging.recipes.recipe import Recipe
from merging.runs.execute import execute
from merging.runs.run import Run
from merging.runs.store import Store
from merging.text import percent


def check_export(recipe: Recipe, out: Path, how: ExportOptions) -> None:
    """Raise UsageError if a recipe's model could not be exported in the end; asked before anything is computed."""
    problems = out_problems(out, how.overwrite, recipe)
    try:
        check_hub_ids(how.hub_ids, [PRETRAINED, *(name for name, _ in recipe.experts)])
    except MergingError as error:
        problems.append(str(error))
    if problems:
        raise UsageError(problems)


def compute(
    call: Call,
    recipe: Recipe,
    store: Path | None,
    out: Path | None,
    how: ExportOptions,
    *,
    device: str,
    evaluate: bool,
    strict: bool,
    need_model: bool = False,
    base: Path | None = None,
) -> None:
    """Run a recipe into the store, export the model to ``out`` unless that is None, and report both."""
    if out is not None:
        check_export(recipe, out, how)
    printed: list[str] = []

    def print_doubt(doubt: str) -> None:
        warn(doubt)
        printed.append(doubt)

    with reporting(call.events) as progress:
        run = execute(
            recipe,
            Store(store),
            device=device,
            progress=progress,
            cancel=call.stop,
            evaluate=evaluate,
            need_model=need_model or out is not None,
            base=base,
            strict=strict,
            warn=print_doubt,
        )
        exported = None if out is None else write(call, run, out, how, progress)
    report(call, run, exported, printed)


def write(call: Call, run: Run, out: Path, how: ExportOptions, progress: ProgressCallback | None) -> Exported:
    """Export a run: to one file or to a folder, as the ending of ``out`` says."""
    if out.suffix == SINGLE:
        return export_file(run, out, activation=how.activation, progress=progress, cancel=call.stop)
    return export(run, out, **asdict(how), progress=progress, cancel=call.stop)


def report(call: Call, run: Run, exported: Exported | None, printed: Sequence[str] = ()) -> None:
    """Print what came out; on stderr what may be wrong with it, but for the warnings that are ``printed`` already."""
    for caution in run.cautions:
        if caution not in printed:
            warn(caution)
    scores = run.scores
    summary = None if scores is None else summarize(scores, run.experts)
    if call.json:
        names = ("id", "kind", "title", "device", "seconds", "warnings", "versions", "seed", "provenance", "per_task")
        facts = {name: getattr(run, name) for name in names}
        facts |= {"path": run.path, "out": None, "models": run.model_paths}
        facts["scores"] = None if scores is None else scores.to_dict("records")
        facts["summary"] = None if summary is None else asdict(summary)
        print(dumps(facts | ({} if exported is None else export_facts(exported))))
        return
    print(f"{run.title}: run {run.id} on {run.device}, {sum(run.seconds.values()):.1f} s")
    for remark in (*run.remarks, *([PER_TASK] if run.per_task else []), *(exported.warnings if exported else ())):
        print(remark)
    if scores is not None and summary is not None:
        print(score_table(scores, run.experts))
        inside = percent(summary.in_domain, summary.in_low, summary.in_high)
        outside = percent(summary.out_of_domain, summary.out_low, summary.out_high)
        print(f"In domain {inside} over {summary.tasks_in} tasks, {summary.n_in} images")
        print(f"Out of domain {outside} over {summary.tasks_out} tasks, {summary.n_out} images")
        print(f"H-score {100 * summary.h_score:.1f}" if summary.tasks_in and summary.tasks_out else "H-score –")
    print(f"Written to {exported.folder if exported else run.path}")
