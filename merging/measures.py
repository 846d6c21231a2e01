"""What is measured of a stored run, or of the benchmark, when somebody asks: tables that lie beside the runs.

An entry is named by what it depends on (the kind of measurement and its version, the run or only the checkpoints that
it merged, the benchmark), so a stale one is never found, and runs on the same experts share what does not depend on
how they were merged. Own entries are written like runs, whole or not at all; a library brings its own in ``measured``
beside its runs.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from merging import entries
from merging.errors import CheckpointError, StoreError, TaskError, did_you_mean, first_few
from merging.measured import Found, Measured, read, write
from merging.progress import Cancel, Phases, ProgressCallback
from merging.runs import PRECOMPUTED, THIS_MACHINE, Run
from merging.store import Store

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from merging.checkpoints import Checkpoint
    from merging.recipe import Recipe
    from merging.sources import Opened
    from merging.tasks import Benchmark

__all__ = ["FOLDER", "MEASURES", "Found", "Measure", "Measured", "Of", "Subject", "find", "kind", "measure"]

FOLDER = "measured"
REMAKING = "merging again"  # a phase, before those of the measurement itself
OTHERS = (
    "The files that its recipe names, or the benchmark, are not the ones of this run any more. "
    "Put those back, or run the recipe again."
)


class Of(StrEnum):
    """What a measurement is of, in the words of messages."""

    RUN = "a run"
    EXPERTS = "the experts of a run"  # however it merged them
    BENCHMARK = "the benchmark, not of a run"


@dataclass(frozen=True)
class Measure:
    """One kind of measurement.

    ``compute`` is "module:function", imported when it is asked for: some of them take seconds to load.
    """

    key: str
    title: str
    compute: str
    version: int = 1  # raised whenever results change
    of: Of = Of.RUN


class StoredTables(Protocol):
    """What one measurement reads of another."""

    @property
    def notes(self) -> Mapping[str, Any]:
        """What it says beside every picture."""
        ...

    def table(self, name: str) -> pd.DataFrame:
        """One of its tables."""
        ...

    def array(self, name: str) -> NDArray[Any]:
        """One of its arrays."""
        ...


@dataclass
class Subject:
    """What a measurement works on. Nothing is opened before it is asked for; ``run_id`` is empty for the benchmark."""

    store: Store
    benchmark: Benchmark
    run_id: str
    device: str
    progress: ProgressCallback | None
    cancel: Cancel | None
    of: Of = Of.RUN
    measurement: Callable[[str, ProgressCallback | None], StoredTables] | None = None  # gives one that this builds on

    def phases(self, weights: Mapping[str, float]) -> Phases:
        """One fraction over the phases of a measurement, and over making the merged model before those of a run."""
        return Phases({REMAKING: 1.0, **weights} if self.of == Of.RUN else weights, self.progress)

    @property
    def recipe(self) -> Recipe:
        """The recipe of the run. Raises StoreError for what is no merge."""
        if (recipe := self.store.run(self.run_id).recipe) is None:
            raise StoreError(f"Run {self.run_id} is no merge, so there is nothing to measure.")
        return recipe

    @cached_property
    def checkpoints(self) -> Opened:
        """The checkpoints that the run merged, whether or not the benchmark knows their tasks.

        Raises:
            CheckpointError: they are not where the recipe says, or others by now.
        """
        return open_merged(self.store.run(self.run_id), self.recipe)

    @cached_property
    def opened(self) -> Opened:
        """The checkpoints that the run merged, for work on the benchmark's images.

        Raises:
            CheckpointError: they are not where the recipe says, or others by now.
            TaskError: the benchmark has no images for an expert, or none that fit the model.
        """
        from merging.sources import open_inputs

        opened = open_inputs(self.recipe, benchmark=self.benchmark)
        if opened.run_id() != self.run_id:
            raise CheckpointError(OTHERS)
        if reason := self.benchmark.misfit(opened.pretrained):
            raise TaskError(f"It cannot be measured on this benchmark: {reason}")
        if strange := [name for name in opened.experts if name not in self.benchmark.experts]:
            raise TaskError(f"The benchmark has no exemplars for {first_few(strange, 3)}; name experts like its tasks.")
        return opened

    @contextmanager
    def merged(self, phases: Phases) -> Iterator[Mapping[str, Checkpoint]]:
        """{task: the merged model that answers it}; merged again if the run was stored without weights."""
        with self.models(phases) as models:
            per_task = self.store.run(self.run_id).per_task
            yield {task: models[task if per_task else "merged"] for task in self.opened.experts}

    @contextmanager
    def models(self, phases: Phases) -> Iterator[Mapping[str, Checkpoint]]:
        """{"merged": the merged model}, or one for each expert; merged again if the run was stored without weights.

        Of an evaluation of a model that was not merged it is that model.
        """
        from merging.checkpoints import open_checkpoint
        from merging.pipeline import execute

        run = self.store.run(self.run_id)
        if run.kind != "merge":
            yield {"merged": self._reference(run)}
            return
        folder = None if run.has_model else entries.make_temporary(own_folder(self.store))
        try:
            if folder is not None:
                run = execute(
                    self.recipe,
                    Store(folder, libraries=()),
                    benchmark=self.benchmark,
                    device=self.device,
                    progress=phases.callback(REMAKING),
                    cancel=self.cancel,
                    evaluate=False,
                )
            if run.id != self.run_id:
                raise CheckpointError(OTHERS)
            yield {name: open_checkpoint(path, name) for name, path in run.model_paths.items()}
        finally:
            if folder is not None:
                entries.drop(folder)

    def _reference(self, run: Run) -> Checkpoint:
        """The checkpoint of the benchmark that a stored evaluation is of."""
        from merging.checkpoints import open_checkpoint
        from merging.known import DIGESTS
        from merging.tasks import MULTITASK, PRETRAINED

        known = {PRETRAINED: self.benchmark.pretrained, MULTITASK: self.benchmark.multitask}
        reference = known.get(run.kind) or self.benchmark.experts.get(run.experts[0])
        if reference is not None:
            checkpoint = open_checkpoint(reference, run.title)
            if DIGESTS.digest(checkpoint) in run.inputs.values():
                return checkpoint
        raise CheckpointError(
            f"The checkpoint of “{run.title}” is not in the benchmark any more, or is another one by now."
        )


def open_merged(run: Run, recipe: Recipe) -> Opened:
    """The checkpoints that a run merged; raises CheckpointError if they are gone, or others by now."""
    from merging.sources import open_inputs

    opened = open_inputs(recipe)
    digests = opened.digests()
    if others := [name.removeprefix("experts/") for name in run.inputs if digests.get(name) != run.inputs[name]]:
        raise CheckpointError(
            f"The files that its recipe names are not the ones that this run merged: {first_few(others, 3)}. "
            "Put those back, or run the recipe again."
        )
    return opened


MEASURES = {
    measure.key: measure
    for measure in (
        Measure("drift", "Feature drift", "merging.analysis.drift:measure_drift"),
        Measure("ablation", "Ablation by kind of parameter", "merging.analysis.consistency:measure_ablation"),
        Measure("predictions", "Predictions, image by image", "merging.analysis.predictions:measure_predictions"),
        Measure("features", "Features out of domain", "merging.analysis.features:measure_features", version=2),
        Measure("tsne", "t-SNE of features", "merging.analysis.features:measure_tsne", version=2),
        Measure("signs", "Sign agreement", "merging.analysis.signs:measure_signs", of=Of.EXPERTS),
        Measure("pairs", "Experts against experts", "merging.analysis.pairs:measure_pairs", of=Of.EXPERTS),
        Measure(
            "exemplars",
            "Exemplar sensitivity",
            "merging.analysis.exemplar_sensitivity:measure_sensitivity",
            of=Of.BENCHMARK,
        ),
        Measure(
            "drm_ablations", "Ablations of DRM", "merging.analysis.drm_ablations:measure_ablations", of=Of.BENCHMARK
        ),
        Measure("task_counts", "Number of tasks", "merging.analysis.task_counts:measure_counts", of=Of.BENCHMARK),
    )
}


def kind(key: str) -> Measure:
    """The measurement of that key; raises StoreError with the nearest one."""
    if key not in MEASURES:
        raise StoreError(f"Nothing is measured as {key!r}.{did_you_mean(key, MEASURES)} Known: {', '.join(MEASURES)}.")
    return MEASURES[key]


def find(key: str, store: Store, benchmark: Benchmark, run_id: str = "") -> Measured | None:
    """The stored measurement, the own one first, or None."""
    if (name := entry_name(kind(key), store, benchmark, run_id)) is None:
        return None
    places = {own_folder(store): THIS_MACHINE} | {library.parent / FOLDER: PRECOMPUTED for library in store.libraries}
    for folder, provenance in places.items():
        if found := read(folder / name, provenance):
            return found
    return None


def measure(
    key: str,
    store: Store,
    benchmark: Benchmark,
    run_id: str = "",
    *,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
) -> Measured:
    """The measurement: the one that is there, or a new one.

    Raises:
        StoreError: no such run or measurement, or the disk cannot be written to.
        CheckpointError, TaskError: the run cannot be measured; says why. Cancelled: ``cancel`` said so.
    """
    from merging.engine import choose_device, describe_device

    wanted = kind(key)
    if (wanted.of == Of.BENCHMARK) == bool(run_id):
        raise StoreError(f"{wanted.title} is measured of {wanted.of}.")
    if found := find(key, store, benchmark, run_id):
        return found
    if (name := entry_name(wanted, store, benchmark, run_id)) is None:
        store.run(run_id)  # says that there is no such run
        raise StoreError(f"Run {run_id} merged nothing, so {wanted.title.lower()} cannot be measured of its experts.")
    entries.sweep(own_folder(store))
    started = time.monotonic()

    def measurement(key: str, tell: ProgressCallback | None) -> Measured:
        return measure(key, store, benchmark, run_id, device=device, progress=tell, cancel=cancel)

    subject = Subject(store, benchmark, run_id, device, progress, cancel, wanted.of, measurement)
    module, _, function = wanted.compute.partition(":")
    result: Found = getattr(importlib.import_module(module), function)(subject)
    where = describe_device(choose_device(device))
    said = {"key": key, "version": wanted.version, "run": run_id, "device": where}
    write(own_folder(store), name, result, said, started)
    if (found := find(key, store, benchmark, run_id)) is None:
        raise StoreError("It was measured but cannot be read back; is the store's folder being cleared?")
    return found


def sweep(store: Store, writer: int) -> None:
    """Remove what a writer that is known to be dead has left behind."""
    entries.sweep(own_folder(store), writer)


def own_folder(store: Store) -> Path:
    """Where measurements of this machine lie."""
    return store.root / FOLDER


def same_experts(run: Run, other: Run) -> bool:
    """Whether two runs merged the same checkpoints in the same order, so that they share what is measured of them."""
    return merged_from(run) == merged_from(other)


def merged_from(run: Run) -> list[tuple[str, str]]:
    """Name and digest of the pretrained model and of each expert, in order."""
    names = ["pretrained", *(f"experts/{name}" for name in run.experts)]
    return [(name, run.inputs.get(name, "")) for name in names]


def entry_name(wanted: Measure, store: Store, benchmark: Benchmark, run_id: str) -> str | None:
    """The name of an entry; None for experts of a run that is not there, or that merged nothing."""
    of: object = run_id
    if wanted.of == Of.EXPERTS:
        run = store.find(run_id)
        if run is None or run.kind != "merge":
            return None
        of = merged_from(run)
    depends = json.dumps([wanted.key, wanted.version, of, benchmark.digest])
    return hashlib.sha256(depends.encode()).hexdigest()[:12]
