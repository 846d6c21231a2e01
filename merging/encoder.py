"""CLIP's visual tower as functions of a state dict: features of images, layer by layer, with nothing hidden.

open_clip's own module hides the inputs of the packed attention weights from hooks, and a module per checkpoint would
cost memory. Here a tower is its tensors; ``record`` sees the rows that enter every weight.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
import torch.nn.functional as nnf
from torch import Tensor

from merging.checkpoints import Checkpoint
from merging.errors import CheckpointError
from merging.families import ACTIVATIONS
from merging.naming import assemble, tower_names, transposed
from merging.renaming import same

EPS = 1e-5
HEAD_WIDTHS = {768: 64, 1024: 64, 1280: 80}  # of the published towers ViT-B, ViT-L and ViT-H
TRAINED_WITH_GELU = (1280,)  # widths that OpenAI, whose models all have QuickGELU, never published
Record = Callable[[str, Tensor], None]  # (parameter name, rows entering it (n, d))
Names = Mapping[str, tuple[str, ...]]  # open_clip's name -> names in the checkpoint; q, k and v may be apart


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the shapes of a tower do not say, beside what they do."""

    image_size: int
    patch_size: int
    width: int
    layers: int
    heads: int
    embed_dim: int
    quick_gelu: bool

    @classmethod
    def of(cls, checkpoint: Checkpoint, like: Checkpoint | None = None) -> Self:
        """The architecture of a tower: its shapes, and what its metadata says beside them.

        What its metadata leave open (a state dict in memory has none) is as in ``like``, if that has the same shapes.
        Without either, the widths of the published models tell their heads, and the activation is QuickGELU, as in
        every OpenAI model (GELU for ViT-H).

        Raises:
            CheckpointError: a tensor that a tower must have is missing, the metadata contradicts the shapes, or
                nothing says how many heads there are.
        """
        names = tower_names(checkpoint)
        shapes = {name: checkpoint.infos[stored[0]].shape for name, stored in names.items()}
        try:
            width, _, patch, _ = shapes["conv1.weight"]
            tokens = shapes["positional_embedding"][0]
            embed_dim = shapes["proj"][1 if transposed(names["proj"][0]) else 0] if "proj" in names else width
        except (KeyError, ValueError, IndexError) as error:
            raise CheckpointError(f"{checkpoint.name} is not a visual tower: {error} is missing or odd.") from None
        layers = len({name.split(".")[2] for name in shapes if name.startswith("transformer.resblocks.")})
        stated = (stated_by(like) if like is not None and _alike(checkpoint, like) else {}) | stated_by(checkpoint)
        usual = 64 if "vision_cfg" in stated else HEAD_WIDTHS.get(width)  # 64 is what open_clip leaves out
        head_width = stated.get("vision_cfg", {}).get("head_width", usual)
        if type(head_width) is not int or head_width < 1:
            raise CheckpointError(
                f"{checkpoint.name}: nothing says how many heads a tower of width {width} has. Its file needs the "
                'metadata architecture = {"vision_cfg": {"head_width": 64}, "quick_gelu": true}, with its own numbers.'
            )
        if width % head_width:
            raise CheckpointError(f"{checkpoint.name}: width {width} is not a multiple of its head width {head_width}.")
        side = round((tokens - 1) ** 0.5)
        quick_gelu = bool(stated.get("quick_gelu", width not in TRAINED_WITH_GELU))
        return cls(side * patch, patch, width, layers, width // head_width, embed_dim, quick_gelu)


def _alike(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two checkpoints hold the same names in the same shapes."""
    return {n: i.shape for n, i in one.infos.items()} == {n: i.shape for n, i in other.infos.items()}


def stated_by(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the metadata of a checkpoint says of its architecture; empty if nothing.

    Raises:
        CheckpointError: it is no JSON mapping.
    """
    text = checkpoint.metadata.get("architecture")
    if text is None:
        return {}
    try:
        stated = json.loads(text)
    except (ValueError, RecursionError):
        stated = None
    if not isinstance(stated, dict) or not isinstance(stated.get("vision_cfg", {}), dict):
        raise CheckpointError(f"{checkpoint.name}: its metadata 'architecture' is not a JSON mapping.")
    return stated


def stating(checkpoint: Checkpoint, activation: str) -> Checkpoint:
    """The same checkpoint, which says of itself that it has that activation; itself if none is named."""
    if not activation:
        return checkpoint
    found = same(checkpoint)
    stated = stated_by(checkpoint) | {"quick_gelu": activation == ACTIVATIONS[0]}
    found.metadata = {**checkpoint.metadata, "architecture": json.dumps(stated)}
    return found


def stated_activation(checkpoint: Checkpoint) -> str:
    """The activation that a checkpoint says that it has; empty if it does not say, or nothing that can be read."""
    try:
        quick = stated_by(checkpoint).get("quick_gelu")
    except CheckpointError:
        return ""
    return "" if quick is None else ACTIVATIONS[0 if quick else 1]


class _OnDemand(Mapping[str, Tensor]):
    """A tower's tensors in float32 as open_clip has them, read from the checkpoint whenever they are asked for."""

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

    What is recorded goes by the checkpoint's own ``names``; rows that enter q, k and v are recorded under each. With
    ``causal``, no token sees later ones, as in a text tower.
    """

    architecture: Architecture
    tensors: Mapping[str, Tensor]
    names: Names = field(default_factory=dict)
    causal: bool = False

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoint,
        device: torch.device | str = "cpu",
        *,
        on_demand: bool = False,
        like: Checkpoint | None = None,
    ) -> Self:
        """The tower of a checkpoint: in memory, or reading each tensor when it is used (``on_demand``).

        ``like`` tells the architecture of a checkpoint that has no metadata.
        """
        names = tower_names(checkpoint)
        tensors = _OnDemand(checkpoint, names, device)
        return cls(Architecture.of(checkpoint, like), tensors if on_demand else dict(tensors), names)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.tensors["class_embedding"].device

    def __call__(self, images: Tensor, record: Record | None = None) -> Tensor:
        """Features (n, embed_dim) of normalized images (n, 3, h, w), not normalized to unit length."""
        x = images
        for section in range(self.sections):
            x = self.run(section, x, record)
        return x

    @property
    def sections(self) -> int:
        """How many pieces it runs in: the stem, every block, the head."""
        return self.architecture.layers + 2

    def run(self, section: int, x: Tensor, record: Record | None = None) -> Tensor:
        """What leaves a section: tokens, after the last one features."""
        if section == 0:
            return self.stem(x, record)
        return self.block(x, section - 1, record) if section <= self.architecture.layers else self.head(x, record)

    def holding(self, section: int) -> Self:
        """The same tower with nothing but the tensors of one section, in memory."""
        at = f"transformer.resblocks.{section - 1}."
        stem = ("class_embedding", "positional_embedding", "conv1.", "ln_pre.")
        wanted = stem if section == 0 else (at,) if section <= self.architecture.layers else ("ln_post.", "proj")
        return replace(self, tensors={name: self.tensors[name] for name in self.tensors if name.startswith(wanted)})

    def stem(self, images: Tensor, record: Record | None = None) -> Tensor:
        """Tokens (n, 1 + patches, width) that enter the first block; the class token comes first."""
        t, patch = self.tensors, self.architecture.patch_size
        patches = nnf.unfold(images, patch, stride=patch).transpose(1, 2)  # (n, patches, 3 * patch * patch)
        kernel = t["conv1.weight"].flatten(1)
        x = self._linear("conv1.weight", patches, kernel, None, record)
        cls_token = t["class_embedding"].expand(len(x), 1, -1)
        x = torch.cat([cls_token, x], dim=1) + t["positional_embedding"]
        return self._norm("ln_pre", x, record)

    def block(self, x: Tensor, index: int, record: Record | None = None) -> Tensor:
        """Tokens after one residual block."""
        t, at = self.tensors, f"transformer.resblocks.{index}."
        x = x + self._attention(self._norm(at + "ln_1", x, record), at + "attn.", record)
        hidden = self._norm(at + "ln_2", x, record)
        fc = at + "mlp.c_fc"
        hidden = self._activate(self._linear(fc + ".weight", hidden, t[fc + ".weight"], t[fc + ".bias"], record))
        out = at + "mlp.c_proj"
        return x + self._linear(out + ".weight", hidden, t[out + ".weight"], t[out + ".bias"], record)

    def _attention(self, x: Tensor, at: str, record: Record | None) -> Tensor:
        t, heads = self.tensors, self.architecture.heads
        n, length, width = x.shape
        packed = self._linear(at + "in_proj_weight", x, t[at + "in_proj_weight"], t[at + "in_proj_bias"], record)
        q, k, v = packed.reshape(n, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        seen = nnf.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        mixed = seen.transpose(1, 2).reshape(n, length, width)
        out = at + "out_proj"
        return self._linear(out + ".weight", mixed, t[out + ".weight"], t[out + ".bias"], record)

    def head(self, x: Tensor, record: Record | None = None) -> Tensor:
        """Features (n, embed_dim) from the tokens after the last block."""
        x = self._norm("ln_post", x[:, 0], record)
        if "proj" not in self.tensors:  # some checkpoints leave it out: it was not trained
            return x
        self._tell("proj", x, record)
        return x @ self.tensors["proj"]

    def _activate(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x) if self.architecture.quick_gelu else nnf.gelu(x)

    def _linear(self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, record: Record | None) -> Tensor:
        self._tell(name, x, record)
        return nnf.linear(x, weight, bias)

    def _norm(self, name: str, x: Tensor, record: Record | None) -> Tensor:
        t = self.tensors
        if record is not None:
            self._tell(name + ".weight", nnf.layer_norm(x, x.shape[-1:], eps=EPS), record)
        return nnf.layer_norm(x, x.shape[-1:], t[name + ".weight"], t[name + ".bias"], EPS)

    def _tell(self, name: str, x: Tensor, record: Record | None) -> None:
        if record is not None:
            for stored in self.names.get(name, (name,)):
                record(stored, x.reshape(-1, x.shape[-1]))
