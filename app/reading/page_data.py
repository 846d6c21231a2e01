"""Data for all pages: runs, tables, the benchmark. Caches are keyed by run ids and other small values.

The library of a benchmark is the precomputed runs in its folder; all other runs are in the store of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text, permissions, process_values
from app.session import benchmark_choice as session_benchmark
from app.session.job_queue import SessionQueue, session_name
from merging.base import settings
from merging.base.errors import CheckpointError, MergingError, TaskError
from merging.images.benchmarks.answers import Scored, SplitAnswers
from merging.images.benchmarks.benchmark_folders import state_of
from merging.images.benchmarks.metrics import Summary, individual, summarize
from merging.study.runs.run import PRECOMPUTED, SALIENCY, THIS_MACHINE, Run
from merging.study.runs.run_answers import read_run_answers
from merging.study.runs.run_store import Store
from merging.tasks.pack_folders import list_libraries

if TYPE_CHECKING:
    import pandas as pd

    from merging.images.benchmarks.benchmark import Benchmark
    from merging.images.benchmarks.paired_scores import Correctness
    from merging.sharing.catalog.model_set_store import ModelSet
    from merging.study.run_queue import RunQueue

SCORED_SPLIT = "reporting"  # scores on the other half, "choosing", serve only to choose values
_PAGE_RUNS_KEY = "_page_runs"  # in the session: {benchmark folder: stored runs}, until the sidebar has drawn them
MAX_CACHED = 64  # entries of a cache; an entry is a table of a few hundred kilobytes


def store() -> Store:
    """The runs of this machine, the library of this session's benchmark, and opened packs."""
    folder = session_benchmark.benchmark_folder()
    root = settings.store_root()
    return _open_store(root, list_libraries(folder, root), folder, state_of(folder))


@lru_cache(maxsize=MAX_CACHED)  # a page needs it dozens of times, and Streamlit's caches are slower
def _open_store(root: Path, libraries: tuple[Path, ...], folder: Path, state: tuple[int, ...]) -> Store:
    return Store(root, libraries, benchmark=_find_digest(folder, state))


def current_digest() -> str:
    """The digest of this session's benchmark; empty if there is none."""
    return find_digest(session_benchmark.benchmark_folder())


def find_digest(folder: Path) -> str:
    """The digest of the benchmark in a folder; empty if there is none."""
    return _find_digest(folder, state_of(folder))


@lru_cache(maxsize=MAX_CACHED)
def _find_digest(folder: Path, state: tuple[int, ...]) -> str:
    """The digest in the benchmark's library, which saves reading all images; without a library the computed one."""
    library = Store(folder / "nothing", libraries=(folder / "runs",))  # without runs of this machine
    if digests := [run.benchmark for run in library.list_runs() if run.benchmark]:
        return max(set(digests), key=digests.count)
    try:
        return _load_benchmark(folder, state).digest
    except (TaskError, CheckpointError, OSError):
        return ""


def job_queue() -> SessionQueue:
    """The queue of jobs of all sessions, as this session sees it: on its benchmark."""
    queue = SessionQueue(_run_queue(), store(), session_benchmark.benchmark_folder(), _find_benchmark)
    if not permissions.has_others() or not (name := session_name()):
        return queue
    followed = frozenset(st.session_state.get("_live", ()))  # the jobs that the page shows as live
    return replace(queue, session=name, followed=followed)


@process_values.make_once
def _run_queue() -> RunQueue:
    from merging.study.run_queue import RunQueue

    return RunQueue(Store(libraries=list_libraries(settings.benchmark_folder())))


def _find_benchmark() -> Benchmark | None:
    try:
        return benchmark()
    except TaskError:
        return None


def benchmark() -> Benchmark:
    """The benchmark that this session works on; raises TaskError if there is none."""
    folder = session_benchmark.benchmark_folder()
    return _load_benchmark(folder, state_of(folder))


def data_set_titles() -> Mapping[str, str]:
    """The title of each data set of this session's benchmark by its key; raises TaskError if there is no benchmark."""
    folder = session_benchmark.benchmark_folder()
    return _cached_titles(folder, state_of(folder))


@lru_cache(maxsize=MAX_CACHED)
def _cached_titles(folder: Path, state: tuple[int, ...]) -> Mapping[str, str]:
    return MappingProxyType(
        {task.key: page_text.correct_titles(task.title) for task in _load_benchmark(folder, state).tasks}
    )


@process_values.store_results(8)  # a page asks a hundred times
def _load_benchmark(folder: Path, state: tuple[int, ...]) -> Benchmark:
    from merging.images.benchmarks.benchmark import Benchmark

    return Benchmark.load(folder)


