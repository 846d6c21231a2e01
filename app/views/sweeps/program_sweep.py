"""A sweep of another network than CLIP: what the user's program measured of its points."""

from __future__ import annotations

import streamlit as st

from app import text
from app.reading.given import swept
from app.reading.given.swept import GivenResults
from app.widgets import chart
from merging.sweeps.sweep import Sweep

NO_PROGRAM = (
    "A sweep of {} is measured by a program of yours. Start with MERGESCOPE_EVALUATOR, and go on with it; see "
    "docs/evaluator.md."
)


def results_of(sweep: Sweep) -> GivenResults:
    """The results of one program, which is chosen if several have measured points."""
    found = swept.found(sweep)
    place = 0
    if len(found) > 1:
        chosen = st.selectbox(
            "Measured by", range(len(found)), key=f"given_program_{sweep.id}",
            format_func=lambda number: f"{number + 1}. {found[number].program}, {len(found[number].points)} points",
        )  # fmt: skip
        place = int(chosen)
    return found[place]


def can_go_on(results: object) -> bool:
    """Whether the missing points of a sweep can be computed here: those that a program measures need one."""
    return not isinstance(results, GivenResults) or bool(swept.present_program()[0])


def draw(results: GivenResults, network: str) -> None:
    """The chart of the measured points, or why there is none."""
    sweep = results.sweep
    if not results.complete and not swept.present_program()[0]:
        st.info(NO_PROGRAM.format(text.safe_text(network, 60)))
    if not results.points:
        st.info("No point is measured yet. The first one appears here as soon as it is.")
        return
    table = swept.table(results)
    chart.chart(
        "sweep_given", table, name=f"sweep_{sweep.id}", title=sweep.labels[0], values=list(sweep.axes[0].values),
        series=list(dict.fromkeys(table["series"])), note=swept.note(results), of=(),
    )  # fmt: skip
    with st.expander("Every point as a table", icon=":material/table:"):
        columns = ["label", *(name for name in "xy" if name in table), "metric", "value", "n", "run"]
        names = dict(zip("xy", sweep.labels, strict=False)) | {
            "label": "Task", "metric": "Metric", "value": "Value", "n": "Examples", "run": "Run",
        }  # fmt: skip
        st.dataframe(table[columns], hide_index=True, column_config=names, alt="Scores of every point")
