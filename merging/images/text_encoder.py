"""CLIP's text tower as functions of a checkpoint's tensors: features of tokenized prompts.

Its blocks have the structure of the visual tower's with a causal mask, so the same code runs them. Only the text
tensors of a file are read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
import torch.nn.functional as nnf
from torch import Tensor

from merging.base.errors import CheckpointError, TaskError
from merging.images.batch_sizes import VECTORS_PER_TOKEN
from merging.images.image_encoder import EPS, Encoder
from merging.models.architecture import Architecture, add_stated_activation, architecture_in_metadata
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.checkpoint_views import to_open_clip_names
from merging.models.formats.model_sources import ModelRef, Source, open_stored
from merging.models.model_references import strip_folders
from merging.models.text_tower import BLOCKS, POSITIONS, PROJECTION, SCALE, TOKENS, text_heads, text_tower

LOGIT_SCALE = 100.0  # that of OpenAI's models, for files without a logit scale


@dataclass(frozen=True)
class TextTower:
    """A text tower ready to run, float32. Cosines times ``logit_scale`` are logits."""

    embedding: Tensor  # (vocabulary, width)
    positions: Tensor  # (context, width)
    norm: tuple[Tensor, Tensor]  # scale and shift, each (width,)
    projection: Tensor  # (width, embed_dim)
    blocks: Encoder
    logit_scale: float

    @classmethod
    def open(
        cls, source: Source, device: torch.device | str = "cpu", base: Path | None = None, activation: str = ""
    ) -> Self:
        """The text tower of a whole CLIP model of open_clip or Transformers: a file, a folder or a state dict.

        Relative paths start at ``base``. ``activation`` replaces a missing or wrong activation in a file's metadata.

        Raises:
            CheckpointError: the model has no text tower, or a text tower that is not CLIP's.
        """
        if isinstance(source, Checkpoint):
            return cls._from_checkpoint(source, device)
        if isinstance(source, Mapping):
            return cls._from_checkpoint(MappingCheckpoint(source, "the state dict"), device)
        model = source if isinstance(source, ModelRef) else ModelRef(str(os.fspath(source)), base)
        return cls._from_checkpoint(
            add_stated_activation(open_stored(model, strip_folders(model.text)), activation), device
        )

    @classmethod
    def _from_checkpoint(cls, checkpoint: Checkpoint, device: torch.device | str) -> Self:
        text = text_tower(checkpoint)

        def read(name: str) -> Tensor:
            return text.read(name).to(device, torch.float32)

        width, embed_dim = text.infos[PROJECTION].shape
        blocks = {name: read(name) for name in text.infos if name.startswith(BLOCKS)}
        layers = len({name.split(".")[2] for name in blocks})
        # A text tower has no images: image and patch size are 0.
        shape = Architecture(
            0, 0, width, layers, text_heads(checkpoint, width), embed_dim, _uses_quick_gelu(checkpoint)
        )
        return cls(
            embedding=read(TOKENS),
            positions=read(POSITIONS),
            norm=(read("ln_final.weight"), read("ln_final.bias")),
            projection=read(PROJECTION),
            blocks=Encoder(shape, blocks, causal=True),
            logit_scale=float(read(SCALE).exp()) if SCALE in text.infos else LOGIT_SCALE,
        )

    @property
    def context(self) -> int:
        """The length of the longest prompt, in tokens."""
        return len(self.positions)

    @property
    def embed_dim(self) -> int:
        """The length of a feature vector, equal to the visual tower's."""
        return self.projection.shape[1]

    def forward_bytes(self, prompts: int) -> int:
        """Bytes of memory that a forward pass of ``prompts`` prompts takes."""
        heads, width = self.blocks.architecture.heads, self.embedding.shape[1]
        return prompts * self.context * (VECTORS_PER_TOKEN * width + heads * self.context) * self.embedding.itemsize

    def __call__(self, tokens: Tensor) -> Tensor:
        """Features (n, embed_dim) of tokenized prompts (n, context), not normalized to unit length.

        The largest token of a prompt marks its end. Later tokens are not computed, as no token attends to them.

        Raises:
            TaskError: a token is outside the tower's vocabulary.
        """
        if int(tokens.max()) >= len(self.embedding):
            raise TaskError(
                f"The text tower knows {len(self.embedding):,} tokens and got number {int(tokens.max()):,}: it "
                "was trained with another tokenizer. Supply finished heads instead."
            )
        tokens = tokens.to(self.embedding.device)
        ends = tokens.argmax(dim=-1)
        length = int(ends.max()) + 1
        x = self.embedding[tokens[:, :length]] + self.positions[:length]
        for index in range(self.blocks.architecture.layers):
            x = self.blocks.block(x, index)
        end_tokens = x[torch.arange(len(x), device=x.device), ends]
        return nnf.layer_norm(end_tokens, end_tokens.shape[-1:], *self.norm, EPS) @ self.projection


def _uses_quick_gelu(checkpoint: Checkpoint) -> bool:
    """Whether the activation is QuickGELU, as in the visual tower."""
    try:
        return Architecture.from_checkpoint(to_open_clip_names(checkpoint)).quick_gelu
    except CheckpointError:  # a file with the text tower alone
        return bool(architecture_in_metadata(checkpoint).get("quick_gelu", True))
