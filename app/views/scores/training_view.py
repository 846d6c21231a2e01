"""The view of Scores on what depends on how the models were trained: seeds, and gentler fine-tuning."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app import page_text
from app.reading import samples
from app.session import address, benchmark_choice
from app.widgets import chart_view, page_parts, paper_line
from merging.images.benchmarks.paired_scores import H_SCORE, IN_DOMAIN, OUT_OF_DOMAIN
from merging.images.benchmarks.resampled_tasks import DRAWS
from merging.recipes.papers.claims import CLAIMS
from merging.study import training_tables
from merging.study.paper_facts.comparison import Verdict
from viz.figure_text import plural
from viz.figures.seed_spread import MEAN

PARTS = {"Mean in domain": IN_DOMAIN, "Mean out of domain": OUT_OF_DOMAIN, "H-score": H_SCORE}
SEEDS_NOTE = (
    "Each seed has its own pretraining and eight experts of its own. All answer the same images, the {part}, "
    "n = {n:,}. The interval of a seed is over images (95%, {draws:,} resamples). That of the mean is over the "
    "{seeds}: so few leave it wide. The standard deviation, {deviation:.1f} points, is shared by all merges, which a "
    "seed moves together. The models of seed 0 are the bundled ones."
)
CLAIMS_HEADING = "Do claims of papers hold for experts that are fine-tuned with other settings?"
SETTINGS_TEXT = (
    "Task vectors of the bundled experts are large, compared with their weights, which may be why some claims do not "
    "show here. So four tasks were fine-tuned again, from the same pretrained model, with other settings, and the "
    "claims that merges without learning decide were measured on each team."
)
CHANGES_TEXT = (
    "Of {turned} in {settings}, {significant} {have} a difference that has changed significantly from that of the "
    "stored experts."
)
CLAIMS_NOTE = (
    "A claim says that one of two values is larger, or that they are equal. Same: claims that this row's experts show "
    "with the paper's direction. Turned: claims that they show and the four stored experts do not. Lost: claims that "
    "the stored experts show and they do not. Significant: turned or lost claims of which the difference between the "
    "two values also differs from the stored experts'; the 95% interval of that change, paired by images and not "
    "corrected for the number of claims, excludes zero; it does not cover the seed of training. The others may have "
    "turned, or been lost, by chance."
)
CELLS_NOTE = "{marks}. {changed}: significantly changed from the stored experts' difference."
SETTINGS_NOTE = (
    "Norm: of the task vectors, relative to the pretrained weights, a mean over four experts. Measured on the "
    "choosing half (n = {n_in:,} in domain, {n_out:,} out of it) on the CPU, with seed 0 unless a row says otherwise; "
    "95% intervals are over images and do not cover the seed of training."
)
SETTINGS_HEADS = {
    "words": "Fine-tuning", "norm": "Norm (%)", "own": "Own task (%)", "own_least": "Least (%)", "claims": "Claims",
    "same": "Same", "turned": "Turned", "turned_significant": "Turned, significant", "lost": "Lost",
    "lost_significant": "Lost, significant", "experts_out": "Experts, out (%)",
    "task_arithmetic in": "Task Arithmetic, in (%)", "task_arithmetic out": "Task Arithmetic, out (%)",
}  # fmt: skip
ACCURACIES = {  # the labels of accuracies, and the columns of their numbers of images
    "own": ("Experts, own task", "n_in"), "experts_out": ("Experts, out of domain", "n_out"),
    "task_arithmetic in": ("Task Arithmetic, in", "n_in"), "task_arithmetic out": ("Task Arithmetic, out", "n_out"),
}  # fmt: skip
CHANGED_MARK = "Δ"
COUNTS = ("claims", "same", "turned", "turned_significant", "lost", "lost_significant")


def has_tables() -> bool:
    """Whether the benchmark says how training matters."""
    folder = benchmark_choice.benchmark_folder()
    return training_tables.read_seeds(folder) is not None or training_tables.read_settings(folder) is not None


def draw_view() -> None:
    """Draw how far the scores of merges differ between seeds, and what gentler fine-tuning changes."""
    folder = benchmark_choice.benchmark_folder()
    scores, settings = training_tables.read_seeds(folder), training_tables.read_settings(folder)
    if scores is not None:
        _draw_seeds(scores)
    if settings is not None:
        _draw_settings(*settings)


def _draw_seeds(scores: pd.DataFrame) -> None:
    chart_view.draw_question("seed_spread")
    part = page_parts.pick_label("Score", PARTS, address.COMPARED_SCORE, width=260)
    name = next(title for title, key in PARTS.items() if key == part)
    means = training_tables.summarize_seeds(scores, part)
    rows = scores[(scores["part"] == part) & scores["label"].isin(means["label"])]
    swapped, pairs = training_tables.count_swapped_pairs(scores, part)
    sentence = (
        f"Of {plural(pairs, 'pair')} of merges, {swapped:,} {'has' if swapped == 1 else 'have'} another order with "
        "another seed."
    )
    note = SEEDS_NOTE.format(
        part=samples.scored_part_of_each(), n=rows["n"].iloc[0], draws=DRAWS,
        deviation=100 * means["deviation"].iloc[0], seeds=plural(rows["seed"].nunique(), "seed"),
    )  # fmt: skip
    st.markdown(sentence)
    of_seeds = rows.assign(run=rows["seed"].astype(str), task=rows["label"], label="Seed " + rows["seed"].astype(str))
    of_means = means.assign(run=MEAN, task=means["label"], label="Mean")
    chart_view.draw_chart(
        "seed_spread", pd.concat([of_seeds, of_means], ignore_index=True), name="scores_seeds", question_drawn=True,
        score=name, sources=[], description=f"{sentence} {note}",
    )  # fmt: skip
    st.caption(note)


def _draw_settings(settings: pd.DataFrame, claims: pd.DataFrame) -> None:
    """Draw the figure and the table of the settings, and the table of their claims."""
    chart_view.draw_question("tuning_settings")
    st.markdown(SETTINGS_TEXT)
    note = SETTINGS_NOTE.format(n_in=settings["n_in"].iloc[0], n_out=settings["n_out"].iloc[0])
    chart_view.draw_chart(
        "tuning_settings", _list_accuracies(settings), name="scores_settings", question_drawn=True, sources=[],
        description=f"{SETTINGS_TEXT} {note}",
    )  # fmt: skip
    st.caption(note)
    st.header(CLAIMS_HEADING, anchor=False)
    st.markdown(_count_changes(settings))
    number = st.column_config.NumberColumn
    columns = {
        name: st.column_config.TextColumn(head, pinned=True)
        if name == "words"
        else number(head, format="%d" if name in COUNTS else "%.1f")
        for name, head in SETTINGS_HEADS.items()
    }
    page_parts.draw_table(settings[list(SETTINGS_HEADS)], "Settings of fine-tuning", columns)
    st.caption(CLAIMS_NOTE)
    titles = dict(zip(settings["setting"], settings["words"], strict=True))
    marks = [f"{paper_line.VERDICT_MARKS[one]}: {one}" for one in Verdict if one is not Verdict.NOT_MEASURED]
    st.caption(CELLS_NOTE.format(marks=", ".join(marks), changed=CHANGED_MARK))
    st.table(
        _list_claims(claims, titles), border="horizontal", hide_index=True, alt="Claims of papers with each setting"
    )


def _count_changes(settings: pd.DataFrame) -> str:
    """How many turned claims there are, and how many of them are significant, in the settings other than the stored."""
    others = settings[~settings["setting"].isin((training_tables.STORED, training_tables.CONTROL))]
    significant = int(others["turned_significant"].sum())
    return CHANGES_TEXT.format(
        turned=plural(int(others["turned"].sum()), "turned claim"), settings=plural(len(others), "other setting"),
        significant=significant, have="has" if significant == 1 else "have",
    )  # fmt: skip


def _list_accuracies(settings: pd.DataFrame) -> pd.DataFrame:
    """The table of the figure: a row for each setting and kind of accuracy."""
    named = settings.rename(columns={"words": "setting", "setting": "key"})
    kinds = [
        named[["setting"]].assign(
            run=column, label=label, norm=named["norm"] / 100, n=named[n], value=named[column] / 100,
            low=named[f"{column} low"] / 100, high=named[f"{column} high"] / 100,
        )
        for column, (label, n) in ACCURACIES.items()
    ]  # fmt: skip
    return pd.concat(kinds, ignore_index=True)


def _list_claims(claims: pd.DataFrame, titles: dict[str, str]) -> pd.DataFrame:
    """A row for each claim that is measured, with a column for each setting, in the order of ``titles``."""
    texts = {
        (row.claim, row.setting): f"{paper_line.VERDICT_MARKS[Verdict(row.verdict)]} "
        f"{page_text.format_signed(row.difference)} ({page_text.format_signed(row.low)} to "
        f"{page_text.format_signed(row.high)}){f' {CHANGED_MARK}' * (row.change_low > 0 or row.change_high < 0)}"
        for row in claims.itertuples()
    }
    measured = [claim for claim in CLAIMS if any(key == claim.key for key, _ in texts)]
    rows = [
        [f"{claim.topic}: {claim.first} against {claim.second}", paper_line.paper_difference(claim)]
        + [texts[claim.key, setting] for setting in titles]
        for claim in measured
    ]
    return pd.DataFrame(rows, columns=["What is compared (points)", "◇ Paper", *titles.values()])
