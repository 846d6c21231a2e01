"""Sweeps: recipes, the values to vary in them, and the images of the evaluation.

There are four kinds. "values" varies one or two numbers of one or more recipes. "line" goes through two models,
A + α(B − A), by default from the pretrained model through the merged model of each recipe. "plane" goes through three:
A + α(B − A) + β(C − A). On both, losses are computed, too. "subsets" merges subsets of a recipe's experts; a subset is
the number whose bit j (from 0) stands for expert j.
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
from merging.models.model_references import PRETRAINED
from merging.recipes.recipe import Recipe
from merging.study.sweeps import sweep_target as axes  # each axis varies one target
from merging.study.sweeps.points import PointSample
from merging.study.sweeps.sweep_target import POSITION

VALUES, LINE, PLANE, SUBSETS = "values", "line", "plane", "subsets"
MODEL_COUNTS = {LINE: 2, PLANE: 3}  # the models that a sweep of this kind goes through
AXIS_KINDS = (VALUES, *MODEL_COUNTS)  # the kinds whose values are numbers to compare along axes
SWEEP_KINDS = (*AXIS_KINDS, SUBSETS)
MERGED = "merged"  # in ``through``: the merge of the first recipe; "merged 2" is that of the second
FIELDS = ("version", "title", "kind", "through", "axes", "split", "images", "seed", "recipes")
# This field of a recipe is not part of a sweep's id at its default, so sweeps older than the field keep their ids.
FIELD_AT_DEFAULT = ("count_dead_params", False)
VERSION, MAX_RECIPES, DEFAULT_IMAGES = 1, 8, 128
WEIGHT_DIGITS = 12  # decimals of the weights of models, without the rounding of 1 - α - β
MAX_POINTS, MAX_POINTS_ALONE = 20_000, 1000  # of a sweep; the second for a new sweep without workers


Model = str | Recipe  # "pretrained", an expert's name, or the recipe of a merge


@dataclass(frozen=True, slots=True)
class Axis:
    """A target and its values in ascending order.

    On a line the target is "alpha", in a plane "alpha" and "beta", of subsets "subset".
    """

    target: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One point of a sweep, before its computation. ``line`` is the index of its recipe in the sweep.

    ``recipe`` is the recipe with the point's values; on a line and in a plane it names the pretrained model and the
    experts. ``terms`` are pairs of a coefficient and the model that it scales, an expert's name or the recipe of a
    merge; None if the merged model itself is evaluated, and none for the pretrained model, the empty subset. ``values``
    are empty for the merge that is marked in a plane.
    """

    line: int
    values: tuple[float, ...]
    recipe: Recipe
    terms: tuple[tuple[float, Model], ...] | None = None

    @property
    def model(self) -> Model | None:
        """The single model that the point is; None if it is between models."""
        if self.terms is None:
            return self.recipe
        terms = [term for term in self.terms if term[0] != 0]
        if not terms:
            return PRETRAINED
        return terms[0][1] if len(terms) == 1 and terms[0][0] == 1 else None

    @property
    def merge(self) -> Recipe | None:
        """The recipe whose merged model the point is; None if it is another model or between models."""
        return self.model if isinstance(self.model, Recipe) else None

    @property
    def merged_recipes(self) -> tuple[Recipe, ...]:
        """The recipes whose merged models the point is or combines."""
        if self.terms is None:
            return (self.recipe,)
        return tuple(model for coefficient, model in self.terms if coefficient != 0 and isinstance(model, Recipe))

    @property
    def opened_recipes(self) -> tuple[Recipe, ...]:
        """The recipes whose files the point is computed from, its own one first."""
        return tuple(dict.fromkeys((self.recipe, *self.merged_recipes)))

    def to_plain(self) -> dict[str, Any]:
        """The point as plain data, with the recipe's title, since some warnings contain it."""
        terms = self.terms and [
            (scale, model if isinstance(model, str) else model.to_plain()) for scale, model in self.terms
        ]
        return {"line": self.line, "values": self.values, "terms": terms, "recipe": self.recipe.to_plain()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """The point that ``to_plain`` wrote. Raises RecipeError or ParameterError for an invalid recipe."""
        terms = plain["terms"]
        if terms is not None:
            terms = tuple(
                (float(scale), model if isinstance(model, str) else Recipe.from_plain(model)) for scale, model in terms
            )
        return cls(int(plain["line"]), tuple(map(float, plain["values"])), Recipe.from_plain(plain["recipe"]), terms)


@dataclass(frozen=True, slots=True)
class NamedPoint:
    """A point with its name, which depends on the contents of the files and on the images."""

    point: SweepPoint
    name: str
    run_id: str  # of the run with the same model; empty if no recipe has this model

    @property
    def stored_run_id(self) -> str:
        """The run whose stored scores may be those of the point; empty on lines and in planes, which have losses."""
        return self.run_id if self.point.terms is None else ""


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
    # The models of a line or a plane, by name: "pretrained", an expert, "merged", "merged 2" … A line without them goes
    # from the pretrained model through the merge of each recipe.
    through: tuple[str, ...] = ()
    most: InitVar[int | None] = None  # the limit of points, by default ``find_point_limit``

    def __post_init__(self, most: int | None) -> None:
        if self.kind not in SWEEP_KINDS:
            raise RecipeError(f"A sweep's kind is one of {', '.join(SWEEP_KINDS)}; got {self.kind!r}.")
        if not 1 <= len(self.recipes) <= MAX_RECIPES:
            raise RecipeError(f"A sweep has 1 to {MAX_RECIPES} recipes; got {len(self.recipes)}.")
        self._check_shape()
        most_values = MAX_POINTS if self.kind == SUBSETS else axes.MAX_VALUES
        checked = [
            Axis(axis.target, axes.check_values(axis.values, bound, axis.target, most_values))
            for axis, bound in zip(self.axes, self.bounds, strict=True)
        ]
        object.__setattr__(self, "axes", tuple(checked))
        self._check_count(most or find_point_limit())
        if len(set(self.recipes)) < len(self.recipes):
            raise RecipeError("Two recipes of the sweep are the same.")
        _ = (self.sample, self.points)  # computing them checks them

    def _check_count(self, max_points: int) -> None:
        if (count := len(self.lines) * math.prod(len(axis.values) for axis in self.axes)) > max_points:
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
        if self.kind == VALUES and len(self.axes) == 2 and len(self.recipes) > 1:
            raise RecipeError("A sweep of two things takes one recipe; several are compared along one axis.")
        if self.kind == SUBSETS and (len(self.recipes) > 1 or self.axes[0].target != axes.SUBSET):
            raise RecipeError(f"A sweep of subsets takes one recipe and varies {axes.SUBSET!r}.")
        if self.kind in MODEL_COUNTS or self.through:
            self._check_models()

    def _check_models(self) -> None:
        """Raise RecipeError if the models of a line or a plane do not exist, or do not fit together."""
        count = MODEL_COUNTS.get(self.kind, 0)
        if len(self.through) != count and (self.through or self.kind != LINE):
            raise RecipeError(f"A sweep of kind {self.kind} goes through {count} models; got {len(self.through)}.")
        if len(set(self.through)) < len(self.through):
            raise RecipeError("A sweep cannot go through the same model twice.")
        names = tuple(axis.target for axis in self.axes)
        if names != (expected := ("alpha", "beta")[: len(self.axes)]):
            raise RecipeError(f"A sweep of kind {self.kind} varies {' and '.join(expected)}; got {', '.join(names)}.")
        merges = self.list_merges()
        if unused := [recipe.text() for recipe in self.recipes[1:] if recipe not in merges]:
            raise RecipeError(f"The sweep does not go through the merge of {unused[0]}.")
        if len({recipe.pretrained for recipe in self.recipes}) > 1 and self.through:
            raise RecipeError(
                "A line or a plane goes through models of one pretrained model; the recipes name several."
            )
        if per_task := [recipe.text() for recipe in merges if recipe.per_task]:
            raise RecipeError(f"{per_task[0]} gives one model per task, so there is no {self.kind} through it.")
        if adapted := [recipe.text() for recipe in merges if recipe.adapt]:
            raise RecipeError(f"A {self.kind} varies weights only; remove the adapt on top of the model: {adapted[0]}.")

    @property
    def lines(self) -> range:
        """The numbers of the curves: of the recipes, or 0 alone if the sweep goes through models by name."""
        return range(1 if self.through else len(self.recipes))

    def list_models(self, line: int) -> tuple[Model, ...]:
        """The models that a curve, or a plane, goes through. Raises RecipeError if one of them does not exist."""
        if not self.through:
            return PRETRAINED, self.recipes[line]
        known: dict[str, Model] = {name: name for name, _ in self.recipes[0].experts}
        known[PRETRAINED] = PRETRAINED
        for number, recipe in enumerate(self.recipes, 1):
            known[MERGED if number == 1 else f"{MERGED} {number}"] = recipe
        for name in self.through:
            if name not in known:
                raise RecipeError(
                    f"The sweep has no model {name!r}.{did_you_mean(name, known)} It has: {first_few(known, 12)}."
                )
        return tuple(known[name] for name in self.through)

    def list_merges(self) -> list[Recipe]:
        """The recipes that the points merge; on lines and in planes, those of their models and of the marked merge."""
        if not self.has_losses:
            return list(self.recipes)
        models = [model for line in self.lines for model in self.list_models(line)]
        marked = [point.recipe for point in self._list_plane_merge()]
        return [model for model in [*models, *marked] if isinstance(model, Recipe)]

    def list_experts(self, line: int) -> set[str]:
        """The experts that the models of a line or a plane are, or have merged; their tasks are in domain."""
        models = self.list_models(line)
        merged = {name for model in models if isinstance(model, Recipe) for name, _ in model.experts}
        return merged | {model for model in models if isinstance(model, str) and model != PRETRAINED}

    @property
    def learning_note(self) -> str:
        """A warning if recipes learn from images of the split that the points are evaluated on; otherwise empty."""
        learning = [recipe.text() for recipe in self.list_merges() if recipe.adapted_on == self.split]
        if not learning:
            return ""
        return (
            f"{first_few(learning, 1)} learns, without labels, from {self.split} images, by which {self.unit}s are "
            f"compared, so another {self.unit} may be the best on images that it has not learned from. Let it learn "
            "from training images instead, as with test_data: {split: exemplars}."
        )

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """The bound of each axis's values."""
        if self.kind == SUBSETS:
            return (axes.bound_subsets(self.recipes[0]),)
        if self.kind != VALUES:
            return (POSITION,) * len(self.axes)
        return tuple(axes.find_target(self.recipes, axis.target).bound for axis in self.axes)

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each axis."""
        if self.kind == VALUES:
            return tuple(axes.find_target(self.recipes, axis.target).title for axis in self.axes)
        first, *others = self.through or (PRETRAINED, MERGED)
        if self.kind == LINE:
            return (f"Interpolation α (0 {first}, 1 {others[0]})",)
        if self.kind == SUBSETS:
            return tuple(bound.label for bound in self.bounds)
        return tuple(f"{letter}: from {first} (0) to {other} (1)" for letter, other in zip("αβ", others, strict=True))

    @property
    def has_losses(self) -> bool:
        """Whether losses of its points are computed beside their accuracies."""
        return self.kind in MODEL_COUNTS

    @property
    def unit(self) -> str:
        """What a point of the sweep is, in words."""
        return "subset" if self.kind == SUBSETS else "point"

    @property
    def sample(self) -> PointSample:
        """The images that every point is evaluated on; not those of experts that no model of a line or a plane has."""
        without: set[str] = set()
        if self.has_losses:
            without = {name for recipe in self.recipes for name, _ in recipe.experts}
            without.difference_update(*map(self.list_experts, self.lines))
        return PointSample(self.split, self.images, self.seed, without=tuple(sorted(without)))

    def _combine_values(self) -> Iterator[tuple[float, ...]]:
        return product(*(axis.values for axis in self.axes))

    @cached_property
    def points(self) -> tuple[SweepPoint, ...]:
        """Every point in the order of computation, so that a curve, or pairs of experts, are visible early."""
        combinations = list(self._combine_values())
        points = [
            self._make_point(line, recipe, values)
            for values in (_order_coarse_first(combinations) if self.kind != SUBSETS else self._order_subsets())
            for line, recipe in zip(self.lines, self.recipes, strict=False)
        ]
        return (*points, *self._list_plane_merge())

    def _make_point(self, line: int, recipe: Recipe, values: tuple[float, ...]) -> SweepPoint:
        if self.kind == SUBSETS:
            if names := axes.list_members([name for name, _ in recipe.experts], int(values[0])):
                return SweepPoint(line, values, axes.choose_experts(recipe, names))
            return SweepPoint(line, values, replace(recipe, adapt=None), ())  # without modules that all experts teach
        if self.kind != VALUES:
            weights = (1 - sum(values), *values)
            terms = [
                (round(weight, WEIGHT_DIGITS), model)
                for weight, model in zip(weights, self.list_models(line), strict=True)
                if model != PRETRAINED
            ]
            plain = replace(recipe, adapt=None) if recipe.adapt else recipe  # of a recipe that is not on the line
            return SweepPoint(line, values, plain, tuple(terms))
        for axis, value in zip(self.axes, values, strict=True):
            recipe = axes.vary_recipe(recipe, axis.target, value, self.seed)
        return SweepPoint(line, values, recipe)

    def _list_plane_merge(self) -> tuple[SweepPoint, ...]:
        """In a plane of the pretrained model and two experts, their merge by the first recipe; otherwise empty."""
        if self.kind != PLANE or not self.spans_task_vectors or self.recipes[0].per_task:
            return ()
        return (SweepPoint(0, (), axes.choose_experts(self.recipes[0], {*self.through})),)

    def _order_subsets(self) -> list[tuple[float, ...]]:
        """Subsets that lack at most one expert, then those of up to two, then the others by size."""
        count = len(self.recipes[0].experts)

        def rank(value: float) -> tuple[int, int, float]:
            size = int(value).bit_count()
            return (0 if size > count - 2 else 1 if size < 3 else 2), size, value

        return [(value,) for value in sorted(self.axes[0].values, key=rank)]

    @property
    def spans_task_vectors(self) -> bool:
        """Whether it is a plane from the pretrained model to two experts, so that positions are their coefficients."""
        first, *others = (*self.through, "")
        return (
            self.kind == PLANE
            and first == PRETRAINED
            and {*others[:-1]} <= {name for name, _ in self.recipes[0].experts}
        )

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
            **({"through": list(self.through)} if self.through else {}),
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
        recipes, axis_values, through = data.get("recipes"), data.get("axes"), data.get("through", [])
        if not isinstance(recipes, list) or not isinstance(axis_values, dict):
            raise RecipeError("In a sweep, recipes is a list of recipes, axes a mapping of targets to their values.")
        if not isinstance(through, list) or not all(isinstance(name, str) for name in through):
            raise RecipeError("In a sweep, through is a list of names of models.")
        texts: dict[str, Any] = {
            name: read_text_field(data[name], name, "sweep") for name in ("kind", "split", "title") if name in data
        }
        counts: dict[str, Any] = {name: _read_count(data[name], name) for name in ("images", "seed") if name in data}
        return cls(
            recipes=tuple(Recipe.from_plain(recipe) for recipe in recipes),
            axes=tuple(Axis(str(target), _read_values(str(target), values)) for target, values in axis_values.items()),
            through=tuple(through),
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
