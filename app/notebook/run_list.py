"""Stored runs in a notebook: a list of them, one with its scores, tables and charts, and two compared."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any

from app.notebook import html_forms, outside_charts
from app.notebook.page_view import draw_chart, run_as_app, view
from merging.base.errors import StoreError
from merging.base.text import did_you_mean, first_few, percent_with_interval
from merging.images.benchmarks.metrics import summarize
from merging.study.runs.run import Run
from viz.figure_text import percent

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from merging.recipes.recipe import Recipe

HEADS = ("In domain", "Out of domain", "H-score", "n", "Seed")
CHANGES = "compare_scores"  # the chart of a comparison
CHANGE_HEADS = ("Data set or average", "Group", "A", "B", "B − A, points", "95 % interval, paired", "n")
SCORES_NOTE = (
    "Mean accuracies over data sets on the reporting half, unweighted, with 95 % intervals; n is the number of images "
    "in domain and out of domain, and the H-score is the harmonic mean of both means."
)


class StoredRun:
    """A run of the store or of a library; errors are StoreErrors that say what there is."""

    def __init__(self, stored: Run, name: str) -> None:
        self.stored, self.name, self.id, self.tables = stored, name, stored.id, list(stored.tables)

    @property
    def recipe(self) -> Recipe | None:
        """The recipe of a merge."""
        return self.stored.recipe

    @property
    def scores(self) -> pd.DataFrame:
        """The accuracies, one row for each data set and half."""
        if self.stored.scores is None:
            raise StoreError(" ".join([f"Run {self.id} has no scores.", *self.stored.evaluation_warnings]))
        return self.stored.scores.copy()

    def table(self, name: str) -> pd.DataFrame:
        """A stored table."""
        if name not in self.tables:
            raise StoreError(f"Run {self.id} has no table {name!r}; its tables are: {', '.join(self.tables)}.")
        return self.stored.table(name)

    def plot(self, chart: str = "saliency_matrix", /, **settings: Any) -> go.Figure:
        """A chart of this run at ``settings`` of its page, such as ``ratio=0.5``; a chart of a package at its options.

        Raises MergingError, which lists what there is.
        """
        outside = outside_charts.load_outside()[0].get(chart)
        if outside is None:
            return draw_chart(chart, {"run": self.id}, settings)
        table = outside_charts.find_table(outside, self.tables, self.stored.table)
        if table is None:
            columns, tables = ", ".join(outside.columns), ", ".join(self.tables) or "none"
            raise StoreError(f"Run {self.id} has no table with the columns {columns} of {chart}; its tables: {tables}.")
        return outside(table, **settings)

    def _describe_scores(self) -> list[str]:
        """The averages with their intervals, the H-score, the numbers of images and the seed, as text."""
        seed = "nothing random" if self.stored.seed is None else str(self.stored.seed)
        if self.stored.scores is None:
            return ["–", "–", "–", "–", seed]
        means = summarize(self.stored.scores, self.stored.experts)
        inside = percent_with_interval(means.in_domain, means.in_low, means.in_high)
        outside = percent_with_interval(means.out_of_domain, means.out_low, means.out_high)
        return [inside, outside, percent(means.h_score), f"{means.n_in:,} + {means.n_out:,}", seed]

    def __repr__(self) -> str:
        return f"StoredRun({self.id!r}, {self.name!r})"

    def _repr_html_(self) -> str:
        from app import page_text

        facts = [("Run", page_text.plain_text(page_text.run_in_words(self.stored)))]
        facts += [*zip(HEADS, self._describe_scores(), strict=True), ("Tables", ", ".join(self.tables))]
        return html_forms.make_table(facts, [SCORES_NOTE, *page_text.marks_in_words([self.stored])], self.name)


class RunList(list[StoredRun]):
    """Runs, shown in a notebook as a table."""

    def __getitem__(self, index: Any) -> Any:
        """A run, or the runs of a slice."""
        found = super().__getitem__(index)
        return RunList(found) if isinstance(index, slice) else found

    def _repr_html_(self) -> str:
        from app import page_text

        rows = [(page_text.title_with_note(one.stored, one.name), *one._describe_scores(), one.id) for one in self]
        notes = [SCORES_NOTE, *page_text.marks_in_words(one.stored for one in self)]
        return html_forms.make_table(rows, notes, f"{len(self)} runs", ("Name", *HEADS, "Id"))


def runs(name: str = "") -> RunList:
    """The merges with ``name`` in their names: this machine's, newest first, then those of the benchmark's library."""
    return RunList(one for one in _list_all() if one.stored.kind == "merge" and name.casefold() in one.name.casefold())


def run(name: StoredRun | str) -> StoredRun:
    """The stored run with this id or name, or with an id that begins so (six digits or more).

    Raises StoreError if there is none, or if there are several, which it lists.
    """
    if isinstance(name, StoredRun):
        return name
    with run_as_app():
        from app.reading import page_data

        stored, text = _list_all(), str(name).casefold()
        run_id = page_data.store().resolve_id(str(name))
    found = [one for one in stored if one.id == run_id]
    found = found or [one for one in stored if text in (one.name.casefold(), one.stored.title.casefold())]
    if len(found) > 1:
        choices = first_few(f"{one.id} ({one.name})" for one in found)
        raise StoreError(f"{len(found)} runs have this name: {choices}. Write an id.")
    if not found:
        hint = did_you_mean(text, [one.name for one in stored]) + " mergescope.runs() lists them."
        raise StoreError(f"There is no run {name!r} here, by id or by name.{hint}")
    return found[0]


class Comparison:
    """Run B against run A; ``changes`` has a row for each average and data set: a, b, difference, low, high and n."""

    def __init__(self, a: StoredRun, b: StoredRun) -> None:
        self.a, self.b = a, b
        opened = view(f"compare?run={a.id}&run_b={b.id}")
        self.changes, self._note = opened.table(CHANGES), opened.find(CHANGES)[0].caption

    def plot(self, chart: str = CHANGES, /, **settings: Any) -> go.Figure:
        """A chart of Compare at ``settings`` of the page. Raises MergingError, which lists what there is."""
        return draw_chart(chart, {"run": self.a.id, "run_b": self.b.id}, settings)

    def __repr__(self) -> str:
        return f"Comparison(a={self.a!r}, b={self.b!r})"

    def _repr_html_(self) -> str:
        from app import page_text

        signed, rows = page_text.format_signed, []
        for row in self.changes.itertuples():
            interval = "–" if isnan(row.low) else f"{signed(100 * row.low)} to {signed(100 * row.high)}"
            accuracies = percent(row.a), percent(row.b), signed(100 * row.difference)
            rows.append((row.title, row.group, *accuracies, interval, f"{row.n:,}"))
        title = f"A: {self.a.name}. B: {self.b.name}."
        return html_forms.make_table(rows, [self._note], title, CHANGE_HEADS)


def compare(a: StoredRun | str, b: StoredRun | str) -> Comparison:
    """Two stored runs, each as an object or by its id or name: how the scores of B differ from those of A.

    Raises MergingError if a run is not stored, A is no merge, or their scores are of different benchmarks.
    """
    return Comparison(run(a), run(b))


def _list_all() -> list[StoredRun]:
    """Every stored run for the default benchmark, merges first, under the names of the pages, which all differ."""
    with run_as_app():
        from app.reading import page_data
        from app.reading.runs import run_names

        stored = [one for one in page_data.store().list_runs() if page_data.belongs_to_benchmark(one)]
        stored = [*page_data.list_merges(stored), *(one for one in stored if one.kind != "merge")]
        names = run_names.name_runs(stored)
    return [StoredRun(one, names[one.id]) for one in stored]
