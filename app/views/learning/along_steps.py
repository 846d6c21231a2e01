"""Entropy against the loss with labels at marked steps of learning, and accuracy with what authors logged behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from app import page_text
from app.reading import expert_names, measurements, page_data, samples
from app.widgets import chart_view
from app.widgets.jobs import measure_button
from merging.base.errors import MergingError
from merging.recipes.learning_logs import adapt_logs_of, logs_of
from merging.recipes.papers.claims import Curve
from merging.recipes.recipe import Recipe
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import plural, span

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
SEEN_NOTE, UNSEEN_NOTE = (
    "The merge learned from images of this half, without labels.",
    "The merge learned from other images.",
)
STEADY_NOTE = "Between these steps, on no task does the loss rise while entropy falls on."
TURNED_NOTE = "Entropy falls on while the loss with labels rises on {} of {} tasks: {}."
TURN = "{} after step {:,} (entropy {}, loss {} nats)"
ENDS = "Of ours only both ends are scored: the merged model, and what the modules make of it."
BAND = "The band runs from the worst task to the best."
LOGGED_NOTE = "Dotted: what the authors logged for the same chain, on other models and eight other test sets, " \
    "adapting on the images that they score."  # fmt: skip


def draw_view(run: Run) -> None:
    """Both charts of a run, or the offer to measure them."""
    measured = measurements.find_measurement(measurements.ALONG_STEPS, run.id)
    if measured is None:
        chart_view.draw_question("entropy_loss")
        measure_button.draw_missing(measurements.ALONG_STEPS, [run], NOT_MEASURED)
        return
    table = measurements.measured_table(measured, "losses")
    table = table.assign(title=table["task"].map(expert_names.expert_name))
    images = f"{_images(measured, table)} {SEEN_NOTE if run.adapted_on == measured.notes['split'] else UNSEEN_NOTE}"
    sentence = turns_in_words(table)
    chart_view.draw_chart(
        "entropy_loss", table, name=f"entropy_loss_{run.id[:8]}", tasks=list(run.experts), of=[run],
        description=sentence, caption=f"{sentence} {MARKS} {images} {BEFORE}",
    )  # fmt: skip
    logged = published_logs(run, logs_of)
    chart_view.draw_chart(
        "accuracy_steps", table, name=f"accuracy_steps_{run.id[:8]}", published=logged, of=[run],
        caption=f"{BAND} {images} {LOGGED_NOTE if logged is not None else ''}".strip(),
    )  # fmt: skip


def _images(measured: StoredMeasurement, table: pd.DataFrame) -> str:
    notes, origin = measured.notes, measure_button.origin_in_words([measured])
    return IMAGES.format(span(table["n"]), notes["sample_seed"], plural(notes["steps"], "step"), origin)


def turns_in_words(table: pd.DataFrame) -> str:
    """A sentence on where entropy falls while the loss rises."""
    from merging.study.measurements.along_steps import turning_points

    turned = turning_points(table)
    if turned.empty:
        return STEADY_NOTE
    named = [
        TURN.format(
            page_text.safe_text(expert_names.expert_name(str(row["task"])), 40), row["step"],
            page_text.format_signed(float(row["entropy"]), 2), page_text.format_signed(float(row["loss"]), 2),
        )
        for row in turned[:MOST].to_dict("records")
    ]  # fmt: skip
    more = [f"{len(turned) - MOST} more"] if len(turned) > MOST else []
    return TURNED_NOTE.format(len(turned), table["task"].nunique(), page_text.join_words([*named, *more]))


def draw_ends(run: Run, start: Run, steps: int) -> None:
    """What authors logged of an adapt for the chain of a run, beside both ends of ours; nothing if they logged none."""
    import pandas as pd

    logged = published_logs(run, adapt_logs_of)
    ends = [(step, page_data.scores(one)) for step, one in ((0, start), (steps, run))]
    rows = [scores.assign(step=step) for step, scores in ends if scores is not None]
    if logged is None or len(rows) < len(ends):
        return
    table = pd.concat(rows, ignore_index=True)
    table = table[table["task"].isin(run.experts)][["step", "task", "title", "accuracy", "n"]]
    images = (
        f"n = {span(table['n'])} images of each task, {samples.scored_part()}. {page_text.adapting_in_words(run)}"
    ).strip()
    chart_view.draw_chart(
        "accuracy_steps", table, name=f"accuracy_ends_{run.id[:8]}", published=logged, of=[start, run],
        caption=f"{ENDS} {BAND} {images} {LOGGED_NOTE}",
    )  # fmt: skip


def published_logs(run: Run, logs: Callable[[Recipe], Sequence[Curve]]) -> pd.DataFrame | None:
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
