"""The work of previews: what they share stays in memory, and each is answered on growing samples."""

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
from merging.engine.evaluation.evaluate import per_task_parts
from merging.engine.evaluation.image_features import predict
from merging.engine.outputs import MERGED
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.checkpoint import Checkpoint
from merging.models.digest_cache import DIGESTS
from merging.models.model_references import PRETRAINED
from merging.recipes.recipe import Recipe
from merging.study.previews.affected_tensors import affected_tensors
from merging.study.previews.bootstrap import AVERAGE, paired_differences
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
from merging.study.previews.preview import ANSWERS, CHANGES, Preview
from merging.study.previews.preview_memory import Memory, count_bytes
from merging.study.previews.preview_samples import ImageBatch, PreviewSample, SampledTask, image_batches, sample_tasks
from merging.study.previews.token_cache import LIMIT, CacheResolution, TokenCache
from merging.study.runs.opened_recipe import OpenedRecipe, open_inputs
from merging.study.runs.run import Run
from merging.tasks.context import QUIET, Context

MODELS = 64  # recipes whose models stay in memory
PREDICTIONS = 1 << 14  # batches whose predictions stay in memory
Classes = NDArray[np.int64]
V = TypeVar("V")


@dataclass
class Previewer:
    """What previews on one benchmark share: models, images, heads, tokens and predictions. For one thread."""

    benchmark: Benchmark
    device: str = "auto"
    limit: int = LIMIT  # bytes of tokens
    memory: Memory = field(default_factory=Memory)  # what this and other previewers keep together
    tokens: TokenCache = field(init=False)
    _merges: OrderedDict[str, MergeInMemory] = field(
        default_factory=OrderedDict
    )  # by run id; least recently used first
    _predicted: OrderedDict[tuple[object, ...], list[Classes]] = field(default_factory=OrderedDict)
    _sampled: dict[PreviewSample, dict[str, SampledTask]] = field(default_factory=dict)
    _heads: dict[str, Tensor] = field(default_factory=dict)
    _moments: dict[tuple[object, ...], MomentsInMemory] = field(default_factory=dict)
    _compared: tuple[MergeInMemory, ...] = ()  # by the last preview

    def __post_init__(self) -> None:
        self.tokens = TokenCache(self.limit)

    @property
    def nbytes(self) -> int:
        """Bytes that are kept: models, tokens, moments, images, heads, predictions."""
        images = sum(task.images.nbytes for tasks in self._sampled.values() for task in tasks.values())
        moments = sum(kept.nbytes for kept in self._moments.values())
        tensors = count_bytes([*list_tensors([*self._merges.values(), *self._compared]), *self._heads.values()])
        predicted = sum(classes.nbytes for batch in self._predicted.values() for classes in batch)
        return self.tokens.nbytes + images + moments + tensors + predicted

    @property
    def spare_bytes(self) -> int:
        """Bytes that are kept beyond the models that the last preview compares."""
        return self.nbytes - count_bytes(list_tensors(self._compared))

    def drop_one(self) -> bool:
        """Drop the models that were not used for longest, else tokens, else moments, else images and the rest."""
        idle = next((key for key, one in self._merges.items() if one not in self._compared), None)
        if idle is not None:
            del self._merges[idle]
            return True
        if self.tokens.drop_one():
            return True
        kept = next((kept for kept in (self._moments, self._sampled, self._predicted, self._heads) if kept), None)
        if kept is not None:
            kept.clear()
        return kept is not None

    def begin(
        self,
        recipe: Recipe,
        sample: PreviewSample,
        reference: Recipe | Run | None = None,
        base: Path | None = None,
        context: Context = QUIET,
    ) -> PreviewWork:
        """A preview whose models are merged and whose images are not looked at yet.

        Raises:
            NeedsError: the chain learns, or it needs exemplars, and what they give is not at hand.
            TaskError: the models do not fit the benchmark. CheckpointError, CompatibilityError: they cannot be merged.
            Cancelled: asked to stop.
        """
        opened = open_inputs(recipe, base, self.benchmark)
        if reason := self.benchmark.misfit(opened.pretrained):
            raise TaskError(f"It cannot be previewed on this benchmark: {reason}")
        against, name = self.retry_on_oom(lambda: self._reference(reference, opened, base, context))
        new = self.retry_on_oom(lambda: self._merge(opened, context))
        self._compared = (new, against)
        while len(self._merges) > max(MODELS, len(self._compared)):
            self.drop_one()
        self.memory.make_room(self)
        self.tokens.begin(*(model.sections for one in (new, against) for model in one.models.values()))
        title = recipe.title or recipe.text()
        return PreviewWork(self, sample, (new, against), tuple(opened.experts), (title, name), context)

    def retry_on_oom(self, compute: Callable[[], V]) -> V:
        """What a function makes with these models; where a device's memory runs out, it begins anew in smaller pieces.

        Where that does not help, the models stay on the CPU from then on.
        """

        def computed_on(device: torch.device) -> V:
            if device != chosen:
                self.device = str(device)
                self._moments.clear()
                move_models(
                    (model for one in (*self._merges.values(), *self._compared) for model in one.models.values()),
                    device,
                )
            return compute()

        chosen = choose_device(self.device)
        return retry_on_oom(chosen, computed_on)[0]

    # Models

    def _reference(
        self, reference: Recipe | Run | None, opened: OpenedRecipe, base: Path | None, context: Context
    ) -> tuple[MergeInMemory, str]:
        """The models that a preview is compared with, and their name."""
        if reference is None:
            return self._pretrained(opened), "Pretrained"
        if isinstance(reference, Recipe):
            name = reference.title or reference.text()
            return self._merge(open_inputs(reference, base, self.benchmark), context), name
        if reference.id in self._merges:
            return self._merges[reference.id], reference.name
        if reference.recipe is None:
            raise StoreError(f"“{reference.title}” is no merge. Compare with a merge, or with the pretrained model.")
        if reference.adapt:
            raise NeedsError(
                f"“{reference.title}” has modules on top of its merged model, which previews do not run. Compare with "
                "another run, or with the pretrained model."
            )
        if reference.has_model:
            models = {name: self._load_model(file.state_dict(), file) for name, file in reference.open_models().items()}
            self._merges[reference.id] = MergeInMemory(reference.inputs, models, reference.recipe)
            return self._merges[reference.id], reference.name
        again = open_inputs(reference.recipe, base, self.benchmark)
        if again.run_id() != reference.id:
            raise StoreError(f"The files that the recipe of “{reference.title}” names are no longer those of this run.")
        return self._merge(again, context), reference.name

    def _pretrained(self, opened: OpenedRecipe) -> MergeInMemory:
        digest = DIGESTS.digest(opened.pretrained)
        key = f"{PRETRAINED} {digest} {opened.recipe.activation} {opened.recipe.architecture}"
        if key not in self._merges:
            model = self._load_model(opened.pretrained.state_dict(), opened.pretrained)
            self._merges[key] = MergeInMemory({PRETRAINED: digest}, {MERGED: model})
        return self._merges[key]

    def _merge(self, opened: OpenedRecipe, context: Context) -> MergeInMemory:
        """The models of a recipe: those in memory, or merged where it differs from the nearest ones there."""
        digests = opened.digests(context)
        run_id = opened.run_id(digests)
        if run_id not in self._merges:
            refuse_learning(opened)
            near = self._nearest(opened, digests)
            states = merge_in_memory(
                opened, context.on_device(self.device), lambda: self._find_moments(opened, digests), near
            )
            models = {name: self._load_model(state, opened.pretrained) for name, state in states.items()}
            self._merges[run_id] = MergeInMemory(digests, models, opened.recipe)
        self._merges.move_to_end(run_id)
        return self._merges[run_id]

    def _find_moments(self, opened: OpenedRecipe, digests: Mapping[str, str]) -> MomentsInMemory | None:
        """The moments of the exemplars of a recipe that needs some; those of the last recipe are kept."""
        recipe = opened.recipe
        if recipe.exemplars is None or not recipe.needs:
            return None
        key = (*digests.values(), recipe.exemplars, recipe.activation, recipe.architecture)
        if key not in self._moments:
            self._moments.clear()
            kept = MomentsInMemory(opened, self.benchmark, self.device)
            self.memory.make_room(self, moments_bytes(opened))
            self._moments[key] = kept
        return self._moments[key]

    def _nearest(
        self, opened: OpenedRecipe, digests: Mapping[str, str]
    ) -> tuple[Mapping[str, ModelInMemory], frozenset[str]] | None:
        """The models in memory that differ from a recipe's in the fewest scalars, and in which tensors they may."""
        best: tuple[Mapping[str, ModelInMemory], frozenset[str]] | None = None
        for one in self._merges.values():
            if one.recipe is not None and dict(one.digests) == dict(digests):
                changed = affected_tensors(opened.recipe, one.recipe, opened.pretrained.parameters)
                if changed is not None and (best is None or len(changed) < len(best[1])):
                    best = one.models, changed
        return best

    def _load_model(self, tensors: Mapping[str, Tensor], like: Checkpoint) -> ModelInMemory:
        known = [model for one in self._merges.values() for model in one.models.values()]
        device = choose_device(self.device)
        return load_model(tensors, like.metadata, device, self.benchmark.pretrained_tower, reversed(known))

    # Images

    def sample_tasks(self, sample: PreviewSample) -> dict[str, SampledTask]:
        """The drawn images, which stay in memory until others are drawn."""
        if sample not in self._sampled:
            self._sampled = {sample: sample_tasks(self.benchmark, sample)}
        return self._sampled[sample]

    def predict(self, model: ModelInMemory, batch: ImageBatch, keeping: CacheResolution) -> list[Classes]:
        """The predicted classes of a batch, one array for each of its parts."""
        key = (model.sections, batch.key)
        if key not in self._predicted:
            features = self.tokens.features(model.encoder, model.sections, batch, self.benchmark.preprocess, keeping)
            self._predicted[key] = [predict(features[rows], self._head(task)) for task, rows, _ in batch.parts]
            if len(self._predicted) > PREDICTIONS:
                self._predicted.popitem(last=False)
        return self._predicted[key]

    def _head(self, task: str) -> Tensor:
        if task not in self._heads:
            self._heads[task] = self.benchmark.head(task)
        return self._heads[task]


