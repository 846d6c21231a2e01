"""PEFT's LoRA adapters: low-rank changes of some layers, which make an expert of the pretrained model."""

from __future__ import annotations

import hashlib
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from merging.checkpoints.checkpoint import Checkpoint
from merging.checkpoints.content_digest import OnBytes, ignore
from merging.checkpoints.kinds.facts import facts_of
from merging.checkpoints.kinds.names import unchanged, under_names_of
from merging.checkpoints.tensor_info import TensorInfo
from merging.checkpoints.tower_names import PROJ, TowerTensor, place_of, tower, transposed
from merging.errors import CheckpointError
from merging.text import first_few

BASE = "base_model.model."
LORA = re.compile(r"(?P<layer>.+)\.lora_(?P<side>[AB])(?:\.[^.]+)?\.(?P<kind>weight|bias)")
WRAPPING = re.compile(r"\.(?:base_layer|modules_to_save(?:\.[^.]+)?)(?=\.)")
REFUSED = {
    "lora_magnitude_vector": "DoRA, which scales whole columns",
    "lora_embedding_": "LoRA of an embedding",
    "lora_A.bias": "LoRA with a bias",
    "lora_B.bias": "LoRA with a bias",
    # PEFT 0.21 adds this change twice, in training and in merging; others may not, and the file does not say.
    ".base_layer.out_proj.lora_": "LoRA inside torch's attention module, which versions of PEFT count differently",
}
# Initializations that also change the pretrained weights, so that the adapter is not the whole change.
CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
# Settings with which the change is not scale · B A, or not a change of weights at all.
OTHER_KINDS = (
    "layer_replication", "target_parameters", "trainable_token_indices", "use_qalora", "lora_bias", "kasa_config",
    "use_bdlora", "arrow_config", "monteclora_config", "alora_invocation_tokens",
)  # fmt: skip
# Other settings, which do not alter what the weights mean.
KNOWN = {
    "peft_type", "peft_version", "auto_mapping", "base_model_name_or_path", "revision", "task_type", "inference_mode",
    "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "fan_in_fan_out", "lora_dropout", "bias",
    "target_modules", "exclude_modules", "modules_to_save", "layers_to_transform", "layers_pattern",
    "init_lora_weights", "loftq_config", "eva_config", "corda_config", "lora_ga_config", "velora_config",
    "megatron_config", "megatron_core", "qalora_group_size", "ensure_weight_tying", "runtime_config",
}  # fmt: skip
LARGEST_ALPHA = 1e9
MAX_PATTERN, MAX_REPEATS, MAX_GROUPS = 200, 3, 4


@dataclass(slots=True)
class Change:
    """An adapter's change of one layer's tensor: scale · B A is added, or the tensor is replaced."""

    down: str = ""  # A (r, d_in)
    up: str = ""  # B (d_out, r)
    scale: float = 0.0
    fan_in_fan_out: bool = False
    replacement: str = ""


class AdapterCheckpoint(Checkpoint):
    """An adapter without its model: its factors and its configuration. ``applied_to`` makes an expert of it.

    Raises:
        CheckpointError: another kind of adapter, or a configuration that does not fit its factors.
    """

    def __init__(self, weights: Checkpoint, config: Mapping[str, Any], label: str) -> None:
        self.name, self.label, self.metadata = weights.name, label, weights.metadata
        self.notes, self.cautions = weights.notes, (*weights.cautions, *_unknown(config))
        self.weights, self.config, self.infos = weights, config, weights.infos
        _check_config(config, self.name)
        self.changes = _changes(weights, config)

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        return self.weights.read_flat(name, start, stop)

    def state(self) -> tuple[int, ...] | None:
        state = self.weights.state()
        return None if state is None else (*state, zlib.crc32(self._config_bytes()))

    def _config_bytes(self) -> bytes:
        return json.dumps(self.config, sort_keys=True).encode()

    def content_digest(self, on_bytes: OnBytes = ignore, *, former: bool = False) -> str:
        content = self.weights.content_digest(on_bytes, former=former)
        return hashlib.sha256(content.encode() + self._config_bytes()).hexdigest()

    def applied_to(self, pretrained: Checkpoint) -> Checkpoint:
        """The expert that this adapter makes of the pretrained model.

        Raises:
            CheckpointError: a layer that the pretrained model does not have, or has in another shape.
        """
        return AdaptedCheckpoint(self, pretrained)


