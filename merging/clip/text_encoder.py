"""CLIP's text tower as functions of a checkpoint's tensors: features of tokenized prompts.

Its blocks are those of the visual tower with a causal mask, so the same code runs them. Only the text part of a file
is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as nnf
from torch import Tensor

from merging.checkpoints.architecture import Architecture, stated_by, with_activation
from merging.checkpoints.checkpoint import Checkpoint, MappingCheckpoint
from merging.checkpoints.tower_names import VISUAL, assemble, tower
from merging.checkpoints.views import canonical
from merging.clip.image_encoder import EPS, Encoder
from merging.errors import CheckpointError, TaskError
from merging.formats.configs import TRANSFORMERS, read_json
from merging.formats.opening import Source, locate_model, open_path

TOKENS = "token_embedding.weight"
HF_TOKENS = "embeddings." + TOKENS
POSITIONS = {False: "positional_embedding", True: "embeddings.position_embedding.weight"}
NORM = {False: "ln_final", True: "final_layer_norm"}
BLOCKS = {False: "transformer.resblocks.", True: "encoder.layers."}
HEAD_WIDTH, PUBLISHED = 64, (512, 768, 1024)  # of the text towers of ViT-B, ViT-L and ViT-H
OTHER_KIND = ("cls_emb", "text_projection.bias", "logit_bias")  # tensors of CoCa and SigLIP
LOGIT_SCALE = 100.0  # OpenAI's, for files without one
Read = Callable[[str], Tensor]


@dataclass(frozen=True)
class TextTower:
    """A text tower ready to run, float32. Cosines times ``logit_scale`` are logits."""

    embedding: Tensor  # (vocabulary, width)
    positions: Tensor  # (context, width)
    norm: tuple[Tensor, Tensor]
    projection: Tensor  # (width, embed_dim)
    blocks: Encoder
    logit_scale: float

    @classmethod
    def open(
        cls, source: Source, device: torch.device | str = "cpu", base: Path | None = None, activation: str = ""
    ) -> Self:
        """The text tower in a whole CLIP model of open_clip or Transformers: a file, a folder or a state dict.

        Relative paths start at ``base``. ``activation`` replaces a missing or wrong activation in a file's metadata.

        Raises:
            CheckpointError: the model has no text tower, or one of another kind than CLIP's.
        """
        if isinstance(source, Checkpoint):
            return cls._of(source, {}, device)
        if isinstance(source, Mapping):
            return cls._of(MappingCheckpoint(source, "the state dict"), {}, device)
        reference = str(os.fspath(source))
        path = locate_model(reference, base)
        folder = path if path.is_dir() else path.parent
        config = (read_json(folder / TRANSFORMERS) or {}).get("text_config") or {}
        checkpoint = with_activation(open_path(path, path.stem, reference), activation)
        return cls._of(checkpoint, config if isinstance(config, dict) else {}, device)

    @classmethod
    def _of(cls, checkpoint: Checkpoint, config: Mapping[str, Any], device: torch.device | str) -> Self:
        prefix, hugging_face = find_tower(checkpoint)
        top = prefix.removesuffix("text_model." if hugging_face else "text.")
        if odd := [name for name in OTHER_KIND if prefix + name in checkpoint.infos or top + name in checkpoint.infos]:
            raise CheckpointError(f"{checkpoint.name} has another kind of text tower than CLIP's ({odd[0]}).")

        def read(name: str) -> Tensor:
            if name not in checkpoint.infos:
                raise CheckpointError(f"{checkpoint.name}: its text tower lacks {name!r}.")
            return checkpoint.read(name).to(device, torch.float32)

        embedding, norm = read(prefix + (HF_TOKENS if hugging_face else TOKENS)), prefix + NORM[hugging_face]
        scale = float(read(top + "logit_scale").exp()) if top + "logit_scale" in checkpoint.infos else LOGIT_SCALE
        projection = _projection(read, checkpoint, prefix, top)
        blocks = _blocks(checkpoint, prefix, hugging_face, read)
        heads = _heads(checkpoint, config, embedding.shape[1])
        layers = len({name.split(".")[2] for name in blocks})
        shape = Architecture(0, 0, embedding.shape[1], layers, heads, projection.shape[1], _quick_gelu(checkpoint))
        return cls(
            embedding=embedding,
            positions=read(prefix + POSITIONS[hugging_face]),
            norm=(read(f"{norm}.weight"), read(f"{norm}.bias")),
            projection=projection,
            blocks=Encoder(shape, blocks, causal=True),
            logit_scale=scale,
        )

    @property
    def context(self) -> int:
        """The length of the longest prompt, in tokens."""
        return len(self.positions)

    @property
    def embed_dim(self) -> int:
        """The length of its features, equal to that of the visual tower's."""
        return self.projection.shape[1]

    def __call__(self, tokens: Tensor) -> Tensor:
        """Features (n, embed_dim) of tokenized prompts (n, context), not normalized to unit length.

        The end of a prompt is its largest token. Later tokens cannot change the result, as no token attends to them,
        so they are not computed.
        """
        if int(tokens.max()) >= len(self.embedding):
            raise TaskError(
                f"The text tower knows {len(self.embedding):,} tokens and was given number {int(tokens.max()):,}: it "
                "was trained with another tokenizer. Give the heads themselves."
            )
        tokens = tokens.to(self.embedding.device)
        ends = tokens.argmax(dim=-1)
        length = int(ends.max()) + 1
        x = self.embedding[tokens[:, :length]] + self.positions[:length]
        for index in range(self.blocks.architecture.layers):
            x = self.blocks.block(x, index)
        last = x[torch.arange(len(x), device=x.device), ends]
        return nnf.layer_norm(last, last.shape[-1:], *self.norm, EPS) @ self.projection


