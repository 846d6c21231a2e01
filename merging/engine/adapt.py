"""Puts an adapt on top of a merged model: stores tensors of every task, learns from images, and builds tables.

An adapt is the last step of some chains: it adds modules per task, or a router, to the merged model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from merging.base.devices import choose_device, is_host, retry_on_oom
from merging.base.errors import MergingError
from merging.base.files.tables import Frames, unconverted_tables
from merging.base.progress import Meter
from merging.base.text import first_few
from merging.base.threads import limit_to_one_thread, run_in_threads
from merging.engine.learning.learn import warn_of_few_images
from merging.engine.learning.learning_state import LearningState
from merging.engine.modules import module_tables
from merging.engine.modules.mixed_tower import tower_tensors
from merging.engine.modules.modules import Modules
from merging.engine.modules.temporary_tensors import TemporaryTensors
from merging.engine.needs import check_exemplars, check_fits, check_kind, check_needs, check_test_data
from merging.engine.routed_network import RoutedNetwork
from merging.engine.run import MergeResult, edited_tensors
from merging.engine.run_inputs import RunInputs
from merging.engine.stream import Stream
from merging.images.batch_sizes import forward_bytes
from merging.images.exemplars import TaskExemplars
from merging.images.image_encoder import Encoder
from merging.methods import registry
from merging.methods.adapted_network import Learned, Route, Router, Sizes
from merging.methods.method import Adapt, Needs
from merging.methods.params import Params
from merging.models.architecture import Architecture
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.checkpoint_views import convert_naming
from merging.models.tower_names import VISUAL, tower_names
from merging.recipes import chain_rules
from merging.tasks.context import QUIET, Context

if TYPE_CHECKING:
    import pandas as pd

    from merging.engine.layer_inputs import LayerInputs, LayerInputSource
    from merging.recipes.recipe import Recipe

STATE_PART = "adapt"  # the name of the adapt's part of the learning state
# Phases, as the progress report shows them.
STORING, READING, LEARNING, ROUTING = "Preparing modules", "Reading features", "Learning modules", "Routing images"
ROUTED_IMAGES = 128  # images of each task whose routing enters the tables


@dataclass(frozen=True)
class AdaptResult:
    """The modules that an adapt put on top of a merged model, tables by name, and sentences on possible problems."""

    modules: Modules
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def add_to(self, result: MergeResult) -> MergeResult:
        """The merge's result with the modules; a table of the adapt whose name is taken gets the suffix "_adapt"."""
        tables = {f"{name}_adapt" if name in result.tables else name: table for name, table in self.tables.items()}
        warnings = tuple(dict.fromkeys((*result.warnings, *self.warnings)))  # each sentence once
        return replace(
            result,
            modules=self.modules,
            tables=Frames({**unconverted_tables(result.tables), **tables}),
            warnings=warnings,
        )


def adapt(
    recipe: Recipe,
    pretrained: Checkpoint,
    experts: Mapping[str, Checkpoint],
    merged: Checkpoint,
    *,
    layer_inputs: LayerInputs | LayerInputSource | None = None,
    exemplars: Mapping[str, Any] | None = None,
    test_data: Mapping[str, Any] | None = None,
    context: Context = QUIET,
    learning_state: LearningState | None = None,
) -> AdaptResult:
    """The modules that the adapt of a recipe puts on top of its merged model, which is in memory or in a file.

    Raises:
        NeedsError: images, heads or labels are missing, or labels were passed that the adapt must not see.
        MergingError: a loss is not finite (names step and task), or temporary files have no room.
        Cancelled, Paused: the caller asked for it.
    """
    assert recipe.adapt is not None
    method, params = registry.find_adapt(recipe.adapt.key), recipe.adapt.params
    exemplar_tasks, unlabeled = check_exemplars(exemplars), check_test_data(test_data)
    check_kind(recipe, pretrained)  # of network: images run through CLIP only
    check_needs(recipe, experts, layer_inputs, exemplar_tasks, unlabeled)
    needs = method.needs_for(params)
    task_images = (unlabeled if needs == Needs.TEST_DATA else exemplar_tasks) or {}
    tasks = {name: replace(task_images[name], labels=None) for name in experts if needs != Needs.NOTHING}
    architecture = Architecture.from_checkpoint(merged, fallback=pretrained)
    for name, task in tasks.items():
        check_fits(name, task, architecture)
    learning_state = learning_state or LearningState()

    def adapt_on(device: torch.device) -> AdaptResult:
        inputs = RunInputs(merged, experts, input_source=None, device=device)
        work = _AdaptWork(method, params, inputs, tasks, architecture)
        meter = context.meter(work.total)
        data = {"layer_inputs": layer_inputs, "exemplars": exemplar_tasks}
        stored = work.store_parts(recipe, pretrained, data, meter)
        base = work.read_base(pretrained) if method.mixes_on_pretrained else None
        untrained = Modules(method.key, params, tuple(experts), Learned(), merged, architecture, stored, base, device)
        network = _EngineNetwork(work, untrained, meter, learning_state)
        learned = method.train(network, params)
        _require_numbers(method, learned)
        learning_state.finish_part(STATE_PART)
        del network
        modules = replace(untrained, learned=learned.to_device(torch.device("cpu")))
        tables = work.tables(modules, meter)
        meter.advance(meter.total - meter.done, ROUTING if method.routing else LEARNING)  # what was overestimated
        host_modules = modules if is_host(device) else replace(modules)  # without the tower in the device's memory
        return AdaptResult(host_modules, {**learned.tables, **tables}, learned.warnings)

    def adapt_in_one_thread(device: torch.device) -> AdaptResult:
        with limit_to_one_thread(device):
            return adapt_on(device)

    with learning_state.remove_on_failure():
        adapted, oom_warnings = retry_on_oom(choose_device(context.device), adapt_in_one_thread)
    doubts = chain_rules.list_doubts([(method, step.params) for method, step in recipe.stages])  # weak learning
    few_images = warn_of_few_images(tasks)
    return replace(adapted, warnings=(*adapted.warnings, *doubts, *few_images, *learning_state.warnings, *oom_warnings))


