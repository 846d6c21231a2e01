"""Tensors that do not fit in memory, in an anonymous file that disappears with the last reference to it."""

from __future__ import annotations

import tempfile
import weakref

from torch import Tensor

from merging.base.errors import MergingError
from merging.base.text import size_text
from merging.models.checkpoint import Checkpoint
from merging.models.tensor_info import TensorInfo, raw_bytes, read_span


class TemporaryTensors(Checkpoint):
    """A checkpoint that is filled tensor by tensor, in the folder for temporary files."""

    def __init__(self, name: str) -> None:
        self.name, self.label, self.metadata = name, "temporary", {}
        self._tensor_infos: dict[str, TensorInfo] = {}
        self.infos = self._tensor_infos
        self._offsets: dict[str, int] = {}
        self._file, self._end_offset = tempfile.TemporaryFile(prefix="mergescope-"), 0  # noqa: SIM115 - closed by the finalizer
        weakref.finalize(self, self._file.close)

    def add(self, name: str, tensor: Tensor) -> None:
        """Add a tensor of any shape (*S) under a new name. Raises MergingError if the disk is full."""
        flat = tensor.detach().to("cpu").contiguous().reshape(-1)
        try:
            self._file.seek(self._end_offset)
            self._file.write(raw_bytes(flat))
            self._file.flush()
        except OSError:
            raise MergingError(
                f"The stored tensors of {self.name!r} take more than {size_text(self._end_offset)} in the folder for "
                f"temporary files, {tempfile.gettempdir()}, which is full. Set the variable TMPDIR to a larger one."
            ) from None
        self._tensor_infos[name] = TensorInfo(tuple(tensor.shape), tensor.dtype)
        self._offsets[name] = self._end_offset
        self._end_offset += flat.nbytes

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        """The scalars [start, stop) of a tensor, (stop - start,)."""
        dtype = self.infos[name].dtype
        offset = self._offsets[name] + start * dtype.itemsize
        return read_span(self._file.fileno(), offset, stop - start, dtype, "A temporary file")
