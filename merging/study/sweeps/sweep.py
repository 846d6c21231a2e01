"""Sweeps: recipes, the values to vary in them, and the images of the evaluation.

There are four kinds. "values" varies one or two numbers of one or more recipes. "line" interpolates from the
pretrained model through the merged model of each recipe: θ₀ + α(θ − θ₀). "plane" spans two experts: θ₀ + λ₁τ₁ + λ₂τ₂.
"subsets" merges subsets of a recipe's experts; a subset is the number whose bit j (from 0) stands for expert j.
As a number, a ``line`` is the index of a recipe, whose points are one curve, in sweeps of every kind.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Self

from merging.base import settings
from merging.base.errors import RecipeError
from merging.base.files.plain_yaml import check_fields, read_plain_yaml, read_text_field, write_yaml
from merging.base.files.short_digest import short_digest
from merging.base.text import did_you_mean, first_few
from merging.images.benchmarks.benchmark import SPLITS
from merging.methods.params import Bound
from merging.models.formats.model_sources import ModelRef
from merging.recipes.recipe import Recipe
from merging.study.sweeps import sweep_target as axes  # each axis varies one target
from merging.study.sweeps.points import PointSample
from merging.study.sweeps.sweep_target import ALPHA, LAMBDA

VALUES, LINE, PLANE, SUBSETS = "values", "line", "plane", "subsets"
AXIS_KINDS = (VALUES, LINE, PLANE)  # the kinds whose values are numbers to compare along axes
SWEEP_KINDS = (*AXIS_KINDS, SUBSETS)
FIELDS = ("version", "title", "kind", "axes", "split", "images", "seed", "recipes")
# This field of a recipe is not part of a sweep's id at its default, so sweeps older than the field keep their ids.
FIELD_AT_DEFAULT = ("count_dead_params", False)
VERSION, MAX_RECIPES, DEFAULT_IMAGES = 1, 8, 128
MAX_POINTS, MAX_POINTS_ALONE = 20_000, 1000  # of a sweep; the second for a new sweep without workers


@dataclass(frozen=True, slots=True)
class Axis:
    """A target and its values in ascending order.

    On a line the target is "alpha", in a plane an expert's name, of subsets "subset".
    """

    target: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One point of a sweep, before its computation. ``line`` is the index of its recipe in the sweep.

    ``recipe`` is the recipe with the point's values; on a line and in a plane it is the recipe of the whole merge.
    ``terms`` are pairs of a coefficient and the model that it scales, an expert's name or "merged"; None if the merged
    model itself is evaluated, and none for the pretrained model, the empty subset. ``values`` are empty for the merge
    that is marked in a plane.
    """

    line: int
    values: tuple[float, ...]
    recipe: Recipe
    terms: tuple[tuple[float, str], ...] | None = None

    def to_plain(self) -> dict[str, Any]:
        """The point as plain data, with the recipe's title, since some warnings contain it."""
        return {**{name: getattr(self, name) for name in ("line", "values", "terms")}, "recipe": self.recipe.to_plain()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """The point that ``to_plain`` wrote. Raises RecipeError or ParameterError for an invalid recipe."""
        terms = None if plain["terms"] is None else tuple((float(scale), str(model)) for scale, model in plain["terms"])
        return cls(int(plain["line"]), tuple(map(float, plain["values"])), Recipe.from_plain(plain["recipe"]), terms)


@dataclass(frozen=True, slots=True)
class NamedPoint:
    """A point with its name, which depends on the contents of the files and on the images."""

    point: SweepPoint
    name: str
    run_id: str  # of the run with the same model; empty if no recipe has this model


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A valid sweep: all values are checked at construction. The id does not depend on ``title``.

    Raises:
        RecipeError: a target cannot be varied, or a chain is invalid with a value.
        ParameterError: a value is outside its bounds, or there are too few or too many values.
    """

    recipes: tuple[Recipe, ...]
    axes: tuple[Axis, ...]
    kind: str = VALUES
    split: str = SPLITS[0]
    images: int = DEFAULT_IMAGES  # of each task; 0 is all of them
    seed: int = 0  # of the sample of images, and of the order of experts
    title: str = ""
    most: InitVar[int | None] = None  # the limit of points, by default ``find_point_limit``

    def __post_init__(self, most: int | None) -> None:
        if self.kind not in SWEEP_KINDS:
            raise RecipeError(f"A sweep's kind is one of {', '.join(SWEEP_KINDS)}; got {self.kind!r}.")
        if not 1 <= len(self.recipes) <= MAX_RECIPES:
            raise RecipeError(f"A sweep has 1 to {MAX_RECIPES} recipes; got {len(self.recipes)}.")
        self._check_shape()
        most_values = MAX_POINTS if self.kind == SUBSETS else axes.MAX_VALUES
        checked = [
            Axis(axis.target, axes.check_values(axis.values, bound, self._axis_name(axis, bound), most_values))
            for axis, bound in zip(self.axes, self.bounds, strict=True)
        ]
        object.__setattr__(self, "axes", tuple(checked))
        self._check_count(most or find_point_limit())
        if len(set(self.recipes)) < len(self.recipes):
            raise RecipeError("Two recipes of the sweep are the same.")
        _ = (self.sample, self.points)  # computing them checks them

    def _check_count(self, max_points: int) -> None:
        if (count := len(self.recipes) * math.prod(len(axis.values) for axis in self.axes)) > max_points:
            advice = (
                f", or set {settings.WORKERS_VARIABLE}, which allows {MAX_POINTS:,}" if max_points < MAX_POINTS else ""
            )
            raise RecipeError(
                f"A sweep has at most {max_points:,} points here; this one has {count:,}. Take fewer values{advice}."
            )

    def _check_shape(self) -> None:
        counts = {VALUES: (1, 2), LINE: (1,), PLANE: (2,), SUBSETS: (1,)}[self.kind]
        if len(self.axes) not in counts:
            raise RecipeError(
                f"A sweep of kind {self.kind} varies {' or '.join(map(str, counts))}; got {len(self.axes)}."
            )
        if len({axis.target for axis in self.axes}) < len(self.axes):
            raise RecipeError("A sweep cannot vary the same thing twice.")
        if len(self.axes) == 2 and len(self.recipes) > 1:
            raise RecipeError("A sweep of two things takes one recipe; several are compared along one axis.")
        if self.kind == LINE and (per_task := [recipe.text() for recipe in self.recipes if recipe.per_task]):
            raise RecipeError(f"{per_task[0]} gives one model per task, so there is no line through it.")
        if self.kind == SUBSETS and (len(self.recipes) > 1 or self.axes[0].target != axes.SUBSET):
            raise RecipeError(f"A sweep of subsets takes one recipe and varies {axes.SUBSET!r}.")
        if self.kind in (LINE, PLANE) and (adapted := [recipe.text() for recipe in self.recipes if recipe.adapt]):
            raise RecipeError(f"A {self.kind} varies weights only; remove the adapt on top of the model: {adapted[0]}.")

    @property
    def learning_note(self) -> str:
        """A warning if recipes learn from images of the split that the points are evaluated on; otherwise empty."""
        learning = [recipe.text() for recipe in self.recipes if recipe.adapted_on == self.split]
        if not learning:
            return ""
        return (
            f"{first_few(learning, 1)} learns, without labels, from {self.split} images, by which {self.unit}s are "
            f"compared, so another {self.unit} may be the best on images that it has not learned from. Let it learn from "
            "training images instead, as with test_data: {split: exemplars}."
        )

    def _axis_name(self, axis: Axis, bound: Bound) -> str:
        return f"{bound.label} of {axis.target}" if self.kind == PLANE else axis.target

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """The bound of each axis's values."""
        if self.kind == LINE:
            return (ALPHA,)
        if self.kind == VALUES:
            return tuple(axes.find_target(self.recipes, axis.target).bound for axis in self.axes)
        names = [name for name, _ in self.recipes[0].experts]
        if self.kind == SUBSETS:
            return (axes.bound_subsets(len(names)),)
        for axis in self.axes:
            if axis.target not in names:
                raise RecipeError(
                    f"The recipe has no expert {axis.target!r}.{did_you_mean(axis.target, names)} "
                    f"It has: {first_few(names)}."
                )
        return LAMBDA, LAMBDA

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each axis."""
        if self.kind == LINE:
            return ("Interpolation α (0 pretrained, 1 merged)",)
        if self.kind == PLANE:
            return tuple(f"Coefficient of {axis.target}" for axis in self.axes)
        if self.kind == SUBSETS:
            return tuple(bound.label for bound in self.bounds)
        return tuple(axes.find_target(self.recipes, axis.target).title for axis in self.axes)

    @property
    def unit(self) -> str:
        """What a point of the sweep is, in words."""
        return "subset" if self.kind == SUBSETS else "point"

    @property
    def sample(self) -> PointSample:
        """The images that every point is evaluated on; in a plane only those of the two experts' tasks."""
        tasks = tuple(sorted(axis.target for axis in self.axes)) if self.kind == PLANE else ()
        return PointSample(self.split, self.images, self.seed, tasks)

    def _combine_values(self) -> Iterator[tuple[float, ...]]:
        return product(*(axis.values for axis in self.axes))

    @cached_property
    def points(self) -> tuple[SweepPoint, ...]:
        """Every point in the order of computation, so that a curve, or pairs of experts, are visible early."""
        combinations = list(self._combine_values())
        points = [
            self._make_point(line, recipe, values)
            for values in (_order_coarse_first(combinations) if self.kind != SUBSETS else self._order_subsets())
            for line, recipe in enumerate(self.recipes)
        ]
        return (*points, *self._list_plane_merge())

    def _make_point(self, line: int, recipe: Recipe, values: tuple[float, ...]) -> SweepPoint:
        if self.kind == LINE:
            return SweepPoint(line, values, recipe, ((values[0], "merged"),))
        if self.kind == SUBSETS:
            if names := axes.list_members([name for name, _ in recipe.experts], int(values[0])):
                return SweepPoint(line, values, axes.choose_experts(recipe, names))
            return SweepPoint(line, values, replace(recipe, adapt=None), ())  # without modules that all experts teach
        if self.kind == PLANE:
            terms = tuple((value, axis.target) for value, axis in zip(values, self.axes, strict=True))
            return SweepPoint(line, values, recipe, terms)
        for axis, value in zip(self.axes, values, strict=True):
            recipe = axes.vary_recipe(recipe, axis.target, value, self.seed)
        return SweepPoint(line, values, recipe)

    def _list_plane_merge(self) -> tuple[SweepPoint, ...]:
        """In a plane, the merge of the two experts, whose coefficients are fitted after merging; otherwise empty."""
        if self.kind != PLANE or self.recipes[0].per_task:
            return ()
        return (SweepPoint(0, (), axes.choose_experts(self.recipes[0], {axis.target for axis in self.axes})),)

    def _order_subsets(self) -> list[tuple[float, ...]]:
        """Subsets that lack at most one expert, then those of up to two, then the others by size."""
        count = len(self.recipes[0].experts)

        def rank(value: float) -> tuple[int, int, float]:
            size = int(value).bit_count()
            return (0 if size > count - 2 else 1 if size < 3 else 2), size, value

        return [(value,) for value in sorted(self.axes[0].values, key=rank)]

    @cached_property
    def id(self) -> str:
        """The id of the sweep, twelve hexadecimal digits, which depend on everything that the sweep computes."""
        plain = {key: value for key, value in self.to_plain().items() if key != "title"}
        plain["recipes"] = [
            {key: value for key, value in recipe.items() if key != "title" and (key, value) != FIELD_AT_DEFAULT}
            for recipe in plain["recipes"]
        ]
        return short_digest(json.dumps(plain, sort_keys=True))

    def to_plain(self) -> dict[str, Any]:
        """The sweep as plain data."""
        return {
            "version": VERSION,
            **({"title": self.title} if self.title else {}),
            "kind": self.kind,
            "axes": {axis.target: list(axis.values) for axis in self.axes},
            "split": self.split,
            "images": self.images,
            "seed": self.seed,
            "recipes": [recipe.to_plain() for recipe in self.recipes],
        }

    def to_yaml(self) -> str:
        """The sweep as a YAML document, from which ``from_yaml`` makes an equal sweep."""
        return write_yaml(self.to_plain())

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """A sweep from YAML. Raises RecipeError or ParameterError if it is invalid."""
        data = check_fields(read_plain_yaml(text, "sweep"), "sweep", FIELDS, VERSION)
        recipes, axis_values = data.get("recipes"), data.get("axes")
        if not isinstance(recipes, list) or not isinstance(axis_values, dict):
            raise RecipeError("In a sweep, recipes is a list of recipes, axes a mapping of targets to their values.")
        texts: dict[str, Any] = {
            name: read_text_field(data[name], name, "sweep") for name in ("kind", "split", "title") if name in data
        }
        counts: dict[str, Any] = {name: _read_count(data[name], name) for name in ("images", "seed") if name in data}
        return cls(
            recipes=tuple(Recipe.from_plain(recipe) for recipe in recipes),
            axes=tuple(Axis(str(target), _read_values(str(target), values)) for target, values in axis_values.items()),
            **texts,
            **counts,
            most=MAX_POINTS,  # every machine can show and resume a stored sweep
        )


def find_point_limit() -> int:
    """The most points of a new sweep on this machine."""
    return MAX_POINTS if settings.workers_setting() else MAX_POINTS_ALONE


def _read_count(value: Any, field: str) -> int:
    if type(value) is not int:
        raise RecipeError(f"In a sweep, {field} is a whole number; got {value!r:.60}.")
    return value


def _read_values(target: str, values: Any) -> tuple[float, ...]:
    """Values of an axis, as a list or as '0:1:0.1'."""
    if isinstance(values, str):
        return axes.parse_values(values, target)
    if isinstance(values, list) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return tuple(float(value) for value in values)
    raise RecipeError(f"In a sweep, the values of {target} are a list of numbers, or text such as 0:1:0.1.")


def _order_coarse_first(combinations: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Both ends, the middle, then ever finer steps, so that a stopped sweep still spans the whole axis."""
    count = len(combinations)
    order = [0, count - 1]
    step = count - 1
    while step > 1:
        step = (step + 1) // 2
        order += range(0, count, step)
    return [combinations[index] for index in dict.fromkeys(order)]


def with_absolute_paths(recipe: Recipe, base: Path) -> Recipe:
    """The recipe with absolute paths, so that a sweep can be resumed from any folder."""

    def absolute(reference: str) -> str:
        return ModelRef(reference, base).absolute()

    experts = tuple((name, absolute(reference)) for name, reference in recipe.experts)
    return replace(
        recipe,
        pretrained=absolute(recipe.pretrained),
        experts=experts,
        data_files=recipe.data_files.map_paths(absolute),
    )
