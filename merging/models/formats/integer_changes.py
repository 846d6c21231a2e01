"""Experts stored as whole-number changes of a pretrained model: half the size of float16 or less, within a few percent.

expert = pretrained + scale * code, with codes int8 (*S) and one scale for each row, float32 (rows,). A tensor with one
dimension is one row. The file is an npz archive with the codes of each tensor that changes, as bytes of a zlib stream
(Huffman codes alone, which are smaller here than with repeats), and one array with the scales of all these tensors, in
their order. It also has the digest of the pretrained model, which is the file called pretrained in the same folder; no
path is stored.
"""

from __future__ import annotations

import contextlib
import json
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from merging.base.errors import CheckpointError, TaskError
from merging.base.files.atomic import replace_file
from merging.base.files.npz import Npz
from merging.base.files.paths import path_fingerprint
from merging.base.files.strict_json import parse_json
from merging.base.text import first_few, printable
from merging.models.checkpoint import Checkpoint
from merging.models.digest_cache import DIGESTS
from merging.models.model_references import PRETRAINED, model_file
from merging.models.tensor_info import TensorInfo

# Arrays besides the codes: two of text, and the scales.
PRETRAINED_DIGEST, METADATA, SCALES = "digest_of_pretrained", "metadata", "scales"
ARCHIVE_START = 30  # bytes before the name of the first member of a zip archive
START_BYTES = 64  # of a file, by which it is recognized
MAX_TEXT_BYTES = 1 << 22
SHARED_BYTES = 1 << 24  # bytes of an expert up to which its tensors stay in memory; of a larger one, the last tensor
MAX_LEVELS = 127  # of int8 above and below zero
OpenCheckpoint = Callable[[Path], Checkpoint]


def is_integer_changes(start: bytes) -> bool:
    """Whether a file with these first ``START_BYTES`` bytes stores changes of a pretrained model."""
    return start[ARCHIVE_START:].startswith(f"{PRETRAINED_DIGEST}.npy".encode())


def write_changes(
    path: Path, pretrained: Checkpoint, expert: Checkpoint, metadata: Mapping[str, str], levels: int = MAX_LEVELS
) -> None:
    """Write an expert as changes of the pretrained model; fewer ``levels`` compress better and round more.

    The largest change of a row gets the code ``levels`` or its negative. Tensors that do not change are left out.

    Raises:
        CheckpointError: levels are not 1 to 127, or the expert has other tensors than the pretrained model, or numbers
            that are not finite.
    """
    if not 1 <= levels <= MAX_LEVELS:
        raise CheckpointError(f"Levels must be 1 to {MAX_LEVELS}; got {levels}.")
    if mismatch := [
        name for name, info in pretrained.infos.items()
        if name not in expert.infos or expert.infos[name].shape != info.shape
    ] + [name for name in expert.infos if name not in pretrained.infos]:  # fmt: skip
        raise CheckpointError(
            f"{expert.name} must have the pretrained model's tensors; it differs in {first_few(mismatch)}."
        )
    arrays = {PRETRAINED_DIGEST: np.array(pretrained.digest), METADATA: np.array(json.dumps(dict(metadata)))}
    scales_by_tensor = [np.empty(0, np.float32)]
    for name in pretrained.infos:
        change = expert.read(name).to(torch.float32) - pretrained.read(name).to(torch.float32)
        if not change.isfinite().all():
            raise CheckpointError(f"{expert.name}: {name!r} has numbers that are not finite.")
        if not change.any():
            continue
        codes, scales = round_change(change, levels)
        coder = zlib.compressobj(zlib.Z_BEST_COMPRESSION, strategy=zlib.Z_HUFFMAN_ONLY)
        arrays[name] = np.frombuffer(coder.compress(codes.numpy().tobytes()) + coder.flush(), np.uint8)
        scales_by_tensor.append(scales.numpy())
    arrays[SCALES] = np.concatenate(scales_by_tensor)
    with replace_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def round_change(change: Tensor, levels: int = MAX_LEVELS) -> tuple[Tensor, Tensor]:
    """Codes int8 (rows, n) and scales float32 (rows,) of a change (*S) in float32, whose first side counts the rows."""
    rows = change.reshape(len(change) if change.ndim > 1 else 1, -1)
    scales = (rows.abs().amax(dim=1) / levels).to(torch.float32)
    return (rows / torch.where(scales > 0, scales, 1.0)[:, None]).round().to(torch.int8), scales


