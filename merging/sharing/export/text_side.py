"""The text side of an exported model: a whole text tower, which merging does not change, and its configuration."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from merging.base.errors import CheckpointError
from merging.images.benchmarks.benchmark_folders import TEXT_TOWER, is_benchmark
from merging.images.benchmarks.manifest import checked_path
from merging.images.text_encoder import LOGIT_SCALE
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.checkpoint_views import CheckpointView, DerivedTensor, rename_tensors, stored_model
from merging.models.formats.model_sources import ModelRef, Source, open_checkpoint
from merging.models.model_references import strip_folders
from merging.models.text_tower import (
    BLOCKS,
    POSITIONS,
    PROJECTION,
    SCALE,
    TOKENS,
    stated_text_fields,
    text_heads,
    text_tower,
)
from merging.sharing.export import tower_shapes
from merging.sharing.export.export_names import NO_TEXT

# Fields of open_clip that also describe Transformers' text tower, or its tokenizer.
SHARED_FIELDS = {
    "context_length", "vocab_size", "width", "heads", "layers", "mlp_ratio", "hf_tokenizer_name", "tokenizer_kwargs",
}  # fmt: skip
# Fields of open_clip with the only value that Transformers supports.
TRANSFORMERS_DEFAULTS = (("pool_type", "argmax"), ("proj_type", "linear"))


@dataclass(frozen=True)
class TextSide:
    """A text tower under open_clip's names, open_clip's configuration of it, and the name of its file."""

    tensors: Checkpoint
    config: Mapping[str, Any]
    mlp_width: int
    source: str

    @property
    def unsupported_field(self) -> str:
        """A field of its configuration that Transformers' CLIP does not support; empty if there is none."""
        fields = (name for name, value in self.config.items() if value and (name, value) not in TRANSFORMERS_DEFAULTS)
        return next((name for name in fields if name not in SHARED_FIELDS), "")


def read_text_side(source: Checkpoint, embed_dim: int, heads: int = 0) -> TextSide:
    """The text side in a checkpoint; ``heads`` is its number of heads if its file states none.

    Raises:
        CheckpointError: the checkpoint has no whole text tower, or its text tower has another number of features.
    """
    text = text_tower(stored_model(source))
    width, context, vocabulary = text.infos[TOKENS].shape[-1], *(text.infos[n].shape[0] for n in (POSITIONS, TOKENS))
    layers = len({name.split(".")[2] for name in text.infos if name.startswith(BLOCKS)})
    feature_count = text.infos[PROJECTION].shape[-1]
    if feature_count != embed_dim:
        raise CheckpointError(
            f"The text tower of {text.name} has {feature_count} output features, the visual tower {embed_dim}."
        )
    mlp = tower_shapes.read_hidden_width(text)
    tower_shapes.check_shapes(
        text, tower_shapes.list_text_shapes(width, layers, mlp, context, vocabulary, embed_dim), "text"
    )
    sizes = {"context_length": context, "vocab_size": vocabulary, "width": width}
    ratio = {} if mlp == 4 * width else {"mlp_ratio": compute_mlp_ratio(mlp, width)}
    config = {
        **stated_text_fields(source),
        **sizes,
        "heads": text_heads(source, width, heads),
        "layers": layers,
        **ratio,
    }
    return TextSide(_add_logit_scale(text), config, mlp, strip_folders(source.label))


def _add_logit_scale(text: CheckpointView) -> Checkpoint:
    """The text tower, with OpenAI's logit scale if its file has none."""
    if SCALE in text.infos:
        return text
    scale = MappingCheckpoint({SCALE: torch.tensor(math.log(LOGIT_SCALE))}, text.name)
    parts: dict[str, DerivedTensor] = rename_tensors(text, {name: name for name in text.infos})
    return CheckpointView(text, parts | rename_tensors(scale, {SCALE: SCALE}), keeps_digest=False)


def holds_tokens(source: Checkpoint) -> bool:
    """Whether a checkpoint may hold a text tower, judged by tensor names alone."""
    return any(name.endswith(TOKENS) for name in stored_model(source).infos)


def find_text_sources(model: Checkpoint, base: Checkpoint | None) -> tuple[Checkpoint, ...]:
    """The checkpoints that may hold a model's text tower: itself, its base, and the towers beside them."""
    models = [model] if base is None else [model, base]
    return (*models, *(tower for checkpoint in models for tower in find_text_tower_beside(checkpoint)))


def find_text_tower_beside(model: Checkpoint) -> list[Checkpoint]:
    """The text tower that a benchmark stores beside its models, if the model is one of those."""
    models = model.folder
    if models is None or models.name != "models":
        return []
    path = models.parent / TEXT_TOWER
    if not is_benchmark(models.parent) or not path.is_file():
        return []
    return [open_checkpoint(checked_path(models.parent, TEXT_TOWER), path.name)]


def choose_text_side(
    sources: Sequence[Checkpoint], embed_dim: int, text_tower: Source | None, heads: int = 0
) -> tuple[TextSide | None, str]:
    """The text side of the first checkpoint that holds a whole one; or None, and why there is none.

    ``text_tower`` is a checkpoint that replaces the sources, or ``NO_TEXT``; ``heads`` is the number of heads of a text
    tower whose file states none.

    Raises:
        CheckpointError: ``text_tower`` cannot be used, or a file states another number of heads.
    """
    if isinstance(text_tower, str) and text_tower == NO_TEXT:
        return None, "it was left out, as requested"
    if text_tower is not None:
        model = ModelRef(str(text_tower)) if isinstance(text_tower, str | os.PathLike) else text_tower
        sources = [open_checkpoint(model, strip_folders(model.text) if isinstance(model, ModelRef) else None)]
    for source in sources if heads else ():
        if (stated := stated_text_fields(source).get("heads", heads)) != heads:
            raise CheckpointError(
                f"The text tower in {_name_file(source)} has {stated!r} heads by its file, but {heads} were stated."
            )
    if text_tower is not None:
        return read_text_side(sources[0], embed_dim, heads), ""
    problems = []
    for source in sources:
        try:
            return read_text_side(source, embed_dim, heads), ""
        except CheckpointError as error:
            if holds_tokens(source):
                problems.append(str(error).rstrip("."))
    files = dict.fromkeys(_name_file(source) for source in sources)
    return None, problems[0] if problems else f"there is none in {' or '.join(files)}"


def _name_file(checkpoint: Checkpoint) -> str:
    """A checkpoint's name for messages: its file's name, or its own name if it has no file."""
    return checkpoint.name if checkpoint.file_fingerprint() is None else strip_folders(checkpoint.label)


def compute_mlp_ratio(hidden: int, width: int) -> float:
    """The ratio by which open_clip multiplies a width, rounding down, to get the hidden width of an MLP."""
    ratio = hidden / width
    return ratio if int(width * ratio) == hidden else math.nextafter(ratio, math.inf)
