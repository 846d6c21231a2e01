"""One pass of one image through one tower, with everything that its tables are made of."""

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

CLASS_TOKEN = -1  # its row and column in tables of patches


@dataclass(frozen=True, eq=False)
class Trace:
    """The tokens of an image at every depth, and where the class token looked; on the CPU.

    B blocks, H heads, T tokens of width d, the class token first. ``tokens`` (B + 1, T, d) are those before block 0 and
    after every block; ``attention`` (B, H, T) are the class token's rows, ``contributions`` (B, T) the lengths of what
    each token passes on to it. ``rollout`` (B, T) is the class row of the product of all blocks' matrices so far, each
    the mean over heads and the identity in equal parts. ``output`` is the tower's last section.
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
        """Features (B + 1, e) of the class token at every depth, through its own last section or that of another."""
        through = output or self.output
        with torch.inference_mode():
            return through.head(self.tokens[:, :1])


def trace_image(tower: NamedTower, image: StudiedImage) -> Trace:
    """One pass; of a block's attention only the class row is kept."""
    encoder = tower.encoder
    rows, contributions, rollouts = [], [], []
    with torch.inference_mode():
        x = encoder.run(0, image.inputs.to(encoder.device))
        tokens, path = [x[0].cpu()], torch.eye(x.shape[1], device=x.device)
        for section in range(1, encoder.sections - 1):
            attended = encoder.attend(section, x)
            x, path = attended.tokens, extend_rollout(path, attended.attention[0])
            tokens.append(x[0].cpu())
            rows.append(attended.attention[0, :, 0].cpu())
            contributions.append(attended.contributions[0].cpu())
            rollouts.append(path[0].cpu())
    output = encoder.load_section(encoder.sections - 1)
    here = {name: tensor.cpu() for name, tensor in output.tensors.items()}
    return Trace(
        tower.key, tower.title, torch.stack(tokens), torch.stack(rows), torch.stack(contributions),
        torch.stack(rollouts), Encoder(encoder.architecture, here),
    )  # fmt: skip


def extend_rollout(path: Tensor, attention: Tensor) -> Tensor:
    """The product (T, T) of the blocks so far, with one more block of attention (H, T, T) before it.

    Attention rollout (Abnar and Zuidema, 2020): residual connections count as much as attention.
    """
    mixed = (attention.mean(dim=0) + torch.eye(len(path), device=path.device)) / 2
    rolled: Tensor = mixed / mixed.sum(dim=-1, keepdim=True) @ path
    return rolled


def token_positions(tokens: int) -> pd.DataFrame:
    """Token, row and column of every token; the class token is the first and has no place in the grid."""
    numbers = torch.arange(tokens)
    side = round((tokens - 1) ** 0.5)
    rows, columns = (numbers - 1) // side, (numbers - 1) % side
    rows[0] = columns[0] = CLASS_TOKEN
    return pd.DataFrame({"token": numbers.numpy(), "row": rows.numpy(), "column": columns.numpy()})
