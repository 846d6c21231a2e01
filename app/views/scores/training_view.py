"""The view of Scores on what depends on how the models were trained: the seed of the bundled benchmark."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.reading import samples
from app.session import address, benchmark_choice
from app.widgets import chart_view, page_parts
from merging.images.benchmarks.paired_scores import H_SCORE, IN_DOMAIN, OUT_OF_DOMAIN
from merging.images.benchmarks.resampled_tasks import DRAWS
from merging.study import seeds
from viz.figure_text import plural
from viz.figures.seed_spread import MEAN

PARTS = {"Mean in domain": IN_DOMAIN, "Mean out of domain": OUT_OF_DOMAIN, "H-score": H_SCORE}
NOTHING = "Scores of several seeds are stored for the bundled benchmark only. Choose it under Models & runs."
NOTE = (
    "Each seed has its own pretraining and eight experts of its own. All answer the same images, the {part}, "
    "n = {n:,}. The interval of a seed is over images (95%, {draws:,} resamples). That of the mean is over the "
    "{seeds}: few, so all merges share one standard deviation, {deviation:.1f} points, as if they varied independently "
    "of one another, which merges of the same experts do not quite. The models of seed 0 are the bundled ones."
)


def draw_view() -> None:
    """Draw how far the scores of ten merges differ between seeds."""
    scores = seeds.read_seeds(benchmark_choice.benchmark_folder())
    if scores is None:
        st.info(NOTHING)
        return
    chart_view.draw_question("seed_spread")
    part = page_parts.pick_label("Score", PARTS, address.COMPARED_SCORE, width=260)
    name = next(title for title, key in PARTS.items() if key == part)
    means = seeds.summarize_seeds(scores, part)
    rows = scores[(scores["part"] == part) & scores["label"].isin(means["label"])]
    swapped, pairs = seeds.count_swapped_pairs(scores, part)
    sentence = (
        f"Of {plural(pairs, 'pair')} of merges, {swapped:,} {'has' if swapped == 1 else 'have'} another order with "
        "another seed."
    )
    note = NOTE.format(
        part=samples.scored_part_of_each(), n=rows["n"].iloc[0], draws=DRAWS,
        deviation=100 * means["deviation"].iloc[0], seeds=plural(rows["seed"].nunique(), "seed"),
    )  # fmt: skip
    st.markdown(sentence)
    chart_view.draw_chart(
        "seed_spread", _list_marks(rows, means), name="scores_seeds", question_drawn=True, score=name, sources=[],
        description=f"{sentence} {note}",
    )  # fmt: skip
    st.caption(note)


def _list_marks(rows: pd.DataFrame, means: pd.DataFrame) -> pd.DataFrame:
    """The table of the figure: a row for each merge and seed, and for each merge's mean."""
    of_seeds = rows.assign(run=rows["seed"].astype(str), task=rows["label"], label="Seed " + rows["seed"].astype(str))
    of_means = means.assign(run=MEAN, task=means["label"], label="Mean")
    return pd.concat([of_seeds, of_means], ignore_index=True)
