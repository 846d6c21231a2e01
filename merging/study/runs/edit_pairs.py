"""An edit in front of a merge: the pairs of stored runs that differ by exactly this edit, and the missing runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from merging.base.errors import MergingError
from merging.methods import registry
from merging.models.families import Parameter
from merging.recipes.presets import bases, refusal
from merging.recipes.recipe import Exemplars, Recipe
from merging.recipes.step import Step
from merging.recipes.unlabeled_images import TestData
from merging.study.runs.run import SALIENCY, Run, merge_same_models, read_parameters


@dataclass(frozen=True, slots=True)
class LeadingEdit:
    """An edit in front of a chain, in its simplest form (``_steps``); ``draw``: exemplars if only the edit has some."""

    step: Step
    draw: Exemplars | None = None


@dataclass(frozen=True, slots=True)
class EditPair:
    """Two runs on the same experts and the same benchmark; the second has one more edit, in front."""

    plain: Run
    plugged: Run
    leading_edit: LeadingEdit

    def belongs_to(self, leading_edit: LeadingEdit) -> bool:
        """Whether this is a pair of an edit. If the chain behind the edit uses exemplars, the edit uses the same."""
        return self.leading_edit.step == leading_edit.step and self.leading_edit.draw in (None, leading_edit.draw)


@dataclass(frozen=True, slots=True)
class EditPairRow:
    """A merge without and with an edit in front; None for a run that is not stored.

    ``missing`` are the recipes of the runs that are not stored; ``refused`` is the reason if the edit cannot precede
    this merge.
    """

    title: str
    plain: Run | None
    plugged: Run | None
    missing: tuple[Recipe, ...] = ()
    refused: str = ""


RunInputs = tuple[str | None, frozenset[tuple[str, str]], str, str]
Others = tuple[bool, Step | None, TestData | None]  # whether unused tensors count, the adapt, and its images
Chain = tuple[tuple[Step, ...], Exemplars | None, Others]  # with the steps of ``_steps``


def compared_subject(run: Run) -> RunInputs:
    """The benchmark of a run, the digests of its checkpoints, and the activation and architecture of its recipe."""
    recipe = read_recipe(run)
    stated = (recipe.activation, recipe.architecture) if recipe else ("", "")
    return run.benchmark, frozenset(run.inputs.items()), *stated


def by_subject(runs: Iterable[Run]) -> list[list[Run]]:
    """Groups of runs that can be compared with each other: most experts first, then most runs."""
    groups: dict[RunInputs, list[Run]] = {}
    for run in runs:
        groups.setdefault(compared_subject(run), []).append(run)
    return sorted(groups.values(), key=lambda group: (-len(group[0].experts), -len(group)))


def find_pairs(runs: Iterable[Run]) -> list[EditPair]:
    """Every pair among the runs; among runs with the same chain only the first counts."""
    groups = {compared_subject(group[0]): by_chain(group) for group in by_subject(runs)}
    edit_pairs = []
    for chains in groups.values():
        for (steps, exemplars, others), run in chains.items():
            draws = dict.fromkeys((exemplars, None))  # the chain behind the edit used the same exemplars, or none
            plains = [plain for draw in draws if (plain := chains.get((steps[1:], draw, others)))]
            if plains:
                only_edit = exemplars is not None and _exemplars(plains[0]) is None
                edit_pairs.append(EditPair(plains[0], run, LeadingEdit(steps[0], exemplars if only_edit else None)))
    return edit_pairs


def leading_edits(pairs: Iterable[EditPair]) -> list[LeadingEdit]:
    """The edits that have pairs, each once; an edit with its own exemplars once for every sample of them."""
    edits = list(dict.fromkeys(pair.leading_edit for pair in pairs))
    with_exemplars = {edit.step for edit in edits if edit.draw}
    return [edit for edit in edits if edit.draw or edit.step not in with_exemplars]


def plugin_matrix(
    runs: Sequence[Run], leading_edit: LeadingEdit, name: str, *, large: bool = False
) -> list[EditPairRow]:
    """A row for every preset that the edit can precede, then for the other pairs among the runs, all of one subject.

    Args:
        name: the edit's name in titles.
        large: whether the presets have the values of the papers for ViT-L/14.
    """
    model = next(recipe for run in runs if (recipe := read_recipe(run)))
    pretrained, experts = model.pretrained, dict(model.experts)
    stated = (model.activation, model.architecture)
    chains = by_chain(runs)
    rows = []
    for base in bases(leading_edit.step.key):
        plain = base.recipe(pretrained, experts, large=large).with_architecture(*stated)
        partner = base.with_edit((leading_edit.step.key, leading_edit.step.params.values()), name, leading_edit.draw)
        if refused := refusal(partner):
            rows.append(EditPairRow(base.name_in_lists(large), chains.get(_chain(plain, runs[0])), None, (), refused))
            continue
        recipes = (plain, partner.recipe(pretrained, experts, large=large).with_architecture(*stated))
        without, plugged = (chains.get(_chain(recipe, runs[0])) for recipe in recipes)
        missing = tuple(recipe for recipe, run in zip(recipes, (without, plugged), strict=True) if run is None)
        rows.append(EditPairRow(base.name_in_lists(large), without, plugged, missing))
    listed = {row.plain.id for row in rows if row.plain}
    others = [pair for pair in find_pairs(runs) if pair.belongs_to(leading_edit) and pair.plain.id not in listed]
    return rows + [EditPairRow(pair.plain.name, pair.plain, pair.plugged) for pair in others]


def by_chain(runs: Iterable[Run]) -> Mapping[Chain, Run]:
    """The first run of every chain; runs with a method that this version lacks are left out."""
    chains: dict[Chain, Run] = {}
    for run in runs:
        if recipe := read_recipe(run):
            chains.setdefault(_chain(recipe, run), run)
    return chains


def find_run(recipe: Recipe, runs: Sequence[Run]) -> Run | None:
    """The first run with a recipe's chain, among runs of one subject; paths of files may differ."""
    return by_chain(runs).get(_chain(recipe, runs[0])) if runs else None


