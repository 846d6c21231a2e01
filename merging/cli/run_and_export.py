"""From a recipe to a stored run, and from a run to files: the code that the commands merge, run and export share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from merging.base.errors import CheckpointError, EvaluatorError, MergingError
from merging.base.text import duration_text, percent_with_interval, printable, size_text
from merging.cli.call import Call
from merging.cli.exit_codes import UsageError
from merging.cli.export_options import SINGLE_FILE_SUFFIX, TARGET_NAMED_KEY, ExportOptions, list_destination_problems
from merging.cli.options import RunChoices
from merging.cli.output import (
    collect_export_facts,
    encode_json,
    format_score,
    format_score_table,
    print_warning,
    report_progress,
)
from merging.engine.chain_work import ChainWork, chain_work
from merging.images.benchmarks.metrics import ADAPTS_ON_TEST, PER_TASK, TASK_KNOWN, summarize
from merging.models.formats.model_sources import Source
from merging.models.model_references import PRETRAINED
from merging.recipes.recipe import Recipe
from merging.sharing.export.export_names import NO_TASK, NO_TEXT, PEFT, TARGETS
from merging.sharing.export.export_provenance import check_hub_ids
from merging.sharing.export.model_export import ExportResult, describe_limits, export, export_file
from merging.sharing.export.network_export import check_task
from merging.study.imported_scores import find_scores
from merging.study.runs.estimate import Estimate
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run import PRECOMPUTED, Run
from merging.study.runs.run_store import Store
from merging.study.score_table import ScoreTable
from merging.tasks.context import Context

LONG_MERGE_SECONDS = 60.0  # a merge of whole matrices above this time announces its time and memory
NO_TASK_IN_FILE_PROBLEM = "A single file does not hold a task's head; name a folder with --out."
MODEL_ALONE_NOTE = (
    "The file holds the merged model alone; name a folder with --out to also get the modules that {} adds."
)


def check_export(recipe: Recipe, out: Path, export_settings: ExportOptions, base: Path | None = None) -> None:
    """Raise an error if a recipe's model could not be exported; called before anything is computed.

    ``base`` is the folder of the recipe's relative paths.

    Raises:
        UsageError: the options contradict each other, or ``out`` cannot be written.
        CheckpointError: the merge will keep no head of the task.
    """
    is_target_named = click.get_current_context().meta.get(TARGET_NAMED_KEY, False)
    problems = list_destination_problems(
        out, export_settings.overwrite, recipe, export_settings.to if is_target_named else ""
    )
    try:
        check_hub_ids(export_settings.hub_ids, [PRETRAINED, *(name for name, _ in recipe.experts)])
    except MergingError as error:
        problems.append(str(error))
    if export_settings.task and (export_settings.to == PEFT or out.suffix == SINGLE_FILE_SUFFIX):
        problems.append(NO_TASK if out.suffix != SINGLE_FILE_SUFFIX else NO_TASK_IN_FILE_PROBLEM)
    if problems:
        raise UsageError(problems)
    if export_settings.task:
        check_task(recipe, export_settings.task, base)


def compute_run(
    call: Call,
    recipe: Recipe,
    store: Path | None,
    out: Path | None,
    export_settings: ExportOptions,
    run_choices: RunChoices,
    need_model: bool = False,
    base: Path | None = None,
) -> None:
    """Run a recipe into the store, export the model to ``out`` unless that is None, and report both.

    ``base`` is the folder of the recipe's relative paths.
    """
    pretrained, announced = recipe.models(base)[PRETRAINED], False
    if out is not None:
        check_export(recipe, out, export_settings, base)
        stated_settings = replace(
            export_settings, activation=recipe.activation or None, architecture=recipe.architecture
        )
        announced = announce_export(pretrained, None, stated_settings, out)
    printed_warnings: list[str] = []

    def print_doubt(doubt: str) -> None:
        print_warning(doubt)
        printed_warnings.append(doubt)

    for sentence in recipe.unused:
        print_doubt(sentence)
    with report_progress(call.events) as progress:
        context = call.context(progress, run_choices.device, print_doubt)
        run = execute(
            recipe,
            Store(store),
            evaluate=run_choices.evaluate,
            need_model=need_model or out is not None,
            base=base,
            strict=run_choices.strict,
            announce=None if call.json or call.events else print_estimate,
            context=context,
        )
        if run_choices.evaluate:
            measure_by_program(run, Store(store), context)
        exported = None if out is None else write_export(run, out, export_settings, context, pretrained)
    work = _compute_chain_work(recipe, base) if call.json else None
    imported = find_scores(Store(store).root, run.id) if run.network else None
    print_run(call, run, exported, printed_warnings, announced=announced, work=work, imported=imported)


def measure_by_program(run: Run, store: Store, context: Context) -> None:
    """Let the user's program, if there is one, measure a run of a network other than CLIP, which has no scores.

    Raises:
        EvaluatorError: the program fails; the message says that the run is stored.
    """
    from merging.sharing.evaluator_program import find_evaluator
    from merging.sharing.measure_runs import measure_run

    if run.network and (program := find_evaluator()) is not None:
        try:
            measure_run(run, store, program, context)
        except EvaluatorError as error:
            raise EvaluatorError(f"{error} Run {run.id} is stored, without scores.") from None


def print_estimate(estimate: Estimate) -> None:
    """Print on stderr the expected time of a merge that learns, or the time and memory of a long merge of matrices."""
    source = "from runs on this machine" if estimate.is_from_own_runs else "a guess for a slow core"
    if estimate.matrices:
        if estimate.seconds >= LONG_MERGE_SECONDS:
            memory = size_text(estimate.anonymous_bytes)
            costs = f"about {duration_text(estimate.seconds)} in all ({source}), up to {memory} of memory"
            print(f"The merge decomposes {estimate.matrices} matrices: {costs}.", file=sys.stderr, flush=True)
        return
    print(f"The merge learns: about {duration_text(estimate.seconds)} in all ({source}).", file=sys.stderr, flush=True)


def _compute_chain_work(recipe: Recipe, base: Path | None) -> ChainWork | None:
    """The work of a recipe's merge, such as bytes to read and operations; None if one of its files no longer exists."""
    try:
        inputs = open_inputs(recipe, base)
        return chain_work(recipe, inputs.pretrained, inputs.experts)
    except MergingError:
        return None


