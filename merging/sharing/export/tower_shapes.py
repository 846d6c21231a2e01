"""Names and shapes of whole towers, and the check that a checkpoint has them."""

from __future__ import annotations

from collections.abc import Mapping

from merging.base.errors import CheckpointError
from merging.base.text import first_few, plural
from merging.models.architecture import Architecture
from merging.models.checkpoint import Checkpoint
from merging.models.text_tower import POSITIONS, PROJECTION, TOKENS

Shapes = dict[str, tuple[int, ...]]
FIRST_MLP_WEIGHT = "transformer.resblocks.0.mlp.c_fc.weight"


def list_vision_shapes(a: Architecture, mlp: int) -> Shapes:
    """The shapes of a visual tower, without the projection; ``mlp`` is the hidden width of its MLPs."""
    w, p = a.width, a.patch_size
    tokens = (a.image_size // p) ** 2 + 1
    shapes: Shapes = {"class_embedding": (w,), "positional_embedding": (tokens, w), "conv1.weight": (w, 3, p, p)}
    return (
        shapes | _list_norm_shapes("ln_pre", w) | _list_norm_shapes("ln_post", w) | _list_block_shapes(a.layers, w, mlp)
    )


def list_text_shapes(width: int, layers: int, mlp: int, context: int, vocabulary: int, embed_dim: int) -> Shapes:
    """The shapes of a text tower."""
    shapes: Shapes = {TOKENS: (vocabulary, width), POSITIONS: (context, width), PROJECTION: (width, embed_dim)}
    return shapes | _list_norm_shapes("ln_final", width) | _list_block_shapes(layers, width, mlp)


def _list_norm_shapes(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _list_block_shapes(layers: int, width: int, mlp: int) -> Shapes:
    shapes: Shapes = {}
    for block in range(layers):
        prefix = f"transformer.resblocks.{block}."
        shapes |= _list_norm_shapes(f"{prefix}ln_1", width) | _list_norm_shapes(f"{prefix}ln_2", width)
        shapes |= {f"{prefix}attn.in_proj_weight": (3 * width, width), f"{prefix}attn.in_proj_bias": (3 * width,)}
        matrices = {"attn.out_proj": (width, width), "mlp.c_fc": (mlp, width), "mlp.c_proj": (width, mlp)}
        for layer, shape in matrices.items():
            shapes |= {f"{prefix}{layer}.weight": shape, f"{prefix}{layer}.bias": shape[:1]}
    return shapes


def read_hidden_width(checkpoint: Checkpoint) -> int:
    """The hidden width of the first MLP; 0 if there is none."""
    info = checkpoint.infos.get(FIRST_MLP_WEIGHT)
    return info.shape[0] if info is not None and info.shape else 0


def check_shapes(checkpoint: Checkpoint, expected: Mapping[str, tuple[int, ...]], kind: str) -> None:
    """Raise CheckpointError unless a checkpoint has all tensors of a tower of that kind, in their shapes."""
    if missing := [name for name in expected if name not in checkpoint.infos]:
        absent_text = f"{plural(len(missing), 'tensor is', 'tensors are')} missing ({first_few(missing)})"
        raise CheckpointError(f"{checkpoint.name} is not a whole {kind} tower: {absent_text}.")
    for name, shape in expected.items():
        if checkpoint.infos[name].shape != shape:
            actual = list(checkpoint.infos[name].shape)
            raise CheckpointError(
                f"{checkpoint.name}: {name!r} has the shape {actual}; {list(shape)} was expected in a {kind} tower."
            )
        if not checkpoint.infos[name].dtype.is_floating_point:
            dtype = checkpoint.infos[name].dtype
            raise CheckpointError(f"{checkpoint.name}: {name!r} holds {dtype}, not floating-point numbers.")
