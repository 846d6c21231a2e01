"""``merging.merge`` in a notebook: with a progress bar, and with a result that draws itself."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import merging
from app.notebook import html_forms
from merging.base.errors import MergingError, ParameterError
from merging.base.text import duration_text, plural
from merging.engine.run import MergeResult

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from merging.base.progress import Progress, ProgressCallback

BAR = "bar"  # the argument that asks for a progress bar
CHART_TABLES = {  # chart of a result -> the table that it draws
    "saliency_matrix": "saliency",
    "kept_share": "saliency",
    "drift_removed": "cat",
    "localization_map": "localization",
    "coefficient_steps": "coefficient_steps",
    "learning_loss": "learning",
}


class NotebookResult(MergeResult):
    """The result of a merge, with its charts and with a form for notebooks."""

    @property
    def charts(self) -> list[str]:
        """The keys of the charts that can be drawn from the tables of this result."""
        return [chart for chart, table in CHART_TABLES.items() if table in self.tables]

    def plot(self, chart: str = "saliency_matrix", /, **options: Any) -> go.Figure:
        """A chart of the result's tables; ``options`` are those of ``viz.draw``.

        Raises:
            MergingError: this result has no table for that chart; the message lists the charts that it has.
            ChartError: the chart has no such option.
        """
        import viz

        if chart not in self.charts:
            drawn = ", ".join(self.charts) or "none, because no step of its chain wrote a table that a chart draws"
            raise MergingError(f"This result has no chart {chart!r}; it has: {drawn}. Store the merge as a run for others.")
        return viz.draw(chart, self.tables[CHART_TABLES[chart]], **options)

    def __repr__(self) -> str:
        return f"NotebookResult({self.recipe.text()}, tables: {', '.join(self.tables)})"

    def _repr_html_(self) -> str:
        from app import page_text

        states = self.task_state_dicts
        models = f"{plural(len(states), 'model')}, one for each task" if states else "one model"
        facts = {
            "Chain": page_text.chain_words(self.recipe),
            "Experts": ", ".join(dict(self.recipe.experts)),
            "Gives": f"{models} of {plural(len(next(iter(states.values())) if states else self.state_dict), 'tensor')}",
            "Computed": f"in {duration_text(self.seconds)} on {self.device}",
            "Tables": ", ".join(f"{name} ({len(table):,} rows)" for name, table in self.tables.items()),
            "Charts": ", ".join(self.charts) or "none",
        }
        return html_forms.make_table(("", ""), facts.items(), "Merged model", self.warnings)


def merge(*models: Any, progress: ProgressCallback | str | None = None, **settings: Any) -> NotebookResult:
    """``merging.merge``, with its arguments and errors; an interrupt stops it and leaves no thread.

    ``progress`` may also be "bar", for a bar in a notebook or a terminal, and "off". None draws a bar in IPython.
    """
    with _show_progress(progress) as report:
        result = merging.merge(*models, progress=report, **settings)
    return NotebookResult(**{field.name: getattr(result, field.name) for field in fields(MergeResult)})


merge.__signature__ = inspect.signature(merging.merge)  # type: ignore[attr-defined]


@contextmanager
def _show_progress(progress: ProgressCallback | str | None) -> Iterator[ProgressCallback | None]:
    """The callback that reports progress as the caller asks for; a bar is closed at the end."""
    if isinstance(progress, str) and progress not in (BAR, "off"):
        raise ParameterError(f'progress is "bar", "off" or a function; got {progress!r}.')
    if progress == "off" or callable(progress):
        yield progress if callable(progress) else None
    elif progress is None and not _is_in_ipython():
        yield None
    else:
        with _make_bar() as bar:
            yield _report_to(bar)


def _is_in_ipython() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and shell.get_ipython() is not None


def _make_bar() -> Any:
    """A bar of ``tqdm.auto`` without tqdm's thread, which outlives its bars."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without ipywidgets the bar is one of text, with a warning
        from tqdm.auto import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0

    return Bar(total=1.0, bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}")


def _report_to(bar: Any) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        bar.set_description_str(progress.phase, refresh=False)
        bar.update(progress.fraction - bar.n)

    return report
