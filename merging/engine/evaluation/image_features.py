"""Features of images by one model or several at once, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.devices import is_host, move_tensor
from merging.base.progress import Meter
from merging.base.threads import limit_to_one_thread, run_in_threads
from merging.engine.evaluation.stored_features import FeaturePredictions
from merging.engine.modules.modules import Modules
from merging.images.batch_sizes import batch_size, forward_bytes, short_batch
from merging.images.benchmarks.referenced_images import Images, ReferencedImages
from merging.models.architecture import Architecture

HEAD_BATCH = 128  # images of unknown tasks for which heads are chosen at a time
MAX_MARGIN = 2.0  # the largest difference of two cosines
Prepare = Callable[[NDArray[np.uint8]], Tensor]  # stored images -> preprocessed images (n, 3, h, w)


class ImageModel(Protocol):
    """A model that encodes images: an encoder, or modules on top of one."""

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        ...

    @property
    def architecture(self) -> Architecture:
        """The architecture of the model's tower."""
        ...

    def __call__(self, images: Tensor, /) -> Tensor:
        """Features (n, embed_dim) of preprocessed images (n, 3, h, w)."""
        ...


@dataclass(frozen=True, slots=True)
class ModulesOfTask:
    """Modules as they encode the images of one data set.

    Adapts with a module per task use the module of ``task``, or the merged model's features if the task was not merged.
    Adapts that route receive no task: every image is routed by itself.
    """

    modules: Modules
    task: str

    @property
    def device(self) -> torch.device:
        """The device of the modules."""
        return self.modules.device

    @property
    def architecture(self) -> Architecture:
        """The architecture of the merged model."""
        return self.modules.architecture

    def __call__(self, images: Tensor, /) -> Tensor:
        """Features (n, embed_dim) of preprocessed images (n, 3, h, w)."""
        has_module = self.modules.method.needs_task and self.task in self.modules.tasks
        return self.modules.features(images, self.task if has_module else None)


def compute_features(
    encoder: ImageModel,
    images: Tensor | Images,
    meter: Meter | None = None,
    phase: str = "Reading features",
    detail: str = "",
    prepare: Prepare | None = None,
) -> Tensor:
    """Image features (n, embed_dim) of preprocessed images (n, 3, h, w), computed in batches and returned on the CPU.

    With ``prepare``, images are passed as stored, uint8, and preprocessed one batch ahead of an accelerator, whose
    memory decides the batch size. Images in files are also decoded ahead.
    """
    return compute_features_of_models([encoder], images, meter, phase, detail, prepare)[0]


def compute_features_of_models(
    encoders: Sequence[ImageModel],
    images: Tensor | Images,
    meter: Meter | None = None,
    phase: str = "Reading features",
    detail: str = "",
    prepare: Prepare | None = None,
) -> list[Tensor]:
    """As ``compute_features``, (n, embed_dim) for each of several models on one device.

    Each image is prepared once, and ``meter`` counts it for every model.
    """
    first = encoders[0]  # all have one device and architecture
    device, batches_by_model = first.device, [list[Tensor]() for _ in encoders]
    nbytes = forward_bytes(short_batch(first.architecture), first.architecture)
    with ExitStack() as stack:
        batches = stack.enter_context(_split_batches(images, first, prepare))
        passes = (partial(_encode, encoders, batch) for batch in batches)
        for batch_features in stack.enter_context(run_in_threads(passes, device, nbytes)):
            for features, done in zip(batch_features, batches_by_model, strict=True):
                done.append(features)
                if len(done) > 1:  # copying the last batch would wait for the accelerator, which still computes it
                    done[-2] = done[-2].cpu()
                if meter is not None:
                    meter.advance(len(features), phase, detail)
    empty = torch.empty(0, first.architecture.embed_dim)
    return [torch.cat([*done[:-1], done[-1].cpu()]) if done else empty for done in batches_by_model]


def _encode(encoders: Sequence[ImageModel], batch: Tensor) -> list[Tensor]:
    """Features (n, embed_dim) of one batch (n, 3, h, w) by each model, on their device."""
    with torch.inference_mode():
        inputs = move_tensor(batch, encoders[0].device, batch.dtype)
        return [encoder(inputs) for encoder in encoders]


@contextmanager
def _split_batches(images: Tensor | Images, encoder: ImageModel, prepare: Prepare | None) -> Iterator[Iterator[Tensor]]:
    """An iterator over batches (n, 3, h, w) of preprocessed images; images in files are decoded ahead."""
    on_cpu, tower = is_host(encoder.device), encoder.architecture
    if isinstance(images, ReferencedImages):
        assert prepare is not None  # images in files are never stored preprocessed
        with images.batches(short_batch(tower) if on_cpu else batch_size(tower, encoder.device), prepare) as batches:
            yield batches
        return
    size = short_batch(tower) if on_cpu else batch_size(tower, encoder.device)

    def iterate_batches(rows: Any) -> Iterator[Tensor]:
        for start in range(0, len(rows), size):
            yield rows[start : start + size] if prepare is None else prepare(rows[start : start + size])

    yield iterate_batches(images)


def cosines(image_features: Tensor, head: Tensor) -> Tensor:
    """Cosines (n, classes) of image features (n, embed_dim) and a head (classes, embed_dim) of unit rows."""
    with limit_to_one_thread(image_features.device):
        return torch.nn.functional.normalize(image_features, dim=-1) @ head.T


def predict(image_features: Tensor, head: Tensor) -> NDArray[np.int64]:
    """The class (n,) with the highest cosine, of image features (n, embed_dim) with a head (classes, embed_dim)."""
    classes: NDArray[np.int64] = cosines(image_features, head).argmax(dim=-1).numpy()
    return classes


def cosine_margins(image_features: Tensor, head: Tensor, labels: Tensor) -> Tensor:
    """The margin (n,) of the right class's cosine over the largest other one; positive if the prediction is right.

    ``image_features`` are (n, embed_dim), ``head`` (classes, embed_dim), ``labels`` (n,).
    """
    similarities, right_class = cosines(image_features, head), labels[:, None]
    right = similarities.gather(1, right_class)[:, 0]
    best_wrong = similarities.scatter(1, right_class, -torch.inf).amax(dim=1)  # minus infinity with one class
    return (right - best_wrong).clamp(-MAX_MARGIN, MAX_MARGIN)


def predict_classes(image_features: Tensor, head: Tensor, labels: Tensor) -> FeaturePredictions:
    """Features (n, embed_dim) with the classes (n,) and margins (n,) that a head (classes, embed_dim) gives.

    ``labels`` are (n,).
    """
    margins = cosine_margins(image_features, head, labels).numpy()
    return FeaturePredictions(image_features, predict(image_features, head), margins)
