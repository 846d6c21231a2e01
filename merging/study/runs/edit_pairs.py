"""An edit in front of a merge: the pairs of stored runs that differ by exactly this edit, and the missing runs.

Runs are of one subject, and can be compared, if they merged the same checkpoints of the same network and were scored on
the same benchmark. Unused tensors are the text tensors in published files that no merge changes; a recipe may count
their scalars when it prunes a share of all scalars.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from merging.base.errors import MergingError
from merging.methods import registry
from merging.models.families import Parameter
from merging.models.task_checkpoints import list_tasks
from merging.recipes.presets import explain_refusal, list_bases
from merging.recipes.recipe import Exemplars, Recipe
from merging.recipes.step import Step
from merging.recipes.unlabeled_images import TestData
from merging.study.runs.run import SALIENCY, Run, have_same_models, read_parameters


@dataclass(frozen=True, slots=True)
class LeadingEdit:
    """An edit in front of a chain, in its simplest form (``_simplify_steps``).

    ``exemplars`` describes the sample of exemplars, if only the edit uses some.
    """

    step: Step
    exemplars: Exemplars | None = None


@dataclass(frozen=True, slots=True)
class EditPair:
    """Two runs on the same experts and benchmark: ``without_edit``, and ``with_edit`` with one more edit in front."""

    without_edit: Run
    with_edit: Run
    leading_edit: LeadingEdit

    def belongs_to(self, leading_edit: LeadingEdit) -> bool:
        """Whether this is a pair of an edit. If the chain behind the edit uses exemplars, the edit uses the same."""
        return self.leading_edit.step == leading_edit.step and self.leading_edit.exemplars in (
            None,
            leading_edit.exemplars,
        )


@dataclass(frozen=True, slots=True)
class EditPairRow:
    """A merge without an edit (``plain``) and with it in front (``plugged``); None for a run that is not stored.

    ``missing`` are the recipes of the runs that are not stored; ``refused`` is the reason if the edit cannot precede
    this merge.
    """

    title: str
    plain: Run | None
    plugged: Run | None
    missing: tuple[Recipe, ...] = ()
    refused: str = ""


# benchmark, (name, digest) of each checkpoint, activation, architecture: see ``comparison_key``
RunInputs = tuple[str | None, frozenset[tuple[str, str]], str, str]
ChainSettings = tuple[bool, Step | None, TestData | None]  # whether unused tensors count, the adapt, and its images
Chain = tuple[tuple[Step, ...], Exemplars | None, ChainSettings]  # with the steps of ``_simplify_steps``


def comparison_key(run: Run) -> RunInputs:
    """The benchmark of a run, the digests of its checkpoints, and the activation and architecture of its recipe."""
    recipe = read_recipe(run)
    network_settings = (recipe.activation, recipe.architecture) if recipe else ("", "")
    return run.benchmark, frozenset(run.inputs.items()), *network_settings


def group_by_subject(runs: Iterable[Run]) -> list[list[Run]]:
    """Groups of runs of one subject: most experts first, then one checkpoint of each, then most runs."""
    groups: dict[RunInputs, list[Run]] = {}
    for run in runs:
        groups.setdefault(comparison_key(run), []).append(run)

    def rank(group: list[Run]) -> tuple[int, int, int]:
        return -len(list_tasks(group[0].experts)), len(group[0].experts), -len(group)

    return sorted(groups.values(), key=rank)


def find_pairs(runs: Iterable[Run]) -> list[EditPair]:
    """Every pair among the runs; of runs with the same chain, only the first counts."""
    groups = {comparison_key(group[0]): index_by_chain(group) for group in group_by_subject(runs)}
    edit_pairs = []
    for chains in groups.values():
        for (steps, exemplars, settings), run in chains.items():
            # The chain behind the edit uses the same exemplars, or none.
            possible_exemplars = dict.fromkeys((exemplars, None))
            runs_without = [
                run_without
                for other_exemplars in possible_exemplars
                if (run_without := chains.get((steps[1:], other_exemplars, settings)))
            ]
            if runs_without:
                only_edit_samples = exemplars is not None and _read_exemplars(runs_without[0]) is None
                edit_pairs.append(
                    EditPair(runs_without[0], run, LeadingEdit(steps[0], exemplars if only_edit_samples else None))
                )
    return edit_pairs


def list_leading_edits(pairs: Iterable[EditPair]) -> list[LeadingEdit]:
    """The distinct edits that have pairs; an edit that alone uses exemplars occurs once per sample of them."""
    edits = list(dict.fromkeys(pair.leading_edit for pair in pairs))
    with_exemplars = {edit.step for edit in edits if edit.exemplars}
    return [edit for edit in edits if edit.exemplars or edit.step not in with_exemplars]


def build_plugin_matrix(
    runs: Sequence[Run], leading_edit: LeadingEdit, edit_name: str, *, large: bool = False
) -> list[EditPairRow]:
    """A row for every preset that the edit can precede, then one for every other pair; all runs are of one subject.

    Args:
        edit_name: the edit's name in titles.
        large: whether the presets have the values of the papers for ViT-L/14.
    """
    first_recipe = next(recipe for run in runs if (recipe := read_recipe(run)))
    pretrained, experts = first_recipe.pretrained, dict(first_recipe.experts)
    network_settings = (first_recipe.activation, first_recipe.architecture)
    chains = index_by_chain(runs)
    rows = []
    has_several = len(first_recipe.tasks) < len(experts)  # checkpoints of one expert, which presets do not take
    for preset in () if has_several else list_bases(leading_edit.step.key):
        recipe_without = preset.recipe(pretrained, experts, large=large).with_architecture(*network_settings)
        preset_with_edit = preset.with_edit(
            (leading_edit.step.key, leading_edit.step.params.values()), edit_name, leading_edit.exemplars
        )
        if reason := explain_refusal(preset_with_edit):
            rows.append(
                EditPairRow(
                    preset.name_in_lists(large), chains.get(_build_chain(recipe_without, runs[0])), None, (), reason
                )
            )
            continue
        recipes = (
            recipe_without,
            preset_with_edit.recipe(pretrained, experts, large=large).with_architecture(*network_settings),
        )
        run_without, run_with = (chains.get(_build_chain(recipe, runs[0])) for recipe in recipes)
        missing = tuple(recipe for recipe, run in zip(recipes, (run_without, run_with), strict=True) if run is None)
        rows.append(EditPairRow(preset.name_in_lists(large), run_without, run_with, missing))
    listed_ids = {row.plain.id for row in rows if row.plain}
    other_pairs = [
        pair for pair in find_pairs(runs) if pair.belongs_to(leading_edit) and pair.without_edit.id not in listed_ids
    ]
    return rows + [EditPairRow(pair.without_edit.name, pair.without_edit, pair.with_edit) for pair in other_pairs]


def index_by_chain(runs: Iterable[Run]) -> Mapping[Chain, Run]:
    """The first run of every chain; runs with a method that this version lacks are left out."""
    chains: dict[Chain, Run] = {}
    for run in runs:
        if recipe := read_recipe(run):
            chains.setdefault(_build_chain(recipe, run), run)
    return chains


def find_run(recipe: Recipe, runs: Sequence[Run]) -> Run | None:
    """The first run with a recipe's chain, among runs of one subject; paths of files may differ."""
    return index_by_chain(runs).get(_build_chain(recipe, runs[0])) if runs else None


