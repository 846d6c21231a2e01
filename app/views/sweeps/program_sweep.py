"""A sweep of a network other than CLIP: the scores of its points that the user's program measured."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import program_sweeps
from app.reading.program_sweeps import ProgramResults
from app.reading.sweeps import SweepPoints
from app.widgets import chart_view, page_parts
from merging.study.sweeps.sweep import Sweep

NO_PROGRAM = (
    "Your own program measures a sweep of {}. Start the app with MERGESCOPE_EVALUATOR, and resume the sweep; see "
    "docs/evaluator.md."
)


def choose_results(sweep: Sweep) -> ProgramResults:
    """The results of one program, with a picker if several programs (evaluators of the user) measured points."""
    results_by_program = program_sweeps.find_results(sweep)

    def label(position: int) -> str:
        measured = results_by_program[position]
        return f"{position + 1}. {measured.program}, {len(measured.points)} points"

    if len(results_by_program) == 1:
        return results_by_program[0]
    numbers = range(len(results_by_program))
    return results_by_program[st.selectbox("Measured by", numbers, key=f"given_program_{sweep.id}", format_func=label)]


def can_compute(results: SweepPoints) -> bool:
    """Whether the missing points of a sweep can be computed; points that a program measures need that program."""
    program, _ = program_sweeps.find_program()
    return not isinstance(results, ProgramResults) or bool(program)


def draw_results(results: ProgramResults, network: str) -> None:
    """Draw the chart of the measured points, or a notice of why there is none."""
    sweep = results.sweep
    if not results.complete and not can_compute(results):
        st.info(NO_PROGRAM.format(page_text.safe_text(network, 60)))
    if not results.points:
        st.info("No point is measured yet. The first one appears as soon as it is.")
        return
    table = program_sweeps.program_table(results)
    chart_view.draw_chart(
        "sweep_given", table, name=f"sweep_{sweep.id}", title=sweep.labels[0], values=list(sweep.axes[0].values),
        series=list(dict.fromkeys(table["series"])), note=program_sweeps.program_note(results), sources=(),
    )  # fmt: skip
    with st.expander("Every point as a table", icon=":material/table:"):
        columns = ["label", *(name for name in "xy" if name in table), "metric", "value", "n", "run"]
        names = dict(zip("xy", sweep.labels, strict=False)) | {
            "label": "Task", "metric": "Metric", "value": "Value", "n": "Examples", "run": "Run",
        }  # fmt: skip
        page_parts.draw_table(table[columns], "Scores of every point", names, "auto")
