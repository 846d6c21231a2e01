"""The command ``sweep``: describe a sweep, or go on with one, and show what it has found."""

from __future__ import annotations

import argparse
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from merging import settings
from merging.benchmarks.benchmark import Benchmark
from merging.cli.exit_codes import CANCELLED, DONE, PAUSED, UsageError
from merging.cli.output import columns, dumps, reporting
from merging.errors import Cancelled
from merging.recipes.recipe import Recipe
from merging.runs.store import Store
from merging.sweeps import axis as axes
from merging.sweeps import points, storage
from merging.sweeps.compute import plan, run, stored
from merging.sweeps.sweep import LINE, PLANE, VALUES, Axis, Sweep, resolved
from merging.sweeps.tables import averages, budget, table
from merging.text import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd


def sweep(args: argparse.Namespace, stop: Event) -> int:
    """Compute what is missing of a sweep; exit code 75 if it was paused, 130 if it was stopped."""
    store, benchmark = Store(args.store, libraries=(settings.benchmark_folder() / "runs",)), Benchmark.load()
    wanted = storage.find(store, args.stored) if args.stored else _described(args, store)
    if not args.stored:
        storage.keep(wanted, store)
    every = plan(wanted, benchmark)
    if args.events is None and not args.json:
        found = budget(wanted, store, benchmark, every)
        print(f"{found.points} points, {found.stored} of them stored; about {found.seconds:.0f} s.", flush=True)
    file = args.pause_file
    try:
        with reporting(args.events) as progress:
            outcome = run(
                wanted, store, benchmark, device=args.device, progress=progress, cancel=stop,
                paused=lambda: file is not None and file.exists(),
            )  # fmt: skip
    except Cancelled:
        print(f"Stopped; its points are kept. `sweep --stored {wanted.id}` goes on.")
        return CANCELLED
    if outcome.paused:
        print(f"Paused at {outcome.stored} of {outcome.points} points; `sweep --stored {wanted.id}` goes on.")
        return PAUSED
    there = {one.name: point for one in every if (point := stored(one, store, benchmark, wanted.sample))}
    rows = table(wanted, every, there)
    if args.json:
        print(dumps({"id": wanted.id, "points": averages(rows).to_dict("records"), "tasks": rows.to_dict("records")}))
    else:
        print(_shown(wanted, averages(rows)))
        print(f"Sweep {wanted.id} is stored in {points.folder(store).parent}")
    return DONE


def _described(args: argparse.Namespace, store: Store) -> Sweep:
    """The sweep that the arguments describe. Raises UsageError if they describe none."""
    if not args.recipes:
        raise UsageError(["Name at least one recipe: a file, or the id of a stored run."])
    recipes = tuple(_recipe(word, store) for word in args.recipes)
    pairs = [word.partition("=") for word in args.vary]
    varied = tuple(Axis(target.strip(), axes.parse_values(values, target)) for target, _, values in pairs)
    kind = VALUES
    if args.line is not None:
        text = args.line or axes.written(axes.offered(axes.ALPHA))
        kind, varied = LINE, (Axis("alpha", axes.parse_values(text, "alpha")),)
    elif args.plane:
        given = {axis.target: axis for axis in varied}
        names = [name.strip() for name in args.plane.split(",")]
        kind = PLANE
        varied = tuple(given.get(name) or Axis(name, axes.offered(axes.LAMBDA)) for name in names)
    return Sweep(
        recipes=recipes, axes=varied, kind=kind, split=args.split, images=args.images, seed=args.seed, title=args.title
    )


def _recipe(word: str, store: Store) -> Recipe:
    """The recipe of a stored run, or in a file."""
    if not Path(word).exists() and (found := store.find(word)) is not None and found.recipe is not None:
        return resolved(found.recipe, Path.cwd())
    path = Path(word)
    return resolved(Recipe.load(path), path.absolute().parent)


def _shown(wanted: Sweep, rows: pd.DataFrame) -> str:
    """Averages of every point as a table."""
    lines: list[Sequence[str]] = [("recipe", *wanted.labels, "in domain [95 %]", "out of domain [95 %]", "H-score")]
    for row in rows.to_dict("records"):
        recipe = wanted.recipes[int(row["line"])]
        values = [f"{row[name]:g}" for name in "xy" if name in row]
        inside = percent(row["in_domain"], row["in_low"], row["in_high"])
        outside = percent(row["out_of_domain"], row["out_low"], row["out_high"])
        h_score = "–" if row["h_score"] != row["h_score"] else f"{100 * row['h_score']:.1f} %"
        lines.append((recipe.title or recipe.text(), *values, inside, outside, h_score))
    return columns(lines)
