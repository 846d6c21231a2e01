"""PEFT's adapters, LoRA and (IA)³: changes of some layers that turn a pretrained model into an expert."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from merging.base.errors import CheckpointError
from merging.base.numerics.low_rank import LowRank, ThinFactor
from merging.base.text import first_few, plural
from merging.models.checkpoint import Checkpoint
from merging.models.checkpoint_views import stored_model
from merging.models.content_digest import BytesCallback, ignore_bytes
from merging.models.expert_names import keep_name, match_names
from merging.models.families import QKV
from merging.models.formats.adapter_base_model import describe_other_base
from merging.models.formats.adapter_changes import Change, check_config, describe_unknown_settings, find_changes
from merging.models.formats.tied_tensors import find_equal_tensor, is_tied
from merging.models.network_facts import Facts, facts_of
from merging.models.tensor_info import TensorInfo
from merging.models.tower_names import PROJ, TowerTensor, find_tower_tensor, group_tower_names, is_transposed_name


class AdapterCheckpoint(Checkpoint):
    """The tensors and the configuration of an adapter, without its model; ``apply_to`` makes an expert.

    Raises:
        CheckpointError: the kind of adapter is not supported, or the configuration contradicts the factors.
    """

    def __init__(self, weights: Checkpoint, config: Mapping[str, Any]) -> None:
        self.name, self.label, self.metadata = weights.name, weights.label, weights.metadata
        self.notes, self.cautions = weights.notes, (*weights.cautions, *describe_unknown_settings(config))
        self.weights, self.config, self.infos = weights, config, weights.infos
        check_config(config, self.name)
        self.changes = find_changes(weights, config)

    @property
    def title(self) -> str:
        """The kind of adapter as a noun with its article, as messages call it."""
        return "a LoRA adapter" if self.config["peft_type"] == "LORA" else "an (IA)³ adapter"

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of a factor, flat (n,): n = stop - start."""
        return self.weights.read_flat(name, start, stop)

    def file_fingerprint(self) -> tuple[int, ...] | None:
        state = self.weights.file_fingerprint()
        return None if state is None else (*state, zlib.crc32(self._config_bytes()))

    def _config_bytes(self) -> bytes:
        return json.dumps(self.config, sort_keys=True).encode()

    def content_digest(self, on_bytes: BytesCallback = ignore_bytes) -> str:
        content = self.weights.content_digest(on_bytes)
        return hashlib.sha256(content.encode() + self._config_bytes()).hexdigest()

    def apply_to(self, pretrained: Checkpoint) -> Checkpoint:
        """The pretrained model with this adapter's changes.

        Raises:
            CheckpointError: the pretrained model lacks a layer, or has it in another shape.
        """
        return AdaptedCheckpoint(self, pretrained)


@dataclass(slots=True)
class _Target:
    """The changes of a pretrained tensor, by the index of the part of its rows that changes.

    The parts are q, k and v of a packed tensor, with the indices 0, 1 and 2, or the whole tensor, with the index 0.
    """

    changes: dict[int, Change] = field(default_factory=dict)
    part_count: int = 1
    is_transposed: bool = False


