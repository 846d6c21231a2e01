"""The changes of an adapter, from its configuration and tensor names: which tensors it changes, and how."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from merging.base.errors import CheckpointError
from merging.base.text import first_few
from merging.models.checkpoint import Checkpoint

MODEL_PREFIX = "base_model.model."
LORA_FACTOR = re.compile(r"(?P<layer>.+)\.lora_(?P<side>[AB])(?:\.[^.]+)?\.(?P<kind>weight|bias)")
WRAPPER_NAMES = re.compile(r"\.(?:base_layer|modules_to_save(?:\.[^.]+)?)(?=\.)")
UNSUPPORTED_PARTS = {
    "lora_magnitude_vector": "DoRA, which scales whole columns",
    "lora_embedding_": "LoRA of an embedding",
    "lora_A.bias": "LoRA with a bias",
    "lora_B.bias": "LoRA with a bias",
    # PEFT 0.21 adds this change twice, in training and in merging; other versions may not, and the file does not say.
    ".base_layer.out_proj.lora_": "LoRA inside torch's attention module, which versions of PEFT count differently",
}
# Beginnings of initializations that change the pretrained weights, too; the adapter is then not the whole change.
BASE_CHANGING_STARTS = ("pissa", "olora", "corda", "loftq", "lora_ga")
# Settings that make the change something other than scale · B A, or not a change of weights.
UNSUPPORTED_SETTINGS = (
    "layer_replication", "target_parameters", "trainable_token_indices", "use_qalora", "lora_bias", "kasa_config",
    "use_bdlora", "arrow_config", "monteclora_config", "alora_invocation_tokens",
)  # fmt: skip
# Settings that do not alter the meaning of the weights.
LORA_SETTINGS = {
    "peft_type", "peft_version", "auto_mapping", "base_model_name_or_path", "revision", "task_type", "inference_mode",
    "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "fan_in_fan_out", "lora_dropout", "bias",
    "target_modules", "exclude_modules", "modules_to_save", "layers_to_transform", "layers_pattern",
    "init_lora_weights", "loftq_config", "eva_config", "corda_config", "lora_ga_config", "velora_config",
    "megatron_config", "megatron_core", "qalora_group_size", "ensure_weight_tying", "runtime_config",
}  # fmt: skip
IA3_VECTOR = re.compile(r"(?P<layer>.+)\.ia3_l(?:\.[^.]+)?")
ADAPTER_TITLES = {"LORA": "LoRA", "IA3": "(IA)³"}  # by PEFT's names
IA3_SETTINGS = {
    "peft_type", "peft_version", "auto_mapping", "base_model_name_or_path", "revision", "task_type", "inference_mode",
    "target_modules", "exclude_modules", "feedforward_modules", "fan_in_fan_out", "modules_to_save",
    "init_ia3_weights",
}  # fmt: skip
MAX_ALPHA = 1e9
MAX_PATTERN_LENGTH, MAX_REPEATS, MAX_GROUPS = 200, 3, 4


@dataclass(slots=True)
class Change:
    """An adapter's change of one layer's tensor: scale · B A is added, or the tensor is multiplied or replaced.

    The text fields name tensors of the adapter. ``fan_in_fan_out``, PEFT's word, is True if the layer stores its weight
    as (d_in, d_out). If there are also factors, they are added to the ``replacement``: PEFT saves the whole layer of an
    output embedding beside its factors. A ``multiplier`` has a number for each output, which also multiplies the
    layer's bias, or a number for each input.
    """

    down: str = ""  # A (r, d_in)
    up: str = ""  # B (d_out, r)
    scale: float = 0.0
    fan_in_fan_out: bool = False
    replacement: str = ""
    multiplier: str = ""  # (d_out, 1) or (1, d_in)


def check_config(config: Mapping[str, Any], label: str) -> None:
    """Raise CheckpointError if an adapter's configuration is not supported; messages call it ``label``."""
    adapter_type = config.get("peft_type")
    if adapter_type not in ADAPTER_TITLES:
        known_titles = " and ".join(ADAPTER_TITLES.values())
        raise CheckpointError(
            f"{label}: an adapter of type {str(adapter_type)[:40]!r} is not supported; {known_titles} are."
        )
    if adapter_type == "IA3":
        return
    if config.get("use_dora"):
        raise CheckpointError(f"{label}: DoRA adapters are not supported; merge it into its model with PEFT first.")
    initialization = str(config.get("init_lora_weights", "")).lower()
    if initialization.startswith(BASE_CHANGING_STARTS):
        raise CheckpointError(
            f"{label}: it began as {initialization[:20]!r}, which changes the pretrained weights; convert it with PEFT "
            "first."
        )
    for key in UNSUPPORTED_SETTINGS:
        if config.get(key):
            raise CheckpointError(f"{label}: adapters with {key} are not supported; merge it with PEFT first.")


def describe_unknown_settings(config: Mapping[str, Any]) -> Iterator[str]:
    """At most one caution, about unknown settings, which may come from a later version of PEFT."""
    known_settings = IA3_SETTINGS if config.get("peft_type") == "IA3" else LORA_SETTINGS
    if unknown := [key for key, value in config.items() if value and key not in known_settings]:
        yield f"Its configuration sets {first_few(unknown)}, which is unknown here; compare with PEFT's result."


