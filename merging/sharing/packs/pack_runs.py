"""Packing: which stored results belong to chosen runs, and their files without weights, paths and names."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from merging.base import settings
from merging.base.errors import MergingError, StoreError
from merging.base.files import atomic
from merging.base.files.npz import ArrayInfo, write_npz
from merging.base.files.tables import PACKED_SUFFIX
from merging.base.text import first_few
from merging.images.benchmarks import benchmark_folders
from merging.images.benchmarks.benchmark import PACKED_DIGEST, SPLITS, Benchmark
from merging.recipes.recipe import Recipe
from merging.sharing.packs.pack_file import MEMBER_NAME, write_pack_file
from merging.sharing.packs.private_text import PrivateText, without_folders, without_paths
from merging.study.analysis.measurement_registry import MEASUREMENTS
from merging.study.analysis.measurement_store import entry_name, measurement_results
from merging.study.analysis.measurement_subject import SubjectKind
from merging.study.imported_scores import FOLDER as IMPORTED_FOLDER
from merging.study.imported_scores import imported_scores
from merging.study.partners.packed_subsets import name_subsets, packed_results
from merging.study.runs.edit_pairs import find_same_saliency
from merging.study.runs.run import FACTS, RECIPE, Run, split_run_ids
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_plans, sweep_storage
from merging.study.sweeps.points import point_results
from merging.study.sweeps.sweep import MAX_POINTS, SWEEP_KINDS, NamedPoint, Sweep
from merging.study.sweeps.sweep_storage import add_digest
from merging.tasks.pack_folders import BENCHMARKS, SUFFIX

TASK_FIELDS = (
    "key", "title", "group", "class_names", "descriptions", "source", "license", "counts", "splits",
)  # fmt: skip


@dataclass(frozen=True)
class WrittenPack:
    """A pack that was written: its file, digest and bytes, how many results of each kind are in it, and warnings."""

    path: Path
    digest: str
    size: int
    counts: Mapping[str, int]
    warnings: tuple[str, ...]


@dataclass
class _Packing:
    """The members of a pack that is being collected."""

    store: Store
    private: PrivateText
    members: dict[str, bytes] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add_result(self, folder: Path, kind_folder: str, facts_file: str, subject: str) -> None:
        """Add the files of a stored result, without weights; its facts lose all paths."""
        prefix = f"{kind_folder}/{folder.name}"
        if f"{prefix}/{atomic.MANIFEST}" in self.members:
            return
        manifest, written = atomic.read_manifest(folder), dict[str, bytes]()
        for name in manifest:
            if MEMBER_NAME.fullmatch(f"{prefix}/{name}"):
                content = atomic.verify_file(folder, manifest, name).read_bytes()
                if name == facts_file:
                    content = _json_bytes(without_paths(json.loads(content)))
                elif name == RECIPE:
                    content = without_folders(Recipe.from_yaml(content.decode())).to_yaml().encode()
                self._check_text(name, content, subject)
                written[name] = content
        entries = {
            name: manifest[name] if manifest[name].get("sha256") == _sha256(content) or "blake3" in manifest[name]
            else {"sha256": _sha256(content), "size": len(content)}
            for name, content in written.items()
        }  # fmt: skip
        written[atomic.MANIFEST] = _json_bytes({"files": entries})
        self.members |= {f"{prefix}/{name}": content for name, content in written.items()}

    def add_file(self, name: str, content: bytes, subject: str) -> None:
        """Add a file that is not of a result."""
        self._check_text(name, content, subject)
        self.members[name] = content

    def _check_text(self, name: str, content: bytes, subject: str) -> None:
        if ".npy" in name or name.endswith(".npz"):
            return
        text = (gzip.decompress(content) if name.endswith(PACKED_SUFFIX) else content).decode("utf-8", "replace")
        self.private.check(text, f"{subject}, in {name.rpartition('/')[2]},")


def pack_runs(
    run_ids: Sequence[str],
    store: Store,
    benchmarks: Iterable[Benchmark],
    path: Path,
    *,
    sweep_ids: Collection[str] = (),
    allowed: Collection[str] = (),
) -> WrittenPack:
    """Write a pack of runs with what was stored of them: scores, tables, measurements, references, sweeps.

    Own sweeps of the same models belong to it, and those of ``sweep_ids``. ``benchmarks`` are searched for those that
    the runs were scored on. ``allowed`` are names of this machine that are ordinary words.

    Raises:
        StoreError: a run is missing or damaged, its benchmark is not here, a text names this machine or its user, or
            the file cannot be written.
    """
    if path.suffix != SUFFIX:
        raise StoreError(f"A pack's name ends in {SUFFIX}; got {path.name}.")
    stored, runs = store.list_runs(), [store.get_run(run_id) for run_id in dict.fromkeys(run_ids)]
    if not runs:
        raise StoreError("A pack has at least one run; name some.")
    found = find_benchmarks(runs, benchmarks)
    packing = _Packing(store, PrivateText(allowed, [benchmark.folder for benchmark in found]))
    all_runs = {run.id: run for run in [*runs, *_list_companions(runs, stored)]}
    plans = dict(_plan_sweeps(packing, runs, found, sweep_ids))
    for planned in plans.values():
        all_runs |= {run.id: run for run in _list_runs_of_points(planned, store, all_runs)}
    try:
        for run in all_runs.values():
            packing.add_result(run.path, "runs", FACTS, f"Run {run.id}")
        _add_measurements(packing, list(all_runs.values()), found)
        _add_sweeps(packing, plans)
        for name in (*all_runs, *{digest[:12] for run in all_runs.values() for digest in run.inputs.values()}):
            if scores := imported_scores(store.root).find_result(name):
                packing.add_result(scores.path, IMPORTED_FOLDER, scores.kind.facts_file, f"The scores of {name}")
    except atomic.DamagedError as damage:
        raise StoreError(f"A result to pack is damaged ({damage}). Compute it again, or leave its run out.") from None
    for benchmark in found:
        _add_benchmark(packing, benchmark)
    return _write(packing, runs, path)


def _write(packing: _Packing, runs: Sequence[Run], path: Path) -> WrittenPack:
    facts = {"runs": [{"id": run.id, "title": without_paths(run.title)} for run in runs]}
    packing.private.check(json.dumps(facts, ensure_ascii=False), "A title")
    with atomic.replace_file(path) as file:
        digest = write_pack_file(file, facts, packing.members)
    kinds = [name.split("/")[0] for name in packing.members if name.count("/") == 1 or name.endswith(atomic.MANIFEST)]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    if "sweeps" in counts:
        counts["sweeps"] = sum(name.startswith("sweeps/") and name.endswith(".yaml") for name in packing.members)
    return WrittenPack(path, digest, path.stat().st_size, counts, tuple(packing.warnings))


def list_benchmarks(root: Path) -> Iterator[Benchmark]:
    """The benchmarks that a store at ``root`` knows, the default one first; damaged ones are left out."""
    others = benchmark_folders.list_bundled() | benchmark_folders.list_built(root) | benchmark_folders.list_packed(root)
    for folder in dict.fromkeys([settings.benchmark_folder(), *others.values()]):
        with contextlib.suppress(MergingError):
            yield Benchmark.load(folder)


def find_benchmarks(runs: Iterable[Run], benchmarks: Iterable[Benchmark]) -> list[Benchmark]:
    """The benchmarks on which runs were scored. Raises StoreError if one is not among those given, read in order."""
    missing, found = {run.benchmark: run for run in runs if run.benchmark}, []
    for benchmark in benchmarks:
        if not missing:
            break
        with contextlib.suppress(MergingError):  # a damaged benchmark, which is not that of the runs
            if missing.pop(benchmark.digest, None) is not None:
                found.append(benchmark)
    if missing:
        names = first_few(f"{run.id} ({run.title[:60]})" for run in missing.values())
        raise StoreError(
            f"The benchmark on which {names} was scored is not here. Set MERGESCOPE_BENCHMARK to its folder."
        )
    return found


def _list_companions(runs: Sequence[Run], stored: Sequence[Run]) -> Iterator[Run]:
    """The runs that charts of ``runs`` read, too: evaluations of the merged models, and tables of saliency."""
    for one in stored:
        same_benchmark = [run for run in runs if run.benchmark == one.benchmark]
        if one.kind != "merge" and one.has_scores and same_benchmark:
            merged = {digest for run in same_benchmark for digest in run.inputs.values()}
            if one.kind != "expert" or set(one.inputs.values()) <= merged:
                yield one
    for run in runs:
        if holder := find_same_saliency(run, stored):
            yield holder


def _list_runs_of_points(planned: Sequence[NamedPoint], store: Store, known: Collection[str]) -> Iterator[Run]:
    """The runs whose scores are those of points that are not stored by themselves."""
    locations, ids = point_results(store).list_locations(), store.list_ids()
    for point in planned:
        run_id = point.stored_run_id
        if point.name not in locations and run_id in ids and run_id not in known and (run := store.find(run_id)):
            yield run


def _add_measurements(packing: _Packing, runs: Sequence[Run], benchmarks: Sequence[Benchmark]) -> None:
    """Add the measurements of the runs, of their experts, of several of them together, and of their benchmarks."""
    results, names = measurement_results(packing.store), set[str]()
    ids = {run.id for run in runs}
    for benchmark in benchmarks:
        for measurement in MEASUREMENTS.values():
            subjects = [""] if measurement.subject == SubjectKind.BENCHMARK else sorted(ids)
            if measurement.subject != SubjectKind.RUNS:
                found = (entry_name(measurement, packing.store, benchmark, subject) for subject in subjects)
                names |= {name for name in found if name}
    together = {key for key, one in MEASUREMENTS.items() if one.subject == SubjectKind.RUNS}
    for name in sorted(results.list_locations()):
        measured = results.find(name)
        if measured and (name in names or (measured.key in together and set(split_run_ids(measured.run_id)) <= ids)):
            kind = measured.result.kind
            packing.add_result(measured.path, kind.folder, kind.facts_file, f"Measurement {name}")


def _plan_sweeps(
    packing: _Packing, runs: Sequence[Run], benchmarks: Sequence[Benchmark], chosen_ids: Collection[str]
) -> Iterator[tuple[tuple[Sweep, str], list[NamedPoint]]]:
    """((sweep, digest of its benchmark), its points) of the sweeps of the runs' models, and of the chosen ones."""
    stored = sweep_storage.list_sweeps(packing.store, SWEEP_KINDS)
    if unknown := sorted(set(chosen_ids) - set(stored)):
        raise StoreError(f"There is no sweep {unknown[0][:40]!r} on this machine.")
    models = {(recipe.pretrained, frozenset(recipe.experts)) for run in runs if (recipe := run.recipe)}
    for sweep_id, sweep in stored.items():
        is_own = sweep_storage.is_own(packing.store, sweep_id) or sweep_storage.find_pack(packing.store, sweep_id)
        fits = is_own and all((one.pretrained, frozenset(one.experts)) in models for one in sweep.recipes)
        for benchmark in benchmarks if fits or sweep_id in chosen_ids else ():
            try:
                planned = sweep_plans.plan_or_read(sweep, packing.store, benchmark)
            except MergingError as error:
                packing.warnings.append(f"Sweep {sweep_id} is not in the pack: {error}")
                continue
            yield (sweep, benchmark.digest), planned