def announce_export(model: Source, base: Source | None, export_settings: ExportOptions, out: Path) -> bool:
    """Print on stderr what an export of a model will lack, before anything is computed or written.

    ``base`` is the pretrained model, for files that lack parts.

    Returns whether the export will lack anything, including a text tower that the user declined.

    Raises:
        CheckpointError: the model cannot be exported.
    """
    target = TARGETS[0] if out.suffix == SINGLE_FILE_SUFFIX else export_settings.to
    note = describe_limits(
        model,
        base,
        to=target,
        activation=export_settings.activation,
        architecture=export_settings.architecture,
        text_tower=export_settings.text_tower,
    )
    if note and out.suffix != SINGLE_FILE_SUFFIX and export_settings.text_tower != NO_TEXT:
        print(f"{note} --text-tower takes the text tower of another model.", file=sys.stderr)
    return bool(note)


def announce_run_export(run: Run, recipe: Recipe, export_settings: ExportOptions, out: Path) -> bool:
    """``announce_export`` for a stored run, whose pretrained model may have been moved."""
    model = next(iter(run.model_paths.values())) if run.has_model else recipe.pretrained
    try:
        return announce_export(model, recipe.pretrained, export_settings, out)
    except (CheckpointError, OSError):
        return announce_export(model, None, export_settings, out)


