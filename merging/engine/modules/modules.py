"""The modules that an adapt put on top of a merged model, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from merging.base.devices import move_tensor
from merging.base.errors import NeedsError
from merging.base.threads import run_in_threads
from merging.engine.modules.mixed_tower import MixedEncoder, ModuleTower, StoredChanges, tower_tensors
from merging.engine.modules.modules_card import write_card
from merging.engine.modules.writing_modules import save_folder, write_modules
from merging.images.batch_sizes import batch_size, forward_bytes
from merging.images.exemplars import describe_value
from merging.methods import registry
from merging.methods.adapted_network import Learned
from merging.methods.method import Adapt
from merging.methods.params import Params
from merging.models.architecture import Architecture
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.tower_names import VISUAL

CPU = torch.device("cpu")
ROUTER, BASE, PRETRAINED = "router", "pretrained tensors", "pretrained tower"  # parts that all tasks share


@dataclass(frozen=True, eq=False, repr=False)
class Modules:
    """The modules of the adapt ``key`` on top of the model ``merged``; ``tasks`` are the experts, in order.

    ``stored`` has the tensors that are stored for each task, under open_clip's names: task vectors or their factors,
    read on demand. An exclusive vector is an expert's difference from the merged model. ``base`` has the pretrained
    model's tensors if the adapt adds mixtures to them.
    """

    key: str
    params: Params
    tasks: tuple[str, ...]
    learned: Learned
    merged: Checkpoint
    architecture: Architecture
    stored: Mapping[str, Checkpoint] = field(default_factory=dict)
    base: Checkpoint | None = None
    device: torch.device = CPU
    _opening: Lock = field(default_factory=Lock)  # several batches may request the tower at once

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value}" for name, value in self.params.values().items())
        return f"<Modules: {self.key}({params}) for {', '.join(self.tasks)}>"

    @property
    def method(self) -> Adapt:
        """The registered adapt."""
        return registry.find_adapt(self.key)

    @cached_property
    def dtype(self) -> torch.dtype:
        """The compute dtype: float64 if the model has float64 tensors, else float32."""
        double = any(info.dtype == torch.float64 for info in self.merged.infos.values())
        return torch.float64 if double else torch.float32

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The learned tensors and the factors of exclusive vectors, of any shape (*S), by name.

        Names are such as "router.fc1.weight" and "<task>.down". Whole task vectors are only in ``stored``.
        """
        named = {f"{ROUTER}.{name}": tensor for name, tensor in self.learned.router.items()}
        for task in self.tasks:
            named |= {f"{task}.{name}": tensor for name, tensor in self.learned.per_task.get(task, {}).items()}
            if self.method.exclusive and task in self.stored:
                named |= {f"{task}.{name}": self.stored[task].read(name) for name in self.stored[task].infos}
        return named

    def parts(self) -> Iterator[tuple[str, str, Checkpoint]]:
        """The parts beside the merged model: the task (empty if all tasks share the part), its kind, its tensors."""
        kind = "exclusive vector" if self.method.exclusive else "task vector"
        for task in self.tasks:
            if tensors := self.learned.per_task.get(task):
                yield task, "module", MappingCheckpoint(tensors, task)
            if task in self.stored and self.stored[task].infos:
                yield task, kind, self.stored[task]
        if self.learned.router:
            yield "", ROUTER, MappingCheckpoint(self.learned.router, ROUTER)
        if self.base is not None:
            # Adapts that combine whole models of unedited experts store the whole tower, others only some tensors.
            yield "", PRETRAINED if self.method.as_they_came else BASE, self.base

    def features(self, images: Tensor, task: str | None = None) -> Tensor:
        """Features (n, e) of preprocessed images (n, 3, h, w), each routed by itself; not normalized, on the CPU.

        An adapt with a module per task uses the module of ``task``; without a task the features are the merged model's.

        Raises:
            NeedsError: images of another shape, or a task that was not merged.
        """
        if task is not None and self.method.needs_task and task not in self.tasks:
            raise NeedsError(f"There is no module for {task!r}; there are some for {', '.join(self.tasks)}.")
        return self._run_batches(
            images, lambda batch: self.method.features(self.tower, self._learned_on_device, batch, task, self.params)
        )

    def routing(self, images: Tensor) -> Tensor | None:
        """The weights, (n, blocks, K) or (n, K), by which images (n, 3, h, w) mix the tasks; None without routing."""
        routing = self.method.routing
        if routing is None:
            return None
        return self._run_batches(images, lambda batch: routing(self.tower, self._learned_on_device, batch, self.params))

    def named_tasks(self, images: Tensor) -> Tensor | None:
        """The tasks, booleans (n, K), that the router names for images (n, 3, h, w); None if it names none."""
        weights, candidate_tasks = self.routing(images), self.method.candidate_tasks
        return None if weights is None or candidate_tasks is None else candidate_tasks(weights, self.params)

    def mixed_features(self, images: Tensor, weights: Tensor) -> Tensor:
        """Features (n, e) of images (n, 3, h, w), with ``weights`` (n, K) of the tasks in place of the router's.

        With the weight 1 for the true task and 0 for the others, they show the loss due to the stored vectors alone.
        """
        return self._run_batches(images, self.tower.features_by_mixture, weights)

    def on(self, device: torch.device) -> Modules:
        """The same modules on another device."""
        return self if device == self.device else replace(self, device=device)

    def save(self, folder: Path | str) -> None:
        """Write the merged model and the modules to a new folder, which ``load_modules`` reads.

        The same modules give the same bytes.

        Raises:
            StoreError: the folder exists already, or cannot be written.
        """
        card = write_card(self.method, self.params, self.tasks, self.parts())
        save_folder(Path(folder), self.merged, self.architecture, self._list_entry, self.parts(), card)

    def write(self, folder: Path) -> list[str]:
        """Write the modules, and the list of their files, to their merged model's folder; return all files' names."""
        return write_modules(folder, self.merged, self.architecture, self._list_entry, self.parts())

    @property
    def _list_entry(self) -> dict[str, Any]:
        """The key, the parameters and the tasks, for the list of the folder."""
        return {"key": self.key, "params": self.params.to_plain(), "tasks": list(self.tasks)}

    @property
    def tower(self) -> ModuleTower:
        """The merged model in memory, with the stored changes beside it."""
        with self._opening:
            return self._tower

    @cached_property
    def _tower(self) -> ModuleTower:
        tensors = tower_tensors(self.merged, self.device, self.dtype)
        changes = StoredChanges([self.stored[task] for task in self.stored], self.device, self.dtype)
        base: dict[str, Tensor] = {}
        if self.base is not None:
            base = {
                name.removeprefix(VISUAL): self.base.read(name).to(self.device, self.dtype, copy=True)
                for name in self.base.infos
            }
        return ModuleTower(MixedEncoder(self.architecture, tensors, changes=changes), base)

    @cached_property
    def _learned_on_device(self) -> Learned:
        """The learned tensors on the modules' device, in the compute dtype."""
        return self.learned.to_device(self.device, self.dtype)

    @property
    def batch_size(self) -> int:
        """The number of images that run at a time."""
        return batch_size(self.architecture, self.device)

    def _run_batches(self, images: Tensor, run: Callable[..., Tensor], *rows: Tensor) -> Tensor:
        """The results (n, ...) of ``run`` on images (n, 3, h, w) and their ``rows`` (n, ...), batch by batch."""
        side = self.architecture.image_size
        if not isinstance(images, Tensor) or images.ndim != 4 or images.shape[1:] != (3, side, side):
            raise NeedsError(f"Images must be a tensor (n, 3, {side}, {side}); got {describe_value(images)}.")
        batches = zip(*(tensor.split(self.batch_size) for tensor in (images, *rows)), strict=True)
        passes = (partial(self._run_batch, run, *batch) for batch in batches)
        with run_in_threads(passes, self.device, forward_bytes(self.batch_size, self.architecture)) as results:
            return torch.cat(list(results))

    def _run_batch(self, run: Callable[..., Tensor], *batch: Tensor) -> Tensor:
        """The results (n, ...) of ``run`` on one batch, on the CPU."""
        with torch.inference_mode():
            return run(*(move_tensor(tensor, self.device, self.dtype) for tensor in batch)).cpu()
