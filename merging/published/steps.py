"""The steps of an experiment, each a function that goes on from what is there: pin, fetch, make, score, table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from merging import settings
from merging.benchmarks import folders
from merging.errors import StoreError, TaskError
from merging.files.records import write_json
from merging.hub.facts import facts
from merging.hub.fetch import fetch
from merging.hub.repository import Repository
from merging.hub.transfer import Transfer
from merging.progress import Cancel, ProgressCallback
from merging.published.catalogue import Experiment
from merging.published.choice import Choice, models, needed_parts
from merging.published.fields import Fields, read_mapping
from merging.published.lock import Lock, files_of, read_lock, repository_of, write_lock
from merging.published.parts import parts
from merging.published.plan import FetchPlan, make_plan
from merging.published.rows import INDIVIDUAL, PRETRAINED, RowVariant, variants
from merging.published.table import MeasuredRow, PublishedTable, build
from merging.published.verdicts import TaskScore

if TYPE_CHECKING:
    from merging.benchmarks.benchmark import Benchmark
    from merging.runs.run import Run
    from merging.runs.store import Store

PUBLISHED, CHOICE, MEASURED, RATE_FILE = "published", "choice.json", "measured.json", "rate.json"
REPORTING = "reporting"
MEASURABLE = 5.0  # seconds that a download takes at least before its rate says something


@dataclass(frozen=True)
class Place:
    """Where an experiment's own files are: its lock, its choice and its benchmark. ``into`` is a cache of its own."""

    root: Path
    key: str
    into: Path | None = None

    @property
    def folder(self) -> Path:
        """The experiment's folder."""
        return self.root / PUBLISHED / self.key

    @property
    def benchmark(self) -> Path:
        """The folder of its benchmark, which lies beside those that the user has made."""
        return folders.place_of(f"{PUBLISHED}-{self.key}", self.root)

    @property
    def rate_file(self) -> Path:
        """The file that keeps the rate of the last download, for all experiments."""
        return self.root / PUBLISHED / RATE_FILE


def place_of(key: str, store: Path | None = None, into: Path | None = None) -> Place:
    """Where an experiment's files are, in a store or in the user's own."""
    return Place(store or settings.store_root(), key, into)


def plan(chosen: Experiment, choice: Choice, place: Place, device: str) -> FetchPlan:
    """The plan of a choice, with what is pinned and the rate of the last download."""
    return make_plan(chosen, choice, read_lock(place.folder), into=place.into, rate=_last_rate(place), device=device)


def pin(
    chosen: Experiment, choice: Choice, place: Place, *, latest: bool = False, cancel: Cancel | None = None
) -> Lock:
    """The lock with a commit for every repository of a choice; the Hub is asked for those that have none.

    Raises:
        HubError: no connection, no access, or another repository than the catalogue or the lock says.
    """
    lock, known = read_lock(place.folder), parts().repositories
    for name in dict.fromkeys(use.repository for use in needed_parts(chosen, choice)):
        if name in lock.repositories and not latest:
            continue
        at = repository_of(known[name], lock)
        stated = facts(Repository(at.kind, at.name) if latest else at, cancel)
        lock = lock.with_facts(known[name], stated, latest=latest)
        write_lock(place.folder, lock)
    return lock


def fetch_parts(
    chosen: Experiment,
    choice: Choice,
    place: Place,
    *,
    limit_rate: float | None = None,
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
) -> None:
    """Fetch what a choice needs and is not here; a second call asks for nothing.

    Raises:
        HubError: in one sentence what is wrong and what to do.
    """
    lock, known = read_lock(place.folder), parts().repositories
    missing = plan(chosen, choice, place, "cpu").to_fetch
    transfer, started = Transfer(missing, progress), time.monotonic()
    for use in needed_parts(chosen, choice):
        listed = known[use.repository]
        fetch(
            repository_of(listed, lock),
            files_of(listed, use.part, lock),
            into=place.into,
            progress=transfer.part(),
            cancel=cancel,
            limit_rate=limit_rate,
        )
    seconds = time.monotonic() - started
    if seconds > MEASURABLE and missing:
        write_json(place.rate_file, {"rate": missing / seconds})


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


def make_benchmark(
    chosen: Experiment,
    choice: Choice,
    place: Place,
    *,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
) -> Benchmark:
    """The benchmark of a choice, made unless it is there already."""
    from merging.benchmarks.benchmark import Benchmark
    from merging.benchmarks.build.description import Description
    from merging.benchmarks.build.write import make
    from merging.published.benchmark import describe

    described = describe(chosen, choice, read_lock(place.folder), place.into)
    record = place.folder / "description.json"
    if record.is_file() and place.benchmark.is_dir() and dict(read_mapping(record)) == described:
        return Benchmark.load(place.benchmark)
    made = make(
        Description.of(described, place.folder),
        place.benchmark,
        force=True,
        device=device,
        progress=progress,
        cancel=cancel,
    )
    write_json(record, described)
    return made


