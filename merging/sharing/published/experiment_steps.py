"""The steps of an experiment: pin commits, fetch files, make the benchmark, score references, score rows.

Each step is a function of an ``ExperimentRun`` and a context, and reuses stored results. ``STEPS`` has their order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from merging.base.errors import Cancelled, HubError, TaskError
from merging.base.files.disk import free_bytes
from merging.base.files.records import write_json
from merging.base.text import did_you_mean, first_few, printable, size_text
from merging.models.hub.fetch import fetch
from merging.models.hub.fetch_progress import FetchProgress
from merging.models.hub.repository import Repository
from merging.models.hub.repository_facts import fetch_facts
from merging.sharing.published.catalogue_fields import read_mapping
from merging.sharing.published.catalogue_parts import read_shared_parts
from merging.sharing.published.choice import Choice, find_models, list_needed_parts, narrow_experiment
from merging.sharing.published.comparison_table import PublishedTable, build_table
from merging.sharing.published.experiment_catalogue import Experiment
from merging.sharing.published.experiment_run import ExperimentFolders, ExperimentRun
from merging.sharing.published.fetch_plan import FetchPlan, make_plan
from merging.sharing.published.rates import FETCHING_RATE, read_rates, store_rate
from merging.sharing.published.repository_lock import Lock, find_repository, list_files, read_lock
from merging.tasks.context import QUIET, Context

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.sharing.published.measured_rows import MeasuredTable

CHOICE_FILE, DESCRIPTION_FILE = "choice.json", "description.json"
PINNING_TITLE, FETCHING_TITLE, MAKING_TITLE = "Asking for commits and licenses", "Fetching", "Making the benchmark"
NO_REVISIONS: Mapping[str, str] = MappingProxyType({})
REFERENCES_TITLE, ROWS_TITLE = "Evaluating the pretrained model and the experts", "Merging and evaluating the rows"


# The plan and the choice


def make_choice_plan(
    experiment: Experiment, choice: Choice, folders: ExperimentFolders, device: str, lock: Lock | None = None
) -> FetchPlan:
    """The plan of a choice with the pinned commits, or those of ``lock``, and the measured rates of this machine."""
    lock = folders.read_lock() if lock is None else lock
    return make_plan(
        experiment,
        choice,
        lock,
        separate_cache=folders.separate_cache,
        rates=read_rates(folders.rates_folder),
        device=device,
    )


def store_choice(folders: ExperimentFolders, choice: Choice) -> None:
    """Store the choice, for the table."""
    folders.folder.mkdir(parents=True, exist_ok=True)
    write_json(folders.folder / CHOICE_FILE, choice.to_plain())


def read_choice(folders: ExperimentFolders) -> Choice:
    """The choice of the experiment's last run. Raises TaskError if it has not run."""
    path = folders.folder / CHOICE_FILE
    if not path.is_file():
        raise TaskError(f"{folders.key} has not run in this store. `published run {folders.key}` computes it.")
    return Choice.from_plain(read_mapping(path), CHOICE_FILE)


# The steps


