"""The command ``sweep``: describe a sweep, or go on with one, and show what it has measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import lexists
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merging.cli.call import Call
from merging.cli.exit_codes import CANCELLED, DONE, PAUSED, UsageError
from merging.cli.option_types import PATH
from merging.cli.options import Command, argument, device_option, job_options, option
from merging.cli.output import columns, dumps, reporting, warn
from merging.errors import Cancelled
from merging.text import estimated_from, percent

if TYPE_CHECKING:
    import pandas as pd

    from merging.recipes.recipe import Recipe
    from merging.runs.store import Store
    from merging.sweeps.sweep import Sweep


@dataclass(frozen=True)
class SweepOptions:
    """The options that describe a sweep, as they were given."""

    recipes: Sequence[str]
    vary: Sequence[str]
    line: str | None
    plane: str | None
    split: str
    images: int
    seed: int
    title: str


@click.command(cls=Command)
@argument("recipes", nargs=-1, metavar="[RECIPE]...", help="recipe files or ids of stored runs")
@option(
    "--vary",
    multiple=True,
    metavar="WHAT=VALUES",
    help="such as lwptv.prune_ratio=0:1:0.1 or experts=2,4,8; twice for a plane of two values",
)
@option("--line", is_flag=False, flag_value="", metavar="[VALUES]", help="from pretrained (0) to the merge (1)")
@option("--plane", metavar="A,B", help="coefficients of two experts, on the values of --vary A=, B=")
@option("--split", default="choosing", show_default=True, help="choosing or reporting")
@option("--images", type=int, default=128, show_default=True, help="images of each task, 0 for all")
@option("--seed", type=int, default=0, help="of the draw of images and the order of experts")
@option("--title", default="", help="what to call the sweep")
@option("--stored", metavar="ID", help="go on with a stored sweep")
@option("--pause-file", type=PATH, help="stop between two points as soon as this file is there")
@job_options
@device_option
@click.pass_obj
def sweep(
    call: Call, /, stored: str | None, pause_file: Path | None, store: Path | None, device: str, **options: Any
) -> int:
    """Evaluate recipes at many values; stopped, it goes on where it was."""
    from merging import settings
    from merging.benchmarks.benchmark import Benchmark
    from merging.files.short_digest import resolved
    from merging.runs.store import Store
    from merging.sweeps import compute, points, storage
    from merging.sweeps.tables import averages, budget, table

    runs, benchmark = Store(store, libraries=(settings.benchmark_folder() / "runs",)), Benchmark.load()
    stored = stored and resolved(stored, storage.listed(runs))
    chosen = storage.find(runs, stored) if stored else _described(SweepOptions(**options), runs)
    if not stored:
        storage.keep(chosen, runs)
    planned = compute.plan(chosen, benchmark)
    if call.events is None and not call.json:
        cost = budget(chosen, runs, benchmark, planned)
        source = estimated_from(cost.known, "point")
        print(f"{cost.points} points, {cost.stored} of them stored; about {cost.seconds:.0f} s ({source}).", flush=True)
    try:
        with reporting(call.events) as progress:
            outcome = compute.run(
                chosen,
                runs,
                benchmark,
                device=device,
                progress=progress,
                cancel=call.stop,
                paused=lambda: pause_file is not None and pause_file.exists(),
                warn=warn,
            )
    except Cancelled:
        print(f"Stopped; its points are kept. `sweep --stored {chosen.id}` goes on.")
        return CANCELLED
    if outcome.paused:
        print(f"Paused at {outcome.stored} of {outcome.points} points; `sweep --stored {chosen.id}` goes on.")
        return PAUSED
    computed = {one.name: point for one in planned if (point := compute.stored(one, runs, benchmark, chosen.sample))}
    rows = table(chosen, planned, computed)
    if call.json:
        print(dumps({"id": chosen.id, "points": averages(rows).to_dict("records"), "tasks": rows.to_dict("records")}))
    else:
        print(_table(chosen, averages(rows)))
        print(f"Sweep {chosen.id} is stored in {points.folder(runs).parent}")
    return DONE


def _described(options: SweepOptions, store: Store) -> Sweep:
    """The sweep that the options describe. Raises UsageError if they describe none."""
    from merging.sweeps import axis as axes
    from merging.sweeps.sweep import LINE, PLANE, VALUES, Axis, Sweep

    if not options.recipes:
        raise UsageError(["Name at least one recipe: a file, or the id of a stored run."])
    recipes = tuple(_recipe(word, store) for word in options.recipes)
    pairs = [word.partition("=") for word in options.vary]
    varied = tuple(Axis(target.strip(), axes.parse_values(values, target)) for target, _, values in pairs)
    kind = VALUES
    if options.line is not None:
        text = options.line or axes.written(axes.offered(axes.ALPHA))
        kind, varied = LINE, (Axis("alpha", axes.parse_values(text, "alpha")),)
    elif options.plane:
        given = {axis.target: axis for axis in varied}
        names = [name.strip() for name in options.plane.split(",")]
        kind = PLANE
        varied = tuple(given.get(name) or Axis(name, axes.offered(axes.LAMBDA)) for name in names)
    return Sweep(
        recipes=recipes,
        axes=varied,
        kind=kind,
        split=options.split,
        images=options.images,
        seed=options.seed,
        title=options.title,
    )


def _recipe(word: str, store: Store) -> Recipe:
    """The recipe of a stored run, or in a file."""
    from merging.recipes.recipe import Recipe
    from merging.sweeps.sweep import resolved

    path = Path(word)
    if not lexists(path) and (run := store.find(word)) is not None and run.recipe is not None:
        return resolved(run.recipe, Path.cwd())
    return resolved(Recipe.load(path), path.absolute().parent)


def _table(sweep: Sweep, rows: pd.DataFrame) -> str:
    """Averages of every point as a table."""
    lines: list[Sequence[str]] = [("recipe", *sweep.labels, "in domain [95 %]", "out of domain [95 %]", "H-score")]
    for row in rows.to_dict("records"):
        recipe = sweep.recipes[int(row["line"])]
        values = [f"{row[name]:g}" for name in "xy" if name in row]
        inside = percent(row["in_domain"], row["in_low"], row["in_high"])
        outside = percent(row["out_of_domain"], row["out_low"], row["out_high"])
        h_score = "–" if row["h_score"] != row["h_score"] else f"{100 * row['h_score']:.1f} %"
        lines.append((recipe.title or recipe.text(), *values, inside, outside, h_score))
    return columns(lines)
