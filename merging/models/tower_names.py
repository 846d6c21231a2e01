"""The tensors of a visual tower under the names of open_clip and of Transformers.

open_clip stores q, k and v of an attention layer in one matrix and the output projection as (d_in, d_out); Transformers
stores three matrices, and the projection as (d_out, d_in). The canonical form is open_clip's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from merging.models.checkpoint import Checkpoint
from merging.models.families import (
    HUGGING_FACE,
    OPEN_CLIP_TOWER,
    PACKED_QKV,
    QKV,
    Parameter,
    Role,
    Rule,
    find_nearest_family,
    recognize_family,
)
from merging.models.network_depth import depth_containers
from merging.models.network_facts import title_of
from merging.models.tensor_info import TensorInfo

VISUAL = "visual."
HF_PREFIX = "vision_model."
# A CLIP tower's class embedding: it shows that a file holds a tower, and what precedes it is the prefix of the names.
ANCHOR, HF_ANCHOR = "class_embedding", "embeddings.class_embedding"
PROJ = "proj"
HF_TOWER_PREFIXES = ("embeddings.", "encoder.", "pre_layrnorm.", "post_layernorm.")  # names inside Transformers' tower
HF_TEXT_PREFIXES = ("text_model.", "text_projection.")
CACHED_LISTS = 64  # number of lists of names for which the result is cached
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


def is_clip(infos: Mapping[str, TensorInfo], model_prefix: str, tower_prefix: str, inside_other: bool = False) -> bool:
    """Whether a file holds a CLIP model; the file has a class embedding under ``tower_prefix``.

    The names of the model begin with ``model_prefix``. BLIP and others have this embedding and norms under CLIP's
    names, but another attention, so every tensor of the tower must be CLIP's. LLaVA holds a CLIP tower beside another
    network: unless ``inside_other``, the model must have most of the file's numbers, and no other tensor may belong to
    blocks.
    """
    model_numel, other_numel, other_names = 0, 0, list[str]()
    for name, info in infos.items():
        short = name.removeprefix(model_prefix) if name.startswith(model_prefix) else ""
        if short.startswith(HF_TEXT_PREFIXES) or HUGGING_FACE.classify(short) is not None:
            model_numel += info.numel
        elif name.startswith(tower_prefix) and name.removeprefix(tower_prefix).startswith(HF_TOWER_PREFIXES):
            return False
        else:
            other_numel += info.numel
            other_names.append(name)
    return inside_other or (other_numel < model_numel and not depth_containers(other_names))


# --- from stored names to open_clip's --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TowerTensor:
    """A tensor of the visual tower: open_clip's name without prefix, and the index in ``QKV`` of q, k or v alone."""

    name: str
    qkv_index: int | None = None


def tensor_of_rule(rule: Rule, block: int | None) -> TowerTensor | None:
    """The tensor of the tower that a rule describes; None if the rule's tensors are not part of the tower."""
    if rule.role == Role.BUFFER:
        return None
    prefix = "" if block is None else f"transformer.resblocks.{block}."
    kind = "bias" if rule.role == Role.SHIFT else "weight"
    if rule.part in (PACKED_QKV, *QKV):
        return TowerTensor(f"{prefix}attn.in_proj_{kind}", QKV.index(rule.part) if rule.part in QKV else None)
    bare = rule.role in {Role.EMBEDDING, Role.PROJECTION}
    return TowerTensor(rule.part if bare else f"{prefix}{rule.part}.{kind}")


def find_tower_tensor(name: str) -> TowerTensor | None:
    """The tensor of the tower that a name with any prefix refers to; None if it is not in a visual tower."""
    for prefix, family in ((VISUAL, OPEN_CLIP_TOWER), (HF_PREFIX, HUGGING_FACE)):
        if prefix in name:
            match = family.classify(name.rpartition(prefix)[2])
            return tensor_of_rule(match[1], match[2]) if match else None
    match = HUGGING_FACE.classify(name) or OPEN_CLIP_TOWER.classify(name)
    return tensor_of_rule(match[1], match[2]) if match else None


def group_tower_names(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """{open_clip's name of a visual tensor: its names among ``names``}; three names if q, k and v are separate.

    Names that the nearest family does not know are left out, as is a layer that lacks one of q, k and v.
    """
    return dict(_group_names(tuple(names)))


@lru_cache(maxsize=64)  # every check of a merge passes the same names
def _group_names(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    family = find_nearest_family(names)
    stored: dict[str, dict[int, str]] = {}
    for name in names:
        match = family.classify(name)
        target = tensor_of_rule(match[1], match[2]) if match else None
        if target is not None:
            # The key is the index of q, k or v, or -1 for a tensor that is stored whole.
            stored.setdefault(target.name, {})[-1 if target.qkv_index is None else target.qkv_index] = name
    complete = {name: parts for name, parts in stored.items() if -1 in parts or len(parts) == len(QKV)}
    return {name: (parts[-1],) if -1 in parts else (parts[0], parts[1], parts[2]) for name, parts in complete.items()}


def tower_names(checkpoint: Checkpoint) -> dict[str, tuple[str, ...]]:
    """{open_clip's name of a tensor of the visual tower: its names in the checkpoint}, in forward order.

    Raises:
        FamilyError: the checkpoint is of no known family.
    """
    if checkpoint.is_inferred:
        recognize_family(checkpoint.infos, checkpoint.name, title_of(checkpoint.infos))  # raises
    return dict(_group_parameter_names(tuple(parameter.name for parameter in checkpoint.parameters)))


@lru_cache(maxsize=CACHED_LISTS)  # estimates pass the same names many times
def _group_parameter_names(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return group_tower_names(names)


def is_transposed_name(name: str) -> bool:
    """Whether an output projection of this name is stored as (d_in, d_out), as open_clip's ``proj`` is."""
    return not name.endswith("weight")


def is_transposed(parameter: Parameter) -> bool:
    """Whether a matrix is stored as (d_in, d_out)."""
    return parameter.transposed or (parameter.role == Role.PROJECTION and is_transposed_name(parameter.name))


def assemble(name: str, stored: Sequence[str], parts: Sequence[Tensor]) -> Tensor:
    """A tensor (*S) of the tower in open_clip's form, from a checkpoint's tensors ``parts`` named ``stored``.

    Three parts (width, ...) become one (3 · width, ...), and Transformers' projection (d_out, d_in) its transpose.
    """
    tensor = torch.cat(list(parts)) if len(parts) > 1 else parts[0]
    return tensor.T if name == PROJ and not is_transposed_name(stored[0]) else tensor


def hugging_face_names(name: str) -> tuple[str, ...]:
    """Transformers' names of a tensor of the tower, with the prefix that all its versions read."""
    if name == PROJ:
        return ("visual_projection.weight",)
    prefix, short_name = HF_PREFIX, name
    if name.startswith("transformer.resblocks."):
        _, _, block, short_name = name.split(".", 3)
        prefix = f"{HF_PREFIX}encoder.layers.{block}."
    if short_name.startswith("attn.in_proj_"):
        kind = short_name.removeprefix("attn.in_proj_")
        return tuple(f"{prefix}self_{part}.{kind}" for part in QKV)
    if short_name in TO_HUGGING_FACE:
        return (prefix + TO_HUGGING_FACE[short_name],)
    stem, _, kind = short_name.rpartition(".")
    return (f"{prefix}{TO_HUGGING_FACE[stem]}.{kind}",)
