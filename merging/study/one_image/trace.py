"""One pass of one image through one tower, with all the tensors that tables about the image are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
import torch
from torch import Tensor

from merging.images.image_encoder import Encoder

if TYPE_CHECKING:
    from merging.study.one_image.named_towers import NamedTower
    from merging.study.one_image.studied_image import StudiedImage

CLASS_TOKEN = -1  # the row and column of the class token in tables of patches


@dataclass(frozen=True, eq=False)
class Trace:
    """The tokens of an image at every depth, and the attention of the class token; on the CPU.

    There are B blocks, H heads and T tokens of width d, the class token first. ``tokens`` (B + 1, T, d) are those
    before block 0 and after every block. ``attention`` (B, H, T) is the class token's row, ``contributions`` (B, T) are
    the lengths of the vectors that each token passes to it. ``rollout`` (B, T) is the class token's row of the product
    of all blocks' matrices so far, each the average of the mean over heads and the identity. ``output`` is the tower's
    last section.
    """

    key: str
    title: str
    tokens: Tensor
    attention: Tensor
    contributions: Tensor
    rollout: Tensor
    output: Encoder

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.attention)

    def features(self, output: Encoder | None = None) -> Tensor:
        """Features (B + 1, e) of the class token at every depth, by the last section of this or another tower."""
        with torch.inference_mode():
            return (output or self.output).head(self.tokens[:, :1])


def trace_image(tower: NamedTower, image: StudiedImage) -> Trace:
    """The trace of one pass of an image; of a block's attention it retains only the class token's row."""
    encoder = tower.encoder
    rows, contributions, rollouts = [], [], []
    with torch.inference_mode():
        x = encoder.run_section(0, image.inputs.to(encoder.device))
        tokens, rollout = [x[0].cpu()], torch.eye(x.shape[1], device=x.device)
        for section in range(1, encoder.sections - 1):
            attended = encoder.attend(section, x)
            x, rollout = attended.tokens, extend_rollout(rollout, attended.attention[0])
            tokens.append(x[0].cpu())
            rows.append(attended.attention[0, :, 0].cpu())
            contributions.append(attended.contributions[0].cpu())
            rollouts.append(rollout[0].cpu())
    output = encoder.load_section(encoder.sections - 1)
    on_cpu = {name: tensor.cpu() for name, tensor in output.tensors.items()}
    return Trace(
        tower.key, tower.title, torch.stack(tokens), torch.stack(rows), torch.stack(contributions),
        torch.stack(rollouts), Encoder(encoder.architecture, on_cpu),
    )  # fmt: skip


def extend_rollout(rollout: Tensor, attention: Tensor) -> Tensor:
    """The product (T, T) of one more block's attention (H, T, T) and the product ``rollout`` (T, T) of earlier blocks.

    Attention rollout (Abnar and Zuidema, 2020): residual connections count as much as attention.
    """
    block_mix = (attention.mean(dim=0) + torch.eye(len(rollout), device=rollout.device)) / 2
    rolled: Tensor = block_mix / block_mix.sum(dim=-1, keepdim=True) @ rollout
    return rolled


def token_positions(tokens: int) -> pd.DataFrame:
    """Token, row and column of every token; the first is the class token, with ``CLASS_TOKEN`` as row and column."""
    numbers = torch.arange(tokens)
    side = round((tokens - 1) ** 0.5)
    rows, columns = (numbers - 1) // side, (numbers - 1) % side
    rows[0] = columns[0] = CLASS_TOKEN
    return pd.DataFrame({"token": numbers.numpy(), "row": rows.numpy(), "column": columns.numpy()})
