"""Where models look: the class token's attention by block and head, rollout, and what each patch passes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import torch

from merging.study.one_image.trace import token_positions

if TYPE_CHECKING:
    from merging.study.one_image.trace import Trace

MEAN, ROLLOUT, CONTRIBUTION = "mean of heads", "rollout", "contribution"
NOTE = "Attention is where values are read from, not why an answer was given."


def attention_table(trace: Trace, block: int | None = None) -> pd.DataFrame:
    """A row for each block (or one block), view and token, the class token among them.

    Columns: model, title, block, view ("head 0", ..., "mean of heads", "rollout", "contribution"), token, row and
    column in the grid of patches (-1 for the class token), weight, and share, which sums to 1 over the tokens of a
    view. The weights of all views but contribution (a length) are such shares already.
    """
    at = slice(None) if block is None else slice(block, block + 1)
    heads = trace.attention[at]
    others = (heads.mean(dim=1), trace.rollout[at], trace.contributions[at])
    stacked = torch.cat([heads, *(other[:, None] for other in others)], dim=1)  # (blocks, views, T)
    views = [*(f"head {head}" for head in range(heads.shape[1])), MEAN, ROLLOUT, CONTRIBUTION]
    blocks, count, tokens = stacked.shape
    first = block or 0
    index = pd.MultiIndex.from_product([range(first, first + blocks), views, range(tokens)])
    table = pd.DataFrame(
        {
            "model": trace.key,
            "title": trace.title,
            "block": index.get_level_values(0),
            "view": index.get_level_values(1),
        }
    )
    where = pd.concat([token_positions(tokens)] * (blocks * count), ignore_index=True)
    share = stacked / stacked.sum(dim=-1, keepdim=True)
    return table.join(where).assign(weight=stacked.flatten().numpy(), share=share.flatten().numpy())


def attention_change(trace: Trace, other: Trace) -> pd.DataFrame:
    """Half the L1 distance of two models' class rows, by block and head: 0 looks alike, 1 looks elsewhere.

    Columns: model, other, block, head, distance.
    """
    distance = (trace.attention - other.attention).abs().sum(dim=-1) / 2  # (B, H)
    blocks, heads = distance.shape
    index = pd.MultiIndex.from_product([range(blocks), range(heads)], names=["block", "head"])
    table = index.to_frame(index=False).assign(distance=distance.flatten().numpy())
    return table.assign(model=trace.key, other=other.key)[["model", "other", "block", "head", "distance"]]
