"""The rows of a table, each a stored run. As many rows as fit are merged first and then evaluated together."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from merging.base.devices import bytes_for_models, choose_device
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

MAX_ROWS = 8  # rows whose models are on the disk at a time
DISK_DIVISOR = 4  # the models of these rows use at most 1 / DISK_DIVISOR of the free disk


@dataclass(frozen=True)
class _PendingRow:
    """A row to compute: its recipe and the id of its run."""

    variant: RowVariant
    recipe: Recipe
    run_id: str


def measure_rows(run: ExperimentRun, benchmark: Benchmark, context: Context = QUIET) -> MeasuredTable:
    """The measured rows, with every row of the choice or the reason why it could not be computed.

    Raises:
        StoreError: the disk is full or cannot be written to.
        Cancelled: the caller cancelled; finished rows are stored.
    """
    return _RowComputation(
        run, benchmark, run.open_store(benchmark), find_measured(run, benchmark), context.on_device(run.device)
    ).run()


class _RowComputation:
    """The work on the rows of one table."""

    def __init__(
        self, run: ExperimentRun, benchmark: Benchmark, store: Store, measured: MeasuredTable, context: Context
    ) -> None:
        self.experiment_run, self.benchmark, self.store = run, benchmark, store
        self.measured, self.context = measured, context

    def run(self) -> MeasuredTable:
        pending = [
            row
            for variant in list_variants(self.experiment_run.experiment, self.experiment_run.choice)
            if (row := self._find_pending(variant))
        ]
        groups = self._group_rows(pending)
        parts = self.context.split({str(number): len(group) for number, group in enumerate(groups)})
        for number, group in enumerate(groups):
            self._measure_group(group, parts[str(number)])
        return self.measured

    def _find_pending(self, variant: RowVariant) -> _PendingRow | None:
        """The row to compute; None if its run is stored with scores, or the row cannot be computed."""
        choice, benchmark = self.experiment_run.choice, self.benchmark
        with self._report_problem(variant):
            recipe = variant.build_recipe(benchmark.pretrained, benchmark.experts, choice.exemplars, choice.seed)
            run_id = open_inputs(recipe, None, benchmark).run_id()
            stored = next((one for one in self.store.list_copies(run_id) if self._has_scores(one)), None)
            if stored is None:
                return _PendingRow(variant, recipe, run_id)
            known = self.measured.rows.get(variant.key)
            if known is None or known.run != run_id:
                assert stored.scores is not None
                right = read_right_answers(benchmark, self.store.features_folder(run_id))
                self._store_row(MeasuredRow(variant, read_task_scores(stored.scores), right, run=run_id))
        return None

    def _has_scores(self, run: Run) -> bool:
        return run.has_scores and run.benchmark == self.benchmark.digest

    def _store_row(self, row: MeasuredRow) -> None:
        self.measured = self.measured.with_row(row)
        write_measured(self.experiment_run.folders.folder, self.measured)

    @contextlib.contextmanager
    def _report_problem(self, variant: RowVariant) -> Iterator[None]:
        """Store an error in the block as the row's problem, except for a full disk, the Hub and cancellation."""
        try:
            yield
        except (Cancelled, StoreError, HubError):
            raise
        except MergingError as error:
            self.measured = self.measured.with_problem(variant.key, str(error))
            write_measured(self.experiment_run.folders.folder, self.measured)
            self.context.warn(f"{variant.title}: {error}")

    def _group_rows(self, rows: Sequence[_PendingRow]) -> list[Sequence[_PendingRow]]:
        """Rows whose models fit into memory and on the disk together, for one pass over the images."""
        size = max(1, self.benchmark.open_pretrained().nbytes)
        fitting_rows = min(
            bytes_for_models(choose_device(self.experiment_run.device)) // size,
            free_bytes(self.store.root) // (DISK_DIVISOR * size),
        )
        group_size = max(1, min(MAX_ROWS, fitting_rows))
        return [rows[start : start + group_size] for start in range(0, len(rows), group_size)]

    def _measure_group(self, group: Sequence[_PendingRow], context: Context) -> None:
        """Merge the rows of a group, evaluate their models together, store the scores, and delete the models."""
        merging, evaluating = "merging", "evaluating"
        parts = context.split({merging: 1.0, evaluating: 2.0})
        merges, merged_rows = parts[merging].split(dict.fromkeys((row.run_id for row in group), 1.0)), []
        for row in group:
            with self._report_problem(row.variant):
                started = time.monotonic()
                stored = self._execute(row, merges[row.run_id], evaluate=False, need_model=True)
                self._store_merging_rate(time.monotonic() - started)
                merged_rows.append((row, stored))
        models = [
            EvaluatedModel(row.run_id, stored.model_paths["merged"], [task.key for task in self.benchmark.tasks],
                           stored_features=self.store.features_folder(row.run_id))
            for row, stored in merged_rows
        ]  # fmt: skip
        if not models:
            return
        started = time.monotonic()
        scored = score_together(models, self.benchmark, context=parts[evaluating])
        seconds = time.monotonic() - started
        store_encoding_rate(self.experiment_run, self.benchmark, models, seconds)
        for row, _ in merged_rows:
            scored_model = scored[row.run_id]
            known_scores = KnownScores(scored_model.evaluation, seconds / len(merged_rows))
            self._execute(row, context.without_progress(), known_scores=known_scores)
            self.store.delete_models(row.run_id)
            self._store_row(MeasuredRow(row.variant, scored_model.scores, scored_model.right_answers, run=row.run_id))

    def _execute(self, row: _PendingRow, context: Context, **options: Any) -> Run:
        return execute(row.recipe, self.store, benchmark=self.benchmark, context=context, **options)

    def _store_merging_rate(self, seconds: float) -> None:
        """Store the rate at which merges read models of this tower on this device, for the next plan."""
        pretrained, experts = open_models(self.benchmark.pretrained, self.benchmark.experts)
        name = merging_rate_name(
            find_models(self.experiment_run.experiment, self.experiment_run.choice).tower,
            choose_device(self.experiment_run.device).type,
        )
        store_rate(
            self.experiment_run.folders.rates_folder,
            name,
            sum(one.nbytes for one in (pretrained, *experts.values())),
            seconds,
        )
