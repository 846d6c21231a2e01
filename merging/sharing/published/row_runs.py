"""The rows of a table: each a stored run. As many as fit are merged first and then evaluated together."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from merging.base.devices import choose_device, free_for_models
from merging.base.errors import Cancelled, HubError, MergingError, StoreError
from merging.base.files.disk import free_bytes
from merging.engine.evaluation.evaluate import EvaluatedModel
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.formats.model_sources import open_models
from merging.recipes.recipe import Recipe
from merging.sharing.published.choice import find_models
from merging.sharing.published.comparison_table import MeasuredRow
from merging.sharing.published.experiment_run import ExperimentRun
from merging.sharing.published.measured_rows import MeasuredTable, write_measured
from merging.sharing.published.rates import merging_rate_name, store_rate
from merging.sharing.published.reference_scores import find_measured, store_encoding_rate
from merging.sharing.published.row_scores import read_right_answers, read_task_scores, score_together
from merging.sharing.published.row_variants import RowVariant, list_variants
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.study.runs.run_work import KnownScores
from merging.tasks.context import QUIET, Context

MOST_ROWS = 8  # rows whose models lie on the disk at a time
DISK_DIVISOR = 4  # one of so many parts of the free disk may be taken by them


@dataclass(frozen=True)
class _PendingRow:
    """A row that is to be computed: its recipe, and the id that its run has."""

    variant: RowVariant
    recipe: Recipe
    run_id: str


def measure_rows(run: ExperimentRun, benchmark: Benchmark, context: Context = QUIET) -> MeasuredTable:
    """What was measured, with every row of the choice; a row that cannot be computed is there with the reason.

    Raises:
        StoreError: the disk is full or cannot be written to.
        Cancelled: asked to stop; what was computed so far is kept.
    """
    return _RowComputation(
        run, benchmark, run.store(benchmark), find_measured(run, benchmark), context.on(run.device)
    ).run()


class _RowComputation:
    """The work on the rows of one table."""

    def __init__(
        self, run: ExperimentRun, benchmark: Benchmark, store: Store, measured: MeasuredTable, context: Context
    ) -> None:
        self.of, self.benchmark, self.store, self.measured, self.context = run, benchmark, store, measured, context

    def run(self) -> MeasuredTable:
        pending = [row for variant in list_variants(self.of.chosen, self.of.choice) if (row := self._pending(variant))]
        groups = self._groups(pending)
        parts = self.context.parts({str(number): len(group) for number, group in enumerate(groups)})
        for number, group in enumerate(groups):
            self._measure(group, parts[str(number)])
        return self.measured

    def _pending(self, variant: RowVariant) -> _PendingRow | None:
        """The row, unless its run is stored with scores, or it cannot be computed at all."""
        choice, benchmark = self.of.choice, self.benchmark
        with self._said(variant):
            recipe = variant.recipe(benchmark.pretrained, benchmark.experts, choice.exemplars, choice.seed)
            run_id = open_inputs(recipe, None, benchmark).run_id()
            stored = next((one for one in self.store.candidates(run_id) if self._has_scores(one)), None)
            if stored is None:
                return _PendingRow(variant, recipe, run_id)
            known = self.measured.rows.get(variant.key)
            if known is None or known.run != run_id:
                assert stored.scores is not None
                right = read_right_answers(benchmark, self.store.features_of(run_id))
                self._keep(MeasuredRow(variant, read_task_scores(stored.scores), right, run=run_id))
        return None

    def _has_scores(self, run: Run) -> bool:
        return run.has_scores and run.benchmark == self.benchmark.digest

    def _keep(self, row: MeasuredRow) -> None:
        self.measured = self.measured.with_row(row)
        write_measured(self.of.place.folder, self.measured)

    @contextlib.contextmanager
    def _said(self, variant: RowVariant) -> Iterator[None]:
        """Make a row that cannot be computed a sentence below the table; a full disk or a request to stop ends all."""
        try:
            yield
        except (Cancelled, StoreError, HubError):
            raise
        except MergingError as error:
            self.measured = self.measured.with_problem(variant.key, str(error))
            write_measured(self.of.place.folder, self.measured)
            self.context.warn(f"{variant.title}: {error}")

    def _groups(self, rows: Sequence[_PendingRow]) -> list[Sequence[_PendingRow]]:
        """Rows whose models fit into memory and on the disk together, for one pass over the images."""
        size = max(1, self.benchmark.open_pretrained().nbytes)
        room = min(
            free_for_models(choose_device(self.of.device)) // size, free_bytes(self.store.root) // (DISK_DIVISOR * size)
        )
        each = max(1, min(MOST_ROWS, room))
        return [rows[start : start + each] for start in range(0, len(rows), each)]

    def _measure(self, group: Sequence[_PendingRow], context: Context) -> None:
        """Merge the rows of a group, evaluate their models together, and keep their scores in place of the models."""
        merging, evaluating = "merging", "evaluating"
        parts = context.parts({merging: 1.0, evaluating: 2.0})
        merges, done = parts[merging].parts(dict.fromkeys((row.run_id for row in group), 1.0)), []
        for row in group:
            with self._said(row.variant):
                started = time.monotonic()
                stored = self._execute(row, merges[row.run_id], evaluate=False, need_model=True)
                self._keep_merging_speed(time.monotonic() - started)
                done.append((row, stored))
        work = [
            EvaluatedModel(row.run_id, stored.model_paths["merged"], [task.key for task in self.benchmark.tasks],
                           kept=self.store.features_of(row.run_id))
            for row, stored in done
        ]  # fmt: skip
        if not work:
            return
        started = time.monotonic()
        scored = score_together(work, self.benchmark, context=parts[evaluating])
        seconds = time.monotonic() - started
        store_encoding_rate(self.of, self.benchmark, work, seconds)
        for row, _ in done:
            own = scored[row.run_id]
            self._execute(row, context.silent(), scored=KnownScores(own.table, seconds / len(done)))
            self.store.drop_models(row.run_id)
            self._keep(MeasuredRow(row.variant, own.scores, own.right, run=row.run_id))

    def _execute(self, row: _PendingRow, context: Context, **how: Any) -> Run:
        return execute(row.recipe, self.store, benchmark=self.benchmark, context=context, **how)

    def _keep_merging_speed(self, seconds: float) -> None:
        """Keep how fast merges read models of this tower on this device, for the next plan."""
        pretrained, experts = open_models(self.benchmark.pretrained, self.benchmark.experts)
        name = merging_rate_name(find_models(self.of.chosen, self.of.choice).tower, choose_device(self.of.device).type)
        store_rate(self.of.place.rates, name, sum(one.nbytes for one in (pretrained, *experts.values())), seconds)
