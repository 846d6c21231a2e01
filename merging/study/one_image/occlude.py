"""Occluding: a data set's mean patch replaces one patch after another, and the margin shows how much each matters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from merging.engine.evaluation.image_features import compute_features
from merging.images.benchmarks.referenced_images import Images
from merging.study.one_image.logit_lens import cosine_margin, followed_class
from merging.study.one_image.trace import token_positions

if TYPE_CHECKING:
    from merging.study.one_image.named_towers import NamedTower
    from merging.study.one_image.studied_image import StudiedImage
    from merging.study.one_image.trace import Trace

PIECE_IMAGES = 256  # images that are summed at a time


def mean_patch(images: Images, patch: int) -> NDArray[np.float64]:
    """The mean patch (patch, patch, 3) over all positions of all images (n, s, s, 3), in pixels from 0 to 255."""
    n, size = images.shape[:2]
    side = size // patch
    total = np.zeros((patch, patch, 3))
    for start in range(0, n, PIECE_IMAGES):
        patches = images[start : start + PIECE_IMAGES].reshape(-1, side, patch, side, patch, 3)
        total += patches.sum(axis=(0, 1, 3), dtype=np.float64)
    mean: NDArray[np.float64] = total / max(1, n * side * side)
    return mean


def occlude_patches(inputs: Tensor, patches: Tensor) -> Tensor:
    """Copies (P, 3, s, s) of an image (3, s, s), in each of which one of ``patches`` (P, 3, p, p) replaces its own.

    Patches are numbered row by row.
    """
    count, _, patch, _ = patches.shape
    side = inputs.shape[-1] // patch
    copies = inputs.repeat(count, 1, 1, 1)
    for number in range(count):
        top, left = number // side * patch, number % side * patch
        copies[number, :, top : top + patch, left : left + patch] = patches[number]
    return copies


def occlude(
    tower: NamedTower, trace: Trace, image: StudiedImage, patch: Tensor, reference: Trace | None = None
) -> pd.DataFrame:
    """A row for each of the T - 1 patches, replaced by the preprocessed ``patch`` (3, p, p).

    Columns: model, token, row, column, followed (the class of the margins), before and margin (cosines), change.
    """
    label = followed_class(image, reference or trace)
    count = trace.tokens.shape[1] - 1
    copies = occlude_patches(image.inputs[0], patch.expand(count, *patch.shape))
    margin_before = float(cosine_margin(trace.features()[-1:], image, label)[0])
    margins = cosine_margin(compute_features(tower.encoder, copies), image, label)
    grid = token_positions(count + 1).iloc[1:].reset_index(drop=True)
    return grid.assign(
        model=trace.key,
        followed=image.class_name(label),
        before=margin_before,
        margin=margins,
        change=margins - margin_before,
    )
