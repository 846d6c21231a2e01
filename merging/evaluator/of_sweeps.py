"""Sweeps of networks other than CLIP: each point is merged, exported for a while, and measured by a program."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from merging.errors import Cancelled, EvaluatorError, MergingError, StoreError
from merging.evaluator.given_points import GivenPoint, command_of, find_point, plan_given, write_point
from merging.evaluator.of_runs import FOLDER
from merging.evaluator.program import Evaluator
from merging.export.export import export
from merging.files import atomic
from merging.files.temporary import temporary_name
from merging.runs.execute import execute
from merging.runs.store import Store
from merging.sweeps.compute import EVERYTHING, Outcome, distinct
from merging.sweeps.sweep import NamedPoint, Sweep
from merging.tasks.context import QUIET, Context

MERGING, WRITING, MEASURING = STAGES = ("merging", "writing", "measuring")


def no_evaluator(network: str) -> EvaluatorError:
    """The error where a sweep of another network than CLIP has no program that measures its points."""
    return EvaluatorError(
        f"A sweep of {network} is measured by a program of yours. Start with MERGESCOPE_EVALUATOR='python my_eval.py'; "
        "see docs/evaluator.md."
    )


def run_given(
    sweep: Sweep, store: Store, evaluator: Evaluator, *, context: Context = QUIET, share: tuple[int, int] = EVERYTHING
) -> Outcome:
    """Measure the missing points and store each as soon as it is done; arguments as of ``merging.sweeps.compute.run``.

    Raises:
        MergingError: points failed; the message counts them and gives the first reason.
        StoreError: the disk cannot be written to. Cancelled: asked to stop; the program is stopped, and the points so
            far are kept.
    """
    atomic.sweep(store.root / FOLDER)
    mine = distinct(plan_given(sweep, command_of(evaluator)))[share[0] :: share[1]]
    missing = [one for one in mine if find_point(store, one.name) is None]
    parts = context.parts({one.name: 1.0 for one in missing})
    warned: dict[str, None] = {}

    def warn_once(sentence: str) -> None:
        if sentence not in warned:
            warned[sentence] = None
            context.warn(sentence)

    failures: dict[str, MergingError] = {}
    for number, one in enumerate(missing):
        context.check()
        if context.pauses():
            return Outcome(len(mine) - len(missing) + number - len(failures), len(mine), True)
        words = f"Point {len(mine) - len(missing) + number + 1} of {len(mine)}"
        try:
            _measure(one, store, evaluator, replace(parts[one.name].saying(words), pause=None, warn=warn_once))
        except (Cancelled, StoreError):
            raise
        except MergingError as error:
            failures[one.name] = error
    if failures:
        name, reason = next(iter(failures.items()))
        place = next(one.place for one in missing if one.name == name)
        where = ", ".join(f"{axis.target} {value:g}" for axis, value in zip(sweep.axes, place.values, strict=True))
        raise MergingError(
            f"{len(failures)} of {len(mine)} points could not be measured; the others are kept. {where}: {reason}"
        )
    return Outcome(len(mine), len(mine), False)


def _measure(one: NamedPoint, store: Store, evaluator: Evaluator, context: Context) -> None:
    """Merge, export, measure and store a point; the merged model and its folder are removed, however that ends."""
    within, parts = store.root / FOLDER / temporary_name(), context.parts(dict.fromkeys(STAGES, 1.0))
    try:
        _make(within)
        scratch = Store(within / "store", libraries=())
        run = execute(one.place.recipe, scratch, evaluate=False, need_model=True, context=parts[MERGING])
        export(run, within / "model", context=parts[WRITING])
        shutil.rmtree(within / "store", ignore_errors=True)
        scores = evaluator.scores(within / "model", parts[MEASURING])
    finally:
        shutil.rmtree(within, ignore_errors=True)
    write_point(store, one.name, GivenPoint(one.run_id, command_of(evaluator), evaluator.name, scores))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder} cannot be written to: {error.strerror}.") from None
