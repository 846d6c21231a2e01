"""Answers, drift and restoring by depth for all images of a data set: a scale for one image, and data to search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.engine.evaluation.image_features import HEAD_BATCH, cosines
from merging.images.batch_sizes import limit_batch
from merging.images.benchmarks.metrics import wilson
from merging.images.benchmarks.referenced_images import Images
from merging.study.one_image.patch_drift import CLASS, PATCH, PATCHES, token_distances
from merging.study.one_image.restore import compute_restored_features, token_masks

if TYPE_CHECKING:
    from merging.base.progress import Meter
    from merging.images.image_encoder import Encoder

HIGH_QUANTILE = 0.9  # the quantile in the column "high"
TOKEN_BYTES = 1 << 27  # limit of the tokens at all depths of the images that are restored in one batch
READING_PHASE = "Reading answers by depth"
Preprocess = Callable[[NDArray[np.uint8]], Tensor]  # from stored images (n, s, s, 3) to inputs of a tower (n, 3, h, w)


@dataclass(frozen=True, eq=False)
class ImagesByDepth:
    """The answers and drift of one model on n images of a data set, at D = B + 1 depths.

    ``labels`` are (n,). ``answers`` (D, n) are the classes that are read out. ``class_drift`` (D, n) and
    ``patch_drift`` (D, n, P) are 1 - cos to the reference's tokens, of the class token and of every patch.
    """

    labels: NDArray[np.int64]
    answers: NDArray[np.int64]
    reference: NDArray[np.int64]  # (D, n), the reference's answers
    class_drift: NDArray[np.float32]
    patch_drift: NDArray[np.float32]

    def accuracy(self, answers: NDArray[np.int64] | None = None) -> pd.DataFrame:
        """Accuracy by depth of the model, or of other answers (D, n): depth, accuracy, low, high (Wilson), n."""
        right_counts = ((self.answers if answers is None else answers) == self.labels).sum(axis=1)
        n = len(self.labels)
        rows = [
            (depth, count / n if n else np.nan, *wilson(int(count), n), n) for depth, count in enumerate(right_counts)
        ]
        return pd.DataFrame(rows, columns=["depth", "accuracy", "low", "high", "n"])

    def drift(self) -> pd.DataFrame:
        """Drift by depth: depth, token, mean, high, n.

        token is "class", "patches" (the mean over an image's patches) or "patch" (every single patch). high is the 90 %
        quantile over all images, for "patch" over all patches of all images.
        """
        n = len(self.labels)
        kinds = {
            CLASS: self.class_drift,
            PATCHES: self.patch_drift.mean(axis=2),
            PATCH: self.patch_drift.reshape(-1, n * self.patch_drift.shape[2]),
        }
        rows = [
            (depth, kind, float(values.mean()), float(np.quantile(values, HIGH_QUANTILE)), n)
            for kind, by_depth in kinds.items()
            for depth, values in enumerate(by_depth.astype(np.float64))
            if values.size
        ]
        return pd.DataFrame(rows, columns=["depth", "token", "mean", "high", "n"])


def iterate_tokens(encoder: Encoder, images: Tensor) -> Iterator[Tensor]:
    """Tokens (n, T, d) of images (n, 3, h, w) before block 0 and after every block."""
    x = images.to(encoder.device)
    for section in range(encoder.sections - 1):
        x = encoder.run_section(section, x)
        yield x


def compute_images_by_depth(
    encoder: Encoder,
    reference: Encoder,
    images: Images,
    labels: NDArray[np.int64],
    head: Tensor,
    preprocess: Preprocess,
    meter: Meter | None = None,
    detail: str = "",
) -> ImagesByDepth:
    """The answers and drift from one pass of all images (n, s, s, 3) through the model and one through the reference.

    ``labels`` are (n,), ``head`` is (classes, e).
    """
    parts: list[tuple[list[NDArray[np.int64]], list[NDArray[np.int64]], list[NDArray[np.float32]]]] = []
    size = limit_batch(HEAD_BATCH, encoder.architecture, encoder.device)
    for start in range(0, len(images), size):
        inputs = preprocess(images[start : start + size])
        own_answers, reference_answers, drifts = [], [], []
        with torch.inference_mode():
            for x, y in zip(iterate_tokens(encoder, inputs), iterate_tokens(reference, inputs), strict=True):
                own_answers.append(_read_answers(encoder, x, head))
                reference_answers.append(_read_answers(reference, y, head))
                drifts.append(token_distances(x, y).cpu().numpy().astype(np.float32))
        parts.append((own_answers, reference_answers, drifts))
        if meter is not None:
            meter.advance(2 * len(inputs), READING_PHASE, detail)
    answers, expected, drift = (np.concatenate([np.stack(part[i]) for part in parts], axis=1) for i in range(3))
    return ImagesByDepth(labels, answers, expected, drift[:, :, 0], drift[:, :, 1:])


def _read_answers(encoder: Encoder, x: Tensor, head: Tensor) -> NDArray[np.int64]:
    classes: NDArray[np.int64] = cosines(encoder.head(x[:, :1]).cpu(), head).argmax(dim=-1).numpy()
    return classes


def find_restored_images(
    encoder: Encoder,
    donor: Encoder,
    images: Images,
    labels: NDArray[np.int64],
    head: Tensor,
    preprocess: Preprocess,
    meter: Meter | None = None,
    detail: str = "",
) -> NDArray[np.bool_]:
    """Whether each image is right (D, 3, n) with the donor's class token, patches or all tokens before each block.

    ``images`` are (n, s, s, 3), ``labels`` (n,), ``head`` (classes, e).
    """
    architecture = encoder.architecture
    tokens = (architecture.image_size // architecture.patch_size) ** 2 + 1
    image_bytes = 4 * tokens * architecture.width * (architecture.layers + 1) * 3
    is_right = []
    for batch in _batch_slices(len(images), max(1, TOKEN_BYTES // image_bytes)):
        inputs = preprocess(images[batch])
        with torch.inference_mode():
            own_tokens, donor_tokens = (
                torch.stack([x.cpu() for x in iterate_tokens(model, inputs)]) for model in (encoder, donor)
            )
        features = compute_restored_features(encoder, own_tokens, donor_tokens, token_masks(tokens))  # (D, 3, n, e)
        answers = cosines(features.flatten(0, 2), head).argmax(dim=-1).reshape(features.shape[:3]).numpy()
        is_right.append(answers == labels[batch])
        if meter is not None:
            meter.advance(len(inputs) * 2 * architecture.layers, "Restoring tokens", detail)
    empty = np.zeros((architecture.layers + 1, 3, 0), bool)
    return np.concatenate([empty, *is_right], axis=2)


def _batch_slices(count: int, size: int) -> Sequence[slice]:
    return [slice(start, start + size) for start in range(0, count, size)]
