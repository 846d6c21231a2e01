"""Drift by patch: how far each token of an image is from the reference model's, depth by depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from torch import Tensor
from torch.nn.functional import cosine_similarity

from merging.base.numerics.linear_algebra import to_float64
from merging.study.one_image.trace import token_positions

if TYPE_CHECKING:
    from merging.study.one_image.trace import Trace

CLASS, PATCH, PATCHES = "class", "patch", "patches"  # the class token, one patch, the mean over an image's patches
NOT_REACHED = -1  # a depth that is not reached
ROUNDING_TOLERANCE = (
    1e-6  # smaller differences are rounding: before block 0 the class token of every image drifts equally
)


def token_distances(tokens: Tensor, other_tokens: Tensor) -> Tensor:
    """1 - cos (*S, T) of two stacks of tokens (*S, T, d), in [0, 2]; in float64, so that equal tokens have 0."""
    return (1 - cosine_similarity(to_float64(tokens), to_float64(other_tokens), dim=-1)).clamp(min=0)


def drift_table(trace: Trace, reference: Trace, scale: pd.DataFrame | None = None) -> pd.DataFrame:
    """A row for each depth and token.

    Columns: model, reference, depth, token, row, column (-1 for the class token), drift (1 - cos). ``scale`` is the
    drift of the data set's images (columns depth, token, mean, high). With it there are also mean and high (the 90 %
    quantile over the data set) of the same depth and kind of token, and past: whether the drift exceeds that quantile.
    """
    values = token_distances(trace.tokens, reference.tokens)
    depths, tokens = values.shape
    table = pd.concat([token_positions(tokens)] * depths, ignore_index=True)
    table.insert(0, "depth", np.repeat(np.arange(depths), tokens))
    table.insert(0, "reference", reference.key)
    table.insert(0, "model", trace.key)
    table["drift"] = values.flatten().numpy()
    if scale is None:
        return table
    kinds = np.where(table["token"] == 0, CLASS, PATCH)
    usual = scale.set_index(["depth", "token"])[["mean", "high"]]
    by_row = usual.reindex(pd.MultiIndex.from_arrays([table["depth"], kinds])).reset_index(drop=True)
    return table.join(by_row).assign(past=table["drift"] > by_row["high"] + ROUNDING_TOLERANCE)


def first_unusual_depths(table: pd.DataFrame, scale: pd.DataFrame) -> dict[str, int]:
    """{"class", "patches": the first depth at which an image drifts more than 90 % of its data set; -1 if none}.

    ``table`` is that of ``drift_table``; "patches" is the mean over the image's patches.
    """
    high = scale.set_index(["token", "depth"])["high"]
    classes = table[table["token"] == 0].set_index("depth")["drift"]
    patches = table[table["token"] != 0].groupby("depth")["drift"].mean()
    first_depths = {}
    for kind, values in ((CLASS, classes), (PATCHES, patches)):
        depths_above = values[values > high[kind].reindex(values.index) + ROUNDING_TOLERANCE]
        first_depths[kind] = int(depths_above.index.min()) if len(depths_above) else NOT_REACHED
    return first_depths
