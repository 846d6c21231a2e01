"""Checkpoints from pickles: state dicts and whole modules, opened without running code, tensors read by offset."""

from __future__ import annotations

import json
import os
import weakref

from torch import Tensor

from merging.base.files.paths import file_fingerprint
from merging.models.checkpoint import Checkpoint
from merging.models.families import QUICK_GELU
from merging.models.formats.byte_range import ByteRange
from merging.models.formats.torch_pickle import containers
from merging.models.formats.torch_pickle.model_candidates import find_model


class PickledCheckpoint(Checkpoint):
    """The model in a torch file or a pickle; no code in it is run, and its numbers are read on demand."""

    def __init__(self, descriptor: int, file: str, name: str) -> None:
        self.name, self.label = name, file
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        window = ByteRange.from_descriptor(descriptor, file)
        opened = containers.read_pickle(window)
        self.container = opened.container
        model = find_model(opened, window)
        self._tensors = model.tensors
        architecture = {"quick_gelu": model.activation == QUICK_GELU} if model.activation else {}
        self.metadata = {"architecture": json.dumps(architecture)} if architecture else {}
        self.infos = {key: tensor.info for key, tensor in model.tensors.items()}
        self.notes, self.cautions = model.notes, model.cautions
        self._last: tuple[str, Tensor] | None = None

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of a tensor in the order of its shape, flat (n,): n = stop - start."""
        tensor = self._tensors[name]
        if tensor.contiguous:
            return tensor.read_flat(start, stop)
        cached = self._last  # transposed tensors are read whole, so the last one is cached for the next piece
        if cached is None or cached[0] != name:
            cached = self._last = (name, tensor.read_flat(0, tensor.info.numel))
        return cached[1][start:stop]

    def file_fingerprint(self) -> tuple[int, ...]:
        return file_fingerprint(self._descriptor)
