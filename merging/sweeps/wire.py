"""Points as plain data, for workers: what is asked of them, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from merging.files.tables import Columns
from merging.recipes.recipe import Recipe
from merging.sweeps.points import Point, Sample
from merging.sweeps.sweep import SweepPoint

Plain = dict[str, Any]


def plain_place(place: SweepPoint) -> Plain:
    """A place in a sweep. The recipe's title is kept, as some warnings name it."""
    terms = None if place.terms is None else [list(term) for term in place.terms]
    return {"line": place.line, "values": list(place.values), "recipe": place.recipe.plain(), "terms": terms}


def place_of(plain: Mapping[str, Any]) -> SweepPoint:
    """The place that ``plain_place`` wrote. Raises RecipeError or ParameterError for an invalid recipe."""
    terms = plain["terms"]
    return SweepPoint(
        int(plain["line"]),
        tuple(float(value) for value in plain["values"]),
        Recipe.from_plain(plain["recipe"]),
        None if terms is None else tuple((float(coefficient), str(what)) for coefficient, what in terms),
    )


def plain_sample(sample: Sample) -> Plain:
    """A sample of images."""
    return asdict(sample)


def sample_of(plain: Mapping[str, Any]) -> Sample:
    """The sample that ``plain_sample`` wrote."""
    return Sample(str(plain["split"]), int(plain["images"]), int(plain["seed"]), tuple(map(str, plain["tasks"])))


def plain_point(point: Point, about: Mapping[str, Any]) -> Plain:
    """A computed point with the facts about it; numbers keep every bit."""
    columns = {name: [values.dtype.str, values.tolist()] for name, values in _arrays(point).items()}
    facts = {"name": point.name, "device": point.device, "seconds": dict(point.seconds)}
    return {
        **facts,
        "provenance": point.provenance,
        "versions": dict(point.versions),
        "scores": columns,
        "about": about,
    }


def point_of(plain: Mapping[str, Any]) -> tuple[Point, Plain]:
    """The point and the facts that ``plain_point`` wrote."""
    columns = Columns({name: _column(kind, values) for name, (kind, values) in plain["scores"].items()})
    point = Point(
        plain["name"], columns, plain["device"], plain["provenance"], plain["seconds"],
        versions=plain["versions"],
    )  # fmt: skip
    return point, dict(plain["about"])


def _arrays(point: Point) -> dict[str, Any]:
    return {str(name): np.asarray(values) for name, values in point.table.items()}


def _column(kind: str, values: Sequence[Any]) -> Any:
    return np.array(values, dtype=object if kind == "|O" else kind)
