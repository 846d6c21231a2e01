"""Which tensor is which under the names of open_clip and of Transformers.

open_clip keeps q, k and v of an attention layer in one matrix and the output projection as (d_in, d_out); Transformers
keeps them apart and as (d_out, d_in). The canonical form is open_clip's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.checkpoints.checkpoint import Checkpoint
from merging.checkpoints.families import BARE, HUGGING_FACE, Role, Rule, nearest

VISUAL = "visual."
BODY = "vision_model."
QKV = ("attn.q_proj", "attn.k_proj", "attn.v_proj")  # in the order in which open_clip stacks them
PACKED = ("attn.in_proj", *QKV)
ANCHOR, HF_ANCHOR = "class_embedding", "embeddings.class_embedding"
PROJ = "proj"
TO_HUGGING_FACE = {
    "class_embedding": HF_ANCHOR,
    "positional_embedding": "embeddings.position_embedding.weight",
    "conv1.weight": "embeddings.patch_embedding.weight",
    "ln_pre": "pre_layrnorm",
    "ln_post": "post_layernorm",
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}


# --- which tensor is which -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TowerTensor:
    """A tensor of the visual tower: open_clip's name without prefix, and which of q, k and v it is, if it is one."""

    name: str
    third: int | None = None


def place(rule: Rule, block: int | None) -> TowerTensor | None:
    """Where what a rule matches belongs in the tower; None for what is no part of it."""
    if rule.role == Role.BUFFER:
        return None
    at = "" if block is None else f"transformer.resblocks.{block}."
    kind = "bias" if rule.role == Role.SHIFT else "weight"
    if rule.part in PACKED:
        return TowerTensor(f"{at}attn.in_proj_{kind}", QKV.index(rule.part) if rule.part in QKV else None)
    bare = rule.role in {Role.EMBEDDING, Role.PROJECTION}
    return TowerTensor(rule.part if bare else f"{at}{rule.part}.{kind}")


def place_of(name: str) -> TowerTensor | None:
    """Where a single name belongs, whatever stands before it; None if it is no name of a visual tower."""
    for mark, family in ((VISUAL, BARE), (BODY, HUGGING_FACE)):
        if mark in name:
            known = family.classify(name.rpartition(mark)[2])
            return place(known[1], known[2]) if known else None
    known = HUGGING_FACE.classify(name) or BARE.classify(name)
    return place(known[1], known[2]) if known else None


def tower(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """open_clip's names of the visual tower's tensors -> their names here: one, or three for q, k and v apart.

    Names that the nearest family does not know are left out, and so is a layer of whose q, k and v one is missing.
    """
    listed = list(names)
    family = nearest(listed)
    found: dict[str, dict[int, str]] = {}
    for name in listed:
        known = family.classify(name)
        where = place(known[1], known[2]) if known else None
        if where is not None:
            found.setdefault(where.name, {})[-1 if where.third is None else where.third] = name
    whole = {name: parts for name, parts in found.items() if -1 in parts or len(parts) == len(QKV)}
    return {name: (parts[-1],) if -1 in parts else (parts[0], parts[1], parts[2]) for name, parts in whole.items()}


def tower_names(checkpoint: Checkpoint) -> dict[str, tuple[str, ...]]:
    """open_clip's names of the visual tower's tensors -> their names in the checkpoint, in forward order.

    Raises:
        FamilyError: it is of no known family.
    """
    order = [parameter.name for parameter in checkpoint.parameters]
    return tower(order)


def transposed(name: str) -> bool:
    """Whether the output projection of that name is stored (d_in, d_out), as open_clip's bare ``proj`` is."""
    return not name.endswith("weight")


def assemble(name: str, stored: Sequence[str], parts: Sequence[Tensor]) -> Tensor:
    """A tower's tensor as open_clip has it, from what a checkpoint has under the names ``stored``."""
    tensor = torch.cat(list(parts)) if len(parts) > 1 else parts[0]
    return tensor.T if name == PROJ and not transposed(stored[0]) else tensor


def hugging_face_names(name: str) -> tuple[str, ...]:
    """Transformers' names of a tower's tensor, with the prefix that all its versions read."""
    if name == PROJ:
        return ("visual_projection.weight",)
    at, rest = BODY, name
    if name.startswith("transformer.resblocks."):
        _, _, block, rest = name.split(".", 3)
        at = f"{BODY}encoder.layers.{block}."
    if rest.startswith("attn.in_proj_"):
        kind = rest.removeprefix("attn.in_proj_")
        return tuple(f"{at}self_{part}.{kind}" for part in QKV)
    if rest in TO_HUGGING_FACE:
        return (at + TO_HUGGING_FACE[rest],)
    stem, _, kind = rest.rpartition(".")
    return (f"{at}{TO_HUGGING_FACE[stem]}.{kind}",)
