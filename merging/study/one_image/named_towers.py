"""The towers (image encoders) of models by key, of which a few stay in memory; any other one is read again on use.

An adapt is a last step of a chain that puts modules on top of the merged model.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from merging.base.devices import choose_device, retry_on_oom
from merging.base.errors import TaskError
from merging.base.text import first_few
from merging.images.image_encoder import Encoder
from merging.models.model_references import EXPERTS, PRETRAINED
from merging.study.analysis.measurement_subject import Subject
from merging.tasks.context import QUIET, Context

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from merging.images.benchmarks.benchmark import Benchmark
    from merging.models.checkpoint import Checkpoint
    from merging.study.runs.run import Run
    from merging.study.runs.run_store import Store

MAX_TOWERS = 4  # the most towers in memory

Value = TypeVar("Value")


@dataclass(eq=False)
class RecentlyUsed(Generic[Value]):
    """A cache of at most ``max_count`` values by key; the least recently used one is dropped. Threads may share it."""

    max_count: int
    _cached: OrderedDict[Hashable, Value] = field(default_factory=OrderedDict)
    # Locked by the thread that computes the key's value.
    _computing: dict[Hashable, threading.RLock] = field(default_factory=dict)
    # Guards the two mappings; never held while a value is computed.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """The value of a key, computed if it is not cached; room is made before it is computed.

        Threads that request the same key compute it once; requests for other keys do not wait for it.
        """
        with self._lock:
            if key in self._cached:
                return self._mark_used(key)
            key_lock = self._computing.setdefault(key, threading.RLock())
        with key_lock:
            with self._lock:
                if key in self._cached:  # another thread computed it while this one waited
                    return self._mark_used(key)
                self._computing[key] = key_lock
                self._make_room()
            try:
                value = compute()
                with self._lock:
                    self._make_room()
                    self._cached[key] = value
                    return value
            finally:
                with self._lock:
                    self._computing.pop(key, None)

    def _mark_used(self, key: Hashable) -> Value:
        self._cached.move_to_end(key)
        return self._cached[key]

    def _make_room(self) -> None:
        """Drop cached values until they and the values being computed are at most ``max_count``."""
        while self._cached and len(self._cached) + len(self._computing) > self.max_count:
            self._cached.popitem(last=False)

    def __len__(self) -> int:
        return len(self._cached)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._cached


@dataclass(frozen=True, eq=False)
class NamedTower:
    """A model's tower with its key and title."""

    key: str
    title: str
    encoder: Encoder


def expert_key(task: str) -> str:
    """The key of a data set's expert, which has the data set's name."""
    return f"{EXPERTS}{task}"


@dataclass(eq=False)
class Towers:
    """Towers by key: "pretrained", "experts/TASK", or the id of a run.

    A run with one model per expert has a key RUN/EXPERT for each. Runs that were stored without weights are merged
    again. ``drafts`` is {key: (title, checkpoint)} of models that are not stored.
    """

    store: Store
    benchmark: Benchmark
    context: Context = QUIET
    drafts: dict[str, tuple[str, Checkpoint]] = field(default_factory=dict)
    _cached: RecentlyUsed[NamedTower] = field(default_factory=lambda: RecentlyUsed(MAX_TOWERS))

    def __call__(self, key: str) -> NamedTower:
        """The tower of a key.

        Raises:
            StoreError, CheckpointError: there is no such run, or its model cannot be read.
            TaskError: the model does not fit the benchmark, or is not a single tower.
        """
        return self._cached.get(key, lambda: self._open_tower(key))

    def __len__(self) -> int:
        return len(self._cached)

    def retry_on_oom(self, compute: Callable[[], Value]) -> Value:
        """The result of a function of these towers; if the device runs out of memory, it is called again on the CPU.

        The second call starts without cached towers, and towers remain on the CPU from then on.
        """

        def compute_on(device: torch.device) -> Value:
            if tried_devices or device != first_device:
                self.context, self._cached = self.context.on_device(device), RecentlyUsed(MAX_TOWERS)
            tried_devices.append(device)
            return compute()

        first_device = choose_device(self.context.device)
        tried_devices: list[torch.device] = []
        return retry_on_oom(first_device, compute_on)[0]

    def _open_tower(self, key: str) -> NamedTower:
        if key in self.drafts:
            return self._build_tower(key, *self.drafts[key])
        if key == PRETRAINED:
            return self._build_tower(key, "Pretrained", self.benchmark.open_pretrained())
        if key.startswith(EXPERTS):
            return self._open_expert(key, key.removeprefix(EXPERTS))
        run_id, _, model = key.partition("/")
        run = self.store.get_run(self.store.resolve_id(run_id))
        _refuse_adapt(run)
        subject = Subject(self.store, self.benchmark, run.id)
        only_merging_again: dict[str, float] = {}  # opening a run has no stage of its own
        with subject.open_models(subject.split_context(self.context, only_merging_again)) as models:
            title = f"{run.name}, model of {model}" if model else run.name
            return self._build_tower(key, title, _choose_model(run, models, model))

    def _open_expert(self, key: str, task: str) -> NamedTower:
        title = self.benchmark.find_task(task).title
        if task not in self.benchmark.experts:
            raise TaskError(f"{title} has no expert in this benchmark; {first_few(self.benchmark.experts)} have one.")
        return self._build_tower(key, f"Expert for {title}", self.benchmark.models()[task].open(task))

    def _build_tower(self, key: str, title: str, checkpoint: Checkpoint) -> NamedTower:
        if reason := self.benchmark.describe_misfit(checkpoint):
            raise TaskError(f"{title} does not fit the benchmark: {reason}")
        encoder = Encoder.from_checkpoint(
            # fallback: where the architecture is read if the checkpoint does not state one
            checkpoint,
            choose_device(self.context.device),
            fallback=self.benchmark.pretrained_tower,
        )
        return NamedTower(key, title, encoder)


def reference_key(run: Run, task: str) -> str:
    """The key of a run's reference on a data set: the data set's expert if it was merged, else the pretrained model."""
    return expert_key(task) if task in run.experts else PRETRAINED


def model_key(run: Run, task: str) -> str:
    """The key of a run's model for a data set.

    Raises:
        TaskError: the run has one model per expert, and none for this data set.
    """
    if not run.per_task:  # one model for all data sets
        return run.id
    if task not in run.experts:
        raise TaskError(
            f"Run {run.id} has one model per expert, and none is of {task}. Take an image of {first_few(run.experts)}."
        )
    return f"{run.id}/{task}"


def _choose_model(run: Run, models: Mapping[str, Checkpoint], model: str) -> Checkpoint:
    """The named model of a run, or its only one."""
    if model in models:
        return models[model]
    if model or len(models) != 1:
        raise TaskError(f"Run {run.id} has the models {first_few(models)}. Write {run.id}/{next(iter(models))}.")
    return next(iter(models.values()))


def _refuse_adapt(run: Run) -> None:
    if run.adapt:
        raise TaskError(
            f"{run.adapt} is on top of the merged model of run {run.id}, so its answers are not those of one tower. "
            "Choose a run of the same chain without it."
        )
