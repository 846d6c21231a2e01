"""Computes previews on growing samples; the models, images and tokens that previews share stay in memory."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.devices import choose_device, describe_device, retry_on_oom
from merging.base.errors import NeedsError, StoreError, TaskError
from merging.engine.evaluation.evaluate import list_task_models
from merging.engine.evaluation.image_features import predict
from merging.engine.outputs import MERGED
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.paired_scores import compare_models
from merging.models.checkpoint import Checkpoint
from merging.models.digest_cache import DIGESTS
from merging.models.model_references import PRETRAINED
from merging.recipes.recipe import Recipe
from merging.study.previews.affected_tensors import find_affected_tensors
from merging.study.previews.models_in_memory import (
    MergeInMemory,
    ModelInMemory,
    list_tensors,
    load_model,
    merge_in_memory,
    move_models,
)
from merging.study.previews.moments_in_memory import MomentsInMemory, refuse_learning
from merging.study.previews.moments_in_memory import estimate_bytes as moments_bytes
from merging.study.previews.preview import ANSWERS_TABLE, CHANGES_TABLE, Preview, name_changes
from merging.study.previews.preview_memory import Memory, count_bytes
from merging.study.previews.preview_samples import ImageBatch, PreviewSample, SampledTask, image_batches, sample_tasks
from merging.study.previews.token_cache import MAX_BYTES, CacheResolution, TokenCache
from merging.study.runs.opened_recipe import OpenedRecipe, open_inputs
from merging.study.runs.run import Run
from merging.tasks.context import QUIET, Context

MAX_MODELS = 64  # recipes whose models stay in memory
MAX_PREDICTIONS = 1 << 14  # batches whose predictions stay in memory
Classes = NDArray[np.int64]
Value = TypeVar("Value")


@dataclass
class Previewer:
    """The models, images, heads, tokens and predictions that previews on one benchmark share. Not thread-safe."""

    benchmark: Benchmark
    device: str = "auto"
    limit: int = MAX_BYTES  # bytes of tokens
    memory: Memory = field(default_factory=Memory)  # the limit on the caches of this and other previewers
    tokens: TokenCache = field(init=False)
    _merges: OrderedDict[str, MergeInMemory] = field(default_factory=OrderedDict)  # by run id; oldest use first
    _predicted: OrderedDict[tuple[object, ...], list[Classes]] = field(default_factory=OrderedDict)
    _sampled: dict[PreviewSample, dict[str, SampledTask]] = field(default_factory=dict)
    _heads: dict[str, Tensor] = field(default_factory=dict)
    _moments: dict[tuple[object, ...], MomentsInMemory] = field(default_factory=dict)
    _compared: tuple[MergeInMemory, ...] = ()  # the two merges of the last preview

    def __post_init__(self) -> None:
        self.tokens = TokenCache(self.limit)

    @property
    def nbytes(self) -> int:
        """Bytes in memory: models, tokens, moments, images, heads, predictions."""
        images = sum(task.images.nbytes for tasks in self._sampled.values() for task in tasks.values())
        moments = sum(cached.nbytes for cached in self._moments.values())
        tensors = count_bytes([*list_tensors([*self._merges.values(), *self._compared]), *self._heads.values()])
        predicted = sum(classes.nbytes for batch in self._predicted.values() for classes in batch)
        return self.tokens.nbytes + images + moments + tensors + predicted

    @property
    def spare_bytes(self) -> int:
        """Bytes in memory beyond the models that the last preview compares."""
        return self.nbytes - count_bytes(list_tensors(self._compared))

    def drop_one(self) -> bool:
        """Drop the least recently used models, or else tokens, moments, images, predictions or heads, in this order."""
        unused_id = next((key for key, merge in self._merges.items() if merge not in self._compared), None)
        if unused_id is not None:
            del self._merges[unused_id]
            return True
        if self.tokens.drop_one():
            return True
        caches = (self._moments, self._sampled, self._predicted, self._heads)
        filled_cache = next((cache for cache in caches if cache), None)
        if filled_cache is not None:
            filled_cache.clear()
        return filled_cache is not None

    def begin(
        self,
        recipe: Recipe,
        sample: PreviewSample,
        reference: Recipe | Run | None = None,
        base: Path | None = None,
        context: Context = QUIET,
    ) -> PreviewWork:
        """A preview whose models are merged and whose images are not evaluated yet.

        Raises:
            NeedsError: the chain learns, or the data that it needs of exemplars would take too long or too much memory.
            TaskError: the models do not fit the benchmark. CheckpointError, CompatibilityError: they cannot be merged.
            Cancelled: the user cancelled.
        """
        opened = open_inputs(recipe, base, self.benchmark)
        if reason := self.benchmark.describe_misfit(opened.pretrained):
            raise TaskError(f"The chain cannot be previewed on this benchmark: {reason}")
        reference_merge, reference_name = self.retry_on_oom(
            lambda: self._find_reference(reference, opened, base, context)
        )
        new_merge = self.retry_on_oom(lambda: self._find_merge(opened, context))
        self._compared = (new_merge, reference_merge)
        while len(self._merges) > max(MAX_MODELS, len(self._compared)):
            self.drop_one()
        self.memory.make_room(self)
        self.tokens.begin(
            *(model.sections for merge in (new_merge, reference_merge) for model in merge.models.values())
        )
        title = recipe.title or recipe.text()
        return PreviewWork(
            self, sample, (new_merge, reference_merge), tuple(opened.experts), (title, reference_name), context
        )

    def retry_on_oom(self, compute: Callable[[], Value]) -> Value:
        """The result of a function of these models; if the device runs out of memory, it is called again.

        The first repetition uses smaller pieces. If that fails, the models move to the CPU and remain there.
        """

        def compute_on(device: torch.device) -> Value:
            if device != first_device:
                self.device = str(device)
                self._moments.clear()
                move_models(
                    (model for merge in (*self._merges.values(), *self._compared) for model in merge.models.values()),
                    device,
                )
            return compute()

        first_device = choose_device(self.device)
        return retry_on_oom(first_device, compute_on)[0]

    # Models

    def _find_reference(
        self, reference: Recipe | Run | None, opened: OpenedRecipe, base: Path | None, context: Context
    ) -> tuple[MergeInMemory, str]:
        """The models that a preview is compared with, and their name."""
        if reference is None:
            return self._find_pretrained(opened), "Pretrained"
        if isinstance(reference, Recipe):
            name = reference.title or reference.text()
            return self._find_merge(open_inputs(reference, base, self.benchmark), context), name
        if reference.id in self._merges:
            return self._merges[reference.id], reference.name
        if reference.recipe is None:
            raise StoreError(f"“{reference.title}” is not a merge. Compare with a merge, or with the pretrained model.")
        if reference.adapt:
            raise NeedsError(
                f"“{reference.title}” has modules on top of its merged model, which previews do not run. Compare with "
                "another run, or with the pretrained model."
            )
        if reference.has_model:
            models = {name: self._load_model(file.state_dict(), file) for name, file in reference.open_models().items()}
            self._merges[reference.id] = MergeInMemory(reference.inputs, models, reference.recipe)
            return self._merges[reference.id], reference.name
        reopened = open_inputs(reference.recipe, base, self.benchmark)
        if reopened.run_id() != reference.id:
            raise StoreError(f"The files that the recipe of “{reference.title}” names are no longer those of this run.")
        return self._find_merge(reopened, context), reference.name

    def _find_pretrained(self, opened: OpenedRecipe) -> MergeInMemory:
        digest = DIGESTS.digest(opened.pretrained)
        key = f"{PRETRAINED} {digest} {opened.recipe.activation} {opened.recipe.architecture}"
        if key not in self._merges:
            model = self._load_model(opened.pretrained.state_dict(), opened.pretrained)
            self._merges[key] = MergeInMemory({PRETRAINED: digest}, {MERGED: model})
        return self._merges[key]

    def _find_merge(self, opened: OpenedRecipe, context: Context) -> MergeInMemory:
        """The models of a recipe, from memory or merged; only tensors that differ from similar models are merged."""
        digests = opened.digests(context)
        run_id = opened.run_id(digests)
        if run_id not in self._merges:
            refuse_learning(opened)
            similar = self._find_nearest(opened, digests)
            states = merge_in_memory(
                opened, context.on_device(self.device), lambda: self._find_moments(opened, digests), similar
            )
            models = {name: self._load_model(state, opened.pretrained) for name, state in states.items()}
            self._merges[run_id] = MergeInMemory(digests, models, opened.recipe)
        self._merges.move_to_end(run_id)
        return self._merges[run_id]

    def _find_moments(self, opened: OpenedRecipe, digests: Mapping[str, str]) -> MomentsInMemory | None:
        """The moments of a recipe's exemplars, None if it needs none; those of the last recipe stay in memory."""
        recipe = opened.recipe
        if recipe.exemplars is None or not recipe.needs:
            return None
        key = (*digests.values(), recipe.exemplars, recipe.activation, recipe.architecture)
        if key not in self._moments:
            self._moments.clear()
            moments = MomentsInMemory(opened, self.benchmark, self.device)
            self.memory.make_room(self, moments_bytes(opened))
            self._moments[key] = moments
        return self._moments[key]

    def _find_nearest(
        self, opened: OpenedRecipe, digests: Mapping[str, str]
    ) -> tuple[Mapping[str, ModelInMemory], frozenset[str]] | None:
        """The models in memory that differ from a recipe's in the fewest tensors, and the names of these tensors."""
        best: tuple[Mapping[str, ModelInMemory], frozenset[str]] | None = None
        for merge in self._merges.values():
            if merge.recipe is not None and dict(merge.digests) == dict(digests):
                changed = find_affected_tensors(opened.recipe, merge.recipe, opened.pretrained.parameters)
                if changed is not None and (best is None or len(changed) < len(best[1])):
                    best = merge.models, changed
        return best

    def _load_model(self, tensors: Mapping[str, Tensor], source: Checkpoint) -> ModelInMemory:
        cached_models = [model for merge in self._merges.values() for model in merge.models.values()]
        device = choose_device(self.device)
        return load_model(tensors, source.metadata, device, self.benchmark.pretrained_tower, reversed(cached_models))

    # Images

    def sample_tasks(self, sample: PreviewSample) -> dict[str, SampledTask]:
        """The images of a sample, which stay in memory until another sample is requested."""
        if sample not in self._sampled:
            self._sampled = {sample: sample_tasks(self.benchmark, sample)}
        return self._sampled[sample]

    def predict(self, model: ModelInMemory, batch: ImageBatch, resolution: CacheResolution) -> list[Classes]:
        """The predicted classes of a batch: an array (n,) for the n images of each of its parts."""
        key = (model.sections, batch.key)
        if key not in self._predicted:
            features = self.tokens.features(model.encoder, model.sections, batch, self.benchmark.preprocess, resolution)
            self._predicted[key] = [predict(features[rows], self._find_head(task)) for task, rows, _ in batch.parts]
            if len(self._predicted) > MAX_PREDICTIONS:
                self._predicted.popitem(last=False)
        return self._predicted[key]

    def _find_head(self, task: str) -> Tensor:
        if task not in self._heads:
            self._heads[task] = self.benchmark.load_head(task)
        return self._heads[task]


