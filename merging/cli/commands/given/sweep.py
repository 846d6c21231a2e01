"""What the command ``sweep`` does where the user's program measures the points: networks other than CLIP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from merging.cli.output import columns, dumps

if TYPE_CHECKING:
    from merging.evaluator.program import Evaluator
    from merging.runs.store import Store
    from merging.sweeps.sweep import NamedPoint, Sweep


def program_for(sweep: Sweep, workers: str, subject_to: str | None) -> Evaluator | None:
    """The program that measures a sweep; None for CLIP, which the benchmark measures.

    Raises:
        EvaluatorError: there is none, or the options are of sweeps that the benchmark measures.
    """
    from merging.errors import EvaluatorError
    from merging.evaluator.given_points import network_of
    from merging.evaluator.of_sweeps import no_evaluator
    from merging.evaluator.program import evaluator

    if not (network := network_of(sweep)):
        return None
    if workers:
        raise EvaluatorError(f"Workers compute points of CLIP; a sweep of {network} is measured here. Leave --workers.")
    if subject_to:
        raise EvaluatorError(f"--subject-to takes accuracies of the benchmark; this is a sweep of {network}.")
    if (program := evaluator()) is None:
        raise no_evaluator(network)
    return program


def planned_for(sweep: Sweep, program: Evaluator) -> list[NamedPoint]:
    """The points of a sweep that a program measures."""
    from merging.evaluator.given_points import command_of, plan_given

    return plan_given(sweep, command_of(program))


def tell_given_cost(planned: Sequence[NamedPoint], store: Store, program: Evaluator) -> None:
    """Print how many points are measured already."""
    from merging.evaluator.given_points import find_point
    from merging.sweeps.compute import distinct

    points = distinct(planned)
    stored = sum(find_point(store, one.name) is not None for one in points)
    print(f"{len(points)} points, {stored} of them stored; the others are measured with {program.name}.", flush=True)


def show_given(sweep: Sweep, planned: Sequence[NamedPoint], store: Store, program: Evaluator, plain: bool) -> None:
    """Print what the program measured of every point; ``plain`` is for JSON."""
    from merging.evaluator.given_points import find_point
    from merging.evaluator.tables import given_means, given_rows

    found = {one.run_id: point for one in planned if (point := find_point(store, one.name)) is not None}
    rows, means = given_rows(planned, found), given_means(planned, found)
    if plain:
        print(dumps({"id": sweep.id, "given": program.name, "means": means, "scores": rows}))
        return
    lines: list[Sequence[str]] = [("recipe", *sweep.labels, "task", "metric", "value", "n")]
    for row in rows:
        of = [f"{row['task']} {row['split']}".strip(), row["metric"]]
        lines.append((*_place(sweep, row), *of, f"{row['value']:g}", "–" if math.isnan(row["n"]) else f"{row['n']:,}"))
    for row in means:
        of = [f"mean of {row['tasks']}" if row["mean"] == "mean" else row["mean"], row["metric"]]
        lines.append((*_place(sweep, row), *of, f"{100 * row['value']:.1f} %", ""))
    print(columns(lines))
    print(f"Given by {program.name}; no benchmark of this program measured them.")


def _place(sweep: Sweep, row: dict[str, Any]) -> list[str]:
    recipe = sweep.recipes[row["line"]]
    return [recipe.title or recipe.text(), *(f"{row[name]:g}" for name in "xy" if name in row)]