def find_changes(weights: Checkpoint, config: Mapping[str, Any]) -> dict[str, Change]:
    """{name of a changed tensor, as the adapter spells it: the change}.

    Raises:
        CheckpointError: the file has a tensor of another or an unsupported kind of adapter, or is not an adapter.
    """
    changes: dict[str, Change] = {}
    for name in weights.infos:
        for part, kind in UNSUPPORTED_PARTS.items():
            if part in name:
                raise CheckpointError(
                    f"{weights.name}: {kind}, is not supported ({name[:80]!r}). Merge it with PEFT first."
                )
        short = WRAPPER_NAMES.sub("", name.removeprefix(MODEL_PREFIX))
        if bool(vector := IA3_VECTOR.fullmatch(short)) != (config.get("peft_type") == "IA3") and (
            vector or ".lora_" in short
        ):
            raise CheckpointError(
                f"{weights.name}: {name[:80]!r} is of another kind of adapter than its configuration says."
            )
        if vector is not None:
            changes |= _make_vector_changes(weights, name, vector["layer"], bool(config.get("fan_in_fan_out")))
            continue
        factor = LORA_FACTOR.fullmatch(short)
        if factor is None and ".lora_" in short:
            raise CheckpointError(
                f"{weights.name}: LoRA with more than two factors is not supported ({name[:80]!r}). Merge it with PEFT "
                "first."
            )
        if factor is None:
            changes.setdefault(short, Change()).replacement = name
            continue
        change = changes.setdefault(factor["layer"] + ".weight", Change())
        if factor["side"] == "A":
            change.down = name
        else:
            change.up = name
    for target, change in changes.items():
        if change.down or change.up or not (change.replacement or change.multiplier):
            _set_scale(change, target.removesuffix(".weight"), weights, config)
    if not changes:
        raise CheckpointError(f"{weights.name} holds no adapter.")
    return changes


def _make_vector_changes(weights: Checkpoint, name: str, layer: str, fan_in_fan_out: bool) -> dict[str, Change]:
    """The changes that a vector of (IA)³ makes to a layer's weight and, if it has a number per output, to its bias."""
    shape = weights.infos[name].shape
    if len(shape) != 2 or 1 not in shape:
        raise CheckpointError(
            f"{weights.name}: (IA)³ of layer {layer[:80]!r} has the shape {list(shape)}; that of a linear layer has "
            "two sides, of which one is 1. Merge it with PEFT first."
        )
    changes = {f"{layer}.weight": Change(multiplier=name, fan_in_fan_out=fan_in_fan_out)}
    return changes if shape[0] == 1 else changes | {f"{layer}.bias": Change(multiplier=name)}


def _set_scale(change: Change, layer: str, weights: Checkpoint, config: Mapping[str, Any]) -> None:
    """Check both factors of a change and set its scale."""
    if not change.down or not change.up:
        raise CheckpointError(f"{weights.name}: layer {layer[:80]!r} has only one of its two factors.")
    rank = _match_pattern(config, "rank_pattern", layer, config.get("r"), weights.name)
    alpha = _match_pattern(config, "alpha_pattern", layer, config.get("lora_alpha"), weights.name)
    down, up = weights.infos[change.down].shape, weights.infos[change.up].shape
    if len(down) < 2 or len(up) < 2 or type(rank) is not int or rank < 1 or down[0] != rank or up[1] != rank:
        raise CheckpointError(
            f"{weights.name}: layer {layer[:80]!r} has factors {list(down)} and {list(up)}, and its configuration says "
            f"rank {str(rank)[:20]}."
        )
    if math.prod(up[2:]) != 1:
        raise CheckpointError(f"{weights.name}: layer {layer[:80]!r} is a convolution of a kind that is not supported.")
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not abs(alpha) < MAX_ALPHA:
        raise CheckpointError(f"{weights.name}: lora_alpha is a number; got {str(alpha)[:20]!r}.")
    change.scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    change.fan_in_fan_out = bool(config.get("fan_in_fan_out"))


def _match_pattern(config: Mapping[str, Any], key: str, layer: str, default: Any, label: str) -> Any:
    """The value of the first pattern that matches the end of a layer's name, as in PEFT; else ``default``."""
    patterns = config.get(key) or {}
    if not isinstance(patterns, Mapping):
        raise CheckpointError(f"{label}: {key} is a mapping from layers to numbers.")
    for pattern, value in patterns.items():
        # The pattern comes from a file: slow ones are refused.
        repeats = len(re.findall(r"[*+?{]", pattern))
        nested = re.search(r"\)[*+?{]", pattern)
        if len(pattern) > MAX_PATTERN_LENGTH or repeats > MAX_REPEATS or pattern.count("(") > MAX_GROUPS or nested:
            raise CheckpointError(f"{label}: the pattern {pattern[:40]!r} in {key} is too intricate.")
        try:
            if re.fullmatch(rf"(.*\.)?({pattern})", layer):
                return value
        except (re.error, OverflowError):
            raise CheckpointError(f"{label}: the pattern {pattern[:40]!r} in {key} cannot be read.") from None
    return default
