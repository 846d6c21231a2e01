"""Facts about subsets of the experts: what an expert costs or brings to a task, and the best subset of all.

They are read from the stored measurement of a run's chain on subsets of its experts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from merging.base.errors import LessonError, StoreError
from merging.base.text import did_you_mean
from merging.images.benchmarks.image_draws import CHOOSING
from merging.teaching.fact import PERCENT, POINTS, Cell, Fact

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.partners.subsets import MeasuredSubsets
    from merging.teaching.lesson_context import LessonContext

WORST_CELLS = 12  # of the losses, which a map of them marks, and those that are equal to the last one
SCORES = {"in": "in domain", "out": "out of domain", "h": "H-score"}


def change_by_expert(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The change of a task's accuracy when an expert joins its own in a pair, or with ``among`` "all", all others."""
    rows = _read_losses(context, arguments)
    row = _find_row(rows, arguments)
    return Fact(-row["loss"], POINTS, -row["high"], -row["low"], int(row["n"]), CHOOSING, 0, "experts that join")


def worst_changes(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The cells (task, expert) in which a task loses most, see ``WORST_CELLS``."""
    rows = _read_losses(context, arguments)
    rows = rows[rows["task"] != "out of domain"]
    pairs, titles = list(zip(rows["task"], rows["expert"], strict=True)), _find_titles(context)
    least = rows["loss"].nlargest(WORST_CELLS).min()
    worst = {pair for pair, loss in zip(pairs, rows["loss"], strict=True) if loss >= least}
    order = list(context.benchmark.experts).index
    ordered = sorted(pairs, key=lambda pair: (order(pair[0]), order(pair[1])))
    cells = tuple(Cell(str(task), titles[str(expert)], (task, expert) in worst) for task, expert in ordered)
    return Fact(
        len(worst) / max(len(cells), 1), PERCENT, n=len(cells), counted_unit="cells", source="experts that join",
        cells=cells, cell_axes=("Task", "Expert that joins"),
    )  # fmt: skip


def brought_value(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The Shapley value of an expert for a task, or for "out of domain"."""
    from merging.study.partners.shapley import shapley_table

    measured = _read_complete(context, str(arguments["run"]))
    row = _find_row(context.compute_once(("shapley", arguments["run"]), lambda: shapley_table(measured)), arguments)
    return Fact(row["value"], POINTS, row["low"], row["high"], int(row["n"]), CHOOSING, 0, "Shapley values")


def best_subset(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The best of all subsets ``by`` in, out or h: its "size", or its "names", as ``of`` says."""
    from merging.study.partners.best_subsets import score_subsets
    from merging.study.sweeps.sweep_target import list_members

    by, part = str(arguments["by"]), str(arguments["of"])
    if by not in SCORES or part not in ("size", "names"):
        raise LessonError(f"by is one of {', '.join(SCORES)} and of is size or names; got {by!r} and {part!r}.")
    measured = _read_complete(context, str(arguments["run"]))
    scores = score_subsets(measured)[SCORES[by]]
    best, source = max(scores, key=lambda subset: scores[subset]), f"the best of {len(scores)} subsets"
    if part == "size":
        return Fact(best.bit_count(), n=len(scores), counted_unit="subsets", half=CHOOSING, source=source, digits=0)
    titles = _find_titles(context)
    names = [titles[name] for name in list_members(measured.experts, best)]
    return Fact(name=", ".join(names) or "pretrained", half=CHOOSING, source=source)


def _find_titles(context: LessonContext) -> dict[str, str]:
    """The title of every data set, by its key."""
    return {task.key: task.title for task in context.benchmark.tasks}


def _read_losses(context: LessonContext, arguments: Mapping[str, Any]) -> pd.DataFrame:
    from merging.study.partners.who_hurts import AMONG_ALL, IN_PAIRS, loss_table

    run, among = str(arguments["run"]), AMONG_ALL if arguments.get("among", "pairs") == "all" else IN_PAIRS
    measured = _read_complete(context, run)
    return context.compute_once(("losses", run, among), lambda: loss_table(measured, among))


def _read_complete(context: LessonContext, run: str) -> MeasuredSubsets:
    """The measured subsets of the chain of an alias. Raises StoreError as long as some are missing."""
    from merging.study.partners.stored_subsets import read_subsets
    from merging.study.partners.subsets import plan_subsets

    recipe = context.build_recipe(run)
    measured = context.compute_once(
        ("subsets", run), lambda: read_subsets(plan_subsets(recipe), context.store, context.benchmark)
    )
    if not measured.complete:
        raise StoreError(
            f"Subsets of “{recipe.title or recipe.text()}” are not measured here. Measure them on Partners."
        )
    return measured


def _find_row(rows: pd.DataFrame, arguments: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("task", "expert"):
        if arguments[name] not in set(rows[name]):
            near = did_you_mean(str(arguments[name]), set(rows[name]))
            raise LessonError(f"There is no {name} {str(arguments[name])!r} among the experts.{near}")
    found = rows[(rows["task"] == arguments["task"]) & (rows["expert"] == arguments["expert"])].to_dict("records")
    if not found:
        raise LessonError("A task and its own expert have no such change.")
    return {str(name): value for name, value in found[0].items()}
