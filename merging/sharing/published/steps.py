"""The steps of an experiment, each a function that goes on from what is there: pin, fetch, make, score, score rows.

A step takes an ``ExperimentRun`` and a context. ``STEPS`` lists them in their order.
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
from merging.models.hub.facts import facts
from merging.models.hub.fetch import fetch
from merging.models.hub.repository import Repository
from merging.models.hub.transfer import Transfer
from merging.sharing.published.catalogue import Experiment
from merging.sharing.published.choice import Choice, models, narrowed, needed_parts
from merging.sharing.published.experiment_run import ExperimentRun, Place
from merging.sharing.published.fields import read_mapping
from merging.sharing.published.lock import Lock, files_of, read_lock, repository_of
from merging.sharing.published.parts import parts
from merging.sharing.published.plan import FetchPlan, make_plan
from merging.sharing.published.rates import FETCHED, keep_rate, rates
from merging.sharing.published.table import PublishedTable, build
from merging.tasks.context import QUIET, Context

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.sharing.published.measured_rows import MeasuredTable

CHOICE, DESCRIPTION = "choice.json", "description.json"
PINNING, FETCHING, MAKING = "Asking for commits and licenses", "Fetching", "Making the benchmark"
NO_REVISIONS: Mapping[str, str] = MappingProxyType({})
REFERENCES, ROWS = "Evaluating the pretrained model and the experts", "Merging and evaluating the rows"


# What it costs, and what was chosen


def plan(chosen: Experiment, choice: Choice, place: Place, device: str, lock: Lock | None = None) -> FetchPlan:
    """The plan of a choice, with what is pinned, or would be by ``lock``, and how fast this machine was before."""
    lock = place.lock() if lock is None else lock
    return make_plan(chosen, choice, lock, into=place.into, rates=rates(place.rates), device=device)


def keep_choice(place: Place, choice: Choice) -> None:
    """Keep what was chosen, for the table."""
    place.folder.mkdir(parents=True, exist_ok=True)
    write_json(place.folder / CHOICE, choice.plain())


def kept_choice(place: Place) -> Choice:
    """What was chosen when the experiment ran; raises TaskError if it has not run."""
    path = place.folder / CHOICE
    if not path.is_file():
        raise TaskError(f"{place.key} has not run here. `published run {place.key}` computes it.")
    return Choice.read(read_mapping(path), CHOICE)


# The steps


def pin(
    chosen: Experiment,
    choice: Choice,
    place: Place,
    *,
    latest: bool = False,
    revisions: Mapping[str, str] = NO_REVISIONS,
    context: Context = QUIET,
) -> Lock:
    """The lock with a commit for every repository of a choice; the Hub is asked for those that have none.

    With ``latest`` it is asked for all, and for those of ``revisions`` at these. Then nothing is kept:
    ``Place.keep_lock`` does so once that is agreed to. A commit without the files that are needed is not pinned.

    Raises:
        HubError: no connection, no access, or another repository than the catalogue or the lock says.
        TaskError: a revision is of a repository that the choice does not need.
    """
    lock, known, needed = place.lock(), parts().repositories, needed_parts(chosen, choice)
    names = list(dict.fromkeys(use.repository for use in needed))
    if unknown := [name for name in revisions if name not in names]:
        near = did_you_mean(unknown[0], names)
        raise TaskError(f"{chosen.key} needs no {printable(unknown[0])}.{near} It needs {first_few(names, 8)}.")
    kept_at_once = not latest and not revisions
    if kept_at_once and place.carried is not None and read_lock(place.carried) != lock:
        place.keep_lock(lock)  # what was pinned before is not known where the folder is carried to
    for name in names:
        asked = latest or name in revisions
        if name in lock.repositories and not asked:
            continue
        at = repository_of(known[name], lock)
        stated = facts(Repository(at.kind, at.name, revisions.get(name)) if asked else at, context)
        lock = lock.with_facts(known[name], stated, latest=asked)
        for use in (use for use in needed if use.repository == name):
            files_of(known[name], use.part, lock)
        if kept_at_once:
            place.keep_lock(lock)
    return lock


def fetch_parts(run: ExperimentRun, context: Context = QUIET) -> None:
    """Fetch what a choice needs and is not here; a second call asks for nothing.

    Raises:
        HubError: in one sentence what is wrong and what to do.
    """
    place, known = run.place, parts().repositories
    lock = place.lock()
    needed = sorted(needed_parts(run.chosen, run.choice), key=lambda use: not _is_gated(use.repository, lock))
    planned = plan(run.chosen, run.choice, place, "cpu")
    _require_room(planned)
    transfer, started = Transfer(planned.to_fetch, context), time.monotonic()
    try:
        for use in needed:
            listed = known[use.repository]
            fetch(
                repository_of(listed, lock),
                files_of(listed, use.part, lock),
                into=place.into,
                limit_rate=run.limit_rate,
                context=transfer.part(),
            )
    except Cancelled:
        after = plan(run.chosen, run.choice, place, "cpu")
        kept = f"{size_text(after.here)} of {size_text(after.here + after.to_fetch)} are kept"
        raise Cancelled(f"Cancelled; {kept}, and the next download goes on from there.") from None
    if run.limit_rate is None:
        keep_rate(place.rates, FETCHED, planned.to_fetch, time.monotonic() - started)


def _is_gated(name: str, lock: Lock) -> bool:
    """Whether terms have to be accepted: such files come first, so that a refusal costs no time."""
    return name in lock.repositories and lock.repositories[name].gated


def _require_room(planned: FetchPlan) -> None:
    """Raise HubError if not everything fits on the disk; nothing is fetched then."""
    free = free_bytes(planned.place)
    if planned.to_fetch > free:
        raise HubError(
            f"{planned.experiment} needs {size_text(planned.to_fetch)} more, and {size_text(free)} are free in "
            f"{planned.place}: free some space, or set HF_HOME to a folder on a disk that has more.",
            "disk",
        )


def make_benchmark(run: ExperimentRun, context: Context = QUIET) -> Benchmark:
    """The benchmark of a choice, made unless it is there already; images and models stay where they are.

    Raises:
        TaskError, CheckpointError: what was fetched cannot be used; says which and why.
    """
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.images.benchmarks.build.description import Description
    from merging.images.benchmarks.build.write import make
    from merging.sharing.published.benchmark import describe

    place = run.place
    described = describe(run.chosen, run.choice, place.lock(), place.into)
    record, folder = place.folder / DESCRIPTION, place.benchmark
    if record.is_file() and folder.is_dir() and dict(read_mapping(record)) == described:
        return Benchmark.load(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    description = Description.of(described, place.folder)
    made = make(description, folder, force=True, context=context.on(run.device))
    write_json(record, described)
    return made


def score_references(run: ExperimentRun, context: Context = QUIET) -> MeasuredTable:
    """Score the pretrained model, and each expert on its own task; what was measured before is not repeated."""
    from merging.sharing.published.reference_scores import measure_references

    return measure_references(run, make_benchmark(run, context.silent()), context)


def score_rows(run: ExperimentRun, context: Context = QUIET) -> MeasuredTable:
    """Merge and score every row of the choice; stored runs are not computed again."""
    from merging.sharing.published.row_runs import measure_rows

    return measure_rows(run, make_benchmark(run, context.silent()), context)


def _pin(run: ExperimentRun, context: Context) -> None:
    pin(run.chosen, run.choice, run.place, context=context)


@dataclass(frozen=True, slots=True)
class ExperimentStep:
    """A step: its title, its share of the time, about, and its function."""

    title: str
    share: float
    call: Callable[[ExperimentRun, Context], object]


STEPS = (
    ExperimentStep(PINNING, 0.01, _pin),
    ExperimentStep(FETCHING, 0.25, fetch_parts),
    ExperimentStep(MAKING, 0.05, make_benchmark),
    ExperimentStep(REFERENCES, 0.15, score_references),
    ExperimentStep(ROWS, 0.54, score_rows),
)


def run_steps(run: ExperimentRun, steps: Sequence[ExperimentStep], context: Context = QUIET) -> None:
    """Run steps one after another, each of which goes on from what is there."""
    shares = context.parts({step.title: step.share for step in steps})
    for step in steps:
        step.call(run, shares[step.title])


# The table


def make_table(chosen: Experiment, choice: Choice, measured: MeasuredTable) -> PublishedTable:
    """The table of what was measured, with what was known of the files then."""
    files = measured.files
    pinned = f"Files as pinned at the first fetch ({', '.join(files.pinned)})." if files.pinned else ""
    used, rows = models(chosen, choice), measured.in_order(chosen, choice)
    notes = (*measured.sentences(chosen, choice), pinned, used.note)
    return build(chosen, choice, used, rows, device=measured.device, latest=files.latest, notes=notes)


def kept_table(chosen: Experiment, place: Place) -> PublishedTable:
    """The table of what was computed here last, as what it was computed; raises TaskError if nothing was.

    A run that was stopped before its first row leaves the table before it, with the images and experts of that.
    """
    from merging.sharing.published.measured_rows import measured_choice, read_measured

    kept_choice(place)
    if (choice := measured_choice(place.folder)) is None:
        raise TaskError(f"{place.key} has no measured row yet. `published run {place.key}` computes them.")
    chosen = narrowed(chosen, choice)
    return make_table(chosen, choice, read_measured(place.folder, chosen, choice))
