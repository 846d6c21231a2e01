"""Scores on the Compare page: every average and data set, with the difference and its paired interval."""

from __future__ import annotations

import math

import streamlit as st

from app import page_text
from app.reading import samples
from app.reading.runs import imported_runs
from app.views.compare import run_pair
from app.views.compare.run_pair import RunPair
from app.views.scores import imported_chart
from app.widgets import chart_view
from merging.images.benchmarks.resampled_tasks import DRAWS, SEED
from merging.study.runs.run import Run
from viz.figure_text import percent

NOT_SCORED = "Scores can be compared only if both runs were evaluated on the same benchmark."
COMMON_AVERAGES_NOTE = (
    "A and B merge different experts, so their own averages are over different images. The averages in this chart are "
    "over data sets that are in domain for both, or out of domain for both, so n is the same for A and B."
)
NO_ANSWERS = (
    "Intervals of the difference need the answers to each image. These are not stored for {}: its scores come from "
    "elsewhere, or it was not evaluated on this benchmark."
)


def draw_view(pair: RunPair) -> None:
    """Draw the chart of the differences, and its numbers."""
    table = run_pair.compare_scores(pair)
    if _draw_imported(pair):
        pass  # the imported scores of these networks are drawn
    elif table is None:
        st.info(NOT_SCORED)
    else:
        numbers = table.drop(columns=["score_a", "score_b"])
        chart_view.draw_chart(
            "compare_scores", numbers, name=f"scores_{make_file_suffix(pair)}", **pair.sides,
            caption=make_caption(pair, len(table)), sources=pair.runs,
        )  # fmt: skip
        rows = table.assign(
            score_a=[format_interval(*cell) for cell in table["score_a"]],
            score_b=[format_interval(*cell) for cell in table["score_b"]],
            difference=100 * table["difference"],
            interval=[format_range(low, high) for low, high in zip(table["low"], table["high"], strict=True)],
        )
        st.dataframe(
            rows[["title", "difference", "interval", "score_a", "score_b", "group", "n"]],
            hide_index=True,
            height="content",
            column_config={
                "title": st.column_config.TextColumn("Data set or average", pinned=True),
                "group": "Group",
                "score_a": st.column_config.TextColumn("A", help=pair.labels[0]),
                "score_b": st.column_config.TextColumn("B", help=pair.labels[1]),
                "difference": st.column_config.NumberColumn("B − A, points", format="%+.1f"),
                "interval": st.column_config.TextColumn("95% interval, paired"),
                "n": st.column_config.NumberColumn("Images", format="localized"),
            },
            alt="Scores of both runs and their difference",
        )
    if not any(run.network for run in pair.runs):
        draw_missing(pair)


def _draw_imported(pair: RunPair) -> bool:
    """Draw the imported scores of runs of other networks than CLIP; returns whether there is such a run."""
    if not any(run.network for run in pair.runs):
        return False
    if len({imported_runs.network_kind(run) for run in pair.runs}) > 1:
        st.info("A and B are different networks, so no chart shows their scores together.")
    elif runs := imported_runs.runs_with_scores(list({run.id: run for run in pair.runs}.values())):
        chart_view.draw_question("given_scores")
        imported_chart.draw_runs(runs, [run.id for run in pair.runs])
    else:
        st.info(imported_runs.NO_SCORES)
    return True


def draw_missing(pair: RunPair) -> None:
    """Say which runs lack answers to each image, if any do."""
    if runs := pair.runs_without_answers:
        st.info(NO_ANSWERS.format(page_text.join_words([f"**{page_text.safe_text(run.name, 60)}**" for run in runs])))


def make_caption(pair: RunPair, row_count: int) -> str:
    """A caption that states how the differences are computed, and on which images."""
    common = "" if pair.has_same_domain else f" {COMMON_AVERAGES_NOTE}"
    if pair.runs_without_answers:
        return (
            f"Differences of accuracies on the {samples.scored_part()}. Intervals need the answers to each image, "
            f"which are not stored.{samples.sampling_sentence()}{common}"
        )
    return (
        f"Accuracy on the {samples.scored_part()}; averages are over data sets, unweighted. Intervals are paired: "
        f"Newcombe's for a data set; for averages, the images of each data set are resampled {DRAWS:,} times, the "
        f"same ones for both runs, seed {SEED}. A filled dot's interval "
        f"excludes zero. The intervals are not corrected for their number: of {row_count}, about one in twenty would "
        f"exclude zero by chance.{samples.sampling_sentence()}{common}"
    )


def format_interval(value: float, low: float, high: float) -> str:
    """A share with its interval: '62.3% (59.1% to 65.2%)'."""
    interval = "" if math.isnan(low) else f" ({percent(low)} to {percent(high)})"
    return f"{percent(value)}{interval}"


def format_range(low: float, high: float) -> str:
    """An interval in points: '−1.2 to +3.4'."""
    return "—" if math.isnan(low) else f"{100 * low:+.1f} to {100 * high:+.1f}"


def make_file_suffix(pair: RunPair) -> str:
    """The last part of the file names of charts of the two runs."""
    id_a, id_b = (_shorten_id(run) for run in pair.runs)
    return f"{id_a}_{id_b}"


def _shorten_id(run: Run) -> str:
    return run.id[:8]
