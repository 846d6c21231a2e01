"""The data of the plug-in matrix: comparable runs, edits by which two of them differ, and tables.

An edit is a step before the merge that changes the task vectors. A pair is a merge without an edit (plain) and with it
in front (plugged).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import expert_names, page_data, score_tables
from app.reading.papers import published_tables
from app.session import address
from merging.methods import registry
from merging.methods.method import Needs
from merging.recipes.chain_text import exemplars_text, step_text
from merging.recipes.papers.published_figures import FIGURES, Figure
from merging.recipes.presets import PLUGIN
from merging.recipes.recipe import NEEDS_EXEMPLARS, Exemplars
from merging.recipes.step import Step
from merging.study.runs import edit_pairs
from merging.study.runs.edit_pairs import EditPairRow, LeadingEdit
from merging.study.runs.run import Run
from viz.figure_text import percent, plural
from viz.figures.score_plane import PLAIN, PLUGGED

if TYPE_CHECKING:
    import pandas as pd

AVERAGE_TITLES = {"in_domain": "In-domain", "out_of_domain": "Out-of-domain", "h_score": "H-score"}
MAX_NUMBERS = 3  # numbers of an edit that fit into a picker
DOMAIN_TITLES = {"in": "In-domain", "out": "Out-of-domain"}


def pick_group(runs: Sequence[Run]) -> list[Run]:
    """The runs of one set of experts, chosen with a picker if there are several sets."""
    groups: dict[str, list[Run]] = {}
    for group in edit_pairs.group_by_subject(runs):
        label = expert_names.experts_in_words(group[0].experts, 60)
        same_label_count = sum(known_label == label or known_label.startswith(f"{label} (") for known_label in groups)
        groups[f"{label} ({same_label_count + 1})" if same_label_count else label] = group
    if len(groups) == 1:
        return next(iter(groups.values()))
    chosen_label = st.selectbox("Merged experts", list(groups), key=address.EXPERT_GROUP, bind=address.BIND, width=420)
    return groups[chosen_label]


def find_leading_edits(runs: Sequence[Run]) -> dict[str, LeadingEdit]:
    """{text in links: edit} of the edits by which two of the runs differ; ``PLUGIN``, LwPTV's edit, is always first."""
    key, params = PLUGIN
    step = Step(key, registry.find_edit(key).params.build(params))
    edits = edit_pairs.list_leading_edits(edit_pairs.find_pairs(runs))
    plugin_edits = [edit for edit in edits if edit.step == step] or [LeadingEdit(step)]
    order = {method.key: index for index, method in enumerate(registry.list_methods())}
    other_edits = [edit for edit in edits if edit.step != step]
    return {
        write_edit(edit): edit
        for edit in [
            *plugin_edits,
            *sorted(other_edits, key=lambda edit: (edit.step.key != key, order[edit.step.key])),
        ]
    }


def write_edit(edit: LeadingEdit) -> str:
    """An edit as text in a link; the settings of its exemplars (training images), if it needs some, come first."""
    text = step_text(registry.find_edit(edit.step.key), edit.step.params.values())
    return f"{exemplars_text(edit.exemplars.values())};{text}" if edit.exemplars else text


def edit_in_words(edit: LeadingEdit) -> str:
    """An edit in words with the values that are not its defaults, and with its numbers if it has only a few."""
    numbers = [bound for bound in edit.step.params.bounds().values() if bound.kind in page_text.NUMBER_KINDS]
    exemplars = f", {plural(edit.exemplars.per_task, 'exemplar')} per task" if edit.exemplars else ""
    return page_text.step_words(edit.step, numbers=len(numbers) <= MAX_NUMBERS) + exemplars


def make_edit_name(edit: LeadingEdit) -> str:
    """An edit for titles, with the values that are not its defaults."""
    return page_text.step_words(edit.step, numbers=False)


def find_edit_pairs(runs: Sequence[Run], edit: LeadingEdit) -> list[EditPairRow]:
    """A row for each preset that the edit can precede, then one for every other pair of stored runs."""
    recipe = next((known_recipe for run in runs if (known_recipe := edit_pairs.read_recipe(run))), None)
    if recipe is None:
        return []
    if edit.exemplars is None and _needs_exemplars(edit.step):
        edit = LeadingEdit(edit.step, Exemplars())
    rows = edit_pairs.build_plugin_matrix(runs, edit, make_edit_name(edit), large=page_data.is_large(recipe.pretrained))
    titles = [row.title for row in rows]
    return [row if titles.count(row.title) == 1 else _add_run_id(row) for row in rows]


def _add_run_id(row: EditPairRow) -> EditPairRow:
    """The row with its run's id in the title, for titles that several rows share."""
    run = row.plain or row.plugged
    return replace(row, title=f"{row.title} · {run.id[:6]}") if run else row


def _needs_exemplars(step: Step) -> bool:
    needed: Needs = registry.find_edit(step.key).needs_for(step.params)
    return needed in NEEDS_EXEMPLARS