def open_changes(path: Path, name: str, open_pretrained: OpenCheckpoint) -> Checkpoint:
    """The expert in a file of changes.

    Raises:
        CheckpointError: the file is damaged, or the pretrained model beside it is missing or another one.
    """
    base = model_file(path.parent, PRETRAINED)
    if not base.is_file():
        raise CheckpointError(
            f"{printable(path.name)} stores changes of a pretrained model, which must be beside it under the name "
            f"{PRETRAINED}; it is missing."
        )
    with base.open("rb") as file:
        is_whole = not is_integer_changes(file.read(START_BYTES))
    if not is_whole:
        raise CheckpointError(f"{printable(base.name)} stores changes, too, and must be a whole pretrained model.")
    return IntegerChanges(path, name, open_pretrained(base))


@lru_cache(maxsize=16)
def _share_tensors(fingerprint: tuple[int, ...]) -> dict[str, Tensor]:
    """The tensors (n,) of a small expert that were read so far, for all checkpoints of the same file."""
    return {}


class IntegerChanges(Checkpoint):
    """A pretrained model with whole-number changes, which are added tensor by tensor on demand.

    Raises:
        CheckpointError: the file is damaged, or its changes are of another pretrained model.
    """

    adds_changes = True

    def __init__(self, path: Path, name: str, pretrained: Checkpoint) -> None:
        self.name, self.label = name, str(path)
        self._path, self._file, self._pretrained = path, printable(path.name), pretrained
        self._fingerprint = path_fingerprint(path)
        with self._explain_errors():
            self._archive = Npz(path)
        self.close = weakref.finalize(self, self._archive.close)
        metadata, digest = (
            parse_json(self._read_text(METADATA).encode(), self._file),
            self._read_text(PRETRAINED_DIGEST),
        )
        self.metadata = {key: value for key, value in metadata.items() if isinstance(value, str)}
        self.pretrained_digest = digest
        if digest != DIGESTS.digest(pretrained):
            raise CheckpointError(
                f"{self._file} stores changes of another pretrained model than {pretrained.name} beside it "
                f"(sha-256 {printable(digest, 12)}… was expected, it has {pretrained.digest[:12]}…)."
            )
        self._scales = self._find_scales()
        self.infos = {
            key: TensorInfo(info.shape, torch.float32) if key in self._scales else info
            for key, info in pretrained.infos.items()
        }
        self._state = self._read_state()
        self._is_shared = self._state is not None and self.nbytes <= SHARED_BYTES
        self._tensors = _share_tensors(self._state) if self._state is not None and self._is_shared else {}

    @contextlib.contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except TaskError as error:
            raise CheckpointError(str(error)) from None

    def _read_text(self, name: str) -> str:
        """An array of a single text. Raises CheckpointError if it is something else."""
        info = self._archive.infos.get(name)
        if info is None or info.dtype.kind != "U" or info.shape or info.nbytes > MAX_TEXT_BYTES:
            raise CheckpointError(f"{self._file} must have a text under {name!r}.")
        try:
            with self._explain_errors():
                text = str(self._archive.read(name))
            text.encode()
        except (ValueError, SystemError):  # numbers that are no characters
            raise CheckpointError(f"{self._file}: the text under {name!r} cannot be read.") from None
        return text

    def _find_scales(self) -> dict[str, Tensor]:
        """{tensor that changes: its scales (rows,)}. Raises CheckpointError if they are not those of the tensors."""
        names = [key for key in self._archive.infos if key not in (PRETRAINED_DIGEST, METADATA, SCALES)]
        if unknown := [key for key in names if key not in self._pretrained.infos]:
            raise CheckpointError(
                f"{self._file} changes {first_few(unknown)}, which the pretrained model does not have."
            )
        shapes = [self._pretrained.infos[key].shape for key in names]
        rows = [shape[0] if len(shape) > 1 else 1 for shape in shapes]
        info = self._archive.infos.get(SCALES)
        if info is None or info.dtype != np.float32 or info.shape != (sum(rows),):
            came = "none" if info is None else f"{info.dtype} {list(info.shape)}"
            raise CheckpointError(
                f"{self._file} must have {sum(rows):,} scales of float32, one for each row; got {came}."
            )
        with self._explain_errors():
            scales = torch.from_numpy(self._archive.read(SCALES).copy())
        if not (scales.isfinite() & (scales >= 0)).all():
            raise CheckpointError(f"{self._file}: scales must be finite and not negative.")
        return dict(zip(names, scales.split(rows), strict=True))

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of a tensor of the expert, flat (n,): n = stop - start."""
        if name not in self._scales:
            return self._pretrained.read_flat(name, start, stop)
        if (tensor := self._tensors.get(name)) is None:
            tensor = self._add_change(name)
            if not self._is_shared:
                self._tensors.clear()
            if not self._is_shared or self._read_state() == self._state:  # else a file was overwritten meanwhile
                self._tensors[name] = tensor
        return tensor[start:stop].clone()

    def _add_change(self, name: str) -> Tensor:
        """A tensor of the expert, flat (n,) float32. Raises CheckpointError if its changes do not fit it."""
        codes, scales = self.read_codes(name)
        change = codes.to(torch.float32) * scales[:, None]
        return self._pretrained.read(name).to(torch.float32).reshape(-1) + change.reshape(-1)

    def read_codes(self, name: str) -> tuple[Tensor, Tensor]:
        """Codes int8 (rows, n) and scales float32 (rows,) of a tensor's change; zeros if it does not change.

        Raises:
            CheckpointError: the stored codes do not fit the tensor.
        """
        if name not in self._scales:
            return round_change(torch.zeros(self.infos[name].shape))
        info, scales, stored = self.infos[name], self._scales[name], self._archive.infos[name]
        if stored.dtype != np.uint8 or len(stored.shape) != 1 or stored.nbytes > 2 * info.numel + START_BYTES:
            raise CheckpointError(
                f"{self._file}: the codes of {name!r} must be at most {2 * info.numel + START_BYTES:,} bytes; "
                f"got {stored.dtype} {list(stored.shape)}."
            )
        with self._explain_errors():
            packed = self._archive.read(name).tobytes()
        try:
            content = zlib.decompressobj().decompress(packed, info.numel + 1)  # one byte more than there may be
        except zlib.error as error:
            raise CheckpointError(f"{self._file}: the codes of {name!r} are damaged ({error}).") from None
        if len(content) != info.numel:
            raise CheckpointError(
                f"{self._file}: {name!r} {list(info.shape)} needs {info.numel:,} codes; "
                f"{'more' if len(content) > info.numel else f'{len(content):,}'} came."
            )
        return torch.frombuffer(bytearray(content), dtype=torch.int8).reshape(len(scales), -1), scales

    def _read_state(self) -> tuple[int, ...] | None:
        """The fingerprints of both files as they are now; None if the pretrained model is in no file."""
        state = self._pretrained.file_fingerprint()
        return None if state is None else (*path_fingerprint(self._path), *state)

    def file_fingerprint(self) -> tuple[int, ...] | None:
        """The numbers of the file and of the pretrained model's, as both determine the tensors."""
        state = self._pretrained.file_fingerprint()
        return None if state is None else (*self._fingerprint, *state)
