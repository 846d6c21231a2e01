"""The command ``scores``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from merging.cli.call import Call
from merging.cli.exit_codes import DONE
from merging.cli.option_types import PATH
from merging.cli.options import Command, argument, job_options, option
from merging.cli.output import encode_json, format_score, print_warning, report_progress

if TYPE_CHECKING:
    from merging.study.runs.run_store import Store


@click.command(cls=Command)
@argument("run", help="the run's id")
@option("--from", "source", type=PATH, help="CSV with the columns task,split,metric,value,n, or JSON of lm-eval")
@option("--evaluate", is_flag=True, help="measure it with the program of MERGESCOPE_EVALUATOR")
@option("--references", is_flag=True, help="with --evaluate: also measure the pretrained model and each expert")
@job_options
@click.pass_obj
def scores(call: Call, run: str, source: Path | None, evaluate: bool, references: bool, store: Path | None) -> int:
    """List the imported scores of a run, or import them from a file or a program."""
    from merging.base import settings
    from merging.study.imported_scores import find_scores, store_scores
    from merging.study.runs.run_store import Store
    from merging.study.score_files import read_scores
    from merging.tasks.pack_folders import list_libraries

    run_store = Store(store, libraries=list_libraries(settings.benchmark_folder(), store))
    run_id = run_store.get_run(run_store.resolve_id(run)).id
    if source is not None:
        store_scores(run_store.root, run_id, read_scores(source))
    if evaluate:
        _measure_run(call, run_store, run_id, references)
    stored_scores = find_scores(run_store.root, run_id)
    if call.json:
        file, scores = (stored_scores.origin, stored_scores.scores) if stored_scores else ("", ())
        print(encode_json({"run": run_id, "file": file, "scores": [asdict(score) for score in scores]}))
        return DONE
    if not stored_scores:
        print(f"Run {run_id} has no imported scores. Import some with --from FILE, or --evaluate.")
        return DONE
    print(f"Run {run_id}, scores from {stored_scores.origin}:")
    for score in stored_scores.scores:
        print(format_score(score))
    return DONE


def _measure_run(call: Call, run_store: Store, run_id: str, references: bool) -> None:
    """Measure a run with the user's program, replacing its scores; with ``references``, also the models it merged."""
    from merging.base.errors import EvaluatorError
    from merging.sharing.evaluator_program import require_evaluator
    from merging.sharing.measure_runs import measure_merged_models, measure_run

    program = require_evaluator("There is no program that measures models.")
    run = run_store.get_run(run_id)
    if not run.network:
        raise EvaluatorError(f"Run {run_id} is of CLIP, which the benchmark measures: mergescope run.")
    with report_progress(call.events) as progress:
        context = call.context(progress)
        measure_run(run, run_store, program, context, replace=True)
        problems = measure_merged_models(run, run_store, program, context) if references else []
    for sentence in problems:
        print_warning(sentence)
