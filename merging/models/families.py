"""The role of each parameter, its residual block and its position in forward order, from its name alone.

A family is a naming scheme of one architecture, written as a table of rules *pattern -> (role, part, section)*. Every
name of a checkpoint must match exactly one rule of one family; otherwise the error lists the unknown names and the
nearest family.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from merging.base.errors import FamilyError
from merging.base.text import first_few, plural

if TYPE_CHECKING:  # importing it loads torch, which the page Home does not need
    from merging.models.tensor_info import TensorInfo


class Role(StrEnum):
    """The function of a tensor in the network."""

    LINEAR = "linear"
    CONV = "conv"
    NORM_SCALE = "norm_scale"
    SHIFT = "shift"
    EMBEDDING = "embedding"
    PROJECTION = "projection"
    VOCABULARY = "vocabulary"  # one row per token; CLIP's image encoders have no such table
    STACK = "stack"  # matrices of several experts of a layer in one tensor; CLIP has none
    STATISTIC = "statistic"  # running mean or variance of a batch norm: averaged over the experts by every method
    BUFFER = "buffer"  # copied from the pretrained model, never merged
    HEAD = "head"  # a task's own output layer: every expert keeps its own


UNMERGED = frozenset({Role.STATISTIC, Role.BUFFER, Role.HEAD})  # roles of tensors that are not passed to methods
ROWWISE_ROLES = frozenset({Role.VOCABULARY, Role.STACK})  # tables and stacks, which methods do not treat as matrices
INFERRED_ROLES = ROWWISE_ROLES | {Role.STATISTIC, Role.HEAD}  # roles that no tensor of CLIP has
LINEAR_MAPS = frozenset({Role.LINEAR, Role.PROJECTION})  # matrices for which several experts have a joint space
WEIGHT_ROLES = LINEAR_MAPS | {Role.CONV}  # tensors that multiply the rows that enter them
EMBEDDINGS, OUTPUT, NOT_MERGED = "embeddings", "output", "not merged"
UNUSED_TEXT = "unused text"  # the part of the text tensors in an image encoder's checkpoint
TEXT_TOWER = "text tower"  # the part of the text tensors that only a whole CLIP model contains
UNKNOWN = "unknown"
PACKED_QKV = "attn.in_proj"  # the part of a tensor that holds q, k and v of an attention layer in thirds of its rows
QKV = ("attn.q_proj", "attn.k_proj", "attn.v_proj")  # parts of three tensors, in the order of a packed one
QKV_WORDS = ("query", "key", "value")  # names of the thirds of a packed tensor, in that order
# Kinds of models that a recipe may state. In an inferred one, which is any network other than CLIP, roles, blocks and
# order are not read from this file's rules but inferred from names and shapes: ``network_inference``.
CLIP_KEY, INFERRED_KEY = FAMILY_KEYS = ("clip", "inferred")
QUICK_GELU, GELU = ACTIVATIONS = ("quick_gelu", "gelu")  # between the layers of an MLP; weights do not show which one


@dataclass(frozen=True, slots=True)
class Parameter:
    """One tensor of a family. ``order`` counts in forward order from 0; ``block`` is None outside the blocks."""

    name: str
    role: Role
    part: str  # kind of layer, e.g. "mlp.c_fc"
    section: str  # "embeddings", "block 3", "output"
    block: int | None  # counted within its tower
    order: int
    tower: str = ""  # e.g. "decoder"; empty if the network has one tower
    transposed: bool = False  # whether a matrix is stored as (d_in, d_out)


@dataclass(frozen=True, slots=True)
class Rule:
    """Names that match ``pattern`` have this role and part; its group ``block`` is the block's number."""

    pattern: str
    role: Role
    part: str
    section: str = ""  # empty: the section of the block

    def match(self, name: str) -> re.Match[str] | None:
        """The match of the whole name, or None."""
        return re.fullmatch(self.pattern, name)


@dataclass(frozen=True, eq=False)
class Family:
    """A naming scheme: rules in forward order."""

    key: str
    title: str
    rules: tuple[Rule, ...]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern that every name of the family matches as a whole."""
        return re.compile("|".join(rule.pattern.replace("?P<block>", "?:") for rule in self.rules))

    def knows(self, name: str) -> bool:
        """Whether a rule fits a name."""
        return self.pattern.fullmatch(name) is not None

    def classify(self, name: str) -> tuple[int, Rule, int | None] | None:
        """Index of the rule, the rule and the block of ``name``; None if no rule fits."""
        return _classify_name(self, name)


@lru_cache(maxsize=8192)  # every check of a merge classifies the same few hundred names
def _classify_name(family: Family, name: str) -> tuple[int, Rule, int | None] | None:
    for index, rule in enumerate(family.rules):
        if match := rule.match(name):
            block = match.groupdict().get("block")
            return index, rule, None if block is None else int(block)
    return None


def _weight_and_bias(stem: str, weight: Role, part: str, section: str = "") -> tuple[Rule, Rule]:
    """The rules of a layer's weight, of role ``weight``, and of its bias."""
    return Rule(rf"{stem}\.weight", weight, part, section), Rule(rf"{stem}\.bias", Role.SHIFT, part, section)