def build_pair_points(pairs: Sequence[EditPairRow], stored_runs: Sequence[Run]) -> pd.DataFrame:
    """The chart's table: the references, then two rows for each pair that has both runs."""
    import pandas as pd

    runs_of_pairs = [(pair, kind, run) for pair in pairs for kind, run in _list_pair_runs(pair)]
    averages = score_tables.averages_table([run for *_, run in runs_of_pairs], stored_runs)
    references = averages[averages["kind"].isin(score_tables.REFERENCE_NAMES)]
    by_run = averages.drop_duplicates("run").set_index("run")
    rows = pd.DataFrame([{**by_run.loc[run.id], "run": run.id} for *_, run in runs_of_pairs])
    rows = rows.assign(
        pair=[make_pair_title(pair) for pair, *_ in runs_of_pairs],
        kind=[kind for _, kind, _ in runs_of_pairs],
        label=[page_text.title_with_note(run) for *_, run in runs_of_pairs],
    )
    return pd.concat([references.assign(pair=references["label"]), rows], ignore_index=True)


def _list_pair_runs(pair: EditPairRow) -> list[tuple[str, Run]]:
    kinds = ((PLAIN, pair.plain), (PLUGGED, pair.plugged))
    return [(kind, run) for kind, run in kinds if run] if pair.plain and pair.plugged else []


def make_pair_title(pair: EditPairRow) -> str:
    """A merge's name, marked ‡ if an image's task must be known, and † if it adapted on the scored images."""
    runs = [run for run in (pair.plain, pair.plugged) if run]
    title = pair.title + (" ‡" if any(run.needs_task for run in runs) else "")
    return title + (" †" if any(run.adapts_on_test for run in runs) else "")


def build_matrix_table(table: pd.DataFrame, pairs: Sequence[EditPairRow]) -> pd.DataFrame:
    """One row for each pair of the chart's table, in percent; the columns have two header rows."""
    import pandas as pd

    sides = {kind: table[table["kind"] == kind].set_index("pair") for kind in (PLAIN, PLUGGED)}
    plain, plugged = sides[PLAIN], sides[PLUGGED].reindex(sides[PLAIN].index)
    columns: dict[tuple[str, str], Any] = {("", "Merge"): plain.index.to_list()}
    for key, title in AVERAGE_TITLES.items():
        columns |= {
            (title, "Plain"): 100 * plain[key].to_numpy(float),
            (title, "With it"): 100 * plugged[key].to_numpy(float),
            (title, "Change"): 100 * (plugged[key] - plain[key]).to_numpy(float),
        }
    printed_changes = [_find_printed_changes(pair) for pair in pairs if pair.plain and pair.plugged]
    if any(changes for changes in printed_changes):
        paper = published_tables.TOWER_HEADS[published_tables.main_tower()]
        for key, name in zip(AVERAGE_TITLES, published_tables.AVERAGES, strict=False):
            columns[paper, f"{name}, change"] = [changes.get(key, math.nan) for changes in printed_changes]
    for key, title in DOMAIN_TITLES.items():
        columns |= {
            (f"{title}, 95%", column_title): _intervals_in_words(side, key)
            for column_title, side in (("Plain", plain), ("With it", plugged))
        }
        columns[f"{title}, 95%", "Images"] = plain[f"n_{key}"].to_list()
    frame = pd.DataFrame(columns)
    frame.columns = pd.MultiIndex.from_tuples(columns)
    return frame


def _intervals_in_words(rows: pd.DataFrame, side: str) -> list[str]:
    pairs = zip(rows[f"{side}_low"], rows[f"{side}_high"], strict=True)
    return [f"{percent(low)} to {percent(high)}" for low, high in pairs]


def _find_printed_changes(pair: EditPairRow) -> Mapping[str, float]:
    """The change of a paper's printed averages between the same two chains, in points."""
    figures = [_find_printed_figure(run) for run in (pair.plain, pair.plugged)]
    plain, plugged = figures
    if plain is None or plugged is None:
        return {}
    changes = {}
    for key in AVERAGE_TITLES:
        plain_value, plugged_value = getattr(plain.printed, key), getattr(plugged.printed, key)
        if plain_value is not None and plugged_value is not None:
            changes[key] = round(plugged_value - plain_value, 2)
    return changes


def _find_printed_figure(run: Run | None) -> Figure | None:
    """A paper's figure for a run's chain on the main tower (image encoder), with out-of-domain accuracy."""
    recipe = edit_pairs.read_recipe(run) if run else None
    steps = [(step.key, step.params.values()) for step in recipe.steps] if recipe and not recipe.adapt else []
    tower = published_tables.main_tower()
    for figure in FIGURES:
        if (
            figure.model == tower
            and not figure.uses_unstated_values
            and figure.printed.h_score  # printed only together with out-of-domain accuracy
            and figure.matches_chain(steps)
        ):
            return figure
    return None