def _check_config(config: Mapping[str, Any], label: str) -> None:
    kind = config.get("peft_type")
    if kind != "LORA":
        raise CheckpointError(f"{label}: an adapter of type {str(kind)[:40]!r} is not supported; LoRA is.")
    if config.get("use_dora"):
        raise CheckpointError(f"{label}: DoRA adapters are not supported; merge it into its model with PEFT first.")
    start = str(config.get("init_lora_weights", "")).lower()
    if start.startswith(CHANGES_BASE):
        raise CheckpointError(
            f"{label}: it began as {start[:20]!r}, which changes the pretrained weights; convert it with PEFT first."
        )
    for key in OTHER_KINDS:
        if config.get(key):
            raise CheckpointError(f"{label}: adapters with {key} are not supported; merge it with PEFT first.")


def _unknown(config: Mapping[str, Any]) -> Iterator[str]:
    """A caution about unknown settings, which a later version of PEFT may have."""
    if unknown := [key for key, value in config.items() if value and key not in KNOWN]:
        yield f"Its configuration sets {first_few(unknown)}, which is unknown here; compare with PEFT's result."


def _changes(weights: Checkpoint, config: Mapping[str, Any]) -> dict[str, Change]:
    """{name of a layer's tensor in the adapter: its change}."""
    changes: dict[str, Change] = {}
    for name in weights.infos:
        for part, what in REFUSED.items():
            if part in name:
                raise CheckpointError(
                    f"{weights.name}: {what}, is not supported ({name[:80]!r}). Merge it with PEFT first."
                )
        short = WRAPPING.sub("", name.removeprefix(BASE))
        factor = LORA.fullmatch(short)
        if factor is None and ".lora_" in short:
            raise CheckpointError(
                f"{weights.name}: LoRA with more than two factors is not supported ({name[:80]!r}). Merge it with PEFT "
                "first."
            )
        if factor is None:
            changes[short] = Change(replacement=name)
            continue
        change = changes.setdefault(factor["layer"] + ".weight", Change())
        if factor["side"] == "A":
            change.down = name
        else:
            change.up = name
    for target, change in changes.items():
        if not change.replacement:
            _complete(change, target.removesuffix(".weight"), weights, config)
    if not changes:
        raise CheckpointError(f"{weights.name} holds no adapter.")
    return changes


def _complete(change: Change, layer: str, weights: Checkpoint, config: Mapping[str, Any]) -> None:
    """Check both factors and set the scale."""
    if not change.down or not change.up:
        raise CheckpointError(f"{weights.name}: layer {layer[:80]!r} has only one of its two factors.")
    rank = _pattern(config, "rank_pattern", layer, config.get("r"), weights.name)
    alpha = _pattern(config, "alpha_pattern", layer, config.get("lora_alpha"), weights.name)
    down, up = weights.infos[change.down].shape, weights.infos[change.up].shape
    if len(down) < 2 or len(up) < 2 or type(rank) is not int or rank < 1 or down[0] != rank or up[1] != rank:
        raise CheckpointError(
            f"{weights.name}: layer {layer[:80]!r} has factors {list(down)} and {list(up)}, its configuration says "
            f"rank {str(rank)[:20]}."
        )
    if math.prod(up[2:]) != 1:
        raise CheckpointError(f"{weights.name}: layer {layer[:80]!r} is a convolution of a kind that is not supported.")
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not abs(alpha) < LARGEST_ALPHA:
        raise CheckpointError(f"{weights.name}: lora_alpha is a number; got {str(alpha)[:20]!r}.")
    change.scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    change.fan_in_fan_out = bool(config.get("fan_in_fan_out"))