def pin_repositories(
    experiment: Experiment,
    choice: Choice,
    folders: ExperimentFolders,
    *,
    latest: bool = False,
    revisions: Mapping[str, str] = NO_REVISIONS,
    context: Context = QUIET,
) -> Lock:
    """The lock with a commit for every repository of a choice; the Hub is asked for missing commits.

    With ``latest`` the newest commits of all repositories are used, with ``revisions`` those of the named ones. In both
    cases the lock is not stored: the caller passes it to ``ExperimentFolders.store_lock`` after the user agreed. A
    commit without the needed files is not pinned.

    Raises:
        HubError: no connection, no access, or another commit or file than the catalogue or the lock has.
        TaskError: ``revisions`` names a repository that the choice does not need.
    """
    lock, listed_repositories, needed = (
        folders.read_lock(),
        read_shared_parts().repositories,
        list_needed_parts(experiment, choice),
    )
    names = list(dict.fromkeys(use.repository for use in needed))
    if unknown := [name for name in revisions if name not in names]:
        hint = did_you_mean(unknown[0], names)
        raise TaskError(f"{experiment.key} does not use {printable(unknown[0])}.{hint} It uses {first_few(names, 8)}.")
    stores_at_once = not latest and not revisions
    if stores_at_once and folders.separate_lock_folder is not None and read_lock(folders.separate_lock_folder) != lock:
        folders.store_lock(lock)  # the separate cache may go to a machine without the earlier lock
    for name in names:
        is_requested = latest or name in revisions
        if name in lock.repositories and not is_requested:
            continue
        repository = find_repository(listed_repositories[name], lock)
        facts = fetch_facts(
            Repository(repository.kind, repository.name, revisions.get(name)) if is_requested else repository, context
        )
        lock = lock.with_facts(listed_repositories[name], facts, latest=is_requested)
        for use in (use for use in needed if use.repository == name):
            list_files(listed_repositories[name], use.part, lock)
        if stores_at_once:
            folders.store_lock(lock)
    return lock


def fetch_parts(run: ExperimentRun, context: Context = QUIET) -> None:
    """Fetch the files of a choice that are not in the cache; a second call needs no network.

    Raises:
        HubError: a download failed; the message has a remedy.
    """
    folders, listed_repositories = run.folders, read_shared_parts().repositories
    lock = folders.read_lock()
    needed = sorted(list_needed_parts(run.experiment, run.choice), key=lambda use: not _is_gated(use.repository, lock))
    fetch_plan = make_choice_plan(run.experiment, run.choice, folders, "cpu")
    _require_space(fetch_plan)
    progress, started = FetchProgress(fetch_plan.bytes_to_fetch, context), time.monotonic()
    try:
        for use in needed:
            listed = listed_repositories[use.repository]
            fetch(
                find_repository(listed, lock),
                list_files(listed, use.part, lock),
                separate_cache=folders.separate_cache,
                bytes_per_second=run.bytes_per_second,
                context=progress.next_context(),
            )
    except Cancelled:
        final_plan = make_choice_plan(run.experiment, run.choice, folders, "cpu")
        local, total = final_plan.local_bytes, final_plan.local_bytes + final_plan.bytes_to_fetch
        raise Cancelled(
            f"Cancelled; {size_text(local)} of {size_text(total)} are kept, and the next download goes on from there."
        ) from None
    if run.bytes_per_second is None:
        store_rate(folders.rates_folder, FETCHING_RATE, fetch_plan.bytes_to_fetch, time.monotonic() - started)


def _is_gated(name: str, lock: Lock) -> bool:
    """Whether a user must accept terms. Such files are fetched first, so that a refusal comes early."""
    return name in lock.repositories and lock.repositories[name].gated


def _require_space(fetch_plan: FetchPlan) -> None:
    """Raise HubError before fetching if the files do not fit on the disk."""
    free = free_bytes(fetch_plan.cache_folder)
    if fetch_plan.bytes_to_fetch > free:
        raise HubError(
            f"{fetch_plan.experiment} needs {size_text(fetch_plan.bytes_to_fetch)} more, and {size_text(free)} are "
            f"free in {fetch_plan.cache_folder}: free some space, or set HF_HOME to a folder on a disk that has more.",
            "disk",
        )


