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
from merging.engine.evaluation.stored_features import FeatureAnswers
from merging.engine.modules.modules import Modules
from merging.images.batch_sizes import batch_size, forward_bytes, short_batch
from merging.images.benchmarks.referenced_images import Images, ReferencedImages
from merging.models.architecture import Architecture

BATCH = 128
PART = 32  # images that run at a time on a CPU, few enough that even a small data set occupies several cores
FARTHEST = 2.0  # the largest difference of two cosines
Prepare = Callable[[NDArray[np.uint8]], Tensor]


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

    Adapts with a module per task use that of ``task`` in domain, and the merged model's features out of domain. Adapts
    that route receive no task: every image is routed by itself.
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
        own = self.modules.method.needs_task and self.task in self.modules.tasks
        return self.modules.features(images, self.task if own else None)


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
    return features_together([encoder], images, meter, phase, detail, prepare)[0]


def features_together(
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
    device, rows = encoders[0].device, [list[Tensor]() for _ in encoders]
    nbytes = forward_bytes(short_batch(encoders[0].architecture), encoders[0].architecture)
    with ExitStack() as stack:
        batches = stack.enter_context(_batches(images, encoders[0], prepare))
        passes = (partial(_encode, encoders, batch) for batch in batches)
        for features in stack.enter_context(run_in_threads(passes, device, nbytes)):
            for features_of_batch, own in zip(features, rows, strict=True):
                own.append(features_of_batch)
                if len(own) > 1:  # copying the last batch would wait for the accelerator, which still computes it
                    own[-2] = own[-2].cpu()
                if meter is not None:
                    meter.advance(len(features_of_batch), phase, detail)
    empty = torch.empty(0, encoders[0].architecture.embed_dim)
    return [torch.cat([*own[:-1], own[-1].cpu()]) if own else empty for own in rows]


def _encode(encoders: Sequence[ImageModel], batch: Tensor) -> list[Tensor]:
    """Features (n, embed_dim) of one batch (n, 3, h, w) by each model, on their device."""
    with torch.inference_mode():
        inputs = move_tensor(batch, encoders[0].device, batch.dtype)
        return [encoder(inputs) for encoder in encoders]


@contextmanager
def _batches(images: Tensor | Images, encoder: ImageModel, prepare: Prepare | None) -> Iterator[Iterator[Tensor]]:
    """An iterator over batches (n, 3, h, w) of preprocessed images; images in files are decoded ahead."""
    host, own = is_host(encoder.device), encoder.architecture
    if isinstance(images, ReferencedImages):
        assert prepare is not None  # images in files are never stored preprocessed
        with images.batches(short_batch(own) if host else batch_size(own, encoder.device), prepare) as batches:
            yield batches
        return
    size = min(PART, short_batch(own)) if host else batch_size(own, encoder.device)

    def slices(rows: Any) -> Iterator[Tensor]:
        for start in range(0, len(rows), size):
            yield rows[start : start + size] if prepare is None else prepare(rows[start : start + size])

    yield slices(images)


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
    similarities, right = cosines(image_features, head), labels[:, None]
    own = similarities.gather(1, right)[:, 0]
    other = similarities.scatter(1, right, -torch.inf).amax(dim=1)
    return (own - other).clamp(-FARTHEST, FARTHEST)  # with one class, ``other`` is minus infinity


def answer_features(image_features: Tensor, head: Tensor, labels: Tensor) -> FeatureAnswers:
    """Features (n, embed_dim) with the classes (n,) and margins (n,) that a head (classes, embed_dim) gives.

    ``labels`` are (n,).
    """
    margin = cosine_margins(image_features, head, labels).numpy()
    return FeatureAnswers(image_features, predict(image_features, head), margin)