def _pattern(config: Mapping[str, Any], key: str, layer: str, otherwise: Any, label: str) -> Any:
    """The value of the first pattern that matches the end of a layer's name, as in PEFT; else ``otherwise``."""
    patterns = config.get(key) or {}
    if not isinstance(patterns, Mapping):
        raise CheckpointError(f"{label}: {key} is a mapping from layers to numbers.")
    for pattern, value in patterns.items():
        # The pattern comes from a file: slow ones are refused.
        repeats = len(re.findall(r"[*+?{]", pattern))
        nested = re.search(r"\)[*+?{]", pattern)
        if len(pattern) > MAX_PATTERN or repeats > MAX_REPEATS or pattern.count("(") > MAX_GROUPS or nested:
            raise CheckpointError(f"{label}: the pattern {pattern[:40]!r} in {key} is too intricate.")
        try:
            if re.fullmatch(rf"(.*\.)?({pattern})", layer):
                return value
        except (re.error, OverflowError):
            raise CheckpointError(f"{label}: the pattern {pattern[:40]!r} in {key} cannot be read.") from None
    return otherwise


@dataclass(slots=True)
class _Target:
    """A tensor of the pretrained model and its changes, by third (q, k, v); 0 if it is changed as a whole."""

    change: dict[int, Change] = field(default_factory=dict)
    thirds: int = 1
    is_transposed: bool = False


