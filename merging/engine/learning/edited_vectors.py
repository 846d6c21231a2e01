"""Edited task vectors, tensor by tensor, for methods that learn and read them many times."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from merging.base.files.disk import free_bytes, temporary_space_error
from merging.base.progress import Meter
from merging.engine.run_inputs import RunInputs
from merging.engine.stream import Stage, Stream
from merging.methods.slot import Slot
from merging.models.families import Parameter
from merging.models.tensor_info import raw_bytes, read_span


class EditedVectors:
    """Slots of whole tensors with edited task vectors; memory holds those of one tensor and of the tensor read ahead.

    ``live`` are the tensors that no edit drops for every expert.
    Slots are read from the checkpoints and edited anew each time. If an edit needs whole tensors, or one expert's rows
    are requested after edits, all task vectors are edited once and stored in a temporary file, which ``close`` removes.
    """

    def __init__(self, inputs: RunInputs, edits: tuple[Stage, ...], live: tuple[Parameter, ...], meter: Meter) -> None:
        self._inputs = replace(inputs, subset=frozenset(parameter.name for parameter in live))
        self._edits, self._live, self._meter = edits, live, meter
        self._file: IO[bytes] | None = None
        self._starts: dict[str, int] = {}

    def slots(self, expert: str | None = None) -> Iterator[Slot]:
        """The slot of every live tensor, with all task vectors (K, *S), or with one expert's (1, *S)."""
        if expert is not None and not self._edits:
            experts = {expert: self._inputs.experts[expert]}
            return iter(self._stream(replace(self._inputs, experts=experts)))
        if expert is None and all(stage.is_elementwise for stage in self._edits):
            return iter(self._stream(self._inputs))
        return self._read_slots(expert)

    def close(self) -> None:
        """Remove the temporary file, if there is one."""
        if self._file is not None:
            self._file.close()

    def _stream(self, inputs: RunInputs) -> Stream:
        return Stream(inputs, self._edits, in_pieces=False, meter=self._meter, phase="")

    def _read_slots(self, expert: str | None) -> Iterator[Slot]:
        """The slots of ``slots``, with task vectors from the temporary file, which the first call writes."""
        if self._file is None:
            self._file = self._write_file()
        names = self._inputs.names
        rows = range(len(names)) if expert is None else [names.index(expert)]
        for parameter in self._live:
            shape = self._inputs.pretrained.infos[parameter.name].shape
            base = self._inputs.pretrained.read(parameter.name).to(self._inputs.device, self._inputs.dtype)
            vectors = torch.stack([self._read_row(parameter.name, row, base.numel()) for row in rows])
            experts = tuple(names[row] for row in rows)
            yield Slot(parameter, experts, base, vectors.to(base.device).reshape(len(rows), *shape))

    def _read_row(self, name: str, row: int, numel: int) -> Tensor:
        """The edited task vector (numel,) of one expert, in row ``row`` of a tensor."""
        assert self._file is not None
        dtype = self._inputs.dtype
        start = self._starts[name] + row * numel * dtype.itemsize
        return read_span(self._file.fileno(), start, numel, dtype, "The file of task vectors")

    def _write_file(self) -> IO[bytes]:
        """A temporary file of all edited task vectors, tensor by tensor."""
        infos, dtype = self._inputs.pretrained.infos, self._inputs.dtype
        needed = sum(infos[p.name].numel for p in self._live) * len(self._inputs.names) * dtype.itemsize
        if free_bytes(Path(tempfile.gettempdir())) < needed:
            raise temporary_space_error("Learning keeps", needed)
        file = tempfile.TemporaryFile(prefix="mergescope-")  # noqa: SIM115 - closed by ``close``
        offset = 0
        try:
            for slot in self._stream(self._inputs):
                self._starts[slot.name] = offset
                values = slot.task_vectors.to("cpu", dtype).contiguous()
                file.write(raw_bytes(values.reshape(-1)))
                offset += values.nbytes
            file.flush()
        except OSError:
            file.close()
            raise temporary_space_error("Learning keeps", needed) from None
        return file


class MaskFile:
    """Boolean masks of experts over all tensors in a temporary file, one bit per scalar."""

    def __init__(self, numels: Mapping[str, int], device: torch.device) -> None:
        sizes = [-(-numel // 8) for numel in numels.values()]  # bytes, rounded up
        offsets = np.cumsum([0, *sizes])
        self._numels, self._device, self._rows = dict(numels), device, 0
        self._starts = {name: int(start) for name, start in zip(numels, offsets[:-1], strict=True)}
        self._row_bytes = int(offsets[-1])
        self._file = tempfile.TemporaryFile(prefix="mergescope-")  # noqa: SIM115 - closed by ``close``

    def append(self, kept: Mapping[str, Tensor]) -> None:
        """Add the next expert's mask, {tensor: booleans of any shape (*S)}; missing tensors are false everywhere."""
        parts = []
        for name, numel in self._numels.items():
            bits = kept[name].reshape(-1).cpu().numpy() if name in kept else np.zeros(numel, dtype=bool)
            parts.append(np.packbits(bits, bitorder="little"))
        self._append_row(np.concatenate(parts) if parts else np.empty(0, dtype=np.uint8))

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """The masks of scalars [start, stop) of a tensor, booleans (experts, stop - start)."""
        first, last = start // 8, -(-stop // 8)  # bytes that hold the scalars
        offsets = [row * self._row_bytes + self._starts[name] + first for row in range(self._rows)]
        rows = [self._read_bytes(offset, last - first) for offset in offsets]
        bits = np.unpackbits(np.stack(rows), axis=1, bitorder="little")[:, start - 8 * first : stop - 8 * first]
        return torch.from_numpy(bits.view(bool)).to(self._device)

    def pack(self) -> Tensor:
        """All masks so far as uint8 (experts, bytes per expert)."""
        return torch.from_numpy(self._read_bytes(0, self._rows * self._row_bytes).reshape(self._rows, self._row_bytes))

    def unpack(self, rows: Tensor) -> None:
        """Add masks from the bytes (experts, bytes per expert) that ``pack`` returned."""
        for row in rows.numpy():
            self._append_row(row)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def _append_row(self, row: np.ndarray) -> None:
        try:
            self._file.seek(self._rows * self._row_bytes)
            self._file.write(row.tobytes())
            self._file.flush()
        except OSError:
            raise temporary_space_error("Learning keeps", self._row_bytes) from None
        self._rows += 1

    def _read_bytes(self, start: int, count: int) -> np.ndarray:
        return np.frombuffer(os.pread(self._file.fileno(), count, start), dtype=np.uint8).copy()
