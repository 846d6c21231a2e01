"""Stored runs in a notebook: a list of them, and one with its scores, tables and charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from app.notebook import chart_pages, html_forms
from app.notebook.page_view import run_as_app
from merging.base.errors import MergingError, StoreError
from merging.base.text import did_you_mean, first_few, percent_with_interval
from merging.images.benchmarks.metrics import summarize

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from merging.recipes.recipe import Recipe
    from merging.study.runs.run import Run

SCORE_HEADS = ("In domain", "Out of domain", "H-score", "n")
SCORES_NOTE = (
    "Mean accuracies over data sets on the reporting half, unweighted, with 95 % intervals; n is the number of images "
    "in domain and out of domain, and the H-score is the harmonic mean of both means."
)


class StoredRun:
    """A run of the store or of a library: its recipe, its scores, its tables, and every chart of it."""

    def __init__(self, stored: Run, name: str) -> None:
        self.stored, self.name, self.id = stored, name, stored.id

    @property
    def recipe(self) -> Recipe | None:
        """The recipe of a merge. Raises RecipeError if this version lacks one of its methods."""
        return self.stored.recipe

    @property
    def scores(self) -> pd.DataFrame:
        """The accuracies, one row for each data set and half. Raises StoreError if the run was not evaluated."""
        if (scores := self.stored.scores) is None:
            reason = " ".join(self.stored.evaluation_warnings)
            raise StoreError(f"Run {self.id} has no scores. {reason}".strip())
        return scores.copy()

    @property
    def tables(self) -> list[str]:
        """The names of the stored tables."""
        return list(self.stored.tables)

    def table(self, name: str) -> pd.DataFrame:
        """A stored table. Raises StoreError, which lists the tables there are."""
        if name not in self.tables:
            raise StoreError(f"Run {self.id} has no table {name!r}; its tables are: {', '.join(self.tables) or 'none'}.")
        return self.stored.table(name)

    def plot(self, chart: str = "saliency_matrix", /, **settings: Any) -> go.Figure:
        """A chart of the app of this run; ``settings`` are keys of the address, such as ``ratio=0.5``.

        Raises:
            MergingError: no page draws such a chart of this run, or has such a setting; the message lists them.
        """
        return chart_pages.draw_chart(chart, {"run": self.id}, settings)

    def list_scores(self) -> list[str]:
        """The averages with their intervals, the H-score and the numbers of images, as text; dashes without scores."""
        if self.stored.scores is None:
            return ["–"] * len(SCORE_HEADS)
        means = summarize(self.stored.scores, self.stored.experts)
        return [
            percent_with_interval(means.in_domain, means.in_low, means.in_high),
            percent_with_interval(means.out_of_domain, means.out_low, means.out_high),
            percent_with_interval(means.h_score, means.h_score, means.h_score).partition(" [")[0],
            f"{means.n_in:,} + {means.n_out:,}",
        ]

    @property
    def seed_text(self) -> str:
        """The seed, in words for a run in which nothing is random."""
        return "nothing random" if self.stored.seed is None else str(self.stored.seed)

    def __repr__(self) -> str:
        return f"StoredRun({self.id!r}, {self.name!r})"

    def _repr_html_(self) -> str:
        from app import page_text

        facts = {
            "Run": page_text.plain_text(page_text.run_in_words(self.stored)),
            **dict(zip(SCORE_HEADS, self.list_scores(), strict=True)),
            "Seed": self.seed_text,
            "Tables": ", ".join(self.tables),
            "Charts": "run.plot(key), such as saliency_matrix",
        }
        notes = [SCORES_NOTE, *page_text.marks_in_words([self.stored])]
        return html_forms.make_table(("", ""), facts.items(), self.name, notes)


class RunList(Sequence[StoredRun]):
    """Runs in their order, shown in a notebook as a table."""

    def __init__(self, runs: Sequence[StoredRun]) -> None:
        self._runs = list(runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, index: Any) -> Any:
        """The run at an index, or the list of those in a slice."""
        return RunList(self._runs[index]) if isinstance(index, slice) else self._runs[index]

    def __iter__(self) -> Iterator[StoredRun]:
        return iter(self._runs)

    def filter(self, name: str) -> RunList:
        """The runs whose name contains this text; case is ignored."""
        return RunList([run for run in self._runs if name.casefold() in run.name.casefold()])

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._runs)) or "no runs"

    def _repr_html_(self) -> str:
        from app import page_text

        rows = [
            (page_text.title_with_note(run.stored, run.name), *run.list_scores(), run.seed_text, run.id)
            for run in self._runs
        ]
        notes = [SCORES_NOTE, *page_text.marks_in_words(run.stored for run in self._runs)]
        return html_forms.make_table(("Name", *SCORE_HEADS, "Seed", "Id"), rows, f"{len(self)} runs", notes)


def runs(name: str = "") -> RunList:
    """The merges of this machine, newest first, then those of the benchmark's library; only those with ``name`` in it.

    Names are those of the pages, no two of which are the same.
    """
    return RunList([run for run in _list_all() if run.stored.kind == "merge"]).filter(name)


def run(name: str) -> StoredRun:
    """The stored run with this id, with an id that begins so (six digits or more), or with this name.

    Raises:
        StoreError: there is none, or there are several; the message lists them.
    """
    with run_as_app():
        from app.reading import page_data

        run_id = page_data.store().resolve_id(name)
    everything = _list_all()
    found = [one for one in everything if one.id == run_id] or [
        one for one in everything if name.casefold() in (one.name.casefold(), one.stored.title.casefold())
    ]
    if not found:
        hint = did_you_mean(name, [one.name for one in everything])
        raise StoreError(f"There is no run {name[:60]!r} here, by id or by name.{hint} mergescope.runs() lists them.")
    if len(found) > 1:
        choices = first_few(f"{one.id} ({one.name})" for one in found)
        raise StoreError(f"{len(found)} runs have this name: {choices}. Write an id.")
    return found[0]


def find_run(named: StoredRun | str) -> StoredRun:
    """The run itself, or the one that an id or a name stands for; see ``run``."""
    if not isinstance(named, StoredRun | str):
        raise MergingError(f"A run is named by its id or its name; got {type(named).__name__}.")
    return named if isinstance(named, StoredRun) else run(named)


def _list_all() -> list[StoredRun]:
    """Every stored run for the default benchmark, merges first, under the names of the pages."""
    with run_as_app():
        from app.reading import page_data
        from app.reading.runs import run_names

        stored = [one for one in page_data.store().list_runs() if page_data.belongs_to_benchmark(one)]
        ordered = page_data.list_merges(stored)
        ordered += [one for one in stored if one.kind != "merge"]
        names = run_names.name_runs(ordered)
    return [StoredRun(one, names[one.id]) for one in ordered]
