"""All tables about images, cached by model, image and table; they share towers, passes and the data sets' scales."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from merging.models.model_references import EXPERTS, PRETRAINED
from merging.study.analysis import measurement_store
from merging.study.one_image import attention, image_sentence, logit_lens, nearest_images, occlude, patch_drift, restore
from merging.study.one_image.images_by_depth import compute_images_by_depth
from merging.study.one_image.named_towers import RecentlyUsed, Towers
from merging.study.one_image.trace import Trace, trace_image

if TYPE_CHECKING:
    from torch import Tensor

    from merging.study.one_image.nearest_images import FeatureBank
    from merging.study.one_image.studied_image import StudiedImage

MAX_TABLES, MAX_TRACES, MAX_SCALES = 200, 8, 32  # the sizes of the caches
SPLIT = "reporting"  # the half of a data set that a scale is computed from
ACCURACY_COLUMNS = ["depth", "accuracy", "low", "high", "n"]
DEPTHS_MEASUREMENT = "depths"  # the stored measurement that scales are read from
TableCache = RecentlyUsed[pd.DataFrame]


@dataclass(frozen=True, eq=False)
class DataSetScale:
    """The usual values on a data set: the accuracy by depth of a model and of its reference, and the model's drift.

    Columns of the accuracies: depth, accuracy, low, high, n; of the drift: depth, token, mean, high (90 % quantile), n.
    """

    accuracy: pd.DataFrame
    reference: pd.DataFrame
    drift: pd.DataFrame


@dataclass(eq=False)
class ImageTables:
    """Tables about images. Models are named by the keys of ``towers``; a model may be its own reference."""

    towers: Towers
    _tables: TableCache = field(default_factory=lambda: RecentlyUsed(MAX_TABLES))
    _traces: RecentlyUsed[Trace] = field(default_factory=lambda: RecentlyUsed(MAX_TRACES))
    _scales: RecentlyUsed[DataSetScale] = field(default_factory=lambda: RecentlyUsed(MAX_SCALES))
    _banks: RecentlyUsed[FeatureBank] = field(default_factory=lambda: RecentlyUsed(4))
    _patches: RecentlyUsed[Tensor] = field(default_factory=lambda: RecentlyUsed(MAX_SCALES))

    def trace(self, image: StudiedImage, key: str) -> Trace:
        """The trace of an image's pass through a model."""
        return self._traces.get((key, image.name), lambda: trace_image(self.towers(key), image))

    def _get_table(
        self, image: StudiedImage, key: str, name: str, options: Hashable, compute: Callable[[], pd.DataFrame]
    ) -> pd.DataFrame:
        return self._tables.get((key, image.name, image.task.key, name, options), compute)

    def lens(self, image: StudiedImage, key: str, *, by_pretrained: bool = False) -> pd.DataFrame:
        """The answer by depth (``logit_lens.lens_table``), read out by the model's own head or the pretrained one."""

        def compute_table() -> pd.DataFrame:
            output = self.trace(image, PRETRAINED).output if by_pretrained else None
            return logit_lens.lens_table(self.trace(image, key), image, output)

        return self._get_table(image, key, "lens", by_pretrained, compute_table)

    def accuracy(self, image: StudiedImage, key: str, reference: str) -> pd.DataFrame:
        """Accuracy by depth over the data set of the image's classes, of the model and of its reference.

        Columns: model, depth, accuracy, low, high, n.
        """
        scale = self.scale(image, key, reference)
        if key == reference:
            return scale.accuracy.assign(model=key)
        accuracies = {key: scale.accuracy, reference: scale.reference}
        return pd.concat([table.assign(model=name) for name, table in accuracies.items()], ignore_index=True)

    def attention(self, image: StudiedImage, key: str) -> pd.DataFrame:
        """The model's attention (``attention.attention_table``)."""
        return self._get_table(image, key, "attention", None, lambda: attention.attention_table(self.trace(image, key)))

    def attention_change(self, image: StudiedImage, key: str, other: str) -> pd.DataFrame:
        """The difference of two models' attention (``attention.attention_change``)."""
        return self._get_table(
            image, key, "attention_change", other,
            lambda: attention.attention_change(self.trace(image, key), self.trace(image, other)),
        )  # fmt: skip

    def drift(self, image: StudiedImage, key: str, reference: str, *, scaled: bool = True) -> pd.DataFrame:
        """The drift by patch (``patch_drift.drift_table``), with the data set's scale if ``scaled``."""

        def compute_table() -> pd.DataFrame:
            scale = self.scale(image, key, reference).drift if scaled else None
            return patch_drift.drift_table(self.trace(image, key), self.trace(image, reference), scale)

        return self._get_table(image, key, "drift", (reference, scaled), compute_table)

    def find_first_unusual_depths(self, image: StudiedImage, key: str, reference: str) -> dict[str, int]:
        """The first depths past the data set's 90 % quantile (``patch_drift.first_unusual_depths``)."""
        return patch_drift.first_unusual_depths(
            self.drift(image, key, reference), self.scale(image, key, reference).drift
        )

    def restore(self, image: StudiedImage, key: str, donor: str, *, tokens: bool = False) -> pd.DataFrame:
        """The result of restoring (``restore.restore``), or of restoring single ``tokens`` (``restore_tokens``)."""
        restore_with = restore.restore_tokens if tokens else restore.restore

        def compute_table() -> pd.DataFrame:
            return restore_with(self.towers(key), self.trace(image, key), self.trace(image, donor), image)

        return self._get_table(image, key, "restore", (donor, tokens), compute_table)

    def occlude(self, image: StudiedImage, key: str, reference: str) -> pd.DataFrame:
        """The result of occluding (``occlude.occlude``) with the mean patch of the data set of the image's classes."""

        def compute_table() -> pd.DataFrame:
            tower = self.towers(key)
            patch = self._get_mean_patch(image.task.key, tower.encoder.architecture.patch_size)
            traces = self.trace(image, key), self.trace(image, reference)
            return occlude.occlude(tower, traces[0], image, patch, traces[1])

        return self._get_table(image, key, "occlude", reference, compute_table)

    def neighbors(self, image: StudiedImage, key: str, tasks: Sequence[str]) -> pd.DataFrame:
        """The nearest images of these data sets (``nearest_images.nearest_images``), usually ``list_same_domain``."""
        return self._get_table(
            image, key, "neighbors", tuple(tasks),
            lambda: nearest_images.nearest_images(self.trace(image, key), image, self._get_bank(key, tasks)),
        )  # fmt: skip

    def overlap(self, image: StudiedImage, key: str, reference: str, tasks: Sequence[str]) -> pd.DataFrame:
        """The share of neighbors that two models have in common (``nearest_images.neighbor_overlap``)."""

        def compute_table() -> pd.DataFrame:
            traces = self.trace(image, key), self.trace(image, reference)
            return nearest_images.neighbor_overlap(
                traces, image, (self._get_bank(key, tasks), self._get_bank(reference, tasks))
            )

        return self._get_table(image, key, "overlap", (reference, tuple(tasks)), compute_table)

    def summary(self, image: StudiedImage, key: str, reference: str) -> pd.DataFrame:
        """A summary of the model's answer (``logit_lens.summarize_answer``)."""
        return self._get_table(
            image, key, "summary", reference,
            lambda: logit_lens.summarize_answer(self.trace(image, key), image, self.trace(image, reference)),
        )  # fmt: skip

    def sentence(self, image: StudiedImage, key: str, reference: str, *, restored: bool = True) -> str:
        """Sentences about a model's answer; ``restored`` adds the tokens that fix it, which takes more passes."""
        model_summary, reference_summary = (
            self.summary(image, key, reference),
            self.summary(image, reference, reference),
        )
        table = self.restore(image, key, reference) if restored and key != reference else None
        return image_sentence.describe_image(model_summary, image, reference_summary, table)

    def scale(self, image: StudiedImage, key: str, reference: str) -> DataSetScale:
        """The usual values on the data set of the image's classes, from a stored measurement or measured now."""
        task = image.task.key
        return self._scales.get((key, reference, task), lambda: self._compute_scale(key, reference, task))

    def _compute_scale(self, key: str, reference: str, task: str) -> DataSetScale:
        benchmark = self.towers.benchmark
        if stored := self._find_stored_scale(key, reference, task):
            return stored
        images, labels = benchmark.load_images(task, SPLIT)
        encoder, reference_encoder = (self.towers(name).encoder for name in (key, reference))
        meter = self.towers.context.without_progress().meter(0)
        by_depth = compute_images_by_depth(
            encoder, reference_encoder, images, labels, benchmark.load_head(task), benchmark.preprocess, meter
        )
        return DataSetScale(by_depth.accuracy(), by_depth.accuracy(by_depth.reference), by_depth.drift())

    def _find_stored_scale(self, key: str, reference: str, task: str) -> DataSetScale | None:
        """The scale from a stored measurement; None if there is none of this run with this reference."""
        if key == PRETRAINED or key.startswith(EXPERTS) or key in self.towers.drafts:
            return None
        run_id = key.partition("/")[0]
        stored = measurement_store.find_measurement_result(
            DEPTHS_MEASUREMENT, self.towers.store, self.towers.benchmark, run_id
        )
        if stored is None:
            return None
        rows = {name: stored.table(name) for name in ("accuracy", "drift")}
        task_rows = {name: table[table["over"] == task].reset_index(drop=True) for name, table in rows.items()}
        if task_rows["drift"].empty or set(task_rows["drift"]["reference"]) != {reference}:
            return None
        by_model = {model: table[ACCURACY_COLUMNS] for model, table in task_rows["accuracy"].groupby("model")}
        return DataSetScale(by_model["run"], by_model["reference"], task_rows["drift"])

    def _get_bank(self, key: str, tasks: Sequence[str]) -> FeatureBank:
        return self._banks.get((key, tuple(tasks)), lambda: nearest_images.get_bank(self.towers, key, tasks))

    def _get_mean_patch(self, task: str, size: int) -> Tensor:
        """The mean patch of a data set's choosing half, preprocessed (3, p, p)."""

        def compute_patch() -> Tensor:
            images = self.towers.benchmark.load_unlabeled(task, nearest_images.SPLIT)
            mean: np.ndarray[Any, Any] = occlude.mean_patch(images, size)
            return self.towers.benchmark.preprocess(mean[None])[0]

        return self._patches.get((task, size), compute_patch)
