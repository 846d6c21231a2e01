"""The queue of jobs as the app and the tests fill it: with recipes, measurements, sweeps and other commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from merging.base.errors import MergingError
from merging.recipes.recipe import Recipe
from merging.tasks.queue.job_kinds import SWEEP, find_job_kind, find_measurement
from merging.tasks.queue.job_queue import JobQueue
from merging.tasks.queue.job_records import Job, name_job

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.runs.opened_recipe import OpenedRecipe
    from merging.study.runs.run import Run
    from merging.study.runs.run_store import Store


class RunQueue(JobQueue):
    """Submits jobs on a store of runs.

    Only ``submit`` may take some time: it reads the checkpoints that this process has not read yet, to name the run.
    A job is live while it waits or runs; what is submitted again meanwhile is not a second job. ``benchmark`` is the
    folder of the job's benchmark, empty for the one that the server was started with.
    ``session`` is a random name of the user's session; jobs of one session, and all jobs without one, are computed in
    the order of submission.
    """

    store: Store

    def submit(
        self, recipe: Recipe, *, base: Path | None = None, need_model: bool = False,
        benchmark: Benchmark | None = None, session: str = "",
    ) -> Job:  # fmt: skip
        """The job of a recipe: one that is waiting, running or done, or a new one at the end of the queue.

        If large files were never read on this machine, run a command that reads them first (see digests).

        Raises:
            CheckpointError: a checkpoint is missing or damaged.
            RecipeError: a method is only registered in this process.
            StoreError: the store cannot be written to, or the same merge is running for another benchmark.
            ModeError: the job takes too long for this server, or the session has used up its quota.
        """
        from merging.models.digest_cache import DIGESTS  # loads torch, which listing jobs does not need
        from merging.study.runs.estimate import estimate_run
        from merging.study.runs.opened_recipe import open_inputs

        recipe.refuse_elsewhere()
        DIGESTS.load(self.store.root)
        opened = open_inputs(recipe, base, benchmark)
        run_id = opened.run_id()
        return self._submit(
            run_id,
            session,
            # quiet: as on an idle machine, so that the queue does not refuse a job because others are running
            lambda: estimate_run(opened, benchmark, self.store.list_runs(), self.device, quiet=True).seconds,
            lambda: self._is_stored(opened, run_id, need_model),
            recipe_yaml=recipe.to_yaml(),
            title=recipe.title or recipe.text(),
            base=(base or Path.cwd()).absolute(),
            need_model=need_model,
            subject=run_id,
            benchmark=str(benchmark.folder) if benchmark else "",
        )

    def _is_stored(self, opened: OpenedRecipe, run_id: str, need_model: bool) -> bool:
        """Whether a run is stored with all scores that it can have, and with a model if ``need_model``."""
        from merging.study.runs.opened_recipe import is_scored

        return is_scored(opened, [run for run in self.store.list_copies(run_id) if run.has_model or not need_model])

    def _submit_next(self, recipe_yaml: str, benchmark: str, ordered: Mapping[str, Sequence[str]]) -> None:
        from merging.images.benchmarks.benchmark import Benchmark

        opened = Benchmark.load(Path(benchmark)) if benchmark else None
        job = self.submit(Recipe.from_yaml(recipe_yaml), benchmark=opened)
        for session, keys in ordered.items():
            self.order_measurements(job.id, keys, session)

    def _measure_run(self, run_id: str, ordered: Mapping[str, Sequence[str]], benchmark: str) -> str:
        try:
            run = self.store.get_run(run_id)
        except MergingError as problem:  # it was deleted in this moment
            return str(problem)
        problems: list[str] = []
        wanted = [(session, key) for session, keys in ordered.items() for key in keys if run.has_scores or run.network]
        for session, key in wanted:
            kind = find_measurement(key)
            if kind.reads_table and kind.reads_table not in run.tables:
                continue
            try:
                self.submit_measurement(key, run_id, benchmark, [run], session)
            except MergingError as problem:
                problems.append(f"{kind.title}: {problem}")
        return " ".join(dict.fromkeys(problems))

    def submit_measurement(
        self, key: str, run_id: str = "", benchmark: str = "", runs: Sequence[Run] = (), session: str = ""
    ) -> Job:
        """The job of a measurement of a stored run, or of the benchmark: the live one, or a new one.

        ``runs`` are the runs of ``run_id``, which may be several ids joined; by default they are read from the store.

        Raises:
            StoreError: there is no such run or measurement, or it is running on another benchmark.
            ModeError: the job takes too long for this server, or the session has used up its quota.
        """
        from merging.study.runs.run import split_run_ids

        titles = [run.title for run in runs or map(self.store.get_run, split_run_ids(run_id))]
        title = ": ".join([find_measurement(key).title, *([", ".join(titles)] if titles else [])])
        return self.submit_command(key, run_id, title, benchmark=benchmark, session=session)

    def submit_sweep(self, sweep_id: str, title: str, benchmark: str = "", session: str = "") -> Job:
        """The job that computes the missing points of a stored sweep: the live one, or a new one.

        Raises:
            StoreError: the sweep is running on another benchmark.
        """
        return self.submit_command(SWEEP, sweep_id, f"Sweep: {title}", benchmark=benchmark, session=session)

    def submit_command(
        self, kind: str, subject: str, title: str, words: Sequence[str] = (), then: Recipe | None = None,
        benchmark: str = "", session: str = "",
    ) -> Job:  # fmt: skip
        """The job that runs a command of the command line: the live one, or a new one.

        ``kind`` names the command in one word, ``subject`` what it works on. ``words`` are further arguments;
        measurements and sweeps have none. The recipe ``then`` is submitted when the command is done.
        """
        return self._submit(
            name_job(kind, subject), session, lambda: find_job_kind(kind).estimate(kind, self.store.root),
            is_stored=lambda: False, recipe_yaml=then.to_yaml() if then else "", title=title, base=Path.cwd(),
            kind=kind, subject=subject, words=tuple(words), benchmark=benchmark,
        )  # fmt: skip


@lru_cache(maxsize=64)
def does_learn(recipe_yaml: str) -> bool:
    """Whether a recipe learns from images, so that its merge can pause; False if the recipe cannot be read."""
    try:
        return Recipe.from_yaml(recipe_yaml).learns
    except MergingError:
        return False
