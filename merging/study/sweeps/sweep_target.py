"""The targets that a sweep can vary in a recipe: numbers of steps and of images, and experts; all from their bounds."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from merging.base.errors import ParameterError, RecipeError
from merging.base.text import did_you_mean, first_few
from merging.methods.params import Bound, Params
from merging.models.task_checkpoints import task_of
from merging.recipes.recipe import Exemplars, Recipe
from merging.recipes.unlabeled_images import TestData

EXPERTS, EXEMPLARS, TEST_DATA = "experts", "exemplars", "test_data"
SUBSET = "subset"  # the target of a sweep of subsets
SAMPLING_SETTINGS: dict[str, type[Params]] = {EXEMPLARS: Exemplars, TEST_DATA: TestData}  # settings of sampled images
NUMBER_KINDS = ("real", "integer")
MAX_PROPOSED_STEPS = 16  # the most steps between proposed values
MAX_VALUES = 201  # the most values along one axis
MAX_SUBSET_EXPERTS = 27  # of the next larger team more than 1,000 subsets are measured, the most points of a sweep
# The position on a line or in a plane through models, which combines their weights instead of varying recipes.
POSITION = Bound(
    kind="real", default=1.0, label="Interpolation", symbol=r"\alpha", low=-2.0, high=4.0, slider=(0.0, 1.5),
    help="0 is the first model, 1 another one; beyond 1 goes farther in the same direction.",
)  # fmt: skip
PLANE_VALUES = tuple(index / 8 for index in range(-1, 10))  # eleven around both 0 and 1, where the models are


@dataclass(frozen=True, slots=True)
class SweepTarget:
    """A number that a sweep can vary: its ``name`` in sweeps, its owner, and its bound.

    ``name`` is "<key>.<parameter>" ("<key>#2.<parameter>" for the second step of that key), "<parameter>" alone for a
    parameter of several recipes that share no step, "exemplars.<setting>", "test_data.<setting>", or "experts".
    """

    name: str
    owner: str
    bound: Bound

    @property
    def title(self) -> str:
        """The title in lists and on axes, such as 'LwPTV: prune ratio'."""
        return f"{self.owner}: {self.bound.label.lower()}" if self.owner else self.bound.label


def list_targets(recipes: Sequence[Recipe], kinds: Collection[str] = NUMBER_KINDS) -> list[SweepTarget]:
    """The targets of these ``kinds`` of parameters that all recipes have; parameters of single steps come first."""
    targets_by_recipe = [{target.name: target for target in _list_own_targets(recipe, kinds)} for recipe in recipes]
    shared_names = (
        [name for name in targets_by_recipe[0] if all(name in targets for targets in targets_by_recipe)]
        if targets_by_recipe
        else []
    )
    common_targets = [_narrow_bounds([targets[name] for targets in targets_by_recipe]) for name in shared_names]
    if len(recipes) > 1:  # parameters of different steps, such as the scaling of different merges
        used_names = {name.rpartition(".")[2] for name in shared_names}
        short_targets_by_recipe = [_strip_step_names(targets) for targets in targets_by_recipe]
        common_names = [
            name
            for name in short_targets_by_recipe[0]
            if name not in used_names and all(name in other_targets for other_targets in short_targets_by_recipe)
        ]
        common_targets += [
            _narrow_bounds([replace(targets[name], name=name, owner="") for targets in short_targets_by_recipe])
            for name in common_names
        ]
    return common_targets


def _list_own_targets(recipe: Recipe, kinds: Collection[str]) -> Iterator[SweepTarget]:
    occurrences: dict[str, int] = {}
    for method, step in recipe.stages:
        occurrences[step.key] = occurrences.get(step.key, 0) + 1
        prefix = step.key if occurrences[step.key] == 1 else f"{step.key}#{occurrences[step.key]}"
        for name, bound in step.params.bounds().items():
            if bound.kind in kinds:
                yield SweepTarget(f"{prefix}.{name}", method.title, bound)
    for owner, settings in ((EXEMPLARS, recipe.exemplars), (TEST_DATA, recipe.test_data)):
        for name, bound in SAMPLING_SETTINGS[owner].bounds().items() if settings is not None else ():
            if bound.kind in NUMBER_KINDS:
                yield SweepTarget(f"{owner}.{name}", "", bound)
    if (count := len(recipe.tasks)) > 1:
        yield SweepTarget(EXPERTS, "", _bound_experts(count))


def _bound_experts(count: int) -> Bound:
    words = "How many of the experts are merged, in a seeded order; each number adds to the experts of the one before."
    return Bound(
        kind="integer", default=count, label="Number of experts", help=words, low=1, high=count, slider=(2, count)
    )


def _strip_step_names(targets: dict[str, SweepTarget]) -> dict[str, SweepTarget]:
    """The parameters of steps by their names alone; if two steps share a name, that of the later step."""
    return {
        name.partition(".")[2]: target
        for name, target in targets.items()
        if "." in name and name.partition(".")[0] not in SAMPLING_SETTINGS
    }


def _narrow_bounds(targets: Sequence[SweepTarget]) -> SweepTarget:
    """One target whose bound is the intersection of the bounds of all."""
    bounds = [target.bound for target in targets]
    low, high = max(b.low for b in bounds), min(b.high for b in bounds)
    kind = "integer" if any(b.kind == "integer" for b in bounds) else bounds[0].kind
    open_low = any(b.open_low and b.low == low for b in bounds)
    return replace(targets[0], bound=replace(bounds[0], low=low, high=high, kind=kind, open_low=open_low))


def find_target(recipes: Sequence[Recipe], name: str, kinds: Collection[str] = NUMBER_KINDS) -> SweepTarget:
    """The target of a name. Raises RecipeError with the nearest name if it is unknown."""
    by_name = {target.name: target for target in list_targets(recipes, kinds)}
    if name in by_name:
        return by_name[name]
    for target in by_name.values():  # "ties.scaling" of a single recipe may be called "scaling"
        if target.name.rpartition(".")[2] == name:
            return target
    quantifier = " every one of" if len(recipes) > 1 else ""
    raise RecipeError(
        f"{name!r} cannot be varied in{quantifier} the recipe{'s' * (len(recipes) > 1)}."
        f"{did_you_mean(name, by_name)} Known: {first_few(by_name, 12) or 'nothing'}."
    )


def bound_subsets(recipe: Recipe) -> Bound:
    """The bound of the subsets of experts. Raises RecipeError for too many or few, or several checkpoints of one."""
    count = len(recipe.experts)
    if count > len(recipe.tasks):
        raise RecipeError("Subsets are taken of experts with one checkpoint each, but the recipe lists several of one.")
    if not 2 <= count <= MAX_SUBSET_EXPERTS:
        raise RecipeError(f"Subsets are taken of 2 to {MAX_SUBSET_EXPERTS} experts; the recipe has {count}.")
    words = "The experts that are merged, as a number: 1 for the first, 2 for the second, 4 for the third and so on."
    return Bound(kind="integer", default=2**count - 1, label="Subset", help=words, low=0, high=2**count - 1)


def list_members(names: Sequence[str], subset: int) -> tuple[str, ...]:
    """The names whose bit is set in ``subset``, in their order."""
    return tuple(name for index, name in enumerate(names) if subset >> index & 1)


def choose_experts(recipe: Recipe, names: Collection[str]) -> Recipe:
    """The recipe on the experts of these names only, without its title."""
    chosen = tuple((name, reference) for name, reference in recipe.experts if name in names)
    return replace(recipe, experts=chosen, data_files=recipe.data_files.of_experts(names), title="")


def vary_recipe(recipe: Recipe, target: str, value: float | str | bool, seed: int = 0) -> Recipe:
    """The recipe with another value of the target, without its title. ``seed`` orders the experts.

    Raises:
        ParameterError, RecipeError: the value is outside its bounds, or the chain is invalid with it.
    """
    plain = recipe.to_plain() | {"title": ""}
    if target == EXPERTS:
        order = np.random.default_rng(seed).permutation(len(recipe.tasks))[: int(value)]
        chosen, names = {recipe.tasks[index] for index in order}, dict(recipe.experts)
        smaller = choose_experts(recipe, {name for name in names if task_of(name, names) in chosen})
        return Recipe.from_plain(smaller.to_plain())
    owner, _, name = target.rpartition(".")
    if owner in SAMPLING_SETTINGS:
        return Recipe.from_plain(plain | {owner: {**plain.get(owner, {}), name: int(value)}})
    adapt = [plain["adapt"]] if "adapt" in plain else []
    steps: list[dict[str, dict[str, Any]]] = [*plain["edits"], plain["merge"], *adapt]
    index = _step_index(recipe, owner, name)
    ((key, values),) = steps[index].items()
    convert = {"integer": int, "real": float}.get(recipe.stages[index][1].params.bounds()[name].kind, _keep)
    steps[index] = {key: {**values, name: convert(value)}}
    if adapt:
        plain["adapt"] = steps.pop()
    return Recipe.from_plain(plain | {"edits": steps[:-1], "merge": steps[-1]})


def _keep(value: Any) -> Any:
    return value


def _step_index(recipe: Recipe, owner: str, name: str) -> int:
    """The index of a target's step; if no step is named, the last one with the parameter."""
    key, _, number = owner.partition("#")
    indices = [i for i, (_, step) in enumerate(recipe.stages) if name in step.params.bounds() and key in ("", step.key)]
    if not indices:
        raise RecipeError(f"{recipe.text()} has no step with {name!r}.")
    return indices[-1] if not owner else indices[int(number or 1) - 1]


