"""Reads configurations of Transformers and open_clip as architecture metadata, and lists the names of model files."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from merging.base.errors import CheckpointError
from merging.base.files.paths import open_regular, resolve_contained
from merging.base.files.strict_json import parse_json

TRANSFORMERS, OPEN_CLIP, ADAPTER_CONFIG = "config.json", "open_clip_config.json", "adapter_config.json"
PREPROCESSOR = "preprocessor_config.json"
VOCABULARY = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
TOKENIZER = (
    *VOCABULARY, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt",
    "chat_template.jinja",
)  # fmt: skip
COMPANION_FILES = (  # files beside the weights of a network of Transformers: its configurations and its tokenizer
    TRANSFORMERS, "generation_config.json", *TOKENIZER, PREPROCESSOR, "processor_config.json",
)  # fmt: skip
MAX_CONFIG_BYTES = 1 << 20
OPEN_CLIP_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin", "open_clip_pytorch_model.pt")
PICKLED_INDEX = "pytorch_model.bin.index.json"  # its shards are pickles
TRANSFORMERS_WEIGHTS = ("model.safetensors.index.json", "model.safetensors", "pytorch_model.bin", PICKLED_INDEX)
INDEX_SUFFIX = ".index.json"  # the suffix of an index of shards
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
WEIGHT_FILES = (*TRANSFORMERS_WEIGHTS, *OPEN_CLIP_WEIGHTS)
WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".pkl")


def read_json(path: Path) -> dict[str, Any] | None:
    """The mapping in a small JSON file; None if there is no such file.

    Raises:
        CheckpointError: the file exists but cannot be read.
    """
    if not path.is_symlink() and not path.exists():
        return None
    descriptor = open_regular(resolve_contained(path))
    try:
        raw = os.pread(descriptor, MAX_CONFIG_BYTES + 1, 0)
    finally:
        os.close(descriptor)
    if len(raw) > MAX_CONFIG_BYTES:
        raise CheckpointError(f"{path.name} is larger than any configuration; refused.")
    return parse_json(raw, path.name)


def read_config_beside(path: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    """Architecture metadata of a weights file from the configuration in its folder, and cautions about it."""
    try:
        if path.name in OPEN_CLIP_WEIGHTS:
            architecture = _convert_open_clip_config(read_json(path.with_name(OPEN_CLIP)) or {})
        elif path.name in TRANSFORMERS_WEIGHTS:
            architecture = _convert_transformers_config(read_json(path.with_name(TRANSFORMERS)) or {})
            preprocessor = read_json(path.with_name(PREPROCESSOR)) or {} if architecture else {}
            architecture |= normalization(preprocessor.get("image_mean"), preprocessor.get("image_std"))
        else:
            return {}, ()
    except (OSError, CheckpointError) as error:
        return {}, (f"The configuration in its folder was not used: {error}",)
    return ({"architecture": json.dumps(architecture)} if architecture else {}), ()


def architecture_in_config(config: dict[str, Any]) -> dict[str, Any]:
    """The architecture in a configuration of open_clip or Transformers, in open_clip's fields; empty for other data.

    Raises:
        CheckpointError: the configuration has odd sizes or an unknown activation.
    """
    return (
        _convert_open_clip_config(config)
        or _convert_open_clip_config({"model_cfg": config})
        or _convert_transformers_config(config)
    )


def _convert_transformers_config(config: dict[str, Any]) -> dict[str, Any]:
    """The architecture that Transformers' configuration states, in open_clip's fields; empty if it is not CLIP's."""
    vision = config.get("vision_config", config)
    if not str(config.get("model_type", "")).startswith("clip") or not isinstance(vision, dict):
        return {}
    # Transformers omits fields that have their default value.
    width, heads = vision.get("hidden_size", 768), vision.get("num_attention_heads", 12)
    fields = {
        "image_size": vision.get("image_size", 224),
        "layers": vision.get("num_hidden_layers", 12),
        "width": width,
        "patch_size": vision.get("patch_size", 32),
    }
    if any(type(value) is not int or value < 1 for value in (*fields.values(), heads)) or width % heads:
        raise CheckpointError(f"{TRANSFORMERS} has odd sizes.")
    activation = vision.get("hidden_act", "quick_gelu")
    if activation not in {"quick_gelu", "gelu"}:
        raise CheckpointError(
            f"{TRANSFORMERS} names the activation {str(activation)[:40]!r}; QuickGELU and GELU are known."
        )
    return {
        "embed_dim": config.get("projection_dim", vision.get("projection_dim", 512)),
        "quick_gelu": activation == "quick_gelu",
        "vision_cfg": fields | {"head_width": width // heads},
        **_convert_transformers_text(config.get("text_config")),
    }


def _convert_transformers_text(config: Any) -> dict[str, Any]:
    """The text tower that Transformers' configuration states, in open_clip's fields; empty if it states none."""
    if not isinstance(config, dict):
        return {}
    fields = {
        "context_length": config.get("max_position_embeddings", 77),
        "vocab_size": config.get("vocab_size", 49408),
        "width": config.get("hidden_size", 512),
        "heads": config.get("num_attention_heads", 8),
        "layers": config.get("num_hidden_layers", 12),
    }
    return {"text_cfg": fields} if all(type(value) is int and value > 0 for value in fields.values()) else {}


def _convert_open_clip_config(config: dict[str, Any]) -> dict[str, Any]:
    """The architecture that open_clip's configuration states; empty if it states none."""
    model = config.get("model_cfg", {})
    vision_config = model.get("vision_cfg", {}) if isinstance(model, dict) else {}
    if not isinstance(vision_config, dict) or not vision_config:
        return {}
    fields = {
        key: vision_config[key]
        for key in ("image_size", "layers", "width", "patch_size")
        if type(vision_config.get(key)) is int
    }
    fields["head_width"] = vision_config.get("head_width", 64)
    text, preprocessing = model.get("text_cfg"), config.get("preprocess_cfg")
    text = text if isinstance(text, dict) else {}
    text_fields = {key: value for key, value in text.items() if isinstance(value, (int, float, str, dict))}
    preprocessing = preprocessing if isinstance(preprocessing, dict) else {}
    return {
        "embed_dim": model.get("embed_dim"),
        "quick_gelu": bool(model.get("quick_gelu", False)),
        "vision_cfg": fields,
        **({"text_cfg": text_fields} if text_fields else {}),
        **normalization(preprocessing.get("mean"), preprocessing.get("std")),
    }


def normalization(mean: Any, std: Any) -> dict[str, Any]:
    """Metadata with the mean and standard deviation of images; empty unless both are lists of three valid numbers."""
    for numbers in (mean, std):
        if not isinstance(numbers, list) or len(numbers) != 3:
            return {}
        if any(type(number) not in {int, float} or not math.isfinite(number) for number in numbers):
            return {}
    return {"preprocess": {"mean": mean, "std": std}} if min(std) > 0 else {}
