"""Restoring: a donor's tokens replace a model's before one block, and the answer shows what these tokens carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import torch
from torch import Tensor

from merging.study.one_image.logit_lens import compute_probabilities, followed_class
from merging.study.one_image.trace import token_positions

if TYPE_CHECKING:
    from merging.images.image_encoder import Encoder
    from merging.study.one_image.named_towers import NamedTower
    from merging.study.one_image.studied_image import StudiedImage
    from merging.study.one_image.trace import Trace

CLASS, PATCHES, ALL = "class", "patches", "all"
TOKEN_KINDS = (CLASS, PATCHES, ALL)  # the tokens that are replaced
BATCH_BYTES = 1 << 27  # limit of the tokens that run at a time


def token_masks(tokens: int) -> Tensor:
    """Masks (3, T) of the tokens that are replaced: the class token, the patches, all."""
    is_class = torch.arange(tokens) == 0
    return torch.stack([is_class, ~is_class, torch.ones_like(is_class)])


def compute_restored_features(encoder: Encoder, own_tokens: Tensor, donor_tokens: Tensor, masks: Tensor) -> Tensor:
    """Features (B + 1, K, n, e) with the donor's tokens of each mask (K, T) before block b (last: the output).

    ``own_tokens`` and ``donor_tokens`` (B + 1, n, T, d) are the tokens of n images in the model and in the donor.
    Tokens join the batch at the block where they are replaced, so a mask costs the sum over b of (B - b) / B passes per
    image.
    """
    mask_bytes = own_tokens[0].nbytes * len(own_tokens)
    size = max(1, BATCH_BYTES // max(mask_bytes, 1))
    return torch.cat([_restore_features(encoder, own_tokens, donor_tokens, part) for part in masks.split(size)], dim=1)


def _restore_features(encoder: Encoder, own_tokens: Tensor, donor_tokens: Tensor, masks: Tensor) -> Tensor:
    depths, n, tokens, width = own_tokens.shape
    replaced = masks.to(encoder.device)[:, None, :, None]
    x = own_tokens.new_empty((0, tokens, width)).to(encoder.device)
    with torch.inference_mode():
        for depth in range(depths):
            own_at_depth, donor_at_depth = own_tokens[depth].to(encoder.device), donor_tokens[depth].to(encoder.device)
            x = torch.cat([x, torch.where(replaced, donor_at_depth, own_at_depth).flatten(0, 1)])
            if depth + 1 < depths:
                x = encoder.run_section(depth + 1, x)
        features: Tensor = encoder.head(x).cpu().unflatten(0, (depths, len(masks), n))
    return features


def restore(
    tower: NamedTower, trace: Trace, donor: Trace, image: StudiedImage, followed: int | None = None
) -> pd.DataFrame:
    """A row for each depth and kind of tokens: the donor's tokens replace the model's before the block of that number.

    Columns: model, donor, depth (B: before the output), tokens ("class", "patches", "all"), followed (the class whose
    probability is shown: the image's, or the donor's answer), probability, change, answer, and right (whether the
    answer is the class followed).
    """
    masks = token_masks(trace.tokens.shape[1])
    table = _build_rows(tower, trace, donor, image, masks, followed)
    return table.assign(tokens=[TOKEN_KINDS[number] for number in table.pop("mask")])


def restore_tokens(
    tower: NamedTower, trace: Trace, donor: Trace, image: StudiedImage, followed: int | None = None
) -> pd.DataFrame:
    """The table of ``restore`` for single tokens: token, row and column (-1 for the class token) instead of tokens."""
    tokens = trace.tokens.shape[1]
    table = _build_rows(tower, trace, donor, image, torch.eye(tokens, dtype=torch.bool), followed)
    return table.merge(token_positions(tokens), left_on="mask", right_on="token").drop(columns="mask")


def _build_rows(
    tower: NamedTower, trace: Trace, donor: Trace, image: StudiedImage, masks: Tensor, followed: int | None
) -> pd.DataFrame:
    features = compute_restored_features(tower.encoder, trace.tokens[:, None], donor.tokens[:, None], masks)[:, :, 0]
    depths, count, _ = features.shape
    shares = compute_probabilities(features.flatten(0, 1), image)
    label = followed_class(image, donor) if followed is None else followed
    probability_before = float(compute_probabilities(trace.features()[-1:], image)[0, label])
    index = pd.MultiIndex.from_product([range(depths), range(count)], names=["depth", "mask"])
    numbers = shares.argmax(dim=-1).tolist()
    probability = shares[:, label].numpy()
    return index.to_frame(index=False).assign(
        model=trace.key, donor=donor.key, followed=image.class_name(label), probability=probability,
        change=probability - probability_before, answer=[image.class_name(number) for number in numbers],
        right=[number == label for number in numbers],
    )  # fmt: skip


def first_restoring_depth(table: pd.DataFrame, tokens: str = CLASS) -> int:
    """The first depth from which restoring these tokens gives the class followed before every later block; -1 if none.

    ``table`` is that of ``restore``. The depth before the output does not count, since no block of the model follows.
    """
    rows = table[(table["tokens"] == tokens) & (table["depth"] < table["depth"].max())].sort_values("depth")
    last_wrong = rows.loc[~rows["right"].astype(bool), "depth"].max()
    depth = 0 if pd.isna(last_wrong) else int(last_wrong) + 1
    return depth if depth < table["depth"].max() else -1
