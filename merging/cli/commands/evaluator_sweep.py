"""The part of the command ``sweep`` for networks other than CLIP, whose points the user's program measures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from merging.cli.output import encode_json, format_columns

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.sharing.evaluator_session import ProgramSession
    from merging.study.runs.run_store import Store
    from merging.study.sweeps.sweep import NamedPoint, Sweep


def open_program_session(
    sweep: Sweep, store: Store, benchmark: Benchmark, workers: str, subject_to: str | None
) -> ProgramSession | None:
    """The session that measures a sweep with the user's program; None for CLIP, which the benchmark measures.

    Raises:
        EvaluatorError: there is no program, or an option is only for sweeps that the benchmark measures.
    """
    from merging.base.errors import EvaluatorError
    from merging.sharing.evaluator_program import require_evaluator
    from merging.sharing.evaluator_session import ProgramSession, find_network

    if not (network := find_network(sweep)):
        return None
    if workers:
        raise EvaluatorError(
            f"Workers compute points of CLIP; a sweep of {network} is measured in this process. Leave out --workers."
        )
    if subject_to:
        raise EvaluatorError(f"--subject-to takes accuracies of the benchmark; this is a sweep of {network}.")
    program = require_evaluator(f"A sweep of {network} is measured by your own program.")
    return ProgramSession(benchmark, sweep.sample, store=store, program=program)


def print_stored_points(planned_points: Sequence[NamedPoint], session: ProgramSession) -> None:
    """Print how many points are measured already."""
    from merging.study.sweeps.known_points import list_absent
    from merging.study.sweeps.sweep_session import drop_repeated

    points = drop_repeated(planned_points)
    stored = len(points) - len(list_absent(points, session.store, session.benchmark, session.sample))
    name = session.program.name
    print(f"{len(points)} points, {stored} of them stored; the others are measured with {name}.", flush=True)


def print_points(sweep: Sweep, planned_points: Sequence[NamedPoint], session: ProgramSession, as_json: bool) -> None:
    """Print the program's scores of every point, in JSON if ``as_json``."""
    from merging.study.sweeps.known_points import KnownPoints
    from merging.study.sweeps.sweep_tables import score_means, score_rows

    name = session.program.name
    measured_points = KnownPoints(planned_points, session.store, session.benchmark, session.sample).read_points()
    rows, means = score_rows(planned_points, measured_points), score_means(planned_points, measured_points)
    if as_json:
        print(encode_json({"id": sweep.id, "given": name, "means": means, "scores": rows}))
        return
    lines: list[Sequence[str]] = [("recipe", *sweep.labels, "task", "metric", "value", "n")]
    for row in rows:
        label = [f"{row['task']} {row['split']}".strip(), row["metric"]]
        images = "–" if math.isnan(row["n"]) else f"{row['n']:,}"
        lines.append((*_describe_point(sweep, row), *label, f"{row['value']:g}", images))
    for row in means:
        label = [f"mean of {row['tasks']}" if row["mean"] == "mean" else row["mean"], row["metric"]]
        lines.append((*_describe_point(sweep, row), *label, f"{100 * row['value']:.1f} %", ""))
    print(format_columns(lines))
    print(f"These scores are from {name}; the benchmark did not measure them.")


def _describe_point(sweep: Sweep, row: dict[str, Any]) -> list[str]:
    recipe = sweep.recipes[row["line"]]  # the number of the recipe; x and y are the values on the axes
    return [recipe.title or recipe.text(), *(f"{row[name]:g}" for name in "xy" if name in row)]