def stored_runs() -> list[Run]:
    """Every stored run for this session's benchmark, read from disk; a page calls it once for each drawing."""
    benchmark_digest = current_digest()
    runs = [run for run in store().list_runs() if belongs_to_benchmark(run, benchmark_digest)]
    st.session_state.setdefault(_PAGE_RUNS_KEY, {})[session_benchmark.benchmark_folder()] = runs
    return runs


def page_runs() -> list[Run]:
    """The stored runs as the page that is being drawn has read them; read from disk if it has not."""
    runs: list[Run] | None = st.session_state.get(_PAGE_RUNS_KEY, {}).get(session_benchmark.benchmark_folder())
    return stored_runs() if runs is None else runs


def take_page_runs() -> list[Run]:
    """The stored runs as the page that was just drawn read them, once; read from disk if it read none."""
    runs = page_runs()
    forget_page_runs()
    return runs


def forget_page_runs() -> None:
    """Forget the stored runs that this session, or what computes outside of a session, has read."""
    st.session_state.pop(_PAGE_RUNS_KEY, None)


def belongs_to_benchmark(run: Run, on: str = "") -> bool:
    """Whether a run may be shown with this session's benchmark, or with the one that has the digest ``on``.

    A run without scores may be shown with any benchmark.
    """
    return not run.has_scores or not (on := on or current_digest()) or run.benchmark == on


def list_merges(stored: Sequence[Run]) -> list[Run]:
    """The merges among the stored runs: the user's, newest first, then those of libraries in the presets' order.

    A run that is also in the library has its position there. Opened packs are libraries.
    """
    from merging.recipes.presets import PRESETS

    order = {preset.title: number for number, preset in enumerate(PRESETS)}
    merges = [(run, _title_in_libraries(run)) for run in stored if run.kind == "merge"]
    library = sorted((pair for pair in merges if pair[1]), key=lambda pair: (order.get(pair[1], len(order)), pair[1]))
    return [run for run, title in merges if not title] + [run for run, _ in library]


def _title_in_libraries(run: Run) -> str:
    return library_title(run) or ("" if run.provenance == THIS_MACHINE else run.title)


def library_title(run: Run) -> str:
    """The title of a run in the library, empty if it is not there; a local copy may have another title."""
    if run.provenance == PRECOMPUTED or not any((library / run.id).is_dir() for library in store().libraries):
        return run.title if run.provenance == PRECOMPUTED else ""
    return next((copy.title for copy in store().list_copies(run.id) if copy.provenance == PRECOMPUTED), "")


def clip_runs(stored: Sequence[Run]) -> list[Run]:
    """The merges of CLIP, whose models can evaluate images."""
    return [run for run in list_merges(stored) if not run.network]


def scored_runs(stored: Sequence[Run]) -> list[Run]:
    """The merges that were evaluated on the benchmark that most of them share."""
    merges = [run for run in list_merges(stored) if run.has_scores]
    digests = [run.benchmark for run in merges]
    common = max(set(digests), key=digests.count) if digests else None
    return [run for run in merges if run.benchmark == common]


def scores(run: Run) -> pd.DataFrame | None:
    """A run's accuracies on the reporting half; None if the run was not evaluated."""
    return _read_scores(_name_copy(run)).copy(deep=False) if run.has_scores else None


RunCopy = tuple[str, str, str | None, str | None]  # id, folder, time of creation and benchmark of one copy of a run


def _name_copy(run: Run) -> RunCopy:
    return run.id, str(run.path), run.created, run.benchmark


@process_values.store_results(16 * MAX_CACHED)
def _read_scores(run: RunCopy) -> pd.DataFrame:
    copies = (copy for copy in store().list_copies(run[0]) if _name_copy(copy) == run)
    table = (next(copies, None) or store().get_run(run[0])).scores
    assert table is not None  # called for runs with scores only
    return page_text.add_titles(table[table["split"] == SCORED_SPLIT].reset_index(drop=True))


def answers(run: Run) -> Mapping[str, SplitAnswers] | None:
    """{data set: a run's answers to the images of the reporting half}; None if not stored. Shared: do not change it."""
    return _cached_answers(str(run.path), run.created, current_digest(), run)


@st.cache_resource(max_entries=MAX_CACHED, show_spinner=False)
def _cached_answers(path: str, created: str | None, digest: str, _run: Run) -> Mapping[str, SplitAnswers] | None:
    return read_run_answers(_run, benchmark(), SCORED_SPLIT)


def correctness(run: Run) -> Correctness | None:
    """{data set: (n,)}: whether the run is right, see ``SplitAnswers.correctness``; None if not stored."""
    return None if (found := answers(run)) is None else {task: one.correctness for task, one in found.items()}