def _open_clip_rules() -> tuple[Rule, ...]:
    block = r"transformer\.resblocks\.(?P<block>\d+)\."
    attention = block + r"attn\."
    return (
        Rule("class_embedding", Role.EMBEDDING, "class_embedding", EMBEDDINGS),
        Rule("positional_embedding", Role.EMBEDDING, "positional_embedding", EMBEDDINGS),
        Rule("proj", Role.PROJECTION, "proj", OUTPUT),
        Rule(r"conv1\.weight", Role.CONV, "conv1", EMBEDDINGS),
        *_weight_and_bias("ln_pre", Role.NORM_SCALE, "ln_pre", EMBEDDINGS),
        *_weight_and_bias(block + "ln_1", Role.NORM_SCALE, "ln_1"),
        Rule(attention + "in_proj_weight", Role.LINEAR, PACKED_QKV),
        Rule(attention + "in_proj_bias", Role.SHIFT, PACKED_QKV),
        *_weight_and_bias(attention + "out_proj", Role.LINEAR, "attn.out_proj"),
        *_weight_and_bias(block + "ln_2", Role.NORM_SCALE, "ln_2"),
        *_weight_and_bias(block + r"mlp\.c_fc", Role.LINEAR, "mlp.c_fc"),
        *_weight_and_bias(block + r"mlp\.c_proj", Role.LINEAR, "mlp.c_proj"),
        *_weight_and_bias("ln_post", Role.NORM_SCALE, "ln_post", OUTPUT),
    )


def _hugging_face_rules() -> tuple[Rule, ...]:
    body = r"(?:vision_model\.)?"
    block = body + r"encoder\.layers\.(?P<block>\d+)\."
    attention = block + r"self_attn\."
    return (
        Rule(body + r"embeddings\.class_embedding", Role.EMBEDDING, "class_embedding", EMBEDDINGS),
        Rule(body + r"embeddings\.position_embedding\.weight", Role.EMBEDDING, "positional_embedding", EMBEDDINGS),
        Rule(r"visual_projection\.weight", Role.PROJECTION, "proj", OUTPUT),
        Rule(body + r"embeddings\.patch_embedding\.weight", Role.CONV, "conv1", EMBEDDINGS),
        *_weight_and_bias(body + "pre_layrnorm", Role.NORM_SCALE, "ln_pre", EMBEDDINGS),
        *_weight_and_bias(block + "layer_norm1", Role.NORM_SCALE, "ln_1"),
        *_weight_and_bias(attention + "q_proj", Role.LINEAR, "attn.q_proj"),
        *_weight_and_bias(attention + "k_proj", Role.LINEAR, "attn.k_proj"),
        *_weight_and_bias(attention + "v_proj", Role.LINEAR, "attn.v_proj"),
        *_weight_and_bias(attention + "out_proj", Role.LINEAR, "attn.out_proj"),
        *_weight_and_bias(block + "layer_norm2", Role.NORM_SCALE, "ln_2"),
        *_weight_and_bias(block + r"mlp\.fc1", Role.LINEAR, "mlp.c_fc"),
        *_weight_and_bias(block + r"mlp\.fc2", Role.LINEAR, "mlp.c_proj"),
        *_weight_and_bias(body + "post_layernorm", Role.NORM_SCALE, "ln_post", OUTPUT),
        Rule(body + r"embeddings\.position_ids", Role.BUFFER, "position_ids", NOT_MERGED),
        Rule(r"logit_scale", Role.BUFFER, "logit_scale", NOT_MERGED),
    )


# Text tensors in the checkpoints of image encoders; their task vectors are zero and they are not merged.
# The published image encoders lack the text transformer but have these six, which their authors count in quantiles.
_UNUSED_TEXT = (
    Rule(
        r"positional_embedding|text_projection|token_embedding\.weight|ln_final\.(?:weight|bias)|logit_scale",
        Role.BUFFER,
        UNUSED_TEXT,
        NOT_MERGED,
    ),
    Rule(r"transformer\.resblocks\..+|attn_mask|logit_bias", Role.BUFFER, TEXT_TOWER, NOT_MERGED),
)