def find_same_saliency(run: Run, candidates: Iterable[Run]) -> Run | None:
    """Another run with a table of saliency for the same first edit on the same task vectors; None if there is none.

    The first edit works on the task vectors themselves, independent of later steps.
    """
    recipe = read_recipe(run)
    if recipe is None or not recipe.edits:
        return None
    for candidate in candidates:
        candidate_recipe = read_recipe(candidate) if SALIENCY in candidate.tables and candidate.id != run.id else None
        if candidate_recipe is None or not have_same_models(run, candidate) or not candidate_recipe.edits:
            continue
        is_same_edit = _simplify_steps(candidate_recipe, candidate)[0] == _simplify_steps(recipe, run)[0]
        if is_same_edit and candidate_recipe.count_dead_params == recipe.count_dead_params:
            return candidate
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


def _build_chain(recipe: Recipe, run: Run) -> Chain:
    """The chain of a recipe on the inputs of a run; counting unused tensors matters only if there are any."""
    counts_unused = recipe.count_dead_params and run.sizes["dead"] > 0
    return _simplify_steps(recipe, run), recipe.exemplars, (counts_unused, recipe.adapt, recipe.test_data)


def _simplify_steps(recipe: Recipe, run: Run) -> tuple[Step, ...]:
    """The steps of a recipe; a step with several equivalent forms in its simplest form for the tensors of a run.

    Steps remain unchanged if the run's tensors are not stored, or are not those that the step names.
    """
    # ``plainest`` returns the simplest parameters with the same effect, for methods with equivalent ones.
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


def _read_exemplars(run: Run) -> Exemplars | None:
    recipe = read_recipe(run)
    return recipe.exemplars if recipe else None
