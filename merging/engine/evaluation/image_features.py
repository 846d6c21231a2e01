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
PART = 32  # images that run at a time on a CPU, so that even those of a small data set are for several cores
FARTHEST = 2.0  # the largest difference of two cosines
Prepare = Callable[[NDArray[np.uint8]], Tensor]


class ImageModel(Protocol):
    """What gives features of images: an encoder, or modules on top of one."""

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        ...

    @property
    def architecture(self) -> Architecture:
        """That of its tower."""
        ...

    def __call__(self, images: Tensor, /) -> Tensor:
        """Features (n, embed_dim) of preprocessed images (n, 3, h, w)."""
        ...


@dataclass(frozen=True, slots=True)
class ModulesOfTask:
    """Modules as they are used on the images of one data set, which they are told only where they cannot do without.

    A module of the task itself is used in domain; elsewhere there is none, and the merged model's features count.
    Modules that route get no task: every image finds its own way.
    """

    modules: Modules
    task: str

    @property
    def device(self) -> torch.device:
        """Where they run."""
        return self.modules.device

    @property
    def architecture(self) -> Architecture:
        """That of the merged model."""
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
    """Image features (n, embed_dim) of preprocessed images (n, 3, h, w), batch by batch, on the CPU.

    With ``prepare``, images come as they are stored and are preprocessed a batch at a time: the next ones while an
    accelerator computes, whose memory gives the size of its batches. Images in files are decoded meanwhile as well.
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
    """The same for several models on one device, each image prepared once; ``meter`` counts it for every model."""
    device, rows = encoders[0].device, [list[Tensor]() for _ in encoders]
    nbytes = forward_bytes(short_batch(encoders[0].architecture), encoders[0].architecture)
    with ExitStack() as stack:
        batches = stack.enter_context(_batches(images, encoders[0], prepare))
        passes = (partial(_through, encoders, batch) for batch in batches)
        for found in stack.enter_context(run_in_threads(passes, device, nbytes)):
            for features_of_batch, own in zip(found, rows, strict=True):
                own.append(features_of_batch)
                if len(own) > 1:  # an accelerator still computes the last batch, which need not be waited for
                    own[-2] = own[-2].cpu()
                if meter is not None:
                    meter.advance(len(features_of_batch), phase, detail)
    none = torch.empty(0, encoders[0].architecture.embed_dim)
    return [torch.cat([*own[:-1], own[-1].cpu()]) if own else none for own in rows]


def _through(encoders: Sequence[ImageModel], batch: Tensor) -> list[Tensor]:
    """Features of one batch by each model, on their device."""
    with torch.inference_mode():
        inputs = move_tensor(batch, encoders[0].device, batch.dtype)
        return [encoder(inputs) for encoder in encoders]


@contextmanager
def _batches(images: Tensor | Images, encoder: ImageModel, prepare: Prepare | None) -> Iterator[Iterator[Tensor]]:
    """Preprocessed images as they run at a time; those in files are decoded ahead, the others taken as they are."""
    host, own = is_host(encoder.device), encoder.architecture
    if isinstance(images, ReferencedImages):
        assert prepare is not None  # pixels of files are never preprocessed
        with images.batches(short_batch(own) if host else batch_size(own, encoder.device), prepare) as batches:
            yield batches
        return
    size = min(PART, short_batch(own)) if host else batch_size(own, encoder.device)

    def slices(rows: Any) -> Iterator[Tensor]:
        for start in range(0, len(rows), size):
            yield rows[start : start + size] if prepare is None else prepare(rows[start : start + size])

    yield slices(images)


def cosines(image_features: Tensor, head: Tensor) -> Tensor:
    """Cosines (n, classes) of images and classes."""
    with limit_to_one_thread(image_features.device):
        return torch.nn.functional.normalize(image_features, dim=-1) @ head.T


def predict(image_features: Tensor, head: Tensor) -> NDArray[np.int64]:
    """The class with the highest cosine, per image (n,)."""
    classes: NDArray[np.int64] = cosines(image_features, head).argmax(dim=-1).numpy()
    return classes


def cosine_margins(image_features: Tensor, head: Tensor, labels: Tensor) -> Tensor:
    """By how much the cosine of the right class exceeds the largest other one (n,); positive if the model is right."""
    similarities, right = cosines(image_features, head), labels[:, None]
    own = similarities.gather(1, right)[:, 0]
    other = similarities.scatter(1, right, -torch.inf).amax(dim=1)
    return (own - other).clamp(-FARTHEST, FARTHEST)  # without another class there is no largest other one


def answer_features(image_features: Tensor, head: Tensor, labels: Tensor) -> FeatureAnswers:
    """Features with the classes and margins that a head gives."""
    margin = cosine_margins(image_features, head, labels).numpy()
    return FeatureAnswers(image_features, predict(image_features, head), margin)
