"""The storage that users of a learned merge need, beside that of other merges of the same models."""

from __future__ import annotations

from collections.abc import Sequence

from app.views.learning import learning_tables
from app.widgets import chart_view
from merging.study.runs.run import Run

MOST = 7  # other runs in the chart
COUNTED_NOTE = (
    "All that a user of the merge needs: the merged model, the heads of its tasks and its learned modules. "
    "Coefficients are needed only to merge again, because the merged weights include them. 1 MiB is 1,048,576 bytes."
)


def draw_view(run: Run, others: Sequence[Run]) -> None:
    """Draw a bar of parts for this run and for each of the others."""
    shown = [run, *others[:MOST]]
    table = learning_tables.storage_parts(tuple(member.id for member in shown))
    chart_view.draw_chart("storage_parts", table, name=f"storage_parts_{run.id[:8]}", of=shown, caption=COUNTED_NOTE)
