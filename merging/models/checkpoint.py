"""Checkpoints: lazy, read-only mappings from name to tensor, the same for every file format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from merging.base.errors import CheckpointError
from merging.base.numerics.low_rank import ThinFactor
from merging.base.text import printable
from merging.models.content_digest import BytesCallback, ContentDigest, ignore_bytes
from merging.models.families import UNUSED_TEXT, Parameter
from merging.models.model_references import strip_folders
from merging.models.network_facts import title_of
from merging.models.network_inference import describe_parameters, is_inferred
from merging.models.tensor_info import DTYPE_NAMES, TensorInfo, raw_bytes

Spans = tuple[tuple[int, int], ...]  # positions [start, stop) in a flat tensor
UNNAMED_NETWORK = "another network"  # the title of a network that is not CLIP and is not in facts.toml
DIGEST_PIECE = 1 << 18  # scalars hashed at a time; larger pieces do not fit the processor's cache


@dataclass(frozen=True, slots=True)
class UnusedText:
    """The text tensors in an image encoder's checkpoint, which it does not use: their number and that of their scalars.

    They are not merged, and their task vectors are exactly zero. Names in recipes and tables call them dead.
    """

    tensors: int = 0
    numel: int = 0


class Checkpoint(ABC):
    """Named tensors that are read on demand. Messages use ``name``, recipes use ``label``."""

    name: str
    label: str
    infos: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    family: str = ""  # one of FAMILY_KEYS if the caller states it
    notes: tuple[str, ...] = ()  # sentences about changes that were made to open it
    cautions: tuple[str, ...] = ()  # sentences about oddities that the user should check
    adds_changes: bool = False  # whether its tensors are a pretrained model's plus stored changes, added in float32
    folder: Path | None = None  # the folder of its file, which also has configurations and tokenizers; None in memory

    @abstractmethod
    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of a tensor in storage order, flat (n,): n = stop - start, in the stored dtype."""

    def read_spans(self, name: str, spans: Spans) -> Tensor:
        """The scalars in several spans of a tensor, one after the other, flat (n,), in the stored dtype."""
        parts = [self.read_flat(name, start, stop) for start, stop in spans]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def file_fingerprint(self) -> tuple[int, ...] | None:
        """Numbers that change when the stored bytes may have changed; None if the checkpoint is not in a file."""
        return None

    def read(self, name: str) -> Tensor:
        """A whole tensor (*S) in its stored dtype and shape."""
        info = self.infos[name]
        return self.read_flat(name, 0, info.numel).reshape(info.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(info.nbytes for info in self.infos.values())

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every tensor with its role and block, in forward order."""
        title = self.name
        if self.file_fingerprint() is not None:  # the name of the file is more specific
            title = f"{self.name} ({printable(strip_folders(self.label))})"
        return describe_parameters(self.infos, title, self.family)

    @cached_property
    def is_inferred(self) -> bool:
        """Whether this is a network other than CLIP: its roles and blocks are inferred from names and shapes."""
        return is_inferred(self.infos, self.family)

    @cached_property
    def network(self) -> str:
        """The title of the network if it is not CLIP; empty for CLIP."""
        return (title_of(self.infos) or UNNAMED_NETWORK) if self.is_inferred else ""

    @cached_property
    def unused_text(self) -> UnusedText:
        """The unused text tensors that published image encoders contain."""
        infos = [self.infos[p.name] for p in self.parameters if p.part == UNUSED_TEXT]
        return UnusedText(len(infos), sum(info.numel for info in infos))

    @cached_property
    def digest(self) -> str:
        """The digest of names, dtypes, shapes and values, independent of file format and order of the tensors."""
        return self.content_digest()

    def content_digest(self, on_bytes: BytesCallback = ignore_bytes) -> str:
        """``digest``, computed anew; ``on_bytes`` is called after each piece."""
        content = ContentDigest(self.nbytes)
        for name in sorted(self.infos):
            info = self.infos[name]
            content.begin(name, DTYPE_NAMES[info.dtype].safetensors, info.shape)
            for start in range(0, info.numel, DIGEST_PIECE):
                piece = self.read_flat(name, start, min(start + DIGEST_PIECE, info.numel))
                content.update(raw_bytes(piece.contiguous()))
                on_bytes(piece.nbytes)
        return content.hexdigest()

    def apply_to(self, pretrained: Checkpoint) -> Checkpoint:
        """The expert: this checkpoint itself, or an adapter's changes applied to the pretrained model."""
        return self

    def thin_factors(self, name: str, pretrained: Checkpoint) -> ThinFactor | None:
        """The thin factors of a pretrained tensor's change, if the checkpoint stores the change as factors; else None.

        Their product has the orientation of the stored tensor; a tensor (n, ...) counts as a matrix with n rows.
        """
        return None

    def rename_as_in_file(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A state dict of tensors (*S), any shape, under this checkpoint's names, renamed to the names in its file."""
        return dict(state)

    def state_dict(self) -> dict[str, Tensor]:
        """{name: tensor (*S), any shape} of all tensors, in memory and in forward order."""
        return {parameter.name: self.read(parameter.name) for parameter in self.parameters}


class MappingCheckpoint(Checkpoint):
    """A state dict in memory."""

    def __init__(self, tensors: Mapping[str, Tensor], name: str) -> None:
        for key, value in tensors.items():
            if not isinstance(key, str):
                raise CheckpointError(f"{name}: the names of tensors are text; got {key!r}.")
            if not isinstance(value, Tensor):
                raise CheckpointError(f"{name}: {key!r} is a {type(value).__name__}, not a tensor.")
            if value.dtype not in DTYPE_NAMES or value.layout != torch.strided or value.is_meta:
                kind = "without data" if value.is_meta else f"of type {value.dtype}, {value.layout}"
                raise CheckpointError(f"{name}: tensor {key!r} {kind} cannot be merged; convert it.")
        self.name, self.label, self.metadata = name, "memory", {}
        self._tensors = {key: value.detach() for key, value in tensors.items()}
        self.infos = {key: TensorInfo(tuple(value.shape), value.dtype) for key, value in tensors.items()}

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of a tensor, flat (n,): n = stop - start."""
        return self._tensors[name].reshape(-1)[start:stop]