def _add_sweeps(packing: _Packing, plans: Mapping[tuple[Sweep, str], list[NamedPoint]]) -> None:
    """Add sweeps with their plans, their stored points, and the measured subsets in them."""
    points, subsets = point_results(packing.store), packed_results(packing.store)
    for (sweep, digest), planned in plans.items():
        recipes = tuple(without_folders(recipe) for recipe in sweep.recipes)
        packed = Sweep(
            recipes=recipes, axes=sweep.axes, kind=sweep.kind, split=sweep.split, images=sweep.images, seed=sweep.seed,
            title=str(without_paths(sweep.title)), through=sweep.through, most=MAX_POINTS,
        )  # fmt: skip
        packing.add_file(f"sweeps/{packed.id}.yaml", add_digest(packed.to_yaml()).encode(), f"Sweep {sweep.id}")
        plan = _json_bytes(sweep_plans.plan_facts(digest, planned))
        packing.add_file(f"sweeps/{packed.id}.json", plan, f"Sweep {sweep.id}")
        for name in dict.fromkeys(point.name for point in planned):
            if found := points.find_result(name):
                packing.add_result(found.path, found.kind.folder, found.kind.facts_file, f"Point {name}")
        if measured := subsets.find_result(name_subsets(planned)):
            packing.add_result(
                measured.path, measured.kind.folder, measured.kind.facts_file, "A measurement of subsets"
            )