def write_export(
    run: Run, out: Path, export_settings: ExportOptions, context: Context, pretrained: Source | None = None
) -> ExportResult:
    """Export a run: to one file or to a folder, by the suffix of ``out``."""
    if out.suffix == SINGLE_FILE_SUFFIX:
        return export_file(
            run, out, activation=export_settings.activation, architecture=export_settings.architecture, context=context
        )
    return export(run, out, base=pretrained, context=context, **vars(export_settings))


def list_cautions(run: Run) -> list[str]:
    """The cautions that are printed with a run's scores."""
    sentences = [TASK_KNOWN] if run.needs_task and not run.per_task else []
    return [*sentences, *([ADAPTS_ON_TEST] if run.adapts_on_test and run.has_scores else [])]


def collect_run_facts(run: Run, work: ChainWork | None = None) -> dict[str, Any]:
    """The facts of a run, for programs."""
    scores = run.scores
    summary = None if scores is None else summarize(scores, run.experts)
    names = ("id", "kind", "title", "device", "seconds", "warnings", "versions", "seed", "provenance", "per_task",
             "adapt", "adapted_on", "adapts_on_test", "needs_task", "test_images", "licenses")  # fmt: skip
    facts = {name: getattr(run, name) for name in names}
    facts |= {"path": run.path, "out": None, "models": run.model_paths}
    facts["work"] = None if work is None else asdict(work)
    facts["scores"] = None if scores is None else scores.to_dict("records")
    facts["summary"] = None if summary is None else asdict(summary)
    return facts


def print_run(
    call: Call,
    run: Run,
    exported: ExportResult | None,
    printed_warnings: Sequence[str] = (),
    *,
    announced: bool = False,
    work: ChainWork | None = None,
    imported: ScoreTable | None = None,
) -> None:
    """Print a run, in JSON with the work of its merge if that is known; print its warnings on stderr.

    ``printed_warnings`` are not printed again, nor are the missing parts of an export if they were ``announced``.
    ``imported`` are scores that the user's program or a file gave, not the benchmark.
    """
    for caution in run.cautions:
        if caution not in printed_warnings:
            print_warning(caution)
    if call.json:
        score_facts = {"file": imported.origin, "scores": list(map(asdict, imported.scores))} if imported else {}
        export_facts = {} if exported is None else collect_export_facts(exported)
        print(
            encode_json(collect_run_facts(run, work) | ({"given": score_facts} if score_facts else {}) | export_facts)
        )
        return
    scores = run.scores
    summary = None if scores is None else summarize(scores, run.experts)
    time_text = "precomputed" if run.provenance == PRECOMPUTED else f"{sum(run.seconds.values()):.1f} s on this machine"
    print(f"{run.title}: run {run.id} on {run.device}, {time_text}")
    texts = [*run.remarks, *([PER_TASK] if run.per_task else []), *list_cautions(run)]
    if exported is not None:
        texts += [*exported.warnings, *(() if announced else exported.missing_parts)]
        texts += [MODEL_ALONE_NOTE.format(run.adapt)] if run.adapt and not exported.folder.is_dir() else []
    for remark in texts:
        print(remark)
    if scores is not None and summary is not None:
        print(format_score_table(scores, run.experts))
        if run.test_images:
            print(f"Scores are of {printable(run.test_images)}.")
        in_domain = percent_with_interval(summary.in_domain, summary.in_low, summary.in_high)
        out_of_domain = percent_with_interval(summary.out_of_domain, summary.out_low, summary.out_high)
        print(f"In domain {in_domain} over {summary.tasks_in} tasks, {summary.n_in} images")
        print(f"Out of domain {out_of_domain} over {summary.tasks_out} tasks, {summary.n_out} images")
        print(f"H-score {100 * summary.h_score:.1f}" if summary.tasks_in and summary.tasks_out else "H-score –")
    if imported:
        print(f"Scores by {imported.origin}:")
        print("\n".join(map(format_score, imported.scores)))
    print(f"Written to {exported.folder if exported else run.path}")
