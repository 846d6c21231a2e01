"""What is measured of a stored run, or of the benchmark, when somebody asks: tables that lie beside the runs.

An entry is named by what it depends on (the kind of measurement and its version, the run or only the checkpoints that
it merged, the benchmark), so a stale one is never found, and runs on the same experts share what does not depend on
how they were merged. Own entries are written like runs, whole or not at all; a library brings its own in ``measured``
beside its runs.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from merging import entries
from merging.errors import CheckpointError, StoreError, TaskError, did_you_mean, first_few
from merging.measured import Found, Measured, read, write
from merging.progress import Cancel, Phases, ProgressCallback
from merging.runs import PRECOMPUTED, THIS_MACHINE, Run
from merging.store import Store

if TYPE_CHECKING:
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


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One kind of measurement."""

    key: str
    title: str
    version: int = 1  # raised whenever results change
    of: Of = Of.RUN
    compute: Callable[[Subject], Found]


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
        folder = None if run.has_model else entries.make_temporary(_own(self.store))
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
        from merging.sources import digest
        from merging.tasks import MULTITASK, PRETRAINED

        known = {PRETRAINED: self.benchmark.pretrained, MULTITASK: self.benchmark.multitask}
        reference = known.get(run.kind) or self.benchmark.experts.get(run.experts[0])
        if reference is not None:
            checkpoint = open_checkpoint(reference, run.title)
            if digest(checkpoint) in run.inputs.values():
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


def _drift(subject: Subject) -> Found:
    from merging.analysis.drift import measure_drift

    return measure_drift(subject)


def _ablation(subject: Subject) -> Found:
    from merging.analysis.consistency import measure_ablation

    return measure_ablation(subject)


def _pairs(subject: Subject) -> Found:
    from merging.analysis.pairs import measure_pairs

    return measure_pairs(subject)


def _exemplars(subject: Subject) -> Found:
    from merging.analysis.exemplar_sensitivity import measure_sensitivity

    return measure_sensitivity(subject)


def _signs(subject: Subject) -> Found:
    from merging.analysis.signs import measure_signs

    return measure_signs(subject)


def _drm_ablations(subject: Subject) -> Found:
    from merging.analysis.drm_ablations import measure_ablations

    return measure_ablations(subject)


def _features(subject: Subject) -> Found:
    from merging.analysis.features import measure_features

    return measure_features(subject)


def _predictions(subject: Subject) -> Found:
    from merging.analysis.predictions import measure_predictions

    return measure_predictions(subject)


def _tsne(subject: Subject) -> Found:
    from merging.analysis.features import measure_tsne

    return measure_tsne(subject)


def _task_counts(subject: Subject) -> Found:
    from merging.analysis.task_counts import measure_counts

    return measure_counts(subject)


MEASURES = {
    measure.key: measure
    for measure in (
        Measure(key="drift", title="Feature drift", compute=_drift),
        Measure(key="ablation", title="Ablation by kind of parameter", compute=_ablation),
        Measure(key="predictions", title="Predictions, image by image", compute=_predictions),
        Measure(key="features", title="Features out of domain", version=2, compute=_features),
        Measure(key="tsne", title="t-SNE of features", version=2, compute=_tsne),
        Measure(key="signs", title="Sign agreement", of=Of.EXPERTS, compute=_signs),
        Measure(key="pairs", title="Experts against experts", of=Of.EXPERTS, compute=_pairs),
        Measure(key="exemplars", title="Exemplar sensitivity", of=Of.BENCHMARK, compute=_exemplars),
        Measure(key="drm_ablations", title="Ablations of DRM", of=Of.BENCHMARK, compute=_drm_ablations),
        Measure(key="task_counts", title="Number of tasks", of=Of.BENCHMARK, compute=_task_counts),
    )
}


def kind(key: str) -> Measure:
    """The measurement of that key; raises StoreError with the nearest one."""
    if key not in MEASURES:
        raise StoreError(f"Nothing is measured as {key!r}.{did_you_mean(key, MEASURES)} Known: {', '.join(MEASURES)}.")
    return MEASURES[key]


def find(key: str, store: Store, benchmark: Benchmark, run_id: str = "") -> Measured | None:
    """The stored measurement, the own one first, or None."""
    if (name := _name(kind(key), store, benchmark, run_id)) is None:
        return None
    places = {_own(store): THIS_MACHINE} | {library.parent / FOLDER: PRECOMPUTED for library in store.libraries}
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
    if (name := _name(wanted, store, benchmark, run_id)) is None:
        store.run(run_id)  # says that there is no such run
        raise StoreError(f"Run {run_id} merged nothing, so {wanted.title.lower()} cannot be measured of its experts.")
    entries.sweep(_own(store))
    started = time.monotonic()
    result = wanted.compute(Subject(store, benchmark, run_id, device, progress, cancel, wanted.of))
    where = describe_device(choose_device(device))
    said = {"key": key, "version": wanted.version, "run": run_id, "device": where}
    write(_own(store), name, result, said, started)
    if (found := find(key, store, benchmark, run_id)) is None:
        raise StoreError("It was measured but cannot be read back; is the store's folder being cleared?")
    return found


def sweep(store: Store, writer: int) -> None:
    """Remove what a writer that is known to be dead has left behind."""
    entries.sweep(_own(store), writer)


def _own(store: Store) -> Path:
    return store.root / FOLDER


def same_experts(run: Run, other: Run) -> bool:
    """Whether two runs merged the same checkpoints in the same order, so that they share what is measured of them."""
    return _merged_from(run) == _merged_from(other)


def _merged_from(run: Run) -> list[tuple[str, str]]:
    """Name and digest of the pretrained model and of each expert, in order."""
    names = ["pretrained", *(f"experts/{name}" for name in run.experts)]
    return [(name, run.inputs.get(name, "")) for name in names]


def _name(wanted: Measure, store: Store, benchmark: Benchmark, run_id: str) -> str | None:
    """The name of an entry; None for experts of a run that is not there, or that merged nothing."""
    of: object = run_id
    if wanted.of == Of.EXPERTS:
        run = store.find(run_id)
        if run is None or run.kind != "merge":
            return None
        of = _merged_from(run)
    depends = json.dumps([wanted.key, wanted.version, of, benchmark.digest])
    return hashlib.sha256(depends.encode()).hexdigest()[:12]
