"""A tuning: a recipe, a space around it, objectives, a sampler and a budget; stored as a YAML file with a sha-256."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from merging.base.errors import MergingError, ParameterError, RecipeError, StoreError
from merging.base.files.disk import STORE_REMEDY, explain_os_errors
from merging.base.files.plain_yaml import check_fields, read_plain_yaml, write_yaml
from merging.base.files.records import write_text
from merging.base.files.short_digest import SHORT_DIGEST, short_digest
from merging.base.text import did_you_mean
from merging.images.benchmarks.benchmark import SPLITS
from merging.recipes.recipe import Recipe
from merging.study.runs.run_store import Store
from merging.study.sweeps.points import PointSample
from merging.study.sweeps.sweep import DEFAULT_IMAGES
from merging.study.sweeps.sweep_storage import SEAL, add_digest
from merging.study.tuning.space import Space

CHOOSING, REPORTING = SPLITS
OBJECTIVES = {"h": "H-score", "in": "in domain", "out": "out of domain", "worst": "worst task"}
TPE, CMA_ES, NSGA_II = SAMPLERS = ("tpe", "cmaes", "nsga2")
FIELDS = (
    "version",
    "title",
    "recipe",
    "space",
    "objectives",
    "sampler",
    "points",
    "minutes",
    "batch",
    "images",
    "seed",
)
VERSION, FOLDER, MAX_POINTS, MAX_MINUTES, MAX_BATCH = 1, "tunings", 1000, 10_080, 64


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """A valid tuning; the id does not depend on ``title``.

    The budget is a number of ``points`` for each of tuning, random search and grid, or ``minutes`` for all together;
    the other one is 0. The search asks for ``batch`` points at once, which workers share, and then learns from all.

    Raises:
        ParameterError, RecipeError: the space, an objective, the sampler or the budget is invalid.
    """

    recipe: Recipe
    space: tuple[tuple[str, str], ...]
    objectives: tuple[str, ...] = ("h",)
    sampler: str = ""  # empty: TPE for one objective, NSGA-II for several
    points: int = 60
    minutes: float = 0
    batch: int = 4
    images: int = DEFAULT_IMAGES  # of each task of the choosing half; 0 is all of them
    seed: int = 0
    title: str = ""

    def __post_init__(self) -> None:
        for name in self.objectives:
            if name not in OBJECTIVES:
                raise ParameterError(
                    f"{name[:40]!r} is no objective.{did_you_mean(name, OBJECTIVES)} Known: {', '.join(OBJECTIVES)}."
                )
        if not 1 <= len(set(self.objectives)) == len(self.objectives) <= 3:
            raise ParameterError("A tuning has one to three different objectives.")
        count = len(self.objectives)
        object.__setattr__(self, "sampler", self.sampler or (TPE if count == 1 else NSGA_II))
        if self.sampler not in SAMPLERS:
            raise ParameterError(f"A sampler is one of {', '.join(SAMPLERS)}; got {self.sampler[:40]!r}.")
        if (self.sampler == NSGA_II) != (count > 1):
            raise ParameterError("nsga2 takes two or three objectives, tpe and cmaes take one.")
        if (self.minutes and self.points) or not (2 <= self.points <= MAX_POINTS or 0 < self.minutes <= MAX_MINUTES):
            raise ParameterError(f"The budget is 2 to {MAX_POINTS:,} points, or up to {MAX_MINUTES:,} minutes.")
        if not 1 <= self.batch <= MAX_BATCH:
            raise ParameterError(f"A search asks for 1 to {MAX_BATCH} points at once; got {self.batch}.")
        dimensions, _ = self.checked_space.dimensions, self.sample  # computing them checks them
        if self.sampler == CMA_ES and (len(dimensions) < 2 or any(one.choices for one in dimensions)):
            raise ParameterError("cmaes moves at least two numbers and no choices; use tpe, or change the space.")

    @cached_property
    def checked_space(self) -> Space:
        """The space. Raises ParameterError or RecipeError if it is invalid."""
        return Space(self.recipe, self.space)

    @property
    def sample(self) -> PointSample:
        """The images by which values are chosen."""
        return PointSample(CHOOSING, self.images, self.seed)

    @property
    def report_sample(self) -> PointSample:
        """The images on which the best values are reported: the whole other half."""
        return PointSample(REPORTING)

    @cached_property
    def id(self) -> str:
        """The id of the tuning, twelve hexadecimal digits, which depend on everything that it computes."""
        plain = replace(self, title="", recipe=replace(self.recipe, title="")).to_plain()
        return short_digest(json.dumps(["tuning", plain], sort_keys=True))

    def to_plain(self) -> dict[str, Any]:
        """The tuning as plain data."""
        values = {name: getattr(self, name) for name in FIELDS[5:]}
        return {
            "version": VERSION,
            **({"title": self.title} if self.title else {}),
            "space": dict(self.space),
            "objectives": list(self.objectives),
            **values,
            "recipe": self.recipe.to_plain(),
        }

    def to_yaml(self) -> str:
        """The tuning as a YAML document, from which ``from_yaml`` makes an equal one."""
        return write_yaml(self.to_plain())

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """A tuning from YAML. Raises RecipeError or ParameterError if it is invalid."""
        data = check_fields(read_plain_yaml(text, "tuning"), "tuning", FIELDS, VERSION)
        space, objectives = data.get("space"), data.get("objectives", ["h"])
        if not isinstance(space, dict) or not all(isinstance(word, str) for pair in space.items() for word in pair):
            raise RecipeError("In a tuning, space is a mapping of names to texts such as 0.1:0.9.")
        if not isinstance(objectives, list) or not all(isinstance(name, str) for name in objectives):
            raise RecipeError("In a tuning, objectives is a list of names.")
        kinds: Mapping[str, Any] = dict.fromkeys(FIELDS[6:], int) | {
            "title": str, "sampler": str, "minutes": (int, float)
        }  # fmt: skip
        given = {name: data[name] for name in kinds if name in data}
        for name, value in given.items():
            if not isinstance(value, kinds[name]) or isinstance(value, bool) or value in (math.inf, -math.inf):
                raise RecipeError(
                    f"In a tuning, {name} is a {'text' if kinds[name] is str else 'number'}; got {value!r:.60}."
                )
        return cls(recipe=Recipe.from_plain(data.get("recipe")), space=tuple(space.items()),
                   objectives=tuple(objectives), **given)  # fmt: skip


# Stored tunings


def store_tuning(tuning: Tuning, store: Store) -> None:
    """Store a tuning. Raises StoreError if the disk cannot be written to."""
    _write(_path(store, tuning.id), tuning.to_yaml())


def list_tunings(store: Store) -> dict[str, Tuning]:
    """Every stored tuning that can be read, by id, newest first."""
    found = {}
    with contextlib.suppress(OSError):
        paths = sorted((store.root / FOLDER).glob("*.yaml"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in paths:
            with contextlib.suppress(MergingError):
                found[path.stem] = find_tuning(store, path.stem)
    return found


def find_tuning(store: Store, tuning_id: str) -> Tuning:
    """The stored tuning of an id. Raises StoreError if it is missing or was changed by another program."""
    try:
        text = _path(store, tuning_id).read_text("utf-8", "replace")
    except OSError:
        raise StoreError(f"There is no tuning {tuning_id} on this machine.") from None
    body, _, _ = text.rpartition(SEAL)
    if add_digest(body) != text or (tuning := Tuning.from_yaml(body)).id != tuning_id:
        raise StoreError(f"{FOLDER}/{tuning_id}.yaml was changed after it was written; delete it and tune again.")
    return tuning


def delete_tuning(store: Store, tuning_id: str) -> None:
    """Delete a tuning, but not its points. Raises StoreError if the disk cannot be written to."""
    with explain_os_errors("The tuning", STORE_REMEDY, "removed"):
        _path(store, tuning_id).unlink(missing_ok=True)
        _path(store, tuning_id, "json").unlink(missing_ok=True)


def read_spent(store: Store, tuning_id: str) -> tuple[float, int]:
    """The seconds that the search of a tuning with a budget of minutes has taken, and its points once it is over."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        spent = json.loads(_path(store, tuning_id, "json").read_bytes())
        return float(spent["seconds"]), int(spent["points"])
    return 0.0, 0


def write_spent(store: Store, tuning_id: str, seconds: float, points: int = 0) -> None:
    """Note what ``read_spent`` returns. Raises StoreError if the disk cannot be written to."""
    _write(_path(store, tuning_id, "json"), json.dumps({"seconds": seconds, "points": points}), sealed=False)


def _write(path: Path, text: str, sealed: bool = True) -> None:
    with explain_os_errors("The tuning", STORE_REMEDY):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_text(path, add_digest(text) if sealed else text)


def _path(store: Store, tuning_id: str, suffix: str = "yaml") -> Path:
    if not SHORT_DIGEST.fullmatch(tuning_id):
        raise StoreError(f"{tuning_id[:40]!r} is not the id of a tuning; an id is twelve hexadecimal digits.")
    return store.root / FOLDER / f"{tuning_id}.{suffix}"
