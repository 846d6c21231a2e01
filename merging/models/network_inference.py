"""Role, block, tower and orientation of the tensors of any network with blocks, from names, shapes and types alone.

Nothing is kept by hand for single architectures: a name that says nothing gets its role from its shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from merging.base.errors import FamilyError
from merging.base.text import first_few
from merging.models import families
from merging.models.families import EMBEDDINGS, INFERRED_KEY, OUTPUT, Parameter, Role, nearest
from merging.models.network_depth import Depth, depth_containers, tensor_depths
from merging.models.network_facts import Facts, facts_of, title_of

if TYPE_CHECKING:  # importing it loads torch, which the page Home does not need
    from merging.models.tensor_info import TensorInfo

INFERENCE = 3  # raised whenever a role, a block or an order changes; it enters the ids of runs
BUFFERS = re.compile(
    r"position_ids|token_type_ids|num_batches_tracked|relative_position_index|relative_coords_table|inv_freq|"
    r"masked_bias|logit_scale|logit_bias|final_logits_bias"
)
STATISTICS = re.compile(r"running_mean|running_var")
TOKENS = {"shared", "wte", "embed_tokens", "word_embeddings", "word_embedding", "token_embedding", "tok_embeddings",
          "tokens_embed", "embeddings", "embed_in", "embed_out", "lm_head", "proj_out"}  # fmt: skip
TABLES = re.compile(r"pos\w*emb\w*|emb\w*pos\w*|wpe|\w*type_embeddings|rel_embeddings|relative_\w*bias\w*|\w*_token|"
                    r"\w*_tokens|probe|\w*class_embedding|position_embeddings?")  # fmt: skip
SCALES = re.compile(r"weight|gamma|scale|lambda\d*|layer_scale\w*|ls\d*|g")
AFTER = ("norm", "ln_f", "ln_post", "final", "post", "pooler", "head", "lm_head", "classifier", "cls", "layernorm",
         "proj_out", "score", "fc", "embed_out")  # fmt: skip
FIRST, LAST = ("vision", "visual", "image", "audio"), ("decoder", "text_decoder", "language", "lm")
QUANTIZED = re.compile(r"qweight|qzeros|absmax|quant_map|weight_scale_inv|g_idx")
FEWEST = 2  # weights that make a network of a file without blocks
MOST_KNOWN = 0.5  # of the names, above which a file with CLIP's class embedding is a CLIP tower that is not whole


def describe_parameters(
    infos: Mapping[str, TensorInfo], checkpoint_name: str = "the checkpoint", family: str = ""
) -> tuple[Parameter, ...]:
    """Every tensor of a CLIP encoder by its rules, or of another network by inference, in forward order.

    ``family`` is one of FAMILY_KEYS to have it one way, whatever the names say; facts do not count if all is inferred.

    Raises:
        FamilyError: neither; or a network that cannot be merged by tensors alone, and why.
    """
    if not is_inferred(infos, family):
        return families.classify_parameters(infos, checkpoint_name, title_of(infos))
    last = {name: name.rpartition(".")[2] for name in infos}
    if quantized := [name for name in infos if QUANTIZED.fullmatch(last[name])]:
        raise FamilyError(
            f"{checkpoint_name} is quantized ({first_few(quantized)}); task vectors need full numbers. Give the "
            f"model it was "
            "made from."
        )
    return _inferred(infos, None if family == INFERRED_KEY else facts_of(infos))


def is_inferred(names: Iterable[str], family: str = "") -> bool:
    """Whether parameters are inferred: there are blocks or layers, and it is no CLIP tower, whole or damaged."""
    if family:
        return family == INFERRED_KEY
    return _is_inferred(tuple(names))


@lru_cache(maxsize=64)  # a merge asks for the same few models many times
def _is_inferred(listed: tuple[str, ...]) -> bool:
    if not listed:
        return False
    clip = nearest(listed)
    known = sum(map(clip.knows, listed))
    if known == len(listed):
        return False
    if known > MOST_KNOWN * len(listed) and not title_of(listed):
        return False
    return bool(depth_containers(listed)) or sum(name.endswith(".weight") for name in listed) >= FEWEST


def _inferred(infos: Mapping[str, TensorInfo], facts: Facts | None) -> tuple[Parameter, ...]:
    """Every tensor in forward order, tower by tower: before the blocks, in them, after them."""
    found = tensor_depths(infos)
    turned = _transposed(infos, found)
    rows = []
    for name, info in infos.items():
        depth = found[name]
        role = _role(name, info)
        section = f"block {depth.block}" if depth.block is not None else OUTPUT if _is_after(depth) else EMBEDDINGS
        inside = facts.position_in_block(depth.rest) if facts and depth.block is not None else 0
        place = (_rank(depth, role), *_step(depth), inside, name)
        titled = f"{depth.tower} {section}" if depth.tower else section
        part = depth.rest.removesuffix(".weight").removesuffix(".bias")
        rows.append((place, name, role, part, titled, depth, name in turned))
    rows.sort(key=lambda row: row[0])
    return tuple(
        Parameter(name, role, part, section, depth.block, order, depth.tower, transposed)
        for order, (_, name, role, part, section, depth, transposed) in enumerate(rows)
    )


def _rank(depth: Depth, role: Role) -> int:
    """The place of a tower in forward order; tables that towers share come first, what connects towers in between."""
    if depth.tower.startswith(FIRST):
        return 1
    if depth.tower.startswith(LAST):
        return 4
    if depth.tower or depth.block is not None:
        return 2
    if _is_after(depth):
        return 5
    return 0 if role in {Role.VOCABULARY, Role.EMBEDDING} or depth.rest.startswith("emb") else 3


def _step(depth: Depth) -> tuple[int, int]:
    return (1, depth.block) if depth.block is not None else (2 if _is_after(depth) else 0, 0)


def _is_after(depth: Depth) -> bool:
    """Whether a tensor outside the blocks follows them."""
    parts = depth.rest.split(".")[:-1]
    return any(part.startswith(AFTER) for part in parts) and not any(part.startswith("emb") for part in parts)


def _role(name: str, info: TensorInfo) -> Role:
    """The role of a tensor by the end of its name, its type and its shape."""
    return _role_of(".".join(name.rsplit(".", 3)[-3:]), info.dtype.is_floating_point, len(info.shape), 1 in info.shape)


@lru_cache(maxsize=4096)  # most tensors of a network are those of another block again
def _role_of(ending: str, floating: bool, sides: int, flat: bool) -> Role:
    """The first that holds, from the last words of a name to the number of sides, of which one is 1 if ``flat``."""
    parts = ending.split(".")
    last, layer = parts[-1], parts[-2] if len(parts) > 1 else ""
    if not floating and last in {"weight", "bias"}:
        return Role.LINEAR  # of packed numbers, which the check of the team refuses
    learned = last == "logit_scale" and sides > 1  # one for each head of an attention layer
    if not floating or (BUFFERS.fullmatch(last) and not learned) or (sides == 4 and ending.endswith("attn.bias")):
        return Role.BUFFER
    if STATISTICS.fullmatch(last):
        return Role.STATISTIC
    if sides == 2 and ((last == "weight" and layer in TOKENS) or ending.endswith("predictions.decoder.weight")):
        return Role.VOCABULARY
    if sides > 0 and (TABLES.fullmatch(last) or (last == "weight" and sides == 2 and TABLES.fullmatch(layer))):
        return Role.EMBEDDING
    return _role_of_shape(last, sides, flat)


def _role_of_shape(last: str, sides: int, flat: bool) -> Role:
    """The role of a tensor whose name says no more than its last word."""
    if sides < 2:
        return Role.NORM_SCALE if SCALES.fullmatch(last) else Role.SHIFT
    if sides == 2:
        return Role.LINEAR
    if last == "weight":
        return Role.CONV
    return Role.EMBEDDING if flat else Role.STACK


def _transposed(infos: Mapping[str, TensorInfo], found: Mapping[str, Depth]) -> set[str]:
    """Matrices stored as (d_in, d_out): their biases have as many numbers as they have columns, and not rows.

    Square ones do not show it, and follow the others if all that do are transposed, heads outside the blocks apart.
    """
    turned, square, upright = set(), set(), 0
    for name, info in infos.items():
        bias = infos.get(name.removesuffix("weight") + "bias") if name.endswith(".weight") else None
        if bias is None or len(info.shape) != 2 or len(bias.shape) != 1:
            continue
        if info.shape[0] == info.shape[1]:
            square.add(name)
        elif bias.shape[0] == info.shape[1]:
            turned.add(name)
        elif found[name].block is not None:
            upright += 1
    return turned | square if turned and not upright else turned
