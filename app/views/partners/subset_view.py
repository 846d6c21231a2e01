"""Leave one out, put one in on the Partners page: the best subset of each size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app.reading import expert_names
from app.views.partners import partner_data
from app.views.partners.partner_data import Team
from app.widgets import chart_view, page_parts
from app.widgets.jobs import sweep_status
from viz.figure_text import plural

if TYPE_CHECKING:
    import pandas as pd

MEANING = (
    "In domain are the tasks of all experts of the team, also of those that a subset leaves out. H-score is the "
    "harmonic mean of in and out of domain. Each subset is the best of its size on the choosing half, so its score "
    "there is too high: the reporting half says by how much."
)
NOT_REPORTED = (
    "These scores are of the images by which the subsets were chosen, so they are **too optimistic**. The reporting "
    "half gives their scores on other images."
)
COLUMNS = {
    "label": "Best", "size": "Experts", "subset": "Subset", "tried": "Tried", "chosen": "Choosing half (%)",
    "value": "Reporting half (%)", "low": "Low", "high": "High", "gap": "Too optimistic by", "gap_low": "Gap: low",
    "gap_high": "Gap: high", "n": "Images",
}  # fmt: skip


def draw_view(team: Team) -> None:
    """Draw the best subset of each size, and what it scores on the other half."""
    measured, report = team.answers, team.report
    if team.report_sweep is not None and report is None:
        st.markdown(NOT_REPORTED)
        sweep_status.draw_job(team.report_sweep, "Measure on the reporting half", "partners_report")
    best = partner_data.read_best(
        team.stored_subsets.key, report.key if report else "", measured, report.answers if report else None
    )
    named = best.assign(
        label=best["metric"].map(lambda name: name[:1].upper() + name[1:]),
        subset=best["subset"].map(_name_subset),
    )
    chart_view.draw_chart(
        "best_subsets", named, name=f"subsets_{team.sweep.id}", total=len(measured.experts),
        caption=f"{MEANING} {_gap_in_words(best)} {team.note}", sources=[team.sweep],
    )  # fmt: skip
    with st.expander("Every best subset as a table", icon=":material/table:"):
        shares = ["chosen", "value", "low", "high", "gap", "gap_low", "gap_high"]
        rows = named[[*COLUMNS]].assign(**{name: (100 * named[name]).round(1) for name in shares})
        page_parts.draw_table(rows, "The best subset of each size by each score", COLUMNS, "auto")


def _name_subset(keys: str) -> str:
    return " + ".join(map(expert_names.expert_name, keys.split(" + "))) if keys else "pretrained"


def _gap_in_words(best: pd.DataFrame) -> str:
    """A sentence on how much too optimistic the choices are; empty as long as it is unknown."""
    chosen = best[best["gap"].notna() & (best["tried"] > 1)]
    if chosen.empty:
        return ""
    means = ", ".join(
        f"{100 * gap:+.1f} {name}" for name, gap in chosen.groupby("metric", sort=False)["gap"].mean().items()
    )
    count = plural(len(chosen), "choice")
    return f"Mean optimism of {count}, in points: {means}. It includes how much the two halves differ."
