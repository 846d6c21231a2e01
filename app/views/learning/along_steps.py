"""Entropy against the loss with labels at marked steps of learning, and accuracy with what authors logged behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from app import text
from app.reading import data, measurements, names, samples
from app.widgets import chart
from app.widgets.jobs import measure_button
from merging.base.errors import MergingError
from merging.recipes.logs import adapt_logs_of, logs_of
from merging.recipes.papers.claims import Curve
from merging.recipes.recipe import Recipe
from merging.study.analysis.stored import Measured
from merging.study.runs.run import Run
from viz.text import plural, span

if TYPE_CHECKING:
    import pandas as pd

MOST = 3  # tasks that are named
NOT_MEASURED = (
    "Learning minimizes entropy and never sees a label. Whether the loss with labels falls with it, at about six of "
    "the steps, has not been measured for"
)
IMAGES = "n = {} images of each task, drawn from the choosing half with seed {}, at {}. {}"
BEFORE = (
    "The models are those of these steps, before their coefficients were shrunk or anything was put on top of them."
)
MARKS = "Open marks are the first step, large ones the last."
SEEN, UNSEEN = "The merge learned from images of this half, without labels.", "The merge learned from other images."
STEADY = "Between these steps, on no task does the loss rise while entropy falls on."
TURNED = "Entropy falls on while the loss with labels rises on {} of {} tasks: {}."
TURN = "{} after step {:,} (entropy {}, loss {} nats)"
ENDS = "Of ours only both ends are scored: the merged model, and what the modules make of it."
BAND = "The band runs from the worst task to the best."
LOGGED = "Dotted: what the authors logged for the same chain, on other models and eight other test sets, " \
    "adapting on the images that they score."  # fmt: skip


def view(run: Run) -> None:
    """Both charts of a run, or the offer to measure them."""
    measured = measurements.find(measurements.ALONG_STEPS, run.id)
    if measured is None:
        chart.ask("entropy_loss")
        measure_button.missing(measurements.ALONG_STEPS, [run], NOT_MEASURED)
        return
    table = measurements.table(measured, "losses")
    table = table.assign(title=table["task"].map(names.expert))
    images = f"{_images(measured, table)} {SEEN if run.adapted_on == measured.notes['split'] else UNSEEN}"
    sentence = in_words(table)
    chart.chart(
        "entropy_loss", table, name=f"entropy_loss_{run.id[:8]}", tasks=list(run.experts), of=[run],
        description=sentence, caption=f"{sentence} {MARKS} {images} {BEFORE}",
    )  # fmt: skip
    logged = published(run, logs_of)
    chart.chart(
        "accuracy_steps", table, name=f"accuracy_steps_{run.id[:8]}", published=logged, of=[run],
        caption=f"{BAND} {images} {LOGGED if logged is not None else ''}".strip(),
    )  # fmt: skip


def _images(measured: Measured, table: pd.DataFrame) -> str:
    notes, origin = measured.notes, measure_button.origin([measured])
    return IMAGES.format(span(table["n"]), notes["sample_seed"], plural(notes["steps"], "step"), origin)


def in_words(table: pd.DataFrame) -> str:
    """A sentence on where entropy falls while the loss rises."""
    from merging.study.measurements.along_steps import turns

    turned = turns(table)
    if turned.empty:
        return STEADY
    named = [
        TURN.format(
            text.safe_text(names.expert(str(row["task"])), 40), row["step"],
            text.signed(float(row["entropy"]), 2), text.signed(float(row["loss"]), 2),
        )
        for row in turned[:MOST].to_dict("records")
    ]  # fmt: skip
    more = [f"{len(turned) - MOST} more"] if len(turned) > MOST else []
    return TURNED.format(len(turned), table["task"].nunique(), text.listed([*named, *more]))


def view_ends(run: Run, start: Run, steps: int) -> None:
    """What authors logged of an adapt for the chain of a run, beside both ends of ours; nothing if they logged none."""
    import pandas as pd

    logged = published(run, adapt_logs_of)
    ends = [(step, data.scores(one)) for step, one in ((0, start), (steps, run))]
    rows = [scores.assign(step=step) for step, scores in ends if scores is not None]
    if logged is None or len(rows) < len(ends):
        return
    table = pd.concat(rows, ignore_index=True)
    table = table[table["task"].isin(run.experts)][["step", "task", "title", "accuracy", "n"]]
    images = f"n = {span(table['n'])} images of each task, {samples.part()}. {text.adapted(run)}".strip()
    chart.chart(
        "accuracy_steps", table, name=f"accuracy_ends_{run.id[:8]}", published=logged, of=[start, run],
        caption=f"{ENDS} {BAND} {images} {LOGGED}",
    )  # fmt: skip


def published(run: Run, logs: Callable[[Recipe], Sequence[Curve]]) -> pd.DataFrame | None:
    """What authors logged for the chain of a run: method, step, accuracy (a fraction), source; None if nothing."""
    import pandas as pd

    try:
        curves = logs(run.recipe) if run.recipe is not None else ()
    except MergingError:  # of a method that this version does not know
        return None
    rows = [
        (curve.method, step, float(value) / 100, f"{curve.paper}, {curve.where}")
        for curve in curves
        for step, value in curve.values.items()
    ]
    return pd.DataFrame(rows, columns=["method", "step", "accuracy", "source"]) if rows else None