def propose_values(bound: Bound) -> tuple[float, ...]:
    """Proposed values: at least about eleven round numbers, evenly spaced over the sensible range."""
    low, high = bound.slider or (bound.low, bound.high)
    default = float(bound.default or 1)
    low = low if math.isfinite(low) else default / 2
    high = high if math.isfinite(high) else 2 * max(default, low, 0.5)
    unit = 10.0 ** math.floor(math.log10((high - low) / MAX_PROPOSED_STEPS))
    strides = [unit * factor for factor in (1, 2, 2.5, 5, 10)]
    if bound.kind == "integer":
        strides = sorted({float(max(1, math.ceil(stride))) for stride in strides})
    stride = next((s for s in strides if (high - low) / s <= MAX_PROPOSED_STEPS), strides[-1])
    first, last = math.ceil(low / stride - 1e-9), math.floor(high / stride + 1e-9)
    values = [round(i * stride, 10) for i in range(first, last + 1)]
    return tuple(value for value in values if bound.accepts(_to_bound_type(bound, value)))


def write_values(values: Sequence[float]) -> str:
    """Values in the text form of ``parse_values``: '0:1:0.1' if they are evenly spaced."""
    if len(values) > 3:
        step = round(values[1] - values[0], 10)
        if all(abs(b - a - step) < 1e-9 for a, b in pairwise(values)):
            return ":".join(f"{value:.10g}" for value in (values[0], values[-1], step))
    return ", ".join(f"{value:.10g}" for value in values)


