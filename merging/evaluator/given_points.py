"""Points of sweeps that the user's program measured: small records, named by the run and the program's command line."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from merging.checkpoints.references import PRETRAINED
from merging.errors import CheckpointError, RecipeError
from merging.evaluator.program import Evaluator
from merging.files.disk import explained
from merging.files.records import JsonRecords
from merging.files.short_digest import short_digest
from merging.formats.opening import open_checkpoint
from merging.recipes.recipe import Recipe
from merging.runs.given.scores import GivenScore, checked
from merging.runs.inputs import OpenedRecipe, open_inputs
from merging.runs.store import Store
from merging.sweeps import points
from merging.sweeps.sweep import VALUES, NamedPoint, Sweep
from merging.text import printable

FOLDER, VERSION = "given", 1  # the folder is beside the points that the benchmark measured


@dataclass(frozen=True)
class GivenPoint:
    """What a program printed of the model of a run.

    ``command`` is the digest of the program's command line, ``source`` what it is called.
    """

    run_id: str
    command: str
    source: str
    scores: tuple[GivenScore, ...]


def network_of(sweep: Sweep) -> str:
    """What the network that a sweep merges is called; empty for CLIP, and for files that cannot be opened.

    Raises:
        RecipeError: it merges several kinds of networks, or goes through weights that no recipe gives.
    """
    networks = list(dict.fromkeys(_network(recipe) for recipe in sweep.recipes))
    if not any(networks):
        return ""
    if len(networks) > 1:
        got = " and ".join(name or "CLIP" for name in networks)
        raise RecipeError(f"The recipes of a sweep are of one kind of network; got {got}.")
    if sweep.kind != VALUES:
        raise RecipeError(f"A sweep of {networks[0]} varies values of the recipe; a {sweep.kind} is for CLIP.")
    return networks[0]


def _network(recipe: Recipe) -> str:
    try:
        return open_checkpoint(recipe.pretrained, PRETRAINED, family=recipe.family).network
    except CheckpointError:
        return ""  # whoever plans the sweep says what is wrong


def command_of(evaluator: Evaluator) -> str:
    """The digest of a program's command line, twelve hexadecimal digits."""
    return short_digest(json.dumps(list(evaluator.words)))


def plan_given(sweep: Sweep, command: str) -> list[NamedPoint]:
    """Every point of a sweep, named by its run and the command line that measures it.

    Raises:
        CheckpointError: a checkpoint is missing or damaged.
    """
    digests: dict[tuple[Any, ...], dict[str, str]] = {}
    planned = []
    for place in sweep.places:
        opened = open_inputs(place.recipe)
        run_id = opened.run_id(_digests(opened, digests))
        planned.append(NamedPoint(place, short_digest(json.dumps([VERSION, FOLDER, run_id, command])), run_id))
    return planned


def _digests(opened: OpenedRecipe, known: dict[tuple[Any, ...], dict[str, str]]) -> dict[str, str]:
    """The digests of the files of a recipe, which are asked for once."""
    recipe = opened.recipe
    key = recipe.pretrained, recipe.experts, recipe.architecture, recipe.activation, recipe.family, recipe.vocabulary
    if key not in known:
        known[key] = opened.digests()
    return known[key]


def write_point(store: Store, name: str, point: GivenPoint) -> None:
    """Store a point. Raises StoreError if the disk cannot be written to."""
    with explained(f"Point {name} of the sweep"):
        _records(store).write(name, asdict(point))


def find_point(store: Store, name: str) -> GivenPoint | None:
    """The stored point of that name; None if there is none, or if it is damaged."""
    return _records(store).read(name, lambda record: _point(record, name))


def points_of(store: Store, run_ids: Collection[str]) -> dict[str, dict[str, GivenPoint]]:
    """{command line's digest: {run: its point}} of the stored points of these runs, the latest command first."""
    found: dict[str, dict[str, GivenPoint]] = {}
    for name in _records(store).names():
        point = find_point(store, name)
        if point is not None and point.run_id in run_ids:
            found.setdefault(point.command, {})[point.run_id] = point
    return found


def _records(store: Store) -> JsonRecords:
    return JsonRecords(points.folder(store) / FOLDER, VERSION)


def _point(record: Mapping[str, Any], name: str) -> GivenPoint:
    scores = checked(((name, row) for row in record["scores"]), name)
    return GivenPoint(str(record["run_id"]), str(record["command"]), printable(str(record["source"]), 80), scores)
