"""Role, block, tower and orientation of the tensors of any network with blocks, from names, shapes and types alone.

A network other than CLIP has no table of rules (``families``), so this layout is inferred. There are no rules for
single architectures. If a tensor's name shows no role, its shape determines the role.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from merging.base.errors import FamilyError
from merging.base.text import first_few
from merging.models import families
from merging.models.families import EMBEDDINGS, INFERRED_KEY, OUTPUT, Parameter, Role, find_nearest_family
from merging.models.network_depth import Depth, depth_containers, tensor_depths
from merging.models.network_facts import Facts, facts_of, title_of

if TYPE_CHECKING:  # importing it loads torch, which the page Home does not need
    from merging.models.tensor_info import TensorInfo

# Raised whenever this module infers another role, block or order for any tensor; part of the ids of runs.
INFERENCE_VERSION = 3
BUFFER_WORDS = re.compile(
    r"position_ids|token_type_ids|num_batches_tracked|relative_position_index|relative_coords_table|inv_freq|"
    r"masked_bias|logit_scale|logit_bias|final_logits_bias"
)
STATISTIC_WORDS = re.compile(r"running_mean|running_var")
VOCABULARY_LAYERS = {
    "shared", "wte", "embed_tokens", "word_embeddings", "word_embedding", "token_embedding", "tok_embeddings",
    "tokens_embed", "embeddings", "embed_in", "embed_out", "lm_head", "proj_out",
}  # fmt: skip
EMBEDDING_WORDS = re.compile(
    r"pos\w*emb\w*|emb\w*pos\w*|wpe|\w*type_embeddings|rel_embeddings|relative_\w*bias\w*|\w*_token|\w*_tokens|probe|"
    r"\w*class_embedding|position_embeddings?"
)
NORM_SCALE_WORDS = re.compile(r"weight|gamma|scale|lambda\d*|layer_scale\w*|ls\d*|g")
WORDS_AFTER_BLOCKS = (
    "norm", "ln_f", "ln_post", "final", "post", "pooler", "head", "lm_head", "classifier", "cls", "layernorm",
    "proj_out", "score", "fc", "embed_out",
)  # fmt: skip
# The beginnings of names of towers that run first and last.
FIRST_TOWERS, LAST_TOWERS = ("vision", "visual", "image", "audio"), ("decoder", "text_decoder", "language", "lm")
QUANTIZED_WORDS = re.compile(r"qweight|qzeros|absmax|quant_map|weight_scale_inv|g_idx")
MIN_WEIGHTS = 2  # least number of weights for a file without blocks to count as a network
MAX_CLIP_SHARE = 0.5  # if more of its names are CLIP's, a file of no kind in facts.toml is a damaged CLIP tower


def describe_parameters(
    infos: Mapping[str, TensorInfo], checkpoint_name: str = "the checkpoint", family: str = ""
) -> tuple[Parameter, ...]:
    """Every tensor of a CLIP encoder by its rules, or of another network by inference, in forward order.

    ``family``, one of FAMILY_KEYS, decides between the two regardless of the names; "inferred" ignores known facts.

    Raises:
        FamilyError: no rules match the names, or the network is quantized and cannot be merged.
    """
    if not is_inferred(infos, family):
        return families.classify_parameters(infos, checkpoint_name, title_of(infos))
    last_words = {name: name.rpartition(".")[2] for name in infos}
    if quantized := [name for name in infos if QUANTIZED_WORDS.fullmatch(last_words[name])]:
        raise FamilyError(
            f"{checkpoint_name} is quantized ({first_few(quantized)}); task vectors need full numbers. Give the "
            "model it was made from."
        )
    return _infer_parameters(infos, None if family == INFERRED_KEY else facts_of(infos))


def is_inferred(names: Iterable[str], family: str = "") -> bool:
    """Whether parameters are inferred: the names show blocks or layers, but not a CLIP tower, complete or damaged."""
    if family:
        return family == INFERRED_KEY
    return _is_inferred(tuple(names))


@lru_cache(maxsize=64)  # a merge passes the names of the same few models many times
def _is_inferred(names: tuple[str, ...]) -> bool:
    if not names:
        return False
    nearest_family = find_nearest_family(names)
    known_count = sum(map(nearest_family.knows, names))
    if known_count == len(names):
        return False
    if known_count > MAX_CLIP_SHARE * len(names) and not title_of(names):
        return False
    return bool(depth_containers(names)) or sum(name.endswith(".weight") for name in names) >= MIN_WEIGHTS


def _infer_parameters(infos: Mapping[str, TensorInfo], facts: Facts | None) -> tuple[Parameter, ...]:
    """Every tensor in forward order, tower by tower: before the blocks, in them, after them."""
    depths = tensor_depths(infos)
    transposed_names = _find_transposed(infos, depths)
    rows = []
    for name, info in infos.items():
        depth = depths[name]
        role = _infer_role(name, info)
        section = f"block {depth.block}" if depth.block is not None else OUTPUT if _is_after(depth) else EMBEDDINGS
        position = facts.position_in_block(depth.name_in_block) if facts and depth.block is not None else 0
        sort_key = (_tower_rank(depth, role), *_block_sort_key(depth), position, name)
        section_title = f"{depth.tower} {section}" if depth.tower else section
        part = depth.name_in_block.removesuffix(".weight").removesuffix(".bias")
        rows.append((sort_key, name, role, part, section_title, depth, name in transposed_names))
    rows.sort(key=lambda row: row[0])
    return tuple(
        Parameter(name, role, part, section, depth.block, order, depth.tower, transposed)
        for order, (_, name, role, part, section, depth, transposed) in enumerate(rows)
    )


def _tower_rank(depth: Depth, role: Role) -> int:
    """The rank of a tensor's tower in forward order.

    Tables that towers share come first (0), then towers for images and sound (1), other towers (2), layers between
    towers (3), decoders (4), and layers after all towers (5).
    """
    if depth.tower.startswith(FIRST_TOWERS):
        return 1
    if depth.tower.startswith(LAST_TOWERS):
        return 4
    if depth.tower or depth.block is not None:
        return 2
    if _is_after(depth):
        return 5
    return 0 if role in {Role.VOCABULARY, Role.EMBEDDING} or depth.name_in_block.startswith("emb") else 3


def _block_sort_key(depth: Depth) -> tuple[int, int]:
    """The sort key inside a tower: tensors before the blocks, the blocks in order, tensors after them."""
    return (1, depth.block) if depth.block is not None else (2 if _is_after(depth) else 0, 0)


def _is_after(depth: Depth) -> bool:
    """Whether a tensor outside the blocks follows them."""
    parts = depth.name_in_block.split(".")[:-1]
    return any(part.startswith(WORDS_AFTER_BLOCKS) for part in parts) and not any(
        part.startswith("emb") for part in parts
    )


def _infer_role(name: str, info: TensorInfo) -> Role:
    """The role of a tensor by the end of its name, its type and its shape."""
    return _infer_role_from_name(
        ".".join(name.rsplit(".", 3)[-3:]), info.dtype.is_floating_point, len(info.shape), 1 in info.shape
    )


@lru_cache(maxsize=4096)  # blocks repeat most of the names and shapes
def _infer_role_from_name(ending: str, floating: bool, sides: int, flat: bool) -> Role:
    """The role of a tensor with ``sides`` dimensions, of which one is 1 if ``flat``; its name decides first."""
    parts = ending.split(".")
    last_word, layer = parts[-1], parts[-2] if len(parts) > 1 else ""
    if not floating and last_word in {"weight", "bias"}:
        return Role.LINEAR  # packed numbers, which ``form_team`` refuses
    is_learned_scale = last_word == "logit_scale" and sides > 1  # one scale per head of an attention layer
    if (
        not floating
        or (BUFFER_WORDS.fullmatch(last_word) and not is_learned_scale)
        or (sides == 4 and ending.endswith("attn.bias"))
    ):
        return Role.BUFFER
    if STATISTIC_WORDS.fullmatch(last_word):
        return Role.STATISTIC
    if sides == 2 and (
        (last_word == "weight" and layer in VOCABULARY_LAYERS) or ending.endswith("predictions.decoder.weight")
    ):
        return Role.VOCABULARY
    if sides > 0 and (
        EMBEDDING_WORDS.fullmatch(last_word)
        or (last_word == "weight" and sides == 2 and EMBEDDING_WORDS.fullmatch(layer))
    ):
        return Role.EMBEDDING
    return _infer_role_from_shape(last_word, sides, flat)


def _infer_role_from_shape(last_word: str, sides: int, flat: bool) -> Role:
    """The role of a tensor by the last word of its name and its shape."""
    if sides < 2:
        return Role.NORM_SCALE if NORM_SCALE_WORDS.fullmatch(last_word) else Role.SHIFT
    if sides == 2:
        return Role.LINEAR
    if last_word == "weight":
        return Role.CONV
    return Role.EMBEDDING if flat else Role.STACK


def _find_transposed(infos: Mapping[str, TensorInfo], depths: Mapping[str, Depth]) -> set[str]:
    """Names of the matrices stored as (d_in, d_out): their biases have as many numbers as they have columns.

    A square matrix does not show its orientation. It counts as transposed if at least one other matrix is transposed
    and no matrix inside the blocks is stored as (d_out, d_in).
    """
    transposed, square, plain_count = set(), set(), 0
    for name, info in infos.items():
        bias = infos.get(name.removesuffix("weight") + "bias") if name.endswith(".weight") else None
        if bias is None or len(info.shape) != 2 or len(bias.shape) != 1:
            continue
        if info.shape[0] == info.shape[1]:
            square.add(name)
        elif bias.shape[0] == info.shape[1]:
            transposed.add(name)
        elif depths[name].block is not None:
            plain_count += 1
    return transposed | square if transposed and not plain_count else transposed