@dataclass(frozen=True)
class _AdaptWork:
    """One adapt and its inputs. Its work is counted in scalars read, plus scalars times images that run."""

    method: Adapt
    params: Params
    inputs: RunInputs  # with the merged model in place of the pretrained model
    tasks: Mapping[str, TaskExemplars]
    architecture: Architecture

    @property
    def scalars(self) -> int:
        """Scalars of one model."""
        return sum(self.inputs.numels)

    @property
    def images(self) -> int:
        """Images of all tasks."""
        return sum(len(task.images) for task in self.tasks.values())

    @property
    def learning(self) -> int:
        """The work of learning: three forward passes per image that runs, or a tenth of a pass per image if none do."""
        passes = 3 * self.method.count_images_processed(self.params, [len(task.images) for task in self.tasks.values()])
        return self.scalars * (passes or max(1, self.images // 10))

    @property
    def total(self) -> int:
        """The whole work, without the surveys of edits."""
        model, images = self.inputs.pretrained, self.images
        stored = sum(model.infos[p.name].numel for p in self.inputs.parameters if self.method.stores_of(p))
        reading = 0 if self.method.stores is None else stored * (len(self.inputs.experts) + 1)
        features = images * self.method.feature_passes
        routed = (
            2 * sum(min(len(task.images), ROUTED_IMAGES) for task in self.tasks.values()) if self.method.routing else 0
        )
        return reading + self.learning + self.scalars * (features + routed)

    def store_parts(
        self, recipe: Recipe, pretrained: Checkpoint, data: Mapping[str, Any], meter: Meter
    ) -> dict[str, Checkpoint]:
        """The tensors that the adapt stores of each task, written tensor by tensor to a temporary file per task."""
        if (stores := self.method.stores) is None:
            return {}
        files = {task: TemporaryTensors(task) for task in self.inputs.experts}
        experts, device = self.inputs.experts, self.inputs.device
        if self.method.exclusive or self.method.as_they_came:
            base = self.inputs.pretrained if self.method.exclusive else pretrained  # subtracted from the experts
            towers = {name: convert_naming(expert, "open_clip") for name, expert in experts.items()}
            inputs = RunInputs(convert_naming(base, "open_clip"), towers, input_source=None, device=device)
            slots: AbstractContextManager[Stream] = nullcontext(
                Stream(inputs, stages=(), in_pieces=False, meter=meter, phase=STORING)
            )
            names = {name: name for name in inputs.pretrained.infos}
        else:
            stored_names = tower_names(pretrained).items()
            # {name in the checkpoint: open_clip's}; adapts store none of the tensors that a checkpoint splits in parts.
            names = {parts[0]: VISUAL + name for name, parts in stored_names if len(parts) == 1}
            slots = edited_tensors(recipe, pretrained, experts, **data, device=device, meter=meter, phase=STORING,
                           only=self._stored_names(pretrained))  # fmt: skip
        with slots as stream:
            for name, stored in stream.map(lambda slot: (slot.name, stores(slot, self.params))):
                for file, parts in zip(files.values(), stored, strict=True):
                    for suffix, tensor in parts.items():
                        file.add(names[name] + suffix, tensor)
        return dict(files)

    def _stored_names(self, pretrained: Checkpoint) -> frozenset[str]:
        return frozenset(p.name for p in pretrained.parameters if self.method.stores_of(p))

    def read_base(self, pretrained: Checkpoint) -> Checkpoint:
        """The pretrained model's tensors to which each image's mixture of the stored tensors is added."""
        view = convert_naming(pretrained, "open_clip")
        names = [p.name for p in view.parameters if self.method.stores_of(p)]
        return MappingCheckpoint({name: view.read(name).to(self.inputs.dtype) for name in names}, "pretrained tensors")

    def tables(self, modules: Modules, meter: Meter) -> dict[str, pd.DataFrame]:
        """Tables of the modules' sizes, and of how they route images that they learned from."""
        tables = {"modules": module_tables.size_table(modules)}
        if self.method.routing is None or not self.tasks:
            return tables
        weights = {}
        nbytes = forward_bytes(modules.batch_size, self.architecture)
        routes = (partial(modules.routing, task.images[:ROUTED_IMAGES]) for task in self.tasks.values())
        with run_in_threads(routes, self.inputs.device, nbytes) as results:
            for name, routed in zip(self.tasks, results, strict=True):
                assert routed is not None
                weights[name] = routed
                meter.advance(2 * self.scalars * len(routed), ROUTING, name)
        return {**tables, **module_tables.routing_tables(weights, modules.tasks)}


class _EngineNetwork:
    """See ``merging.methods.adapted_network.MergedNetwork``."""

    def __init__(self, work: _AdaptWork, modules: Modules, meter: Meter, learning_state: LearningState) -> None:
        self._work, self._modules, self._meter, self._learning_state = work, modules, meter, learning_state
        self._merged_features: dict[str, Tensor] = {}
        self._reported_work = 0  # of learning
        self._routed: RoutedNetwork | None = None

    @property
    def tasks(self) -> tuple[str, ...]:
        return self._modules.tasks

    @property
    def sizes(self) -> Sizes:
        tower = self._modules.architecture
        return Sizes(len(self.tasks), tower.layers, tower.width, tower.embed_dim)

    @property
    def dtype(self) -> torch.dtype:
        return self._modules.dtype

    def merged_features(self, task: str) -> Tensor:
        if not self._merged_features:
            encoder = self._load_encoder(self._modules.merged)
            self._merged_features = {name: self._compute_features(encoder, name) for name in self.tasks}
        return self._merged_features[task]

    def expert_features(self, task: str) -> Tensor:
        return self._compute_features(self._load_encoder(self._work.inputs.experts[task]), task)

    def compute_entropies(
        self, router: Router, route: Route, *, per_image: bool, seed: int, batch: int, step: int
    ) -> tuple[tuple[float, ...], dict[str, Tensor]]:
        if self._routed is None:
            tower, device = self._modules.tower, self._modules.device
            self._routed = RoutedNetwork(tower, self._work.tasks, device, self.dtype, self._check)
        return self._routed.compute_entropies(router, route, per_image=per_image, seed=seed, batch=batch, step=step)

    def report_progress(self, detail: str, share: float) -> None:
        done = round(share * self._work.learning)
        self._meter.advance(max(0, done - self._reported_work), LEARNING, detail)
        self._reported_work = max(done, self._reported_work)
        self._learning_state.check()

    def load_state(self) -> dict[str, Tensor]:
        return self._learning_state.load(STATE_PART)

    def offer_state(self, state: Callable[[], Mapping[str, Tensor]]) -> None:
        self._learning_state.offer(STATE_PART, state)

    def _check(self) -> None:
        self._meter.check()
        self._learning_state.check()

    def _load_encoder(self, checkpoint: Checkpoint) -> Encoder:
        tensors = tower_tensors(checkpoint, self._modules.device, self.dtype)
        return Encoder(self._modules.architecture, tensors)

    def _compute_features(self, encoder: Encoder, task: str) -> Tensor:
        """Features (n, e) of all images of a task, detached, but usable in a graph."""
        batches, rows = self._work.tasks[task].images.split(self._modules.batch_size), list[Tensor]()
        nbytes = forward_bytes(len(batches[0]), self._modules.architecture)
        passes = (partial(self._encode, encoder, batch) for batch in batches)
        with run_in_threads(passes, encoder.device, nbytes) as results:
            for features in results:
                rows.append(features)
                self._meter.advance(len(features) * self._work.scalars, READING, task)
                self._learning_state.check()
        return torch.cat(rows)

    def _encode(self, encoder: Encoder, batch: Tensor) -> Tensor:
        with torch.no_grad():
            return encoder(batch.to(encoder.device, self.dtype))


def _require_numbers(method: Adapt, learned: Learned) -> None:
    """Raise MergingError if the last step, whose loss is never computed, left NaN or infinity."""
    named = {"router": learned.router, **learned.per_task}
    not_finite = [
        f"{part}.{name}"
        for part, tensors in named.items()
        for name, tensor in tensors.items()
        if not tensor.isfinite().all().cpu()
    ]
    if not_finite:
        raise MergingError(
            f"{method.title} learned numbers that are not finite, in {first_few(not_finite)}. Nothing was saved. A "
            "smaller learning rate may help; so may checking the images."
        )