def _prefix_visual(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The same rules under open_clip's ``visual.`` prefix."""
    return tuple(Rule(r"visual\." + rule.pattern, rule.role, rule.part, rule.section) for rule in rules)


OPEN_CLIP = Family(
    "open_clip", "open_clip model or image encoder", (*_prefix_visual(_open_clip_rules()), *_UNUSED_TEXT)
)
OPEN_CLIP_TOWER = Family("open_clip_tower", "open_clip visual tower", _open_clip_rules())
HUGGING_FACE = Family("hugging_face", "Hugging Face CLIP vision model", _hugging_face_rules())
FAMILIES = (OPEN_CLIP, OPEN_CLIP_TOWER, HUGGING_FACE)


def _list_unknown_names(family: Family, names: Iterable[str]) -> list[str]:
    """The names that match no rule of a family."""
    return [name for name in names if not family.knows(name)]


def recognize_family(names: Iterable[str], checkpoint_name: str = "the checkpoint", network_title: str = "") -> Family:
    """The family whose rules match every name.

    ``network_title`` is the kind of network that has such names, if it is known.

    Raises:
        FamilyError: no family fits; the message lists the unknown names and the nearest family.
    """
    name_list = list(names)
    if not name_list:
        raise FamilyError(f"{checkpoint_name} holds no tensors.")
    family = find_nearest_family(name_list)
    unknown = _list_unknown_names(family, name_list)
    if not unknown:
        return family
    raise FamilyError(
        f"{checkpoint_name} is of no known model "
        f"family{f'; its names are those of {network_title}' if network_title else ''}. The nearest is "
        f"{family.title!r}, whose rules do not know {len(unknown)} of its {plural(len(name_list), 'tensor')}: "
        f"{first_few(name[:80] for name in unknown)}. Image encoders of CLIP can be merged; if this model has "
        "one, save it by itself."
    )


def find_nearest_family(names: Iterable[str]) -> Family:
    """The family whose rules match most of the names."""
    return _find_nearest(tuple(names))


@lru_cache(maxsize=64)
def _find_nearest(names: tuple[str, ...]) -> Family:
    complete = (family for family in FAMILIES if not _list_unknown_names(family, names))
    return next(complete, None) or min(FAMILIES, key=lambda family: len(_list_unknown_names(family, names)))


def classify_parameters(
    names: Iterable[str], checkpoint_name: str = "the checkpoint", network_title: str = ""
) -> tuple[Parameter, ...]:
    """Every tensor of a checkpoint with its role and block, in forward order.

    Raises:
        FamilyError: the names do not all match the rules of one family.
    """
    name_list = list(names)
    family = recognize_family(name_list, checkpoint_name, network_title)
    rows = []
    for name in name_list:
        classified = family.classify(name)
        assert classified is not None  # recognize_family has matched every name
        index, rule, block = classified
        rows.append((_forward_order(index, rule, block), name, rule, block))
    rows.sort(key=lambda row: (row[0], row[1]))
    return tuple(
        Parameter(name, rule.role, rule.part, rule.section or f"block {block}", block, order)
        for order, (_, name, rule, block) in enumerate(rows)
    )


def qkv_parameters(parameter: Parameter) -> tuple[Parameter, ...]:
    """Query, key and value of a packed tensor as parameters of their own, in order; empty for any other tensor.

    They have the position of the packed tensor in forward order, and the parts of files that store three tensors.
    """
    if parameter.part != PACKED_QKV:
        return ()
    pairs = zip(QKV_WORDS, QKV, strict=True)
    return tuple(replace(parameter, name=f"{parameter.name}[{word}]", part=part) for word, part in pairs)


def stored_tensor_name(name: str) -> str:
    """The name of the stored tensor: the packed tensor's for its query, key or value, else the name itself."""
    stem, bracket, word = name.removesuffix("]").rpartition("[")
    return stem if bracket and name.endswith("]") and word in QKV_WORDS else name


def guess_parameters(infos: Mapping[str, TensorInfo]) -> tuple[Parameter, ...]:
    """Parameters of a model of no known family, with roles from dtypes alone, to compare checkpoints."""
    rows = []
    for order, (name, info) in enumerate(infos.items()):
        is_buffer = not info.dtype.is_floating_point and not name.endswith((".weight", ".bias"))
        rows.append(Parameter(name, Role.BUFFER if is_buffer else Role.LINEAR, UNKNOWN, UNKNOWN, None, order))
    return tuple(rows)


def _forward_order(index: int, rule: Rule, block: int | None) -> tuple[int, int, int]:
    """Sort key in forward order: parameters before the blocks, in each block, after them."""
    if block is not None:
        return 1, block, index
    is_after_blocks = rule.part == "ln_post" or rule.section == NOT_MERGED
    return (2 if is_after_blocks else 0), 0, index