@dataclass
class PreviewWork:
    """One preview: what more and more images of the sample show. The new model comes first."""

    previewer: Previewer
    sample: PreviewSample
    merges: tuple[MergeInMemory, MergeInMemory]
    experts: tuple[str, ...]
    names: tuple[str, str]
    context: Context = QUIET

    def __post_init__(self) -> None:
        self._sampled = self.previewer.sample_tasks(self.sample)
        self._stages = self.sample.stages()
        most = max((len(task.labels) for task in self._sampled.values()), default=0)
        while len(self._stages) > 1 and (self._stages[-2].per_task or 0) >= most:  # no task has more images
            self._stages = (*self._stages[:-2], self.sample)
        architecture = next(iter(self.merges[1].models.values())).encoder.architecture
        images = sum(len(task.labels) for task in self._sampled.values())
        self._keeping = CacheResolution.fit(architecture, images, self.previewer.limit)
        # by model: {task: predicted classes (models, images so far)}
        self._predicted: tuple[dict[str, Any], dict[str, Any]] = ({}, {})

    def previews(self) -> Iterator[Preview | None]:
        """A preview after each stage of the sample, and None after each batch. Raises Cancelled if asked to stop."""
        start = 0
        for stage in self._stages:
            for _ in self._batches(start, stage.per_task):
                yield None
            self.previewer.memory.make_room(self.previewer)
            yield self._make_preview(stage)
            start = stage.per_task or 0

    def finish(self) -> Preview:
        """The preview on the whole sample. Raises Cancelled if asked to stop."""
        (last,) = deque(filter(None, self.previews()), maxlen=1)
        return last

    def _batches(self, start: int, stop: int | None) -> Iterator[None]:
        """Look at images ``start`` to ``stop`` of each task, a batch at a time."""
        name = f"{self.previewer.benchmark.digest} {self.sample.seed}"
        room, kept = self.previewer.memory, self.previewer.tokens
        kept.limit = min(self.previewer.limit, kept.nbytes + room.make_room(self.previewer))
        for models, answers in zip(self.merges, self._predicted, strict=True):
            for tasks, model in self._parts(models):
                for batch in image_batches(self._sampled, tasks, start, stop, name):
                    self.context.check()
                    look = partial(self.previewer.predict, model, batch, self._keeping)
                    for (task, _, _), classes in zip(batch.parts, self.previewer.retry_on_oom(look), strict=True):
                        answers.setdefault(task, {}).setdefault(id(model), []).append(classes)
                    yield

    def _parts(self, one: MergeInMemory) -> list[tuple[Sequence[str], ModelInMemory]]:
        """The models, each with the tasks that it is evaluated on, as a run is scored."""
        benchmark = self.previewer.benchmark
        if list(one.models) == [MERGED]:
            return [([task.key for task in benchmark.tasks], one.models[MERGED])]
        parts = per_task_parts({name: {} for name in one.models}, benchmark)
        return [(part.tasks, one.models[part.name]) for part in parts]

    def _make_preview(self, sample: PreviewSample) -> Preview:
        """What the images so far show, which are those of a sample."""
        rows = []
        new: dict[str, NDArray[np.float64]] = {}
        old: dict[str, NDArray[np.float64]] = {}
        for key, task in self._sampled.items():
            classes, before = (
                np.stack([np.concatenate(parts) for parts in answers[key].values()]) for answers in self._predicted
            )  # (models, images)
            labels = task.labels[: classes.shape[1]]
            new[key], old[key] = (classes == labels).mean(axis=0), (before == labels).mean(axis=0)
            predicted = classes[0] if len(classes) == 1 else np.full(len(labels), -1)
            columns = {"task": key, "place": task.positions[: len(labels)], "label": labels, "predicted": predicted}
            rows.append(pd.DataFrame({**columns, "right": new[key], "reference_right": old[key]}))
        answered = pd.concat(rows, ignore_index=True)
        changes = paired_differences(new, old, self.experts, seed=self.sample.seed)
        titles = {task.key: task.title for task in self.previewer.benchmark.tasks}
        names = zip(changes["over"], changes["group"], strict=True)
        changes.insert(
            1, "title", [over[0].upper() + over[1:] if group == AVERAGE else titles[over] for over, group in names]
        )
        return Preview(
            tables={CHANGES: changes, ANSWERS: answered},
            n=len(answered),
            sample=sample,
            device=describe_device(choose_device(self.previewer.device)),
            title=self.names[0],
            reference=self.names[1],
            rounded=self._keeping.rounds,
        )
