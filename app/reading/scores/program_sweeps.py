"""Sweeps of networks other than CLIP: the points that programs have measured, and the table of their chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import text
from app.reading import data, recipes, sweeps
from merging.errors import MergingError
from merging.evaluator.given_points import GivenPoint, command_of, plan_given, points_of
from merging.evaluator.program import evaluator
from merging.evaluator.tables import MEAN, given_means, given_rows
from merging.sweeps.sweep import NamedPoint, Sweep
from viz.text import clean_text, plural

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class GivenResults:
    """A sweep's planned points, the measured ones by run, and what the program that measured them is called."""

    sweep: Sweep
    planned: Sequence[NamedPoint]
    points: Mapping[str, GivenPoint]
    program: str

    @property
    def total(self) -> int:
        """The number of planned points."""
        return len({one.run_id for one in self.planned})

    @property
    def complete(self) -> bool:
        """Whether every planned point is measured."""
        return len(self.points) == self.total


def network(sweep: Sweep) -> str:
    """What the network that a sweep merges is called; empty for CLIP, and for files that cannot be opened."""
    first = sweep.recipes[0]
    return recipes.network(first.pretrained, first.family)


def present_program() -> tuple[str, str]:
    """The digest of the command line that the app was started with, and its name; empty without a program."""
    try:
        program = evaluator()
    except MergingError:
        return "", ""
    return (command_of(program), program.name) if program else ("", "")


def found(sweep: Sweep) -> list[GivenResults]:
    """The results of a sweep by each program that has measured points of it, or would: that of the app goes first.

    Raises:
        CheckpointError: a file of the sweep is gone.
    """
    command, name = present_program()
    references = sorted({path for one in sweep.recipes for path in (one.pretrained, *dict(one.experts).values())})
    planned = _planned(sweep.id, str([data.file_state(path) for path in references]), sweep)
    by_command = points_of(data.store(), {one.run_id for one in planned})
    if command:
        by_command = {command: by_command.get(command, {}), **by_command}
    elif not by_command:
        by_command = {"": {}}
    return [
        GivenResults(sweep, planned, points, next(iter(points.values())).source if points else name)
        for points in by_command.values()
    ]


@st.cache_data(max_entries=data.KEPT, show_spinner="Reading the checkpoints …")
def _planned(sweep_id: str, files: str, _sweep: Sweep) -> list[NamedPoint]:
    """The plan, whose points are found by their runs, whichever program measured them."""
    return plan_given(_sweep, "")


def table(results: GivenResults) -> pd.DataFrame:
    """A row for each score, and for each mean over tasks; see ``viz.figures.sweeps.sweep_given``."""
    import pandas as pd

    sweep = results.sweep
    rows = []
    for row in given_rows(results.planned, results.points):
        task = f"{row['task']}, {row['split']}" if row["split"] else str(row["task"])
        rows.append({**row, "label": _label(sweep, row, task), "mean": False})
    for row in given_means(results.planned, results.points):
        name = "Mean" if row["mean"] == MEAN else str(row["mean"])[:1].upper() + str(row["mean"])[1:]
        words = f"{name} of {plural(row['tasks'], 'task')}"
        missing = {
            "low": float("nan"),
            "high": float("nan"),
            "n": float("nan"),
            "better": "",
            "source": results.program,
        }
        rows.append({**row, **missing, "label": _label(sweep, row, words), "proportion": True, "mean": True})
    return pd.DataFrame([{**row, "series": row["label"]} for row in rows])


def _label(sweep: Sweep, row: Mapping[str, Any], words: str) -> str:
    """A series: a task or a mean, of which recipe and at which second value where there are several."""
    of = [clean_text(sweeps.titles(sweep)[row["line"]], 40)] if len(sweep.recipes) > 1 else []
    of += [f"{sweep.labels[1].partition(': ')[2] or sweep.labels[1]} {row['y']:g}"] if "y" in row else []
    return " · ".join([words, *of])


def note(results: GivenResults) -> str:
    """The note under the chart: who measured, and that nothing of it is a score of the benchmark."""
    domains = any(row["mean"] != MEAN for row in given_means(results.planned, results.points))
    said = " In domain are tasks called like an expert." if domains else ""
    return (
        f"Given by {text.plain(results.program)}, {len(results.points)} of {plural(results.total, 'point')}. Open "
        f"diamonds are scores of a program, not of the benchmark; means are over tasks of one proportion.{said}"
    )