@dataclass
class PreviewWork:
    """The work of one preview on growing parts of its sample. Pairs are (the new model's, the reference's)."""

    previewer: Previewer
    sample: PreviewSample
    merges: tuple[MergeInMemory, MergeInMemory]
    experts: tuple[str, ...]
    names: tuple[str, str]
    context: Context = QUIET

    def __post_init__(self) -> None:
        self._sampled = self.previewer.sample_tasks(self.sample)
        self._stages = self.sample.stages()
        largest = max((len(task.labels) for task in self._sampled.values()), default=0)
        while len(self._stages) > 1 and (self._stages[-2].per_task or 0) >= largest:  # no task has more images
            self._stages = (*self._stages[:-2], self.sample)
        architecture = next(iter(self.merges[1].models.values())).encoder.architecture
        images = sum(len(task.labels) for task in self._sampled.values())
        self._resolution = CacheResolution.choose(architecture, images, self.previewer.limit)
        # by model: {task: predicted classes (models, images so far)}
        self._predicted: tuple[dict[str, Any], dict[str, Any]] = ({}, {})

    def previews(self) -> Iterator[Preview | None]:
        """A preview after each stage of the sample, and None after each batch. Raises Cancelled."""
        start = 0
        for stage in self._stages:
            for _ in self._predict_batches(start, stage.per_task):
                yield None
            self.previewer.memory.make_room(self.previewer)
            yield self._make_preview(stage)
            start = stage.per_task or 0

    def finish(self) -> Preview:
        """The preview on the whole sample. Raises Cancelled."""
        (last,) = deque(filter(None, self.previews()), maxlen=1)
        return last

    def _predict_batches(self, start: int, stop: int | None) -> Iterator[None]:
        """Predict images ``start`` to ``stop`` of each task, a batch at a time."""
        name = f"{self.previewer.benchmark.digest} {self.sample.seed}"
        memory, tokens = self.previewer.memory, self.previewer.tokens
        tokens.limit = min(self.previewer.limit, tokens.nbytes + memory.make_room(self.previewer))
        for models, answers in zip(self.merges, self._predicted, strict=True):
            for tasks, model in self._list_parts(models):
                for batch in image_batches(self._sampled, tasks, start, stop, name):
                    self.context.check()
                    predict_batch = partial(self.previewer.predict, model, batch, self._resolution)
                    predicted = self.previewer.retry_on_oom(predict_batch)
                    for (task, _, _), classes in zip(batch.parts, predicted, strict=True):
                        answers.setdefault(task, {}).setdefault(id(model), []).append(classes)
                    yield

    def _list_parts(self, merge: MergeInMemory) -> list[tuple[Sequence[str], ModelInMemory]]:
        """The models of a merge, each with the tasks that a run's evaluation would use it for."""
        benchmark = self.previewer.benchmark
        if list(merge.models) == [MERGED]:
            return [([task.key for task in benchmark.tasks], merge.models[MERGED])]
        parts = list_task_models({name: {} for name in merge.models}, benchmark)
        return [(part.tasks, merge.models[part.name]) for part in parts]

    def _make_preview(self, sample: PreviewSample) -> Preview:
        """The preview on the images so far, which are those of ``sample``."""
        rows = []
        right: dict[str, NDArray[np.float64]] = {}
        reference_right: dict[str, NDArray[np.float64]] = {}
        for key, task in self._sampled.items():
            classes, reference_classes = (
                np.stack([np.concatenate(parts) for parts in answers[key].values()]) for answers in self._predicted
            )  # (models, images)
            labels = task.labels[: classes.shape[1]]
            right[key], reference_right[key] = (
                (classes == labels).mean(axis=0),
                (reference_classes == labels).mean(axis=0),
            )
            predicted = classes[0] if len(classes) == 1 else np.full(len(labels), -1)
            columns = {"task": key, "place": task.positions[: len(labels)], "label": labels, "predicted": predicted}
            rows.append(pd.DataFrame({**columns, "right": right[key], "reference_right": reference_right[key]}))
        answer_table = pd.concat(rows, ignore_index=True)
        changes = compare_models(right, reference_right, self.experts)
        changes = name_changes(changes, {task.key: task.title for task in self.previewer.benchmark.tasks})
        return Preview(
            tables={CHANGES_TABLE: changes, ANSWERS_TABLE: answer_table},
            n=len(answer_table),
            sample=sample,
            device=describe_device(choose_device(self.previewer.device)),
            title=self.names[0],
            reference=self.names[1],
            rounded=self._resolution.is_rounding,
        )
