"""The command ``tune``: search for the best values of a chain, beside random search and a grid."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merging.base.errors import Cancelled, Paused
from merging.base.text import duration_text, percent_with_interval
from merging.cli.call import Call
from merging.cli.exit_codes import CANCELLED, DONE, PAUSED, UsageError
from merging.cli.options import (
    Command,
    argument,
    device_option,
    job_options,
    mixed_option,
    option,
    pause_sweep_option,
    workers_option,
)
from merging.cli.output import encode_json, format_columns, print_warning, report_progress
from merging.cli.recipe_argument import find_recipe

if TYPE_CHECKING:
    from merging.study.runs.run_store import Store
    from merging.study.tuning.tuning import Tuning
    from merging.study.tuning.tuning_session import TuningSession, TuningTrace

MINUTES = "min"  # the unit of a budget of time


@click.command(cls=Command)
@argument("recipe", nargs=1, required=False, metavar="[RECIPE]", help="a recipe file, or the id of a stored run")
@option(
    "--space",
    multiple=True,
    metavar="WHAT[=VALUES]",
    help="such as ties.density=0.1:0.9, lwptv.prune_ratio=0.2|0.5, edits=none|lwptv or coefficients.0-3=0:1.5 (a "
    "factor of each expert in blocks 0 to 3); repeat it. Without VALUES the range is that of the parameter",
)
@option("--objective", multiple=True, metavar="NAME", help="h (H-score, the default), in, out or worst; up to three")
@option("--sampler", default="", help="tpe, cmaes or nsga2; by default tpe, of several objectives nsga2")
@option("--budget", default="60", show_default=True, help="points of each search, or minutes of all, such as 30min")
@option("--batch", type=int, default=4, show_default=True, help="points that the search asks for at once")
@option("--images", type=int, default=128, show_default=True, help="images of each task, 0 for all")
@option("--seed", type=int, default=0, help="the seed of the searches and of the sampled images")
@option("--title", default="", help="the title of the tuning")
@option("--stored", metavar="ID", help="continue a stored tuning")
@option("--describe", is_flag=True, help="print the id that --stored takes, and compute nothing")
@pause_sweep_option
@workers_option
@mixed_option
@job_options
@device_option
@click.pass_obj
def tune(call: Call, /, stored: str | None, describe: bool, store: Path | None, device: str, **options: Any) -> int:
    """Search for the best values of a chain; report the best on other images, beside random search and a grid."""
    from merging.base.files.short_digest import resolve_prefix
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.runs.run_store import Store
    from merging.study.tuning import tuning as tunings
    from merging.study.tuning.tuning_session import TuningSession
    from merging.study.tuning.tuning_tables import estimate_tuning
    from merging.tasks.pack_folders import list_libraries

    run_store = Store(store, libraries=list_libraries((benchmark := Benchmark.load()).folder, store))
    if stored:
        current = tunings.find_tuning(run_store, resolve_prefix(stored, tunings.list_tunings(run_store)))
    else:
        current = _read_tuning(options, run_store)
    session = TuningSession(current, run_store, benchmark, call.context(None, device, print_warning))
    if not stored:
        tunings.store_tuning(current, run_store)
    if describe:
        print(encode_json({"id": current.id}) if call.json else current.id)
        return DONE
    if call.events is None and not call.json:
        cost = estimate_tuning(session)
        budget = f"{cost.points} points, {cost.stored} of them stored" if current.points else "Until the time is over"
        print(f"{budget}; about {duration_text(cost.seconds)}.", flush=True)
    if (code := _compute(call, session, device)) != DONE:
        return code
    _print_trace(call, session.read(), session)
    return DONE


def _read_tuning(options: dict[str, Any], store: Store) -> Tuning:
    """The tuning that the options describe. Raises UsageError if they name no recipe, or no budget."""
    from merging.study.tuning.space import parse_entries
    from merging.study.tuning.tuning import Tuning

    if not options["recipe"]:
        raise UsageError(["Name a recipe: a file, or the id of a stored run."])
    budget, minutes = str(options["budget"]).strip(), 0.0
    is_time = budget.endswith(MINUTES)
    try:
        points, minutes = (0, float(budget.removesuffix(MINUTES))) if is_time else (int(budget), 0.0)
    except ValueError:
        raise UsageError([f"A budget is a number of points, or minutes such as 30min; got {budget[:40]!r}."]) from None
    return Tuning(
        recipe=find_recipe(options["recipe"], store), space=parse_entries(options["space"]),
        objectives=tuple(options["objective"]) or ("h",), points=points, minutes=minutes,
        **{name: options[name] for name in ("sampler", "batch", "images", "seed", "title")},
    )  # fmt: skip


def _compute(call: Call, session: TuningSession, device: str) -> int:
    """Compute the missing points, print a sentence if the tuning was stopped or paused, and return the exit code."""
    from merging.study.tuning.tuning_session import run_tuning

    tuning = session.tuning
    remedy = f"`tune --stored {tuning.id}` continues the tuning."
    try:
        with report_progress(call.events) as progress:
            outcome = run_tuning(
                tuning, session.store, session.benchmark, context=call.context(progress, device, print_warning)
            )
    except Paused:
        raise
    except Cancelled:
        print(f"Stopped; the computed points are stored. {remedy}")
        return CANCELLED
    if outcome.paused:
        print(f"Paused at {outcome.stored} points; {remedy}")
        return PAUSED
    return DONE


def _print_trace(call: Call, trace: TuningTrace, session: TuningSession) -> None:
    """Print the best of each search on the choosing and on the reporting half; as JSON also every trial."""
    from merging.study.tuning.space import write_values
    from merging.study.tuning.tuning import OBJECTIVES
    from merging.study.tuning.tuning_tables import best_table, importance_table, trial_table

    trials, best = trial_table(trace), best_table(trace, session.benchmark).to_dict("records")
    if call.json:
        importances = importance_table(trace).to_dict("records")
        print(encode_json({"id": trace.tuning.id, "trials": trials.to_dict("records"), "best": best,
                           "importances": importances}))  # fmt: skip
        return
    found = {(row["search"], row["trial"]): row for row in trials.to_dict("records")}
    lines = [("search", "trials", "best by", "choosing half", "reporting half [95 %]", "too optimistic by", "values")]
    for row in best:
        values = write_values(found[row["search"], row["trial"]]["values"])
        lines.append((
            row["search"], str(row["trials"]), OBJECTIVES[row["objective"]], f"{100 * row['chosen']:.1f} %",
            percent_with_interval(row["value"], row["low"], row["high"]),
            f"{100 * row['gap']:+.1f} [{100 * row['gap_low']:+.1f}, {100 * row['gap_high']:+.1f}]", values,
        ))  # fmt: skip
    print(format_columns(lines))
    if len(trace.tuning.objectives) > 1:
        print(f"{trials.loc[trials['on_front'], 'point'].nunique()} points are on the front; the best has the highest "
              "harmonic mean of the objectives.")  # fmt: skip
    print("Values are chosen on the choosing half, so the reporting half has the score on other images.")
    counts = trace.count_trials()
    if counts.get("grid", 0) < counts["tune"]:
        print("The grid is smaller than the budget: it has every combination of the choices.")
    print(f"Tuning {trace.tuning.id} is stored in {session.store.root}")