def same_saliency(run: Run, others: Iterable[Run]) -> Run | None:
    """Another run with the table of saliency for the same first edit on the same task vectors; None without one.

    The first edit works on the task vectors themselves, independent of later steps.
    """
    recipe = read_recipe(run)
    if recipe is None or not recipe.edits:
        return None
    for other in others:
        other_recipe = read_recipe(other) if SALIENCY in other.tables and other.id != run.id else None
        if other_recipe is None or not merge_same_models(run, other) or not other_recipe.edits:
            continue
        same = _steps(other_recipe, other)[0] == _steps(recipe, run)[0]
        if same and other_recipe.count_dead_params == recipe.count_dead_params:
            return other
    return None


def read_recipe(run: Run) -> Recipe | None:
    """A run's recipe; None if it has none or this version lacks one of its methods."""
    return _parse_recipe(run.recipe_yaml) if run.recipe_yaml else None


@lru_cache(maxsize=2048)
def _parse_recipe(recipe_yaml: str) -> Recipe | None:
    try:
        return Recipe.from_yaml(recipe_yaml)
    except MergingError:
        return None


def _chain(recipe: Recipe, run: Run) -> Chain:
    """The chain of a recipe on the inputs of a run; counting unused tensors matters only if there are any."""
    counts = recipe.count_dead_params and run.sizes["dead"] > 0
    return _steps(recipe, run), recipe.exemplars, (counts, recipe.adapt, recipe.test_data)


def _steps(recipe: Recipe, run: Run) -> tuple[Step, ...]:
    """The steps of a recipe; a step with several equivalent forms in its simplest form for the tensors of a run.

    Steps remain unchanged if the run's tensors are not stored, or are not those that the step names.
    """
    if not any(method.plainest for method in recipe.methods) or "tensors" not in run.tables:
        return recipe.steps
    names = tuple(name for name, _ in recipe.experts)
    try:
        tensors = tuple(read_parameters(run.table("tensors")))
        edits = tuple(_simplify_step(step, names, tensors) for step in recipe.edits)
        return (*edits, recipe.merge)
    except MergingError:
        return recipe.steps


@lru_cache(maxsize=256)
def _simplify_step(step: Step, experts: tuple[str, ...], tensors: tuple[Parameter, ...]) -> Step:
    plainest = registry.find_edit(step.key).plainest
    return Step(step.key, plainest(step.params, experts, tensors)) if plainest else step


def _exemplars(run: Run) -> Exemplars | None:
    recipe = read_recipe(run)
    return recipe.exemplars if recipe else None
