"""``merging.merge`` in a notebook: with a progress bar, and with a result that draws itself."""

from __future__ import annotations

import functools
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import merging
from app.notebook import html_forms
from app.notebook.outside_charts import find_table, load_outside
from merging.base.errors import MergingError, ParameterError
from merging.base.progress import ProgressCallback, draw_bar
from merging.base.text import duration_text
from merging.engine.run import MergeResult

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from viz.chart import Chart

CHART_TABLES = {  # chart of a result -> the table that it draws
    "saliency_matrix": "saliency", "kept_share": "saliency", "drift_removed": "cat",
    "localization_map": "localization", "coefficient_steps": "coefficient_steps", "learning_loss": "learning",
}  # fmt: skip


class NotebookResult(MergeResult):
    """The result of a merge, with charts, for notebooks; unpickles in a process that has imported ``mergescope``."""

    @property
    def charts(self) -> list[str]:
        """The keys of the charts that can be drawn from the tables of this result."""
        ours = [chart for chart, table in CHART_TABLES.items() if table in self.tables]
        return [*ours, *(key for key, chart in load_outside()[0].items() if self._find_table(chart) is not None)]

    def _find_table(self, chart: Chart) -> pd.DataFrame | None:
        """The table that a chart of another package draws."""
        return find_table(chart, self.tables, self.tables.__getitem__)

    def plot(self, chart: str = "saliency_matrix", /, **options: Any) -> go.Figure:
        """A chart of the result's tables, at options of ``viz.draw``. MergingError lists the charts there are."""
        import viz

        if chart not in self.charts:
            drawn = ", ".join(self.charts) or "none, because no step of its chain wrote a table that a chart draws"
            problems = "".join(f" Not loaded: {problem}" for problem in load_outside()[1])
            raise MergingError(f"This result has no chart {chart!r}; it has: {drawn}.{problems}")
        if (outside := load_outside()[0].get(chart)) is not None:
            return outside(self._find_table(outside), **options)
        return viz.draw(chart, self.tables[CHART_TABLES[chart]], **options)

    def _repr_html_(self) -> str:
        from app import page_text

        state = next(iter(self.task_state_dicts.values())) if self.task_state_dicts else self.state_dict
        facts = {
            "Chain": page_text.chain_words(self.recipe),
            "Experts": ", ".join(dict(self.recipe.experts)),
            "Gives": f"{len(state)} tensors, in {duration_text(self.seconds)} on {self.device}",
            "Tables": ", ".join(self.tables),
            "Charts": ", ".join(self.charts) or "none",
        }
        return html_forms.make_table(facts.items(), self.warnings, "Merged model")


@functools.wraps(merging.merge, assigned=())  # its signature, for completion
def merge(*models: Any, progress: ProgressCallback | str | None = None, **settings: Any) -> NotebookResult:
    """``merging.merge``, with its arguments and errors; an interrupt stops it and leaves no thread.

    ``progress`` may also be "bar", for a bar in a notebook or a terminal, and "off". None draws a bar in IPython.
    """
    if isinstance(progress, str) and progress not in ("bar", "off"):
        raise ParameterError(f'progress is "bar", "off" or a function; got {progress!r}.')
    shell = sys.modules.get("IPython")
    if progress == "bar" or (progress is None and shell is not None and shell.get_ipython() is not None):
        with draw_bar() as report:
            return merge(*models, progress=report, **settings)
    result = merging.merge(*models, progress=progress if callable(progress) else None, **settings)
    return NotebookResult(**{field.name: getattr(result, field.name) for field in fields(MergeResult)})
