"""What must be kept to use a learned merge, beside others of the same models."""

from __future__ import annotations

from collections.abc import Sequence

from app.views.learning import data
from app.widgets import chart
from merging.study.runs.run import Run

MOST = 7  # other runs
COUNTED = (
    "All that a user of the merge needs: the merged model and the heads of its tasks, and what was learned beside it. "
    "Coefficients are only needed to merge again: the merged model has them in its weights. 1 MiB is 1,048,576 bytes."
)


def view(run: Run, others: Sequence[Run]) -> None:
    """A bar for this run and for each of the others, made of its parts."""
    shown = [run, *others[:MOST]]
    table = data.storage(tuple(one.id for one in shown))
    chart.chart("storage_parts", table, name=f"storage_parts_{run.id[:8]}", of=shown, caption=COUNTED)
