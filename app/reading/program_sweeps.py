"""Sweeps of networks other than CLIP: the points that programs have measured, and the table of their chart.

A program is the user's own evaluator, a command line. A point is stored under a name made of its inputs: the contents
of the files, and the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import page_data, recipes, sweeps
from app.reading.sweeps import SweepPoints
from merging.base.errors import MergingError
from merging.sharing.evaluator_program import Evaluator, find_evaluator
from merging.sharing.evaluator_session import ProgramSession, list_programs, rename_points
from merging.study.runs.run_store import Store
from merging.study.score_table import MEAN, PROGRAM
from merging.study.sweeps.known_points import KnownPoints
from merging.study.sweeps.sweep import NamedPoint, Sweep
from merging.study.sweeps.sweep_tables import score_means, score_rows
from viz.figure_text import clean_text, plural

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ProgramResults(SweepPoints):
    """A sweep's points that a program has measured, and the program's name."""

    program: str


def network_of_sweep(sweep: Sweep) -> str:
    """The name of the network that a sweep merges; empty for CLIP, and for files that cannot be opened."""
    first = sweep.recipes[0]
    return recipes.network_name(first.pretrained, first.family)


def find_program() -> tuple[str, str]:
    """The digest of the command line that the app was started with, and its name; empty without a program."""
    try:
        program = find_evaluator()
    except MergingError:
        return "", ""
    return (program.command_digest, program.name) if program else ("", "")


def find_results(sweep: Sweep) -> list[ProgramResults]:
    """The results of a sweep for each program that has measured points of it, first those of the app's own program.

    Raises:
        CheckpointError: a file of the sweep is gone.
    """
    command, name = find_program()
    references = sorted(
        {path for recipe in sweep.recipes for path in (recipe.pretrained, *dict(recipe.experts).values())}
    )
    files = str([page_data.file_state(path) for path in references])
    results = []
    for digest, program in (({command: name} if command else {}) | list_programs(page_data.store())).items():
        known_points = _known_points(sweep.id, files, digest, page_data.store(), page_data.current_digest(), sweep)
        points = known_points.read_points()
        if points or digest == command:
            results.append(ProgramResults(sweep, known_points.planned, points, program))
    return results or [ProgramResults(sweep, _planned_points(sweep.id, files, sweep), {}, "")]


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs={Store: id})
def _known_points(sweep_id: str, files: str, command: str, store: Store, benchmark: str, _sweep: Sweep) -> KnownPoints:
    """The points of a sweep by one program; points stay in memory once they are read."""
    planned = rename_points(_planned_points(sweep_id, files, _sweep), command)
    return KnownPoints(planned, store, page_data.benchmark(), _sweep.sample)


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner="Reading the checkpoints …")
def _planned_points(sweep_id: str, files: str, _sweep: Sweep) -> list[NamedPoint]:
    """The planned points without a program; ``rename_points`` names them for a program."""
    session = ProgramSession(page_data.benchmark(), _sweep.sample, store=page_data.store(), program=Evaluator(()))
    return session.plan_sweep(_sweep)


def program_table(results: ProgramResults) -> pd.DataFrame:
    """A row for each score, and for each mean over tasks; see ``viz.figures.sweep_figures.sweep_given``."""
    import pandas as pd

    sweep = results.sweep
    rows = []
    for row in score_rows(results.planned_points, results.points):
        task = f"{row['task']}, {row['split']}" if row["split"] else str(row["task"])
        rows.append({**row, "label": _series_label(sweep, row, task), "mean": False})
    for row in score_means(results.planned_points, results.points):
        name = "Mean" if row["mean"] == MEAN else str(row["mean"])[:1].upper() + str(row["mean"])[1:]
        words = f"{name} of {plural(row['tasks'], 'task')}"
        missing = dict.fromkeys(("low", "high", "n"), float("nan")) | {"better": "", "proportion": True, "mean": True}
        labels = {"source": PROGRAM, "origin": results.program, "label": _series_label(sweep, row, words)}
        rows.append({**row, **missing, **labels})
    return pd.DataFrame([{**row, "series": row["label"]} for row in rows])


def _series_label(sweep: Sweep, row: Mapping[str, Any], words: str) -> str:
    """The name of a series: a task or a mean, with its recipe and second value where there are several."""
    parts = [clean_text(sweeps.recipe_titles(sweep)[row["line"]], 40)] if len(sweep.recipes) > 1 else []
    parts += [f"{sweep.labels[1].partition(': ')[2] or sweep.labels[1]} {row['y']:g}"] if "y" in row else []
    return " · ".join([words, *parts])


def program_note(results: ProgramResults) -> str:
    """The note under the chart: the program that measured, and that these are not scores of the benchmark."""
    domains = any(row["mean"] != MEAN for row in score_means(results.planned_points, results.points))
    in_domain = " In domain are tasks named like an expert." if domains else ""
    return (
        f"Measured by {page_text.plain_text(results.program)}, {len(results.points)} of "
        f"{plural(results.total, 'point')}. Open "
        f"diamonds are scores of a program, not of the benchmark; means are over tasks with the same metric.{in_domain}"
    )
