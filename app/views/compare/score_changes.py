"""Scores on the Compare page: every average and data set, with the difference and its paired interval."""

from __future__ import annotations

import math

import streamlit as st

from app.reading import imported_runs, measurements, samples
from app.views.compare import run_pair
from app.views.compare.run_pair import RunPair
from app.views.scores import imported_chart
from app.widgets import chart_view
from app.widgets.jobs import measure_button
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import percent, plural

NOT_SCORED = "Scores can be compared if both runs were evaluated on one benchmark, or if their predictions are stored."
COMMON = (
    "A and B merge different experts, so their own averages are over different images. The averages here are over the "
    "data sets that are in domain for both, or out of domain for both: the same n for A and B."
)
NOT_KNOWN = "The predictions for every image, which intervals of the difference need, are not stored yet for"


def draw_view(of: RunPair) -> None:
    """The chart of the differences, and its numbers."""
    table = run_pair.score_differences(of)
    if _draw_imported(of):
        pass  # of networks whose scores come from elsewhere
    elif table is None:
        st.info(NOT_SCORED)
    else:
        numbers = table.drop(columns=["said_a", "said_b"])
        chart_view.draw_chart(
            "compare_scores", numbers, name=f"scores_{file_name(of)}", labels=of.labels,
            caption=caption_of(of, len(table)), of=of.runs,
        )  # fmt: skip
        rows = table.assign(
            said_a=[format_interval(*cell) for cell in table["said_a"]],
            said_b=[format_interval(*cell) for cell in table["said_b"]],
            difference=100 * table["difference"],
            interval=[format_range(low, high) for low, high in zip(table["low"], table["high"], strict=True)],
        )
        st.dataframe(
            rows[["title", "difference", "interval", "said_a", "said_b", "group", "n"]],
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
    if not any(run.network for run in of.runs):
        draw_missing(of)


def _draw_imported(of: RunPair) -> bool:
    """Draw imported scores of runs of other networks; whether there was something to say of them."""
    if not any(run.network for run in of.runs):
        return False
    if len({imported_runs.network_kind(run) for run in of.runs}) > 1:
        st.info("A and B are different networks, so their scores are in no common chart.")
    elif runs := imported_runs.runs_with_scores(list({run.id: run for run in of.runs}.values())):
        chart_view.draw_question("given_scores")
        imported_chart.draw_runs(runs, [run.id for run in of.runs])
    else:
        st.info(imported_runs.NO_SCORES)
    return True


def draw_missing(of: RunPair) -> None:
    """The offer to store the runs' predictions."""
    if of.runs_without_predictions:
        measure_button.draw_missing(measurements.PREDICTIONS, of.runs_without_predictions, NOT_KNOWN, of.predictions)


def caption_of(of: RunPair, count: int) -> str:
    """How the differences were computed, and on which images."""
    common = "" if of.has_same_domain else f" {COMMON}"
    if of.runs_without_predictions:
        return (
            f"Differences of accuracies on the {samples.scored_part()}. Intervals need the predictions, which are "
            f"not stored."
            f"{samples.sampling_sentence()}{common}"
        )
    from merging.study.analysis.agreement import RESAMPLES, SEED

    return (
        f"Accuracy on the {samples.scored_part()}; averages are over data sets, unweighted. Intervals: the images of "
        f"each data "
        f"set are resampled {RESAMPLES:,} times, the same ones for both runs, seed {SEED}. A filled dot's interval "
        f"excludes zero. The intervals are not corrected for their number: of {count}, one in twenty would exclude "
        f"zero by chance. "
        f"{measure_button.origin_in_words(of.predictions)}{differing_in_words(of.predictions)}{samples.sampling_sentence()}{common}"
    )


def differing_in_words(measured: list[StoredMeasurement]) -> str:
    """A sentence if predictions differ from those that the stored scores count."""
    off = sum(int(one.notes.get("differing", 0)) for one in measured)
    if not off:
        return ""
    return f" {plural(off, 'prediction')} changed since the runs were scored, on another processor."


def format_interval(value: float, low: float, high: float) -> str:
    """'62.3% (59.1% to 65.2%)'."""
    interval = "" if math.isnan(low) else f" ({percent(low)} to {percent(high)})"
    return f"{percent(value)}{interval}"


def format_range(low: float, high: float) -> str:
    """'−1.2 to +3.4', in points."""
    return "—" if math.isnan(low) else f"{100 * low:+.1f} to {100 * high:+.1f}"


def file_name(of: RunPair) -> str:
    """The last part of file names for the two runs."""
    one, other = (_short_id(run) for run in of.runs)
    return f"{one}_{other}"


def _short_id(run: Run) -> str:
    return run.id[:8]