class AdaptedCheckpoint(Checkpoint):
    """The pretrained model with an adapter's changes, which are computed tensor by tensor on demand."""

    adds_changes = True

    def __init__(self, adapter: AdapterCheckpoint, pretrained: Checkpoint) -> None:
        self.name, self.label, self.metadata = adapter.name, adapter.label, pretrained.metadata
        self._adapter, self._pretrained, self.folder = adapter, pretrained, adapter.folder
        other_base = describe_other_base(adapter.config, pretrained)
        self.cautions = (*adapter.cautions, *([other_base] if other_base else []))
        try:
            self._apply(adapter, pretrained)
        except CheckpointError as error:
            raise CheckpointError(f"{error} {other_base}".rstrip()) from None

    def _apply(self, adapter: AdapterCheckpoint, pretrained: Checkpoint) -> None:
        """Find the tensors that the adapter changes. Raises CheckpointError if it does not fit the model."""
        name_notes: tuple[str, ...] = ()
        # {tensor: name in the adapter} of tensors that are saved whole; only for networks other than CLIP.
        self._whole_tensors: dict[str, str] = {}
        if pretrained.is_inferred:
            self._targets, self._whole_tensors, name_notes = _find_targets_by_name(adapter, pretrained)
            ignored: list[str] = []
        else:
            self._targets, ignored = _find_tower_targets(adapter, pretrained)
        self.infos = {name: self._info(name, info) for name, info in pretrained.infos.items()}
        self.infos |= {name: adapter.infos[stored] for name, stored in self._whole_tensors.items()}
        for name, target in self._targets.items():
            self._check(name, target)
        count = len(self._targets) + len(self._whole_tensors)
        description = f"A{adapter.title[1:]} of {plural(count, 'tensor')}"
        self.notes = (*adapter.notes, *name_notes, f"{description}; the others are pretrained.")
        if ignored:
            ignored_count = plural(len(ignored), "of its tensors is", "of its tensors are")
            self.notes += (f"{ignored_count} outside the visual tower; ignored: {first_few(ignored)}.",)
        self._last: tuple[str, Tensor] | None = None  # the tensor that was computed last, cached for its next piece

    def _info(self, name: str, info: TensorInfo) -> TensorInfo:
        """The info of a tensor; a changed tensor has at least float32, which does not round small changes away."""
        needs_float32 = name in self._targets and info.dtype.is_floating_point and info.dtype.itemsize < 4
        return TensorInfo(info.shape, torch.float32) if needs_float32 else info

    @property
    def changed_tensors(self) -> frozenset[str]:
        """Names of the tensors that the adapter changes or replaces."""
        return frozenset(self._targets) | frozenset(self._whole_tensors)

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of a tensor of the expert, flat (n,): n = stop - start."""
        if name in self._whole_tensors:
            return self._adapter.read_flat(self._whole_tensors[name], start, stop)
        if name not in self._targets:
            return self._pretrained.read_flat(name, start, stop)
        cached = self._last
        if cached is None or cached[0] != name:
            cached = self._last = (name, self._apply_changes(name).reshape(-1))
        return cached[1][start:stop]

    def thin_factors(self, name: str, pretrained: Checkpoint) -> ThinFactor | None:
        has_no_factors = name in self._whole_tensors or len(self.infos[name].shape) < 2
        # The factors are the change from the model that the adapter is applied to, not from any other.
        if not self.is_inferred or has_no_factors or stored_model(pretrained) is not stored_model(self._pretrained):
            return None
        if name not in self._targets:
            return ThinFactor(1, partial(self._zero_change, name))
        (change,) = self._targets[name].changes.values()
        if change.multiplier:
            return None
        return ThinFactor(self._adapter.infos[change.down].shape[0], partial(self._read_factors, change))

    def _zero_change(self, name: str) -> LowRank:
        """Factors (rows, 1) and (1, columns) of zeros, for a tensor that the adapter does not change."""
        rows, *other_sizes = self.infos[name].shape
        return LowRank(torch.zeros(rows, 1).double(), torch.zeros(1, math.prod(other_sizes)).double())

    def _read_factors(self, change: Change) -> LowRank:
        """scale · B (d_out, r) and A (r, d_in), float64; transposed if the layer is stored as (d_in, d_out)."""
        down, up = (self._adapter.weights.read(part).double().flatten(1) for part in (change.down, change.up))
        factors = LowRank(change.scale * up, down)
        return factors.mT if change.fan_in_fan_out else factors

    def file_fingerprint(self) -> tuple[int, ...] | None:
        return self._adapter.file_fingerprint()

    def content_digest(self, on_bytes: BytesCallback = ignore_bytes) -> str:
        return self._adapter.content_digest(on_bytes)

    def _apply_changes(self, name: str) -> Tensor:
        """A pretrained tensor (*S) with its changes."""
        target, info = self._targets[name], self.infos[name]
        tensor = self._pretrained.read(name).to(info.dtype, copy=True)
        rows = tensor.T if target.is_transposed else tensor
        for index, change in target.changes.items():
            size = rows.shape[0] // target.part_count
            part = rows[index * size : (index + 1) * size]
            if change.replacement:
                part.copy_(self._adapter.weights.read(change.replacement).reshape(part.shape))
            elif change.multiplier:
                part *= self._read_multiplier(change, info.dtype, part.dim())
            else:
                part += self._delta(change, info.dtype).reshape(part.shape)
        return tensor

    def _read_multiplier(self, change: Change, dtype: torch.dtype, dimensions: int) -> Tensor:
        """The numbers that multiply a weight, (d_out, 1) or (1, d_in) or its transpose, or a bias, (d_out,)."""
        values = self._adapter.weights.read(change.multiplier).to(dtype)
        if dimensions == 1:
            return values.reshape(-1)
        return values.T if change.fan_in_fan_out else values

    def _delta(self, change: Change, dtype: torch.dtype) -> Tensor:
        """scale · B A (d_out, d_in), or its transpose if the layer is stored as (d_in, d_out)."""
        weights = self._adapter.weights
        down, up = weights.read(change.down).to(dtype).flatten(1), weights.read(change.up).to(dtype).flatten(1)
        product = change.scale * (up @ down)
        return product.T if change.fan_in_fan_out else product

    def _check(self, name: str, target: _Target) -> None:
        """Raise CheckpointError if a change has another shape than the tensor that it changes."""
        infos, shape = self._adapter.infos, self.infos[name].shape
        rows = shape[::-1] if target.is_transposed else shape
        expected = (rows[0] // target.part_count, *rows[1:]) if rows else ()
        for change in target.changes.values():
            if change.multiplier:
                vector_shape = infos[change.multiplier].shape
                vector_shape = vector_shape[::-1] if change.fan_in_fan_out else vector_shape
                actual = expected if _fits_shape(vector_shape, expected) else vector_shape
            elif change.replacement:
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


def _fits_shape(vector: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a vector (n, 1) or (1, n) has a number for each row or column of a matrix, or each entry of a bias."""
    if len(shape) == 1:
        return math.prod(vector) == shape[0]
    return len(shape) == 2 and all(vector_size in {1, size} for vector_size, size in zip(vector, shape, strict=True))