def score_references(
    benchmark: Benchmark,
    store: Store,
    *,
    device: str = "auto",
    compute: bool = True,
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
) -> list[MeasuredRow]:
    """The rows of the pretrained model, and of each expert on its own task; stored evaluations are not repeated."""
    from merging.runs.reference_models import references

    runs = references(store, benchmark, device=device, progress=progress, cancel=cancel, compute=compute)
    rows = (
        [MeasuredRow(PRETRAINED, task_scores(runs[PRETRAINED]), run=runs[PRETRAINED].id)] if PRETRAINED in runs else []
    )
    own = {task: scores[task] for task in benchmark.experts if task in runs for scores in [task_scores(runs[task])]}
    return rows + ([MeasuredRow(INDIVIDUAL, own)] if len(own) == len(benchmark.experts) else [])


def score_row(
    variant: RowVariant,
    choice: Choice,
    benchmark: Benchmark,
    store: Store,
    *,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> MeasuredRow:
    """A row's run, computed unless it is stored, and its scores."""
    from merging.runs.execute import execute

    recipe = variant.recipe(benchmark.pretrained, benchmark.experts, choice.exemplars, choice.seed)
    run = execute(
        recipe, store, benchmark=benchmark, device=device, progress=progress, cancel=cancel, keep_model=False, warn=warn
    )
    return MeasuredRow(variant, task_scores(run), run=run.id)


def task_scores(run: Run) -> dict[str, TaskScore]:
    """A run's accuracies on the reporting images, by task; raises StoreError if it has none."""
    if run.scores is None:
        raise StoreError(f"Run {run.id} has no scores.")
    rows = run.scores[run.scores["split"] == REPORTING].to_dict("records")
    return {str(row["task"]): TaskScore(str(row["task"]), float(row["accuracy"]), int(row["n"])) for row in rows}


def make_table(
    chosen: Experiment, choice: Choice, place: Place, measured: Sequence[MeasuredRow], device: str
) -> PublishedTable:
    """The table of what was measured, with what the lock says of the files."""
    lock = read_lock(place.folder)
    dates = sorted({one.read for one in lock.repositories.values()})
    pinned = f"Files as pinned at the first fetch ({', '.join(dates)})." if dates else ""
    needed = {use.repository for use in needed_parts(chosen, choice)}
    latest = [name for name in lock.latest if name in needed]
    used = models(chosen, choice)
    return build(chosen, choice, used, measured, device=device, latest=latest, notes=(pinned, used.note))


def keep_measured(place: Place, measured: Sequence[MeasuredRow], device: str) -> None:
    """Keep what was measured so far, from which the table can be printed again without the models."""
    rows = {
        _key(one): {
            "run": one.run,
            "scores": {task: {"accuracy": score.accuracy, "n": score.n} for task, score in one.scores.items()},
        }
        for one in measured
    }
    write_json(place.folder / MEASURED, {"device": device, "rows": rows})


def kept_measured(chosen: Experiment, choice: Choice, place: Place) -> tuple[list[MeasuredRow], str]:
    """What was measured, in the order of the table, and the device; raises TaskError if nothing was."""
    path = place.folder / MEASURED
    if not path.is_file():
        raise TaskError(f"{place.key} has no measured row yet. `published run {place.key}` computes them.")
    outer = Fields(read_mapping(path), MEASURED)
    device, rows = outer.text("device"), outer.mapping("rows")
    known: dict[str, str | RowVariant] = {PRETRAINED: PRETRAINED, INDIVIDUAL: INDIVIDUAL}
    known |= {variant.key: variant for variant in variants(chosen, choice)}
    measured = []
    for key, row in known.items():
        if key in rows:
            entry = Fields(rows[key], f"{MEASURED}, {key}")
            scores = {
                task: TaskScore(task, each["accuracy"], each["n"]) for task, each in entry.mapping("scores").items()
            }
            measured.append(MeasuredRow(row, scores, run=entry.text("run", "")))
    return measured, device


def _key(one: MeasuredRow) -> str:
    return one.row if isinstance(one.row, str) else one.row.key


def _last_rate(place: Place) -> float | None:
    """Bytes a second of the last download; None if nothing was fetched yet."""
    if not place.rate_file.is_file():
        return None
    rate = read_mapping(place.rate_file).get("rate")
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None
