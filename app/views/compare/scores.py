"""Scores on the Compare page: every average and data set, with the difference and its paired interval."""

from __future__ import annotations

import math

import streamlit as st

from app.reading import measurements
from app.views.compare import data
from app.views.compare.data import Pair
from app.widgets import chart, measure_button
from merging.analysis.stored import Measured
from merging.runs.run import Run
from viz.text import percent, plural

NOT_SCORED = "Scores compare once both runs were evaluated on one benchmark, or their answers to every image are known."
NOT_KNOWN = "Which images are right, and with that intervals of the difference, is not known yet for"


def view(of: Pair) -> None:
    """The picture of the differences, and the numbers behind it."""
    table = data.differences(of)
    if table is None:
        st.info(NOT_SCORED)
    else:
        numbers = table.drop(columns=["said_a", "said_b"])
        chart.chart(
            "compare_scores", numbers, name=f"scores_{file_name(of)}", labels=of.labels,
            caption=caption(of, len(table)), of=of.runs,
        )  # fmt: skip
        shown = table.assign(
            said_a=[said(*cell) for cell in table["said_a"]],
            said_b=[said(*cell) for cell in table["said_b"]],
            difference=100 * table["difference"],
            interval=[between(low, high) for low, high in zip(table["low"], table["high"], strict=True)],
        )
        st.dataframe(
            shown[["title", "difference", "interval", "said_a", "said_b", "group", "n"]],
            hide_index=True,
            height="content",
            column_config={
                "title": st.column_config.TextColumn("Data set or average", pinned=True),
                "group": "Group",
                "said_a": st.column_config.TextColumn("A", help=of.labels[0]),
                "said_b": st.column_config.TextColumn("B", help=of.labels[1]),
                "difference": st.column_config.NumberColumn("B − A, points", format="%+.1f"),
                "interval": st.column_config.TextColumn("95% interval, paired"),
                "n": st.column_config.NumberColumn("Images", format="localized"),
            },
            alt="Scores of both runs and their difference",
        )
    missing(of)


def missing(of: Pair) -> None:
    """The offer to note what the runs take each image for."""
    if of.unknown:
        measure_button.missing(measurements.PREDICTIONS, of.unknown, NOT_KNOWN, of.known)


def caption(of: Pair, count: int) -> str:
    """How the differences were found."""
    if of.unknown:
        return "Differences of accuracies on the reporting half, without intervals as long as answers are not known."
    from merging.analysis.agreement import RESAMPLES, SEED

    return (
        "Accuracy on the reporting half; averages are over data sets, unweighted. Intervals: the images of each data "
        f"set are drawn again {RESAMPLES:,} times, the same ones for both runs, seed {SEED}. A filled dot's interval "
        f"leaves zero out. Each interval is by itself: of {count}, one in twenty would miss zero by chance. "
        f"{measure_button.origin(of.known)}{differing(of.known)}"
    )


def differing(found: list[Measured]) -> str:
    """A sentence if the answers are not those that the stored scores count."""
    off = sum(int(one.notes.get("differing", 0)) for one in found)
    if not off:
        return ""
    return f" {plural(off, 'answer')} came out otherwise than when the runs were scored, on another processor."


def said(value: float, low: float, high: float) -> str:
    """'62.3% (59.1% to 65.2%)'."""
    interval = "" if math.isnan(low) else f" ({percent(low)} to {percent(high)})"
    return f"{percent(value)}{interval}"


def between(low: float, high: float) -> str:
    """'−1.2 to +3.4', in points."""
    return "—" if math.isnan(low) else f"{100 * low:+.1f} to {100 * high:+.1f}"


def file_name(of: Pair) -> str:
    """How files about the two runs end."""
    one, other = (_short(run) for run in of.runs)
    return f"{one}_{other}"


def _short(run: Run) -> str:
    return run.id[:8]