def _find_tower_targets(adapter: AdapterCheckpoint, pretrained: Checkpoint) -> tuple[dict[str, _Target], list[str]]:
    """{name of a pretrained tensor: its changes}, and the adapter's tensors outside the visual tower."""
    stored_names, targets, ignored = group_tower_names(pretrained.infos), dict[str, _Target](), list[str]()
    if not stored_names:
        raise CheckpointError(f"{adapter.name} is an adapter, and the pretrained model holds no visual tower.")
    for name, change in adapter.changes.items():
        tower_tensor = _find_target_tensor(name)
        if tower_tensor is None:
            ignored.append(name)
            continue
        stored = stored_names.get(tower_tensor.name)
        if stored is None:
            raise CheckpointError(f"{adapter.name} changes {name[:80]!r}, which the pretrained model does not have.")
        is_transposed = tower_tensor.name == PROJ and is_transposed_name(stored[0]) and not is_transposed_name(name)
        index = tower_tensor.qkv_index
        if len(stored) == 1:
            pretrained_name, part, part_count = stored[0], index or 0, 1 if index is None else len(QKV)
        elif index is not None:
            pretrained_name, part, part_count = stored[index], 0, 1
        else:
            raise CheckpointError(f"{adapter.name} changes q, k and v as one tensor, the pretrained model has three.")
        target = targets.setdefault(pretrained_name, _Target())
        target.part_count, target.is_transposed = part_count, is_transposed
        target.changes[part] = change
    if not targets:
        raise CheckpointError(f"{adapter.name} changes no tensor of the visual tower: {first_few(ignored)}.")
    return targets, ignored


