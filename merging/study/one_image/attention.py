"""Where models look: the class token's attention by block and head, rollout, and what each patch passes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import torch

from merging.study.one_image.trace import token_positions

if TYPE_CHECKING:
    from merging.study.one_image.trace import Trace

MEAN, ROLLOUT, CONTRIBUTION = "mean of heads", "rollout", "contribution"
NOTE = "Attention shows where values are read from, not why the model gives its answer."


def attention_table(trace: Trace, block: int | None = None) -> pd.DataFrame:
    """A row for each block (or the one ``block``), view and token, including the class token.

    Columns: model, title, block, view ("head 0", ..., "mean of heads", "rollout", "contribution"), token, row and
    column in the grid of patches (-1 for the class token), weight, and share, which sums to 1 over the tokens of a
    view. In every view but contribution, whose weights are lengths, the weights are already such shares.
    """
    blocks_shown = slice(None) if block is None else slice(block, block + 1)
    heads = trace.attention[blocks_shown]
    other_views = (heads.mean(dim=1), trace.rollout[blocks_shown], trace.contributions[blocks_shown])
    stacked = torch.cat([heads, *(view[:, None] for view in other_views)], dim=1)  # (blocks, views, T)
    views = [*(f"head {head}" for head in range(heads.shape[1])), MEAN, ROLLOUT, CONTRIBUTION]
    blocks, count, tokens = stacked.shape
    first_block = block or 0
    index = pd.MultiIndex.from_product([range(first_block, first_block + blocks), views, range(tokens)])
    table = pd.DataFrame(
        {
            "model": trace.key,
            "title": trace.title,
            "block": index.get_level_values(0),
            "view": index.get_level_values(1),
        }
    )
    positions = pd.concat([token_positions(tokens)] * (blocks * count), ignore_index=True)
    share = stacked / stacked.sum(dim=-1, keepdim=True)
    return table.join(positions).assign(weight=stacked.flatten().numpy(), share=share.flatten().numpy())


def attention_change(trace: Trace, other: Trace) -> pd.DataFrame:
    """Half the L1 distance of the class token's attention in two models, by block and head, from 0 to 1.

    0 means equal attention, 1 attention to different tokens only. Columns: model, other, block, head, distance.
    """
    distance = (trace.attention - other.attention).abs().sum(dim=-1) / 2  # (B, H)
    blocks, heads = distance.shape
    index = pd.MultiIndex.from_product([range(blocks), range(heads)], names=["block", "head"])
    table = index.to_frame(index=False).assign(distance=distance.flatten().numpy())
    return table.assign(model=trace.key, other=other.key)[["model", "other", "block", "head", "distance"]]
