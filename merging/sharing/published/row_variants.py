"""The rows of an experiment: their recipes, and the published figures for comparison.

If the grouping of q, k and v matters, a row runs twice: packed as one matrix, and split into three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from merging.base.errors import RecipeError
from merging.methods import registry
from merging.methods.split_qkv import SPLIT_QKV
from merging.recipes.papers.published_figures import EXPERTS, FIGURES, IN_DOMAIN_TASKS, REFERENCES, Figure
from merging.recipes.presets import Preset, find_preset
from merging.recipes.recipe import Recipe
from merging.sharing.published.catalogue_parts import (
    PACKED,
    SPLIT,
    FigureSource,
    ListedRow,
    read_shared_parts,
)
from merging.sharing.published.choice import Choice, needs_exemplars
from merging.sharing.published.experiment_catalogue import Experiment

PRETRAINED, INDIVIDUAL = "pretrained", "individual"  # the first rows of a table; INDIVIDUAL: each task's own expert
ANY_GROUPING = ""  # any grouping of q, k and v gives the same result
GROUPING_TEXTS = {PACKED: "as one matrix", SPLIT: "as three"}


@dataclass(frozen=True, slots=True)
class RowVariant:
    """A row in one grouping of q, k and v: PACKED, SPLIT, or ANY_GROUPING if it does not matter."""

    row: ListedRow
    grouping: str
    values: Mapping[str, Any]  # replace the preset's values

    @property
    def key(self) -> str:
        """The row's key, with the grouping: 'iso_c/split'."""
        return f"{self.row.key}/{self.grouping}" if self.grouping else self.row.key

    @property
    def title(self) -> str:
        """The preset's title, with the grouping."""
        return f"{find_preset(self.row.preset).title}{f' (q, k, v {self.grouping})' if self.grouping else ''}"

    def build_recipe(self, pretrained: str, experts: Mapping[str, str], exemplars: int = 0, seed: int = 0) -> Recipe:
        """Its recipe on these models.

        Raises:
            RecipeError: the row splits q, k and v, but none of its methods can.
        """
        base = find_preset(self.row.preset)
        changed = replace(
            base, params=self._add_grouping(base.merge, {**base.params, **self.values}, "merge"), edits=()
        )
        edits = tuple((key, self._add_grouping(key, values, "edit")) for key, values in base.edits)
        if self.grouping == SPLIT and not self._can_group_qkv(base):
            raise RecipeError(f"{base.title}: none of its methods can split q, k and v.")
        sampled = {"per_task": exemplars, "seed": seed} if exemplars and needs_exemplars(self.row) else base.exemplars
        return replace(changed, edits=edits, exemplars=sampled, title=self.title).recipe(pretrained, experts)

    def _add_grouping(self, key: str, values: Mapping[str, Any], role: str) -> dict[str, Any]:
        return dict(values) | ({SPLIT_QKV: True} if self.grouping == SPLIT and _can_split_qkv(role, key) else {})

    def _can_group_qkv(self, base: Preset) -> bool:
        return _can_split_qkv("merge", base.merge) or any(_can_split_qkv("edit", key) for key, _ in base.edits)


def _can_split_qkv(role: str, key: str) -> bool:
    return SPLIT_QKV in registry.find_method(role, key).params.bounds()


def list_variants(experiment: Experiment, choice: Choice) -> tuple[RowVariant, ...]:
    """The chosen rows in the experiment's order, twice if the grouping of q, k and v matters."""
    return tuple(
        RowVariant(row, grouping, {**row.values, **experiment.values.get(row.key, {})})
        for row in experiment.rows
        if row.key in choice.rows
        for grouping in ((PACKED, SPLIT) if row.grouping_matters else (ANY_GROUPING,))
    )


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A published figure for a row. ``why_not`` is the reason why the two are not compared; empty if they are."""

    figure: Figure
    source: FigureSource | None
    why_not: str = ""


def find_figures(
    variant: RowVariant, experiment: Experiment, tower: str, authors: str, exemplars: int = 0
) -> list[ComparedFigure]:
    """The published figures of a row's chain for that tower: first those that are compared, then the others."""
    recipe = replace(variant, grouping=ANY_GROUPING).build_recipe(
        "", {}
    )  # figures do not state the grouping; their sources do
    steps = [(step.key, step.params.values()) for step in recipe.steps]
    matching = [figure for figure in FIGURES if figure.model == tower and figure.matches_chain(steps)]
    same_tasks = experiment.is_papers_eight
    pairs = [
        _compare_figure(figure, variant.grouping, authors, exemplars, same_tasks=same_tasks) for figure in matching
    ]
    return _sort_figures(pairs, authors)


def find_reference_figures(kind: str, experiment: Experiment, tower: str, authors: str) -> list[ComparedFigure]:
    """The published figures of the pretrained model, or of each expert on its own task, sorted as by ``find_figures``.

    The figure of a pretrained model is compared if it was scored on the same images, whoever trained the experts.
    """
    first_author = authors.partition(",")[0] if kind == PRETRAINED else authors
    figures = [figure for figure in REFERENCES[kind] if figure.model == tower]
    pairs = [
        _compare_figure(
            figure,
            ANY_GROUPING,
            first_author,
            exemplars=0,
            same_tasks=experiment.is_papers_eight or bool(figure.printed.tasks),
        )
        for figure in figures
    ]
    return _sort_figures(pairs, first_author)


def _sort_figures(pairs: list[ComparedFigure], authors: str) -> list[ComparedFigure]:
    """Figures that are compared, then those of the same experts, then the others, each in the file's order."""
    return sorted(pairs, key=lambda one: (bool(one.why_not), one.figure.experts != authors))


def _compare_figure(figure: Figure, grouping: str, authors: str, exemplars: int, *, same_tasks: bool) -> ComparedFigure:
    name = figure.source.partition(",")[0]
    source = read_shared_parts().sources.get(name)
    reasons = {
        f"on other experts ({figure.experts})": figure.experts != authors,
        "the figure is for the papers' eight tasks": not same_tasks,
        "the source does not state all values": figure.uses_unstated_values,
        f"the source used {figure.exemplars} exemplars": bool(
            figure.exemplars and exemplars and figure.exemplars != exemplars
        ),
        "the source does not state how it grouped q, k and v": bool(grouping) and source is None,
        f"the source merged q, k and v {GROUPING_TEXTS[source.grouping] if source else ''}": bool(
            grouping and source and source.grouping != grouping
        ),
    }
    return ComparedFigure(figure, source, next((reason for reason, holds in reasons.items() if holds), ""))


def find_printed_experts(experiment: Experiment, tower: str, authors: str) -> Mapping[str, float]:
    """Accuracies in percent of each task's own expert as their source prints them, by task; empty if one is missing."""
    if experiment.printed:
        return experiment.printed.experts
    known = EXPERTS.get((authors, tower))
    if known is None or not known.tasks:
        return {}
    printed = _name_by_task(experiment, known.tasks)
    return printed if len(printed) == len(experiment.tasks) else {}


def find_printed_tasks(experiment: Experiment, figure: Figure) -> Mapping[str, float]:
    """The accuracies of a figure by the experiment's tasks, in percent; empty if it has none."""
    return _name_by_task(experiment, figure.printed.tasks) if figure.printed.tasks else {}


def _name_by_task(experiment: Experiment, accuracies: Sequence[float]) -> dict[str, float]:
    by_column = dict(zip(IN_DOMAIN_TASKS, accuracies, strict=True))
    return {one.key: by_column[one.column] for one in experiment.tasks if one.column in by_column}
