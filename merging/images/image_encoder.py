"""CLIP's visual tower as functions of a state dict: features of images, layer by layer.

open_clip's own module hides the inputs of the packed attention weights from hooks, and a module per checkpoint would
cost memory. An ``Encoder`` is a tower's tensors, and ``record`` receives the rows that enter every weight. Its sections
are the stem (patches to tokens), the blocks, and the head (the last normalization and the projection to features).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import torch
import torch.nn.functional as nnf
from torch import Tensor

from merging.models.architecture import Architecture
from merging.models.checkpoint import Checkpoint
from merging.models.tower_names import assemble, tower_names

EPS = 1e-5
Record = Callable[[str, Tensor], None]  # (parameter name, rows entering it (n, d))
Names = Mapping[str, tuple[str, ...]]  # open_clip's name -> names in the checkpoint; q, k and v may be separate


class AttendedTokens(NamedTuple):
    """The tokens after a block (n, T, width), and its attention.

    ``attention`` (n, H, T, T) has for each head the weights with which a token reads the values of all tokens: rows sum
    to 1. ``contributions`` (n, T) are the lengths of the vectors that each token adds to the class token, over all
    heads.
    """

    tokens: Tensor
    attention: Tensor
    contributions: Tensor


class _LazyTensors(Mapping[str, Tensor]):
    """A tower's tensors in float32 in open_clip's form, read from the checkpoint at every access."""

    def __init__(self, checkpoint: Checkpoint, names: Names, device: torch.device | str) -> None:
        self._checkpoint, self._names, self._device = checkpoint, names, device

    def __getitem__(self, name: str) -> Tensor:
        stored = self._names[name]
        return assemble(name, stored, [self._checkpoint.read(n).to(self._device, torch.float32) for n in stored])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class Encoder:
    """A visual tower ready to run: float32 tensors on one device, under open_clip's names without prefix.

    Rows are recorded under the checkpoint's ``names``; rows that enter q, k and v are recorded under each of them. With
    ``causal``, no token attends to later ones, as in a text tower.
    """

    architecture: Architecture
    tensors: Mapping[str, Tensor]
    names: Names = field(default_factory=dict)
    causal: bool = False

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: Checkpoint,
        device: torch.device | str = "cpu",
        *,
        on_demand: bool = False,
        fallback: Checkpoint | None = None,
    ) -> Self:
        """The tower of a checkpoint, with its tensors in memory or, ``on_demand``, read at every use.

        ``fallback`` gives the architecture of a checkpoint without metadata.
        """
        names = tower_names(checkpoint)
        tensors = _LazyTensors(checkpoint, names, device)
        return cls(Architecture.from_checkpoint(checkpoint, fallback), tensors if on_demand else dict(tensors), names)

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""
        return self.tensors["class_embedding"].device

    def __call__(self, images: Tensor, record: Record | None = None) -> Tensor:
        """Features (n, embed_dim) of normalized images (n, 3, h, w), not normalized to unit length."""
        x = images
        for section in range(self.sections):
            x = self.run_section(section, x, record)
        return x

    @property
    def sections(self) -> int:
        """The number of sections: the stem, the blocks, and the head."""
        return self.architecture.layers + 2

    def run_section(self, section: int, x: Tensor, record: Record | None = None) -> Tensor:
        """The output of a section for ``x``, the output of the section before; section 0 takes images (n, 3, h, w).

        The output is tokens (n, 1 + patches, width), or features (n, embed_dim) for the last section.
        """
        if section == 0:
            return self.stem(x, record)
        return self.block(x, section - 1, record) if section <= self.architecture.layers else self.head(x, record)

    def attend(self, section: int, x: Tensor) -> AttendedTokens:
        """The output of a block for tokens ``x`` (n, T, width), with its attention computed explicitly.

        Raises:
            ValueError: the section is not a block.
        """
        if not 0 < section <= self.architecture.layers:
            raise ValueError(f"Section {section} is not a block; blocks are sections 1 to {self.architecture.layers}.")
        block = f"transformer.resblocks.{section - 1}."
        q, k, v = self._split_heads(self._norm(block + "ln_1", x, None), block + "attn.", None)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if self.causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        attention = scores.softmax(dim=-1)
        x = x + self._mix_heads(attention @ v, block + "attn.", None)
        x = x + self.mlp(self._norm(block + "ln_2", x, None), section - 1)
        # The part of each token in what the class token reads (n, T, width); index 0 is the class token.
        values = (attention[:, :, 0, :, None] * v).transpose(1, 2).flatten(2)
        contributions = self.linear(block + "attn.out_proj.weight", None, values)
        return AttendedTokens(x, attention, contributions.norm(dim=-1))

    def find_section(self, name: str) -> int:
        """The section to which a tensor of this name belongs."""
        if name.startswith("transformer.resblocks."):
            return int(name.split(".")[2]) + 1
        return self.sections - 1 if name.startswith(("ln_post.", "proj")) else 0

    def load_section(self, section: int) -> Self:
        """The same tower with the tensors of one section only, in memory."""
        section_names = [name for name in self.tensors if self.find_section(name) == section]
        return replace(self, tensors={name: self.tensors[name] for name in section_names})

    def stem(self, images: Tensor, record: Record | None = None) -> Tensor:
        """Tokens (n, 1 + patches, width) of normalized images (n, 3, h, w) for the first block, class token first."""
        patch = self.architecture.patch_size
        patches = nnf.unfold(images, patch, stride=patch).transpose(1, 2)  # (n, patches, 3 * patch * patch)
        x = self.linear("conv1.weight", None, patches, record)
        x = torch.cat([self.embedding("class_embedding").expand(len(x), 1, -1), x], dim=1)
        return self._norm("ln_pre", x + self.embedding("positional_embedding"), record)

    def block(self, x: Tensor, index: int, record: Record | None = None) -> Tensor:
        """Tokens (n, T, width) after one residual block, from the tokens ``x`` (n, T, width) before it."""
        prefix = f"transformer.resblocks.{index}."
        x = x + self._attention(self._norm(prefix + "ln_1", x, record), prefix + "attn.", record)
        return x + self.mlp(self._norm(prefix + "ln_2", x, record), index, record)

    def mlp(self, x: Tensor, index: int, record: Record | None = None) -> Tensor:
        """The output (n, T, width) of a block's MLP for normalized tokens ``x`` (n, T, width)."""
        prefix = f"transformer.resblocks.{index}.mlp."
        hidden = self._activate(self.linear(prefix + "c_fc.weight", prefix + "c_fc.bias", x, record))
        return self.linear(prefix + "c_proj.weight", prefix + "c_proj.bias", hidden, record)

    def _attention(self, x: Tensor, prefix: str, record: Record | None) -> Tensor:
        """The output (n, T, width) of an attention layer for normalized tokens ``x`` (n, T, width)."""
        q, k, v = self._split_heads(x, prefix, record)
        return self._mix_heads(nnf.scaled_dot_product_attention(q, k, v, is_causal=self.causal), prefix, record)

    def _split_heads(self, x: Tensor, prefix: str, record: Record | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of every head, each (n, H, T, width / H)."""
        heads = self.architecture.heads
        n, length, width = x.shape
        packed = self.linear(prefix + "in_proj_weight", prefix + "in_proj_bias", x, record)
        q, k, v = packed.reshape(n, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        return q, k, v

    def _mix_heads(self, attended: Tensor, prefix: str, record: Record | None) -> Tensor:
        """The output (n, T, width) of an attention layer from the outputs of its heads (n, H, T, width / H)."""
        rows = attended.transpose(1, 2).flatten(2)
        return self.linear(prefix + "out_proj.weight", prefix + "out_proj.bias", rows, record)

    def head(self, x: Tensor, record: Record | None = None) -> Tensor:
        """Features (n, embed_dim) from the tokens (n, T, width) after the last block."""
        x = self._norm("ln_post", x[:, 0], record)
        if "proj" not in self.tensors:  # some checkpoints omit it if it was not trained
            return x
        self._record("proj", x, record)
        return self.project(x)

    def _activate(self, x: Tensor) -> Tensor:
        return x * (1.702 * x).sigmoid_() if self.architecture.quick_gelu else nnf.gelu(x)

    def _norm(self, name: str, x: Tensor, record: Record | None) -> Tensor:
        """``norm`` of ``x`` (n, ..., d), which records the rows before they are scaled."""
        if record is not None:
            self._record(name + ".weight", nnf.layer_norm(x, x.shape[-1:], eps=EPS), record)
        return self.norm(name, x)

    def _record(self, name: str, x: Tensor, record: Record | None) -> None:
        if record is not None:
            for stored in self.names.get(name, (name,)):
                record(stored, x.reshape(-1, x.shape[-1]))

    # --- uses of tensors: a tower whose weights differ from image to image overrides these methods -------------------

    def linear(self, weight: str, bias: str | None, x: Tensor, record: Record | None = None) -> Tensor:
        """Rows (n, rows, d_out) of a linear map of rows ``x`` (n, rows, d_in).

        A kernel counts as the matrix (width, 3 * patch * patch).
        """
        self._record(weight, x, record)
        t = self.tensors
        return nnf.linear(x, t[weight].flatten(1), None if bias is None else t[bias])

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Rows (*S, d) after layer normalization of ``x``, of the same shape, scaled and shifted."""
        return nnf.layer_norm(x, x.shape[-1:], self.tensors[name + ".weight"], self.tensors[name + ".bias"], EPS)

    def embedding(self, name: str) -> Tensor:
        """The class or position embedding: (width,) or (rows, width), or (n, ...) with one per image."""
        return self.tensors[name]

    def project(self, x: Tensor) -> Tensor:
        """Features (n, embed_dim) of normalized class tokens ``x`` (n, width)."""
        return x @ self.tensors["proj"]