def _find_targets_by_name(
    adapter: AdapterCheckpoint, pretrained: Checkpoint
) -> tuple[dict[str, _Target], dict[str, str], tuple[str, ...]]:
    """For a network other than CLIP: {tensor: its change}, {tensor: the adapter's whole tensor}, notes on names.

    The pretrained model may lack tensors that the adapter saves whole, such as heads.
    """
    facts = facts_of(pretrained.infos)
    names = match_names(pretrained.infos, adapter.changes, facts.later_name if facts else keep_name)
    targets, whole_tensors = dict[str, _Target](), dict[str, str]()
    has_unchanged = False  # whether the adapter saves tensors that it does not change
    transposed = {parameter.name for parameter in pretrained.parameters if parameter.transposed}
    for name, stored in names.stored.items():
        change = adapter.changes[stored]
        if transposed:  # PEFT decides by the class of each module, but writes a single setting
            change = replace(change, fan_in_fan_out=name in transposed)
        if change.replacement and change.down:
            _check_base(adapter, change, pretrained, name)
            change, has_unchanged = replace(change, replacement=""), True
        if change.replacement:
            whole_tensors[name] = change.replacement
        elif name in pretrained.infos:
            targets[name] = _Target({0: change})
        elif not (change.multiplier and name.endswith(".bias")):  # not every layer has a bias
            raise CheckpointError(f"{adapter.name} changes {stored[:80]!r}, which the pretrained model does not have.")
    if has_unchanged:
        whole_tensors = {
            name: saved for name, saved in whole_tensors.items() if not _is_pretrained(adapter, saved, pretrained, name)
        }
    if facts is not None:
        _check_tied(adapter, pretrained, facts, whole_tensors, targets)
    return targets, whole_tensors, names.notes


def _check_base(adapter: AdapterCheckpoint, change: Change, pretrained: Checkpoint, name: str) -> None:
    """Raise CheckpointError if the layer that an adapter saves beside its factors is not the pretrained model's."""
    if _is_pretrained(adapter, change.replacement, pretrained, name):
        return
    raise CheckpointError(
        f"{adapter.name} has {name[:80]!r} both as LoRA and as a whole tensor that is not the pretrained model's. "
        "Merge it with PEFT first."
    )


def _is_pretrained(adapter: AdapterCheckpoint, stored: str, pretrained: Checkpoint, name: str) -> bool:
    """Whether a whole tensor of an adapter holds the pretrained model's numbers."""
    saved = adapter.read(stored)
    return name in pretrained.infos and torch.equal(saved, pretrained.read(name).to(saved.dtype))


def _check_tied(
    adapter: AdapterCheckpoint,
    pretrained: Checkpoint,
    facts: Facts,
    whole_tensors: Mapping[str, str],
    targets: Iterable[str],
) -> None:
    """Raise CheckpointError if the adapter separates modules that share a tensor in the pretrained model."""
    if adapter.config.get("ensure_weight_tying"):
        return
    for group in facts.tied:
        endings = tuple(f".{ending}" for ending in group)
        saved_names = [name for name in whole_tensors if f".{name}".endswith(endings)]
        pretrained_names = [name for name in pretrained.infos if f".{name}".endswith(endings)]
        adapted_names = [name for name in targets if f".{name}".endswith(endings)]
        if not (saved_names or adapted_names) or not is_tied(pretrained, pretrained_names):
            continue
        saved_names += adapted_names
        if (
            adapted_names
            or len(saved_names) == 1
            or any(
                find_equal_tensor(adapter, whole_tensors[saved_names[0]], [whole_tensors[name]]) is None
                for name in saved_names[1:]
            )
        ):
            raise CheckpointError(
                f"{adapter.name} has its own {first_few(saved_names)}, and the pretrained model shares one tensor "
                "among its input and output embeddings. Save both alike (modules_to_save, ensure_weight_tying), or "
                "merge the adapter with PEFT first."
            )


def _find_target_tensor(name: str) -> TowerTensor | None:
    """The tensor of the tower that an adapter's target refers to; PEFT names a packed attention layer as a whole."""
    return find_tower_tensor(name) or (find_tower_tensor(name.removesuffix(".weight") + ".in_proj_weight"))