def scored(run: Run) -> Scored | None:
    """A run's accuracies on the reporting half with its answers; None if the run was not evaluated."""
    return None if (table := scores(run)) is None else Scored(table, correctness(run))


def run_table(run_id: str, name: str) -> pd.DataFrame:
    """One table of a run; raises StoreError if it has none of that name."""
    return _cached_table(run_id, name).copy(deep=False)  # writing to the copy does not change the cached table


@st.cache_resource(max_entries=MAX_CACHED, show_spinner=False)
def _cached_table(run_id: str, name: str) -> pd.DataFrame:
    return store().get_run(run_id).table(name)


def references(benchmark_digest: str | None, stored: Sequence[Run]) -> dict[str, Run]:
    """Stored evaluations on a benchmark to compare with: "pretrained", "multitask", and each expert by its task."""
    evaluations = {}
    for run in stored:
        if run.benchmark == benchmark_digest and run.has_scores and run.kind != "merge":
            evaluations[run.experts[0] if run.kind == "expert" else run.kind] = run
    return evaluations


def expert_scores(benchmark_digest: str | None, stored: Sequence[Run]) -> Mapping[str, Mapping[str, Any]]:
    """{task: the score of the task's expert on that task, as a row of a table of scores}."""
    evaluations = references(benchmark_digest, stored).items()
    return _read_expert_scores(tuple((task, _name_copy(run)) for task, run in evaluations if run.kind == "expert"))


@process_values.store_results(MAX_CACHED)
def _read_expert_scores(experts: tuple[tuple[str, RunCopy], ...]) -> Mapping[str, Mapping[str, Any]]:
    rows = [(task, _read_scores(run)) for task, run in experts]
    own_rows = {task: table[table["task"] == task] for task, table in rows}
    scores = {task: MappingProxyType(table.iloc[0].to_dict()) for task, table in own_rows.items() if len(table)}
    return MappingProxyType(scores)


def summary(run: Run, stored: Sequence[Run]) -> Summary | None:
    """Averages in and out of domain, None if the run was not evaluated."""
    return list_summaries([run], stored)[0]


def list_summaries(runs: Sequence[Run], stored: Sequence[Run]) -> list[Summary | None]:
    """The ``summary`` of each run."""
    experts = {
        digest: tuple((task, row["accuracy"]) for task, row in expert_scores(digest, stored).items())
        for digest in {run.benchmark for run in runs if run.has_scores}
    }
    return [
        _summarize(_name_copy(run), tuple(run.experts), experts[run.benchmark]) if run.has_scores else None
        for run in runs
    ]


@process_values.store_results(16 * MAX_CACHED)  # tables have a row for each run
def _summarize(
    run: RunCopy, in_domain: tuple[str, ...], expert_accuracy: tuple[tuple[str, float], ...] = ()
) -> Summary:
    return summarize(_read_scores(run), in_domain, dict(expert_accuracy), SCORED_SPLIT)


def list_pretrained_summaries(runs: Sequence[Run], stored: Sequence[Run]) -> list[Summary | None]:
    """The pretrained model's averages over each run's tasks in and out of domain; None where it was not evaluated."""
    found = {digest: references(digest, stored).get("pretrained") for digest in {run.benchmark for run in runs}}
    models = [(found[run.benchmark], run) for run in runs]
    return [_summarize(_name_copy(model), tuple(run.experts)) if model else None for model, run in models]


def reference_scores(
    benchmark_digest: str | None, experts: Sequence[str], stored: Sequence[Run]
) -> dict[str, pd.DataFrame]:
    """Reference rows by kind, as the charts name them: pretrained, individual, multitask."""
    stored_references = references(benchmark_digest, stored)
    kinds = {kind: stored_references[kind] for kind in ("pretrained", "multitask") if kind in stored_references}
    tables = {kind: rows for kind, run in kinds.items() if (rows := scores(run)) is not None}
    expert_tables = {
        task: rows
        for task in experts
        if task in stored_references and (rows := scores(stored_references[task])) is not None
    }
    return tables | ({"individual": individual(expert_tables)} if len(expert_tables) == len(experts) > 0 else {})


def saliency(run: Run, stored: Sequence[Run]) -> tuple[pd.DataFrame, bool]:
    """Saliency of the task vectors that a run merged, and whether the run pruned tensors by it.

    A run of the library has no such table if another run has the same one.

    Raises:
        CheckpointError: the saliency must be measured, and a checkpoint of the run is missing or has changed.
    """
    from merging.study.runs.edit_pairs import find_same_saliency

    holder = run if SALIENCY in run.tables else find_same_saliency(run, stored)
    return (run_table(holder.id, SALIENCY), True) if holder else (measured_saliency(run.id), False)