def make_benchmark(run: ExperimentRun, context: Context = QUIET) -> Benchmark:
    """The benchmark of a choice, made unless it exists already; images and models are read from the cache.

    Raises:
        TaskError, CheckpointError: a fetched file cannot be used; the message names it and the reason.
    """
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.images.benchmarks.build.benchmark_description import Description
    from merging.images.benchmarks.build.benchmark_folder import write_benchmark
    from merging.sharing.published.published_benchmark import describe_benchmark

    folders = run.folders
    fields = describe_benchmark(run.experiment, run.choice, folders.read_lock(), folders.separate_cache)
    description_path, folder = folders.folder / DESCRIPTION_FILE, folders.benchmark_folder
    if description_path.is_file() and folder.is_dir() and dict(read_mapping(description_path)) == fields:
        return Benchmark.load(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    description = Description.from_plain(fields, folders.folder)
    benchmark = write_benchmark(description, folder, force=True, context=context.on_device(run.device))
    write_json(description_path, fields)
    return benchmark


def score_references(run: ExperimentRun, context: Context = QUIET) -> MeasuredTable:
    """Score the pretrained model, and each expert on its own task, unless they have scores."""
    from merging.sharing.published.reference_scores import measure_references

    return measure_references(run, make_benchmark(run, context.without_progress()), context)


def score_rows(run: ExperimentRun, context: Context = QUIET) -> MeasuredTable:
    """Merge and score every row of the choice; stored runs are not computed again."""
    from merging.sharing.published.row_runs import measure_rows

    return measure_rows(run, make_benchmark(run, context.without_progress()), context)


def _store_pins(run: ExperimentRun, context: Context) -> None:
    pin_repositories(run.experiment, run.choice, run.folders, context=context)


@dataclass(frozen=True, slots=True)
class ExperimentStep:
    """A step: its title, its approximate share of the time, and its function."""

    title: str
    share: float
    run: Callable[[ExperimentRun, Context], object]


STEPS = (
    ExperimentStep(PINNING_TITLE, 0.01, _store_pins),
    ExperimentStep(FETCHING_TITLE, 0.25, fetch_parts),
    ExperimentStep(MAKING_TITLE, 0.05, make_benchmark),
    ExperimentStep(REFERENCES_TITLE, 0.15, score_references),
    ExperimentStep(ROWS_TITLE, 0.54, score_rows),
)


def run_steps(run: ExperimentRun, steps: Sequence[ExperimentStep], context: Context = QUIET) -> None:
    """Run steps one after another; each reuses stored results."""
    shares = context.split({step.title: step.share for step in steps})
    for step in steps:
        step.run(run, shares[step.title])


# The table


def make_published_table(experiment: Experiment, choice: Choice, measured: MeasuredTable) -> PublishedTable:
    """The table of measured rows, with the facts about their files at that time."""
    files = measured.files
    pinned = f"The files were pinned at the first fetch ({', '.join(files.pinned)})." if files.pinned else ""
    models, rows = find_models(experiment, choice), measured.sort_rows(experiment, choice)
    notes = (*measured.describe_problems(experiment, choice), pinned, models.note)
    return build_table(experiment, choice, models, rows, device=measured.device, latest=files.latest, notes=notes)


def list_measured_runs(folders: ExperimentFolders) -> list[str]:
    """The ids of the runs whose scores are the last measured rows, each once. Raises TaskError if there are none."""
    from merging.sharing.published.experiment_catalogue import read_experiment
    from merging.sharing.published.measured_rows import read_measured, read_measured_choice

    if (choice := read_measured_choice(folders.folder)) is None:
        raise TaskError(f"{folders.key} has no measured row yet. `published run {folders.key}` computes them.")
    measured = read_measured(folders.folder, narrow_experiment(read_experiment(folders.key), choice), choice)
    return list(dict.fromkeys(filter(None, (row.run for row in measured.rows.values()))))


def read_published_table(experiment: Experiment, folders: ExperimentFolders) -> PublishedTable:
    """The table of the last measured rows, with the choice of that run. Raises TaskError if there are none.

    If the last run was stopped before its first row, the table is that of the earlier run.
    """
    from merging.sharing.published.measured_rows import read_measured, read_measured_choice

    read_choice(folders)
    if (choice := read_measured_choice(folders.folder)) is None:
        raise TaskError(f"{folders.key} has no measured row yet. `published run {folders.key}` computes them.")
    experiment = narrow_experiment(experiment, choice)
    return make_published_table(experiment, choice, read_measured(folders.folder, experiment, choice))
