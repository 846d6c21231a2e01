"""Two stored runs on the same images, as the page Compare shows them."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any

from app.notebook import chart_pages, html_forms
from app.notebook.page_view import View, view
from app.notebook.run_list import StoredRun, find_run
from viz.figure_text import percent

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

SCORES = "compare_scores"


class Comparison:
    """Run B against run A: the paired changes of their scores, and the charts of Compare."""

    def __init__(self, a: StoredRun, b: StoredRun, opened: View) -> None:
        self.a, self.b, self._view = a, b, opened

    @property
    def changes(self) -> pd.DataFrame:
        """A row for each average and data set: accuracies a and b, difference b − a, ends of its interval, and n."""
        return self._view.table(SCORES)

    def plot(self, chart: str = SCORES, /, **settings: Any) -> go.Figure:
        """A chart of Compare; ``settings`` are keys of the address.

        Raises:
            MergingError: no page draws such a chart of these runs, or has such a setting; the message lists them.
        """
        if chart == SCORES and not settings:
            return self._view[SCORES]
        return chart_pages.draw_chart(chart, {"run": self.a.id, "run_b": self.b.id}, settings)

    def __repr__(self) -> str:
        return f"Comparison of B, {self.b!r}, with A, {self.a!r}"

    def _repr_html_(self) -> str:
        from app.page_text import format_signed

        rows = [
            (
                row.title, row.group, percent(row.a), percent(row.b), format_signed(100 * row.difference),
                "–" if isnan(row.low) else f"{format_signed(100 * row.low)} to {format_signed(100 * row.high)}",
                f"{row.n:,}",
            )
            for row in self.changes.itertuples()
        ]  # fmt: skip
        heads = ("Data set or average", "Group", "A", "B", "B − A, points", "95 % interval, paired", "n")
        title = f"A: {self.a.name} ({self.a.id[:6]}). B: {self.b.name} ({self.b.id[:6]})."
        return html_forms.make_table(heads, rows, title, [self._view.caption(SCORES)])


def compare(a: StoredRun | str, b: StoredRun | str) -> Comparison:
    """Two stored runs, each by its id, its name or as an object: how the scores of B differ from those of A.

    Raises:
        MergingError: a run is not stored here, A is no merge, or their scores are of different benchmarks.
    """
    run_a, run_b = find_run(a), find_run(b)
    opened = view(f"compare?run={run_a.id}&run_b={run_b.id}")
    opened.table(SCORES)  # raises an error unless they can be compared
    return Comparison(run_a, run_b, opened)
