"""What must be kept to use a learned merge, beside others of the same models."""

from __future__ import annotations

from collections.abc import Sequence

from app.views.learning import learning_tables
from app.widgets import chart_view
from merging.study.runs.run import Run

MOST = 7  # other runs
COUNTED_NOTE = (
    "All that a user of the merge needs: the merged model and the heads of its tasks, and what was learned beside it. "
    "Coefficients are only needed to merge again: the merged model has them in its weights. 1 MiB is 1,048,576 bytes."
)


def draw_view(run: Run, others: Sequence[Run]) -> None:
    """A bar for this run and for each of the others, made of its parts."""
    shown = [run, *others[:MOST]]
    table = learning_tables.storage_parts(tuple(one.id for one in shown))
    chart_view.draw_chart("storage_parts", table, name=f"storage_parts_{run.id[:8]}", of=shown, caption=COUNTED_NOTE)
