"""Entropy against the loss with labels at some steps of learning, and accuracy beside the authors' logs."""

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

MAX_NAMED_TASKS = 3  # tasks that a sentence names
NOT_MEASURED = (
    "Learning minimizes entropy without labels. A measurement at about six of the steps shows whether the loss with "
    "labels falls, too. It is missing for"
)
IMAGES_NOTE = "n = {} images of each task, sampled from the choosing half with seed {}, at {}. {}"
MODELS_NOTE = "The models are those at these steps, before their coefficients were shrunk or modules were added."
MARKS_NOTE = "Open marks are the first step, large ones the last."
SEEN_NOTE = "The merge learned from images of this half, without labels."
UNSEEN_NOTE = "The merge learned from other images."
NO_TURN = "Between these steps, there is no task on which the loss rises while entropy falls."
TURNS = "Entropy still falls while the loss with labels rises on {} of {} tasks: {}."
TURN_IN_WORDS = "{} after step {:,} (entropy {}, loss {} nats)"
ENDS_NOTE = "Our run is scored only at both ends: the merged model without and with its modules."
BAND_NOTE = "The band spans the worst to the best task."
LOGGED_NOTE = "Dotted: the authors' log of the same chain, on other models and eight other test sets, " \
    "adapting on the images that they score."  # fmt: skip


def draw_view(run: Run) -> None:
    """Draw both charts of a run, or the button that measures them."""
    measurement = measurements.find_measurement(measurements.LOSS_BY_LEARNING_STEP, run.id)
    if measurement is None:
        chart_view.draw_question("entropy_loss")
        measure_button.draw_missing(measurements.LOSS_BY_LEARNING_STEP, [run], NOT_MEASURED)
        return
    table = measurements.measured_table(measurement, "losses")
    table = table.assign(title=table["task"].map(expert_names.expert_name))
    source_note = SEEN_NOTE if run.adapted_on == measurement.notes["split"] else UNSEEN_NOTE
    images = f"{_images_in_words(measurement, table)} {source_note}"
    sentence = turns_in_words(table)
    chart_view.draw_chart(
        "entropy_loss", table, name=f"entropy_loss_{run.id[:8]}", tasks=list(run.experts), sources=[run],
        caption=f"{sentence} {MARKS_NOTE} {images} {MODELS_NOTE}",
    )  # fmt: skip
    published = read_published_logs(run, logs_of)
    chart_view.draw_chart(
        "accuracy_steps", table, name=f"accuracy_steps_{run.id[:8]}", published=published, sources=[run],
        caption=f"{BAND_NOTE} {images} {LOGGED_NOTE if published is not None else ''}".strip(),
    )  # fmt: skip


def _images_in_words(measurement: StoredMeasurement, table: pd.DataFrame) -> str:
    notes, origin = measurement.notes, measure_button.origin_in_words([measurement])
    return IMAGES_NOTE.format(span(table["n"]), notes["sample_seed"], plural(notes["steps"], "step"), origin)


def turns_in_words(table: pd.DataFrame) -> str:
    """A sentence on the tasks and steps at which the loss rises while entropy falls."""
    from merging.study.measurements.along_steps import find_turning_points

    turns = find_turning_points(table)
    if turns.empty:
        return NO_TURN
    turn_texts = [
        TURN_IN_WORDS.format(
            page_text.safe_text(expert_names.expert_name(str(row["task"])), 40), row["step"],
            page_text.format_signed(float(row["entropy"]), 2), page_text.format_signed(float(row["loss"]), 2),
        )
        for row in turns[:MAX_NAMED_TASKS].to_dict("records")
    ]  # fmt: skip
    remaining_text = [f"{len(turns) - MAX_NAMED_TASKS} more"] if len(turns) > MAX_NAMED_TASKS else []
    return TURNS.format(len(turns), table["task"].nunique(), page_text.join_words([*turn_texts, *remaining_text]))


def draw_ends(run: Run, start: Run, steps: int) -> None:
    """Draw the authors' log of an adaptation, with our accuracy at both ends; nothing without a published log."""
    import pandas as pd

    published = read_published_logs(run, adapt_logs_of)
    scores_by_step = [(step, page_data.scores(end_run)) for step, end_run in ((0, start), (steps, run))]
    rows = [scores.assign(step=step) for step, scores in scores_by_step if scores is not None]
    if published is None or len(rows) < len(scores_by_step):
        return
    table = pd.concat(rows, ignore_index=True)
    table = table[table["task"].isin(run.experts)][["step", "task", "title", "accuracy", "n"]]
    images = (
        f"n = {span(table['n'])} images of each task, {samples.scored_part()}. {page_text.adapting_in_words(run)}"
    ).strip()
    chart_view.draw_chart(
        "accuracy_steps", table, name=f"accuracy_ends_{run.id[:8]}", published=published, sources=[start, run],
        caption=f"{ENDS_NOTE} {BAND_NOTE} {images} {LOGGED_NOTE}",
    )  # fmt: skip


def read_published_logs(run: Run, find_curves: Callable[[Recipe], Sequence[Curve]]) -> pd.DataFrame | None:
    """The authors' log for a run's recipe: method, step, accuracy (0 to 1), source; None without a log.

    ``find_curves`` finds the logs of merges that learn (``logs_of``) or of adaptations (``adapt_logs_of``).
    """
    import pandas as pd

    try:
        curves = find_curves(run.recipe) if run.recipe is not None else ()
    except MergingError:  # this version does not know a method of the run
        return None
    rows = [
        (curve.method, step, float(value) / 100, f"{curve.paper}, {curve.where}")
        for curve in curves
        for step, value in curve.values.items()
    ]
    return pd.DataFrame(rows, columns=["method", "step", "accuracy", "source"]) if rows else None