def _add_benchmark(packing: _Packing, benchmark: Benchmark) -> None:
    """Add the description of a benchmark: data sets, class names and labels, without images and heads."""
    prefix, subject = f"{BENCHMARKS}/{benchmark.digest[:12]}", "The benchmark's description"
    data = json.loads((benchmark.folder / "tasks.json").read_bytes())
    tasks = []
    for task, entry in zip(benchmark.tasks, data["tasks"], strict=True):
        kept = {name: entry[name] for name in TASK_FIELDS if name in entry}
        tasks.append({**without_paths(kept), "has_expert": task.has_expert})
        labels = {}
        for split in [split for split in SPLITS if split in task.splits]:
            values = benchmark.load_labels(task.key, split).astype(np.int32)
            labels[f"{split}_labels"] = ArrayInfo(values.shape, values.dtype), [values.tobytes()]
        name = f"{prefix}/data/{task.key}.npz"
        if not MEMBER_NAME.fullmatch(name):
            raise StoreError(f"The data set {task.key[:80]!r} has a key that no file in a pack can have.")
        with tempfile.TemporaryDirectory() as folder:
            write_npz(Path(folder, "labels.npz"), labels)
            packing.members[name] = Path(folder, "labels.npz").read_bytes()
    described = {"preprocess": data["preprocess"], PACKED_DIGEST: benchmark.digest, "tasks": tasks}
    packing.add_file(f"{prefix}/tasks.json", _json_bytes(described), subject)


def _json_bytes(data: Any) -> bytes:
    return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
