"""The storage that users of a learned merge need, beside that of other merges of the same models."""

from __future__ import annotations

from collections.abc import Sequence

from app.views.learning import learning_tables
from app.widgets import chart_view
from merging.study.runs.run import Run

MAX_OTHER_RUNS = 7  # other runs in the chart
COUNTED_NOTE = (
    "The files that a user of the merge needs: the merged model, the heads of its tasks and its learned modules. "
    "Coefficients are needed only to merge again, because the merged weights include them. 1 MiB is 1,048,576 bytes."
)


def draw_view(run: Run, other_runs: Sequence[Run]) -> None:
    """Draw a bar of parts for this run and for each of the others."""
    shown_runs = [run, *other_runs[:MAX_OTHER_RUNS]]
    table = learning_tables.list_storage_parts(tuple(run_in_chart.id for run_in_chart in shown_runs))
    chart_view.draw_chart(
        "storage_parts", table, name=f"storage_parts_{run.id[:8]}", sources=shown_runs, caption=COUNTED_NOTE
    )
