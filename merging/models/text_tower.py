"""The text tower of a whole CLIP model under the names of open_clip and of Transformers.

Its blocks have the structure of the visual tower's blocks, so their tensors' names are found in the same way. The
canonical names are open_clip's: ``token_embedding.weight``, ``transformer.resblocks.0.…``, ``text_projection`` (width,
embed_dim).
"""

from __future__ import annotations

from collections.abc import Mapping

from merging.base.errors import CheckpointError
from merging.models.architecture import architecture_in_metadata
from merging.models.checkpoint import Checkpoint
from merging.models.checkpoint_views import (
    CheckpointView,
    DerivedTensor,
    rename_tensor,
    rename_tensors,
    transposed_matrix,
)
from merging.models.tower_names import HF_PREFIX, VISUAL, group_tower_names, hugging_face_names

TOKENS, POSITIONS = "token_embedding.weight", "positional_embedding"
PROJECTION, SCALE = "text_projection", "logit_scale"
HF_TOKENS, HF_BODY = f"embeddings.{TOKENS}", "text_model."
BLOCKS, HF_BLOCKS_PREFIX = "transformer.resblocks.", "encoder.layers."
TO_TRANSFORMERS = {
    TOKENS: HF_TOKENS,
    POSITIONS: "embeddings.position_embedding.weight",
    "ln_final.weight": "final_layer_norm.weight",
    "ln_final.bias": "final_layer_norm.bias",
}
HEAD_WIDTH, PUBLISHED_WIDTHS = 64, (256, 384, 512, 640, 768, 896, 1024, 1280)  # widths of published text towers of CLIP
OTHER_TOWER_TENSORS = ("cls_emb", "text_projection.bias", "logit_bias")  # tensors that only CoCa and SigLIP have


def find_text_prefix(checkpoint: Checkpoint) -> tuple[str, bool]:
    """The prefix of the text tower's names, and whether these are Transformers' names.

    Raises:
        CheckpointError: the checkpoint has no text tower, or several.
    """
    anchors = [name for name in checkpoint.infos if name == TOKENS or name.endswith("." + TOKENS)]
    if len(anchors) != 1:
        problem = "several text towers" if anchors else "no text tower"
        raise CheckpointError(f"{checkpoint.name} holds {problem}; a whole CLIP model has one.")
    hugging_face = anchors[0].endswith(HF_TOKENS)
    return anchors[0].removesuffix(HF_TOKENS if hugging_face else TOKENS), hugging_face


def text_tower(checkpoint: Checkpoint) -> CheckpointView:
    """The text tower of a checkpoint with the names in its file, as a checkpoint with open_clip's names.

    The result includes the logit scale if the file has one.

    Raises:
        CheckpointError: the checkpoint has no text tower, a part of one, or one that is not CLIP's.
    """
    prefix, hugging_face = find_text_prefix(checkpoint)
    model_prefix = prefix.removesuffix(HF_BODY if hugging_face else "text.")
    if other_tensors := [
        name
        for name in OTHER_TOWER_TENSORS
        if prefix + name in checkpoint.infos or model_prefix + name in checkpoint.infos
    ]:
        raise CheckpointError(f"{checkpoint.name} has another kind of text tower than CLIP's ({other_tensors[0]}).")
    stored = {name: prefix + (hf if hugging_face else name) for name, hf in TO_TRANSFORMERS.items()}
    if missing := [name for name in stored.values() if name not in checkpoint.infos]:
        raise CheckpointError(f"{checkpoint.name}: its text tower lacks {missing[0]!r}.")
    tensors = rename_tensors(checkpoint, stored)
    tensors |= _rename_blocks(checkpoint, prefix, hugging_face)
    tensors |= _rename_projection(checkpoint, prefix, model_prefix)
    if model_prefix + SCALE in checkpoint.infos:
        tensors |= rename_tensors(checkpoint, {SCALE: model_prefix + SCALE})
    return CheckpointView(checkpoint, tensors, keeps_digest=False)


def _rename_blocks(checkpoint: Checkpoint, prefix: str, hugging_face: bool) -> dict[str, DerivedTensor]:
    """{open_clip's name: tensor} of the tensors in the blocks."""
    blocks, family_prefix = (
        (HF_BLOCKS_PREFIX, "") if hugging_face else (BLOCKS, VISUAL)
    )  # family_prefix is what the rules of families.py expect
    short_names = {
        family_prefix + name.removeprefix(prefix): name for name in checkpoint.infos if name.startswith(prefix + blocks)
    }
    if not short_names:
        raise CheckpointError(
            f"{checkpoint.name} has a text embedding and no text transformer, as published image encoders do; the "
            "whole CLIP model that they were made from has both."
        )
    tensors: dict[str, DerivedTensor] = {}
    for name, parts in group_tower_names(short_names).items():
        tensors |= rename_tensor(name, (name,), checkpoint, [short_names[part] for part in parts])
    return tensors


def _rename_projection(checkpoint: Checkpoint, prefix: str, model_prefix: str) -> dict[str, DerivedTensor]:
    """The matrix (width, embed_dim) that maps the last token to features; Transformers stores its transpose."""
    for name in (prefix + PROJECTION, model_prefix + PROJECTION):
        if name in checkpoint.infos:
            return rename_tensors(checkpoint, {PROJECTION: name})
    if (name := f"{model_prefix}{PROJECTION}.weight") not in checkpoint.infos:
        raise CheckpointError(f"{checkpoint.name}: its text tower lacks {name!r}.")
    return {PROJECTION: transposed_matrix(checkpoint, name)}


def text_heads(checkpoint: Checkpoint, width: int, stated_heads: int = 0) -> int:
    """The number of heads of a text tower of that width.

    Its source is the metadata, ``stated_heads`` (0: not stated), or the published towers of this width.

    Raises:
        CheckpointError: no source states the number, or it does not divide the width.
    """
    heads = stated_text_fields(checkpoint).get("heads") or stated_heads or None
    if heads is None and width in PUBLISHED_WIDTHS:
        return width // HEAD_WIDTH
    if type(heads) is not int or heads < 1 or width % heads:
        raise CheckpointError(
            f"{checkpoint.name}: nothing says how many heads a text tower of width {width} has; put its config.json or "
            "open_clip_config.json beside it, or state the number with --architecture text_heads=N."
        )
    return heads


def stated_text_fields(checkpoint: Checkpoint) -> Mapping[str, object]:
    """open_clip's fields of the text tower in a checkpoint's metadata; empty if the metadata has none."""
    text = architecture_in_metadata(checkpoint).get("text_cfg")
    return text if isinstance(text, dict) else {}


def to_transformers_names(text: Checkpoint) -> dict[str, DerivedTensor]:
    """A text tower under open_clip's names, as tensors under Transformers' names."""
    tensors: dict[str, DerivedTensor] = {}
    for name in text.infos:
        if name.startswith(BLOCKS):
            new_names = tuple(HF_BODY + part.removeprefix(HF_PREFIX) for part in hugging_face_names(name))
            tensors |= rename_tensor(name, new_names, text, (name,))
        elif name == PROJECTION:
            tensors[f"{PROJECTION}.weight"] = transposed_matrix(text, name)
        else:
            tensors |= rename_tensors(
                text, {HF_BODY + TO_TRANSFORMERS[name] if name in TO_TRANSFORMERS else name: name}
            )
    return tensors