def find_tower(checkpoint: Checkpoint) -> tuple[str, bool]:
    """The prefix of the text tower's names, and whether these are Transformers' names."""
    anchors = [name for name in checkpoint.infos if name == TOKENS or name.endswith("." + TOKENS)]
    if len(anchors) != 1:
        problem = "several text towers" if anchors else "no text tower"
        raise CheckpointError(f"{checkpoint.name} holds {problem}. Heads need the text tower of the whole CLIP model.")
    hugging_face = anchors[0].endswith(HF_TOKENS)
    return anchors[0].removesuffix(HF_TOKENS if hugging_face else TOKENS), hugging_face


def _blocks(checkpoint: Checkpoint, at: str, hugging_face: bool, read: Read) -> dict[str, Tensor]:
    """The tensors of the blocks under open_clip's names."""
    blocks, prefix = BLOCKS[hugging_face], "" if hugging_face else VISUAL  # the prefix that the families' rules expect
    short = {prefix + name.removeprefix(at): name for name in checkpoint.infos if name.startswith(at + blocks)}
    if not short:
        raise CheckpointError(
            f"{checkpoint.name} has a text embedding and no text transformer, as published image encoders do. Heads "
            "need the whole CLIP model that they were made from."
        )
    return {
        name: assemble(name, stored, [read(short[part]) for part in stored]) for name, stored in tower(short).items()
    }


def _projection(read: Read, checkpoint: Checkpoint, at: str, top: str) -> Tensor:
    """The matrix (width, embed_dim) that gives features; Transformers stores its transpose."""
    for prefix in (at, top):
        if prefix + "text_projection" in checkpoint.infos:
            return read(prefix + "text_projection")
    return read(top + "text_projection.weight").T


def _heads(checkpoint: Checkpoint, config: Mapping[str, Any], width: int) -> int:
    text = stated_by(checkpoint).get("text_cfg", {})
    stated = config.get("num_attention_heads") or (text.get("heads") if isinstance(text, dict) else None)
    if stated is None and width in PUBLISHED:
        return width // HEAD_WIDTH
    if type(stated) is not int or stated < 1 or width % stated:
        raise CheckpointError(
            f"{checkpoint.name}: nothing says how many heads a text tower of width {width} has; its config.json or "
            "open_clip_config.json belongs beside it."
        )
    return stated


def _quick_gelu(checkpoint: Checkpoint) -> bool:
    """Whether the activation is QuickGELU; it is that of the visual tower."""
    try:
        return Architecture.of(canonical(checkpoint)).quick_gelu
    except CheckpointError:  # a file with the text tower alone
        return bool(stated_by(checkpoint).get("quick_gelu", True))