def parse_values(text: str, name: str) -> tuple[float, ...]:
    """Numbers from '0:1:0.1' (first, last, step) or '0, 0.2, 0.5'; ``name`` names them in the error.

    Raises:
        ParameterError: the text has another form, or too many values.
    """
    try:
        if ":" in text:
            low, high, step = (float(part) for part in text.split(":"))
            if not step > 0 or not high >= low or (high - low) / step > MAX_VALUES:
                raise ValueError
            return tuple(round(low + i * step, 10) for i in range(math.floor((high - low) / step + 1e-9) + 1))
        return tuple(float(part) for part in text.replace(";", ",").split(",") if part.strip())
    except (ValueError, OverflowError):
        raise ParameterError(
            f"{name}: write values as 0:1:0.1 (first, last, step) or as 0, 0.2, 0.5, at most {MAX_VALUES} of them; "
            f"got {text[:40]!r}."
        ) from None


def check_values(values: Sequence[float], bound: Bound, name: str, most: int = MAX_VALUES) -> tuple[float, ...]:
    """The 2 to ``most`` distinct values in ascending order. Raises ParameterError for others, and outside the bound."""
    for value in values:
        if not bound.accepts(_to_bound_type(bound, value)):
            raise ParameterError(f"{name} must be {bound.describe()}. Got {value:g} instead.")
    distinct = tuple(sorted({float(value) for value in values}))
    if not 2 <= len(distinct) <= most:
        raise ParameterError(f"{name} takes 2 to {most} different values; got {len(distinct)}.")
    return distinct


def _to_bound_type(bound: Bound, value: float) -> float:
    """The value as an int if the bound needs one and the value is whole."""
    return int(value) if bound.kind == "integer" and float(value).is_integer() else value