@st.cache_data(max_entries=4, show_spinner="Measuring the saliency of the task vectors …")
def measured_saliency(run_id: str) -> pd.DataFrame:
    """Saliency of the task vectors that a run merged, for runs that did not measure it themselves.

    Raises:
        CheckpointError: a checkpoint of the run is missing or has changed.
    """
    import merging
    from merging.study.analysis.measurement_subject import open_merged

    run = store().get_run(run_id)
    assert run.recipe is not None  # called for merges only
    opened = open_merged(run, run.recipe)
    names = dict(zip(map(str, range(len(opened.experts))), opened.experts, strict=True))  # without "#": all are experts
    experts = dict(zip(names, opened.experts.values(), strict=True))
    table = merging.merge(opened.pretrained, experts, "weight_averaging", edits=["lwptv"]).tables[SALIENCY]
    return table.assign(expert=table["expert"].map(names))


def models() -> tuple[dict[str, str], dict[str, str]]:
    """Pretrained models {title: reference} and experts {name: reference} of the benchmark."""
    bundled_models = benchmark_models()
    return {bundled_models.title: bundled_models.pretrained}, dict(bundled_models.experts)


def benchmark_models() -> ModelSet:
    """The benchmark's own models; raises TaskError if there is no benchmark."""
    from merging.sharing.catalog.model_set_store import ModelSet

    current = benchmark()
    title = f"Models of {current.folder.name}"
    if current.folder == settings.BUNDLED_FOLDER:
        title = "Bundled miniature CLIP"
    elif session_benchmark.is_bundled(current.folder):
        title = f"Bundled miniature CLIP, {session_benchmark.team_in_words(current.folder)}"
    return ModelSet(title, current.pretrained, tuple(current.experts.items()))


def model_sets() -> dict[str, ModelSet]:
    """The sets of models to merge: the benchmark's under the empty key, and each of the user's by its id.

    Raises:
        TaskError: there is no set.
    """
    from merging.sharing.catalog.model_set_store import list_model_sets

    own_sets = {model_set.id: model_set for model_set in list_model_sets(store().root)}
    try:
        return {"": benchmark_models(), **own_sets}
    except TaskError:
        if own_sets:
            return own_sets
        raise


def expert_accuracies(models: ModelSet, stored: Sequence[Run]) -> dict[str, float]:
    """{task: its own expert's accuracy}, for the benchmark's models only, on the benchmark of the stored experts."""
    try:
        if models.pretrained != benchmark().pretrained:
            return {}
    except TaskError:
        return {}
    digests = [run.benchmark for run in stored if run.kind == "expert"]
    return {task: row["accuracy"] for task, row in expert_scores(digests[0], stored).items()} if digests else {}


def why_not_evaluated(pretrained: str) -> str:
    """Why merges of this pretrained model cannot be evaluated on the benchmark; empty if they can."""
    folder = session_benchmark.benchmark_folder()
    return _find_misfit(pretrained, file_state(pretrained), folder, state_of(folder))


@st.cache_data(max_entries=MAX_CACHED, show_spinner=False)
def _find_misfit(pretrained: str, file: tuple[int, ...], folder: Path, state: tuple[int, ...]) -> str:
    from merging.models.formats.model_sources import ModelRef

    try:
        return _load_benchmark(folder, state).describe_misfit(ModelRef(pretrained).open("pretrained"))
    except MergingError as error:
        return str(error)


def file_state(reference: str) -> tuple[int, ...]:
    """A state that changes with a model's file; part of every cache key for contents of the file."""
    from merging.base.files import paths
    from merging.models.formats.model_sources import ModelRef

    try:
        return paths.path_fingerprint(ModelRef(reference).path)
    except CheckpointError:
        return ()


def has_unused_tensors(pretrained: str) -> bool:
    """Whether a checkpoint also has a text encoder, which no merge uses; recipes may count its tensors in quantiles."""
    return _unused_and_large(pretrained, file_state(pretrained))[0]


def is_large(pretrained: str) -> bool:
    """Whether a checkpoint is of ViT-L/14's size or above, for which papers set some parameters differently."""
    return _unused_and_large(pretrained, file_state(pretrained))[1]


@st.cache_data(max_entries=MAX_CACHED, show_spinner=False)
def _unused_and_large(pretrained: str, file: tuple[int, ...]) -> tuple[bool, bool]:
    """Whether it carries unused text tensors, and whether it is large; both False for files that cannot be opened."""
    from merging.models.architecture import Architecture
    from merging.models.formats.model_sources import ModelRef

    has_unused = False
    try:
        opened = ModelRef(pretrained).open("pretrained")
        has_unused = opened.unused_text.numel > 0
        return has_unused, Architecture.from_checkpoint(opened).width >= 1024
    except (CheckpointError, OSError):
        return has_unused, False
