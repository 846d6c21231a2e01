"""The tables of the ablations on Scores: the members of a family, their runs, and the paper's figures.

A family is a merge alone (``base``), the same merge with the whole method (``whole``), and variants of that method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.reading import page_data, score_tables
from app.reading.papers import published_tables
from app.reading.papers.published_tables import OURS, SOURCE, PaperRow
from merging.engine.chain_work import count_passes
from merging.recipes.papers.ablations import AblationFamily
from merging.recipes.papers.published_figures import FROM_LWPTV, Figure
from merging.recipes.presets import find_preset
from merging.recipes.recipe import Recipe
from merging.study.runs import edit_pairs
from merging.study.runs.run import Run
from viz.figure_text import clean_text, span

if TYPE_CHECKING:
    import pandas as pd

KIND_COLUMN = ("", "Kind")
PASSES_COLUMN = ("", "Passes")  # how often the tensors of all checkpoints are read
CHANGE_COLUMNS = {
    (OURS, "In, change"): "in_domain",
    (OURS, "Out, change"): "out_of_domain",
    (OURS, "H, change"): "h_score",
}


@dataclass(frozen=True)
class AblationMember:
    """A member of a family: its recipe on the chosen experts, its run or None, and the paper's figures.

    ``title`` omits the merge that all members share.
    """

    key: str
    title: str
    recipe: Recipe
    run: Run | None
    figures: tuple[Figure, ...]


def find_members(runs: Sequence[Run], family: AblationFamily) -> list[AblationMember]:
    """All members of the family in its order, each with its run; all runs merge the same experts."""
    first_recipe = next((recipe for run in runs if (recipe := edit_pairs.read_recipe(run))), None)
    if first_recipe is None:
        return []
    family_members, shared_prefix = [], f"{find_preset(family.base).title} w/ "
    for key in family.keys:
        variant = find_preset(key)
        recipe = variant.recipe(
            first_recipe.pretrained, dict(first_recipe.experts), large=page_data.is_large(first_recipe.pretrained)
        )
        steps = [(step.key, step.params.values()) for step in recipe.steps]
        figures = tuple(
            figure
            for figure in FROM_LWPTV
            if figure.model == published_tables.main_tower()  # the image encoder whose figures the page shows
            and figure.matches_chain(steps)
        )
        title = variant.title.removeprefix(shared_prefix)
        family_members.append(
            AblationMember(key, title[:1].upper() + title[1:], recipe, edit_pairs.find_run(recipe, runs), figures)
        )
    return family_members


def build_means_table(
    members: Sequence[AblationMember], family: AblationFamily, stored_runs: Sequence[Run]
) -> pd.DataFrame:
    """The paper's averages and ours, one row for each member.

    Figures of the paper that depend on parameter values that it does not state have a row of their own.
    """
    rows, groups, passes = [], [], []
    for member in members:
        stated, unstated_figures = (
            {f.model: f for f in member.figures if f.uses_unstated_values == unstated} for unstated in (False, True)
        )
        if unstated_figures:
            rows.append(PaperRow(f"{member.title.split(',')[0]}, paper", unstated_figures, None))
        if member.run or not unstated_figures:
            rows.append(PaperRow(member.title, stated, member.run))
        groups += [family.group(member.key)] * (len(rows) - len(groups))
        passes += [str(count_passes(member.recipe))] * (len(rows) - len(passes))
    table = published_tables.paper_table(rows, stored_runs)
    references = [""] * (len(table) - len(rows))  # reference models have no group, and merge nothing
    table.insert(1, KIND_COLUMN, groups + references)
    table.insert(2, PASSES_COLUMN, passes + references)
    base_run = next((member.run for member in members if member.key == family.base), None)
    for offset, (column, value) in enumerate(CHANGE_COLUMNS.items()):
        cells = [_change_in_words(row.run, base_run, value, stored_runs) for row in rows] + references
        table.insert(_find_position_after(table, (OURS, "Norm.")) + offset, column, cells)
    # The source is the last column, because nearly all rows have the same one.
    return table[[name for name in table.columns if name != SOURCE] + [SOURCE]]


def _find_position_after(table: pd.DataFrame, column: tuple[str, str]) -> int:
    """The position after a column, or the end if the table lacks it."""
    columns = list(table.columns)
    return columns.index(column) + 1 if column in columns else len(columns)


def _change_in_words(run: Run | None, base_run: Run | None, value: str, stored_runs: Sequence[Run]) -> str:
    if run is None or base_run is None or run.id == base_run.id:
        return ""
    summary, base_summary = page_data.summary(run, stored_runs), page_data.summary(base_run, stored_runs)
    if summary is None or base_summary is None:
        return ""
    points = round(100 * (getattr(summary, value) - getattr(base_summary, value)), 1)
    return f"{points + 0.0:+.1f}"  # + 0.0 turns -0.0 into 0.0


def name_rows(table: pd.DataFrame, members: Sequence[AblationMember]) -> pd.DataFrame:
    """A table of runs with the members' titles as labels; other runs keep their labels."""
    titles = {member.run.id: member.title for member in members if member.run}
    return table.assign(label=[titles.get(run, label) for run, label in zip(table["run"], table["label"], strict=True)])