class AdaptedCheckpoint(Checkpoint):
    """The pretrained model with an adapter's changes, which are computed tensor by tensor on demand."""

    def __init__(self, adapter: AdapterCheckpoint, pretrained: Checkpoint) -> None:
        self.name, self.label, self.metadata = adapter.name, adapter.label, pretrained.metadata
        self.cautions = adapter.cautions
        self._adapter, self._pretrained, self.folder = adapter, pretrained, adapter.folder
        names: tuple[str, ...] = ()
        self._own: dict[str, str] = {}  # tensors that are the adapter's as a whole, of networks other than CLIP
        if pretrained.inferred:
            self._targets, self._own, names = _targets_by_name(adapter, pretrained)
            ignored: list[str] = []
        else:
            self._targets, ignored = _targets(adapter, pretrained)
        self.infos = {name: self._info(name, info) for name, info in pretrained.infos.items()}
        self.infos |= {name: adapter.infos[stored] for name, stored in self._own.items()}
        for name, target in self._targets.items():
            self._check(name, target)
        count = len(self._targets) + len(self._own)
        self.notes = (*adapter.notes, *names, f"A LoRA adapter of {count} tensors; the others are pretrained.")
        if ignored:
            self.notes += (
                f"{len(ignored)} of its tensors are outside the visual tower; ignored: {first_few(ignored)}.",
            )
        self._last: tuple[str, Tensor] | None = None

    def _info(self, name: str, info: TensorInfo) -> TensorInfo:
        """Changed tensors are computed in float32 at least, so that small changes are not rounded away."""
        small = name in self._targets and info.dtype.is_floating_point and info.dtype.itemsize < 4
        return TensorInfo(info.shape, torch.float32) if small else info

    @property
    def touched(self) -> frozenset[str]:
        """The tensors that are not the pretrained model's."""
        return frozenset(self._targets) | frozenset(self._own)

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        if name in self._own:
            return self._adapter.read_flat(self._own[name], start, stop)
        if name not in self._targets:
            return self._pretrained.read_flat(name, start, stop)
        last = self._last
        if last is None or last[0] != name:
            last = self._last = (name, self._adapted(name).reshape(-1))
        return last[1][start:stop]

    def state(self) -> tuple[int, ...] | None:
        return self._adapter.state()

    def content_digest(self, on_bytes: OnBytes = ignore, *, former: bool = False) -> str:
        return self._adapter.content_digest(on_bytes, former=former)

    def _adapted(self, name: str) -> Tensor:
        target, info = self._targets[name], self.infos[name]
        tensor = self._pretrained.read(name).to(info.dtype, copy=True)
        rows = tensor.T if target.is_transposed else tensor
        for third, change in target.change.items():
            size = rows.shape[0] // target.thirds
            part = rows[third * size : (third + 1) * size]
            if change.replacement:
                part.copy_(self._adapter.weights.read(change.replacement).reshape(part.shape))
            else:
                part += self._delta(change, info.dtype).reshape(part.shape)
        return tensor

    def _delta(self, change: Change, dtype: torch.dtype) -> Tensor:
        """scale · B A (d_out, d_in)."""
        weights = self._adapter.weights
        down, up = weights.read(change.down).to(dtype).flatten(1), weights.read(change.up).to(dtype).flatten(1)
        product = change.scale * (up @ down)
        return product.T if change.fan_in_fan_out else product

    def _check(self, name: str, target: _Target) -> None:
        infos, shape = self._adapter.infos, self.infos[name].shape
        rows = shape[::-1] if target.is_transposed else shape
        expected = (rows[0] // target.thirds, *rows[1:]) if rows else ()
        for change in target.change.values():
            if change.replacement:
                actual = infos[change.replacement].shape
            else:
                matrix = (infos[change.up].shape[0], math.prod(infos[change.down].shape[1:]))
                actual = matrix[::-1] if change.fan_in_fan_out else matrix
                expected = (expected[0], math.prod(expected[1:])) if expected else ()
            if tuple(actual) != tuple(expected):
                raise CheckpointError(
                    f"{self.name}: the adapter changes {name!r} by {list(actual)}, the pretrained model has "
                    f"{list(expected)} there; it belongs to another model."
                )


def _targets(adapter: AdapterCheckpoint, pretrained: Checkpoint) -> tuple[dict[str, _Target], list[str]]:
    """{name of a pretrained tensor: its changes}, and the adapter's tensors outside the visual tower."""
    stored_names, targets, ignored = tower(pretrained.infos), dict[str, _Target](), list[str]()
    if not stored_names:
        raise CheckpointError(f"{adapter.name} is an adapter, and the pretrained model holds no visual tower.")
    for name, change in adapter.changes.items():
        place = _place(name)
        if place is None:
            ignored.append(name)
            continue
        stored = stored_names.get(place.name)
        if stored is None:
            raise CheckpointError(f"{adapter.name} changes {name[:80]!r}, which the pretrained model does not have.")
        is_transposed = place.name == PROJ and transposed(stored[0]) and not transposed(name)
        if place.third is None and len(stored) > 1:
            raise CheckpointError(f"{adapter.name} changes q, k and v as one tensor, the pretrained model has three.")
        whole = place.third is None or len(stored) > 1
        target = targets.setdefault(stored[place.third or 0] if len(stored) > 1 else stored[0], _Target())
        target.thirds, target.is_transposed = 1 if whole else 3, is_transposed
        target.change[0 if whole else place.third or 0] = change
    if not targets:
        raise CheckpointError(f"{adapter.name} changes no tensor of the visual tower: {first_few(ignored)}.")
    return targets, ignored


def _targets_by_name(
    adapter: AdapterCheckpoint, pretrained: Checkpoint
) -> tuple[dict[str, _Target], dict[str, str], tuple[str, ...]]:
    """Of a network other than CLIP: {its tensor: its change}, {tensor: the adapter's in its place}, notes on names.

    What the adapter replaces need not be among the pretrained model's tensors: heads are not.
    """
    facts = facts_of(pretrained.infos)
    names = under_names_of(pretrained.infos, adapter.changes, facts.later_name if facts else unchanged)
    targets, own = dict[str, _Target](), dict[str, str]()
    for name, stored in names.stored.items():
        change = adapter.changes[stored]
        if change.replacement:
            own[name] = change.replacement
        elif name in pretrained.infos:
            targets[name] = _Target({0: change})
        else:
            raise CheckpointError(f"{adapter.name} changes {stored[:80]!r}, which the pretrained model does not have.")
    return targets, own, names.notes


def _place(name: str) -> TowerTensor | None:
    """The tensor of the tower that an adapter's target means; PEFT names a packed attention layer as a whole."""
    return place_of(name) or (place_of(name.removesuffix(".weight") + ".in_proj_weight"))
