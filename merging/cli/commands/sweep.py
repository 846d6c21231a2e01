"""The command ``sweep``: describe a sweep, or continue a stored one, and show its points."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merging.base.errors import Cancelled, Paused
from merging.base.text import estimate_basis, percent_with_interval
from merging.cli.call import Call
from merging.cli.commands.evaluator_sweep import open_program_session, print_points, print_stored_points
from merging.cli.exit_codes import CANCELLED, DONE, PAUSED, UsageError
from merging.cli.option_types import SHARE
from merging.cli.options import (
    Command,
    argument,
    device_option,
    job_options,
    mixed_option,
    option,
    pause_sweep_option,
    read_workers_option,
    workers_option,
)
from merging.cli.output import encode_json, format_columns, print_warning, report_progress
from merging.cli.recipe_argument import find_recipe

if TYPE_CHECKING:
    import pandas as pd

    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.runs.run_store import Store
    from merging.study.sweeps.best_points import Answers
    from merging.study.sweeps.requirement import Requirement
    from merging.study.sweeps.sweep import NamedPoint, Sweep
    from merging.study.sweeps.sweep_session import SweepOutcome


@dataclass(frozen=True)
class SweepOptions:
    """The options that describe a sweep, as the user wrote them."""

    recipes: Sequence[str]
    vary: Sequence[str]
    line: str | None  # None without --line, "" for the default values
    plane: str | None  # likewise
    through: str
    subsets: bool
    split: str
    images: int | None  # None without --images
    seed: int
    title: str


@click.command(cls=Command)
@argument("recipes", nargs=-1, metavar="[RECIPE]...", help="recipe files or ids of stored runs")
@option(
    "--vary",
    multiple=True,
    metavar="WHAT=VALUES",
    help="such as lwptv.prune_ratio=0:1:0.1 or experts=2,4,8; repeat it for a plane of two values",
)
@option("--line", is_flag=False, flag_value="", metavar="[VALUES]", help="from one model (0) to another one (1)")
@option("--plane", is_flag=False, flag_value="", metavar="[VALUES]", help="from one model (0) to two others (1)")
@option(
    "--through",
    default="",
    metavar="A,B[,C]",
    help="the models of the line or plane: pretrained, an expert, or merged, the merge of the recipe ('merged 2' of "
    "the second one); without it a line goes from pretrained to the merge of each recipe",
)
@option("--subsets", is_flag=True, help="every subset of the experts; of more than eight, prefixes of seeded orders")
@option("--split", default="choosing", show_default=True, help="choosing or reporting")
@option("--images", type=int, help="images of each task, 0 for all; by default 128, of --subsets 64")
@option("--seed", type=int, default=0, help="the seed of the sampled images and of the order of experts")
@option("--title", default="", help="the title of the sweep")
@option("--stored", metavar="ID", help="continue a stored sweep")
@option(
    "--subject-to",
    metavar="OF=X",
    help="require at least X of the best point: out=0.8, in=0.6 or a task such as kana=0.7",
)
@option("--best-by", type=click.Choice(("h", "in")), help="h: H-score, the default; in: in domain")
@pause_sweep_option
@option("--describe", is_flag=True, help="print the id that --stored takes, and compute nothing")
@option(
    "--share",
    type=SHARE,
    metavar="K/N",
    help="every Nth point from the Kth, counted from 0, such as 3/16 in a job array of 16",
)
@workers_option
@mixed_option
@job_options
@device_option
@click.pass_obj
def sweep(
    call: Call,
    /,
    stored: str | None,
    subject_to: str | None,
    best_by: str | None,
    describe: bool,
    share: tuple[int, int] | None,
    store: Path | None,
    device: str,
    **options: Any,
) -> int:
    """Evaluate recipes at many values; a stopped sweep can be continued."""
    from merging.base.files.short_digest import resolve_prefix
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.sharing.evaluator_session import run_program_sweep
    from merging.study.partners.packed_subsets import find_packed
    from merging.study.runs.run_store import Store
    from merging.study.sweeps import sweep_session, sweep_storage
    from merging.study.sweeps.sweep import SUBSETS, SWEEP_KINDS
    from merging.tasks.pack_folders import list_libraries

    run_store = Store(store, libraries=list_libraries((benchmark := Benchmark.load()).folder, store))
    stored = stored and resolve_prefix(stored, sweep_storage.list_sweeps(run_store, SWEEP_KINDS))
    current_sweep = (
        sweep_storage.find_sweep(run_store, stored) if stored else _read_sweep(SweepOptions(**options), run_store)
    )
    requirement = _read_requirement(current_sweep, benchmark, subject_to, best_by)
    session = open_program_session(current_sweep, run_store, benchmark, read_workers_option(), subject_to)  # CLIP: None
    if not stored:
        sweep_storage.store_sweep(current_sweep, run_store)
    planned_points = (session or sweep_session.SweepSession(benchmark, current_sweep.sample)).plan_sweep(current_sweep)
    if describe:
        print(encode_json({"id": current_sweep.id, "points": len(planned_points)}) if call.json else current_sweep.id)
        return DONE
    is_packed = current_sweep.kind == SUBSETS and find_packed(run_store, planned_points) is not None
    if call.events is None and not call.json and not is_packed:
        if session is None:
            _print_cost(current_sweep, run_store, benchmark, planned_points, device)
        else:
            print_stored_points(planned_points, session)
    compute_points: Callable[..., SweepOutcome] = partial(sweep_session.run_sweep, current_sweep, run_store, benchmark)
    if session is not None:
        compute_points = partial(run_program_sweep, current_sweep, session)
    compute_points = partial(compute_points, share=share or sweep_session.WHOLE_SWEEP)
    code = DONE if is_packed else _compute_missing(call, compute_points, current_sweep, device)
    if code != DONE:
        return code
    if share:
        return _print_share(call, current_sweep, share)
    if session is not None:
        print_points(current_sweep, planned_points, session, call.json)
        return DONE
    if current_sweep.kind == SUBSETS:
        _print_subsets(call, current_sweep, run_store, benchmark)
    else:
        _print_sweep(call, current_sweep, planned_points, run_store, benchmark, requirement, best_by or "h")
    if not call.json:
        print(f"Sweep {current_sweep.id} is stored in {run_store.root}")
    return DONE


def _read_requirement(
    sweep: Sweep, benchmark: Benchmark, subject_to: str | None, best_by: str | None
) -> Requirement | None:
    """What the best point must meet. Raises UsageError if the sweep, of subsets, has no single best point."""
    from merging.study.sweeps.requirement import parse_requirement
    from merging.study.sweeps.sweep import SUBSETS

    if sweep.kind == SUBSETS and (subject_to or best_by):
        raise UsageError(["Subsets are compared by every score; leave --subject-to and --best-by out."])
    tasks = sweep.sample.normalize_on(benchmark).tasks or [task.key for task in benchmark.tasks]
    return parse_requirement(subject_to, tasks) if subject_to else None


def _print_cost(
    sweep: Sweep, store: Store, benchmark: Benchmark, planned_points: Sequence[NamedPoint], device: str
) -> None:
    from merging.study.sweeps.sweep_tables import estimate_cost

    cost = estimate_cost(sweep, store, benchmark, planned_points, device)
    source = estimate_basis(cost.known, sweep.unit)
    print(
        f"{cost.points} {sweep.unit}s, {cost.stored} of them stored; about {cost.seconds:.0f} s ({source}).", flush=True
    )


def _compute_missing(call: Call, compute_points: Callable[..., SweepOutcome], sweep: Sweep, device: str) -> int:
    """Compute the missing points, print a sentence if the sweep was stopped or paused, and return the exit code."""
    try:
        with report_progress(call.events) as progress:
            outcome = compute_points(context=call.context(progress, device, print_warning))
    except Paused:
        raise
    except Cancelled:
        print(f"Stopped; the computed {sweep.unit}s are stored. `sweep --stored {sweep.id}` continues the sweep.")
        return CANCELLED
    if outcome.paused:
        print(
            f"Paused at {outcome.stored} of {outcome.points} {sweep.unit}s; "
            f"`sweep --stored {sweep.id}` continues the sweep."
        )
        return PAUSED
    return DONE


def _print_share(call: Call, sweep: Sweep, share: tuple[int, int]) -> int:
    """Print that the points of a share are stored; ``sweep --stored`` shows the table of all points."""
    shown = f"`sweep --stored {sweep.id}` shows all {sweep.unit}s."
    sentence = f"Share {share[0]}/{share[1]} of sweep {sweep.id} is stored; {shown}"
    print(encode_json({"id": sweep.id, "share": list(share)}) if call.json else sentence)
    return DONE


def _print_subsets(call: Call, sweep: Sweep, store: Store, benchmark: Benchmark) -> None:
    """Print the best subset of each size; as JSON every accuracy, the losses and the Shapley values."""
    from merging.study.partners.best_subsets import best_table
    from merging.study.partners.shapley import shapley_table
    from merging.study.partners.stored_subsets import read_subsets
    from merging.study.partners.who_hurts import AMONG_ALL, IN_PAIRS, loss_table

    measured = read_subsets(sweep, store, benchmark)
    if call.json:
        accuracies = [{"subset": names, "accuracy": by_task} for names, by_task in measured.accuracy.items()]
        losses = {among: loss_table(measured, among).to_dict("records") for among in (IN_PAIRS, AMONG_ALL)}
        values = shapley_table(measured).to_dict("records")
        print(encode_json({"id": sweep.id, "subsets": accuracies, "losses": losses, "shapley": values}))
        return
    rows = best_table(measured).to_dict("records")
    lines = [
        (row["metric"], str(row["size"]), f"{100 * row['chosen']:.1f} %", row["subset"] or "pretrained") for row in rows
    ]
    print(format_columns([("best by", "experts", "score", "subset"), *lines]))
    images = sum(map(measured.count_images, measured.tasks))
    print(f"n = {images:,} images of the {sweep.split} half, by which the subsets are chosen.")


def _read_points(
    sweep: Sweep, planned_points: Sequence[NamedPoint], store: Store, benchmark: Benchmark
) -> tuple[pd.DataFrame, Answers]:
    """The table of all points, and the answers that are stored for them."""
    from merging.study.sweeps.best_points import read_point_answers
    from merging.study.sweeps.known_points import KnownPoints
    from merging.study.sweeps.sweep_tables import sweep_table

    sample = sweep.sample.normalize_on(benchmark)
    known_points = KnownPoints(planned_points, store, benchmark, sample).read_points()
    return sweep_table(sweep, planned_points, known_points), read_point_answers(known_points, sample, benchmark)


def _print_sweep(
    call: Call,
    sweep: Sweep,
    planned_points: Sequence[NamedPoint],
    store: Store,
    benchmark: Benchmark,
    requirement: Requirement | None,
    best_by: str,
) -> None:
    """Print every point, and the best point that meets the requirement with its lead over the others."""
    from merging.images.benchmarks.resampled_tasks import DRAWS, SEED
    from merging.study.sweeps import requirement as requirements
    from merging.study.sweeps.best_points import compare_with_best, name_points
    from merging.study.sweeps.sweep_tables import average_rows

    rows, answers = _read_points(sweep, planned_points, store, benchmark)
    means = average_rows(rows)
    if requirement:
        means = requirements.judge_points(rows, means, requirement, answers)
    column = requirements.BEST_COLUMNS[best_by]
    point, is_met = requirements.find_best_point(means, column)
    comparison = compare_with_best(sweep, rows, means, point, column, answers)
    if call.json:
        bootstrap = {"draws": DRAWS, "seed": SEED}
        subject = {"of": requirement.subject, "at_least": requirement.at_least} | bootstrap if requirement else None
        print(encode_json({
            "id": sweep.id, "points": means.to_dict("records"), "tasks": rows.to_dict("records"),
            "subject_to": subject,
            "best": {"point": point, "by": column, "meets": is_met} | asdict(comparison),
        }))  # fmt: skip
        return
    print(format_points(sweep, means))
    names = name_points(means, [_name_line(sweep, line) for line in sweep.lines])
    if requirement is not None:
        row = means[means["point"] == point].iloc[0]
        score = percent_with_interval(row["required"], row["required_low"], row["required_high"])
        bound = f"{requirements.score_name(requirement)} at least {100 * requirement.at_least:g} %"
        print(f"Subject to {bound}. {'Best' if is_met else 'No point meets it. The nearest'}: {names[point]}.")
        certainty = f"{100 * row['certainty']:.0f} % of {requirements.describe_draws(means)}"
        print(f"It has {score}, n = {row['required_n']:.0f}, and meets it in {certainty}.")
    if is_met:
        print(f"{comparison.in_words(names)}")
    if sweep.has_losses:
        print("\n".join(_describe_barriers(sweep, means)))


def _describe_barriers(sweep: Sweep, means: pd.DataFrame) -> list[str]:
    """A sentence for each barrier between two models of a line or a plane, and one on all of them."""
    from merging.recipes.recipe import Recipe
    from merging.study.sweeps.point_losses import LOSS_MEANS, explain_barriers, list_barriers

    domains = dict(zip(LOSS_MEANS, ("in domain", "out of domain"), strict=True))
    sentences = []
    for row in list_barriers(sweep, means).to_dict("records"):
        models = sweep.list_models(row["line"])
        first, second = (
            model.title or model.text() if isinstance(model := models[index], Recipe) else model
            for index in (row["first"], row["second"])
        )
        where = f", at {row['at']:g} of the way" if row["height"] > 0 else ""
        sentences.append(
            f"Barrier of the loss {domains[row['loss']]} from {first} to {second}: {row['height']:.3f}{where} "
            f"({row['points']} points)."
        )
    return [*sentences, explain_barriers(sweep)]


def _read_sweep(options: SweepOptions, store: Store) -> Sweep:
    """The sweep that the options describe. Raises UsageError if they name no recipe, or exclude each other."""
    from merging.study.partners import subsets
    from merging.study.sweeps import sweep_target as axes
    from merging.study.sweeps.sweep import DEFAULT_IMAGES, LINE, PLANE, VALUES, Axis, Sweep

    if not options.recipes:
        raise UsageError(["Name at least one recipe: a file, or the id of a stored run."])
    _check_kind(options)
    recipes = tuple(find_recipe(word, store) for word in options.recipes)
    if options.subsets:
        if len(recipes) > 1:
            raise UsageError(["--subsets takes one recipe; name only one."])
        images = subsets.DEFAULT_IMAGES if options.images is None else options.images
        return subsets.plan_subsets(recipes[0], images, options.seed, options.split, title=options.title)
    axis_texts = [word.partition("=") for word in options.vary]
    sweep_axes = tuple(Axis(target.strip(), axes.parse_values(values, target)) for target, _, values in axis_texts)
    kind = VALUES
    if options.line is not None:
        text = options.line or axes.write_values(axes.propose_values(axes.POSITION))
        kind, sweep_axes = LINE, (Axis("alpha", axes.parse_values(text, "alpha")),)
    elif options.plane is not None:
        plane_values = axes.parse_values(options.plane, "--plane") if options.plane else axes.PLANE_VALUES
        kind, sweep_axes = PLANE, tuple(Axis(name, plane_values) for name in ("alpha", "beta"))
    return Sweep(
        recipes=recipes,
        axes=sweep_axes,
        kind=kind,
        split=options.split,
        images=DEFAULT_IMAGES if options.images is None else options.images,
        seed=options.seed,
        title=options.title,
        through=tuple(name.strip() for name in options.through.split(",") if name.strip()),
    )


def _check_kind(options: SweepOptions) -> None:
    """Raise UsageError if options describe sweeps of several kinds, or models that no line or plane goes through."""
    kinds = {
        "--vary": bool(options.vary),
        "--line": options.line is not None,
        "--plane": options.plane is not None,
        "--subsets": options.subsets,
    }
    if len(chosen := [name for name, is_chosen in kinds.items() if is_chosen]) > 1:
        raise UsageError([f"{' and '.join(chosen)} exclude each other; keep one of them."])
    if options.through and not (kinds["--line"] or kinds["--plane"]):
        raise UsageError(["--through names the models of a line or a plane; add --line or --plane."])
    if kinds["--plane"] and not options.through:
        raise UsageError(["--plane goes through three models; name them with --through A,B,C."])


def _name_line(sweep: Sweep, line: int) -> str:
    """The name of a curve: its recipe, or the models that it goes through."""
    recipe = sweep.recipes[line]
    return ", ".join(sweep.through) or recipe.title or recipe.text()


def _format_loss(mean: float, low: float, high: float) -> str:
    """'0.512 [0.480, 0.544]': a mean loss with its interval; a dash for NaN."""
    return "–" if math.isnan(mean) else f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def format_points(sweep: Sweep, rows: pd.DataFrame) -> str:
    """Averages of every point as a table, with the numbers of images below it, or in columns if they differ."""
    counts = rows[["n_in", "n_out"]].drop_duplicates()
    count_heads = ("n in", "n out") if len(counts) > 1 else ()
    devices = ("device",) if "device" in rows and rows["device"].nunique() > 1 else ()
    losses = {"loss_in": "loss in [95 %]", "loss_out": "loss out [95 %]"} if sweep.has_losses else {}
    scores = "in domain [95 %]", "out of domain [95 %]", "H-score", *losses.values()
    lines: list[Sequence[str]] = [("recipe", *sweep.labels, *scores, *count_heads, *devices)]
    for row in rows.to_dict("records"):
        values = [f"{row[name]:g}" for name in "xy" if name in row]
        inside = percent_with_interval(row["in_domain"], row["in_low"], row["in_high"])
        outside = percent_with_interval(row["out_of_domain"], row["out_low"], row["out_high"])
        h_score = "–" if math.isnan(row["h_score"]) else f"{100 * row['h_score']:.1f} %"
        means = [_format_loss(row[name], row[f"{name}_low"], row[f"{name}_high"]) for name in losses]
        images = [f"{row[name]:,}" for name in counts] if count_heads else []
        device = [str(row[name]) for name in devices]
        lines.append((_name_line(sweep, int(row["line"])), *values, inside, outside, h_score, *means, *images, *device))
    if count_heads:
        return f"{format_columns(lines)}\nAverages with different n are over different tasks."
    n_in, n_out = counts.iloc[0]
    return f"{format_columns(lines)}\nn = {n_in:,} images in domain and {n_out:,} out of domain at every point."