def find_arrow_ends(members: Sequence[AblationMember], family: AblationFamily) -> list[tuple[str, str]]:
    """The run ids of the arrow from the merge alone to the whole method, if both have runs."""
    ids = {member.key: member.run.id for member in members if member.run}
    return [(ids[family.base], ids[family.whole])] if {family.base, family.whole} <= set(ids) else []


def build_data_set_table(
    members: Sequence[AblationMember], stored_runs: Sequence[Run], inside: bool, intervals: bool
) -> pd.DataFrame:
    """One row for each member, a column for the mean and one for each data set, in percent.

    The data sets are those in domain if ``inside``, else those out of domain. With ``intervals``, cells are texts.
    """
    runs = [member.run for member in members if member.run]
    rows = score_tables.accuracies_table(runs, stored_runs)
    rows = rows[rows["in_domain"] == inside]
    mean = 100 * rows.groupby("run", sort=False)["accuracy"].mean()
    accuracies = 100 * rows.pivot(index="run", columns="title", values="accuracy")
    if intervals:
        cells = [
            f"{100 * accuracy:.1f} ({100 * low:.1f} to {100 * high:.1f})"
            for accuracy, low, high in zip(rows["accuracy"], rows["low"], rows["high"], strict=True)
        ]
        accuracies = rows.assign(cell=cells).pivot(index="run", columns="title", values="cell")
        mean = mean.map("{:.1f}".format)
    accuracies = accuracies[list(dict.fromkeys(rows["title"]))]
    accuracies.insert(0, "Mean", mean)
    titles = {member.run.id: member.title for member in members if member.run}
    accuracies = accuracies.loc[list(titles)]
    accuracies.insert(0, "Merge", [clean_text(title) for title in titles.values()])
    return accuracies.reset_index(drop=True).rename_axis(columns=None)


def images_in_words(members: Sequence[AblationMember]) -> str:
    """The number of images of each data set, or the range of these numbers."""
    score_tables_of_runs = [
        rows for member in members if member.run and (rows := page_data.scores(member.run)) is not None
    ]
    return span(n for rows in score_tables_of_runs for n in rows["n"])


def build_printed_table(members: Sequence[AblationMember], names: Sequence[str], field: str) -> pd.DataFrame:
    """The paper's figures for each member on its own data sets, ``names``.

    ``field`` is "tasks" for data sets in domain, "outside" for those out of domain.
    """
    import pandas as pd

    average = {"tasks": "in_domain", "outside": "out_of_domain"}[field]
    rows = [
        (member.title, figure.source, getattr(figure.printed, average), *values)
        for member in members
        for figure in member.figures
        if (values := getattr(figure.printed, field))
    ]
    return pd.DataFrame(rows, columns=["Merge", "Source", "Average", *names])
