"""References: small files with the path of a model, which benchmarks store instead of a copy of the model.

A reference is JSON with three fields: ``model``, the path of the model's file or folder, or the name of a bundled
model; ``like``, the name of a file beside the reference, whose tensor names the model gets; and ``metadata``, as a copy
would have it. References are read only in a folder called models, as benchmarks have. If a model was moved, its new
path is stored in a file beside the reference, and the reference stays unchanged.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from os.path import exists
from pathlib import Path

from merging.base.errors import CheckpointError, MergingError
from merging.base.files.records import write_json
from merging.base.files.strict_json import parse_json
from merging.base.text import printable
from merging.models.checkpoint import Checkpoint
from merging.models.checkpoint_views import CheckpointView, rename_tensors, rename_to_pretrained
from merging.models.families import TEXT_TOWER
from merging.models.model_references import BUNDLED_PREFIX, locate

VERSION_KEY, VERSION = "mergescope_model_reference", 1
FOLDER, SUFFIX = "models", ".json"
MOVED_SUFFIX = ".place"  # suffix of the file beside a reference with the current path of its model
MAX_REFERENCE_BYTES = 1 << 20  # bytes of such a file
OpenCheckpoint = Callable[[Path], Checkpoint]  # opens a checkpoint under canonical names

_open_references: ContextVar[tuple[Path, ...]] = ContextVar("opening", default=())  # references that are being opened
_path_to_try: ContextVar[tuple[Path, str] | None] = ContextVar("tried", default=None)  # (reference, path to try)


class ReferencedModel(CheckpointView):
    """The model that a reference names, without its text tower: the tensors that a copy of it would have."""

    def __init__(self, inner: Checkpoint, raw: bytes, metadata: Mapping[str, str]) -> None:
        names = {parameter.name: parameter.name for parameter in inner.parameters if parameter.part != TEXT_TOWER}
        super().__init__(inner, rename_tensors(inner, names), keeps_digest=False)
        self.metadata, self._crc = dict(metadata), zlib.crc32(raw)

    def file_fingerprint(self) -> tuple[int, ...] | None:
        """The numbers of the model's file and a checksum of the reference, as both determine the tensors."""
        state = self.inner.file_fingerprint()
        return None if state is None else (*state, self._crc)


def write_reference(path: Path, model: Path, metadata: Mapping[str, str], names_from: str = "") -> None:
    """Write a reference to a model; ``names_from`` is the file beside it whose tensor names the model gets."""
    write_json(path, {VERSION_KEY: VERSION, "model": str(model), "like": names_from, "metadata": dict(metadata)})


def is_reference(path: Path, raw: bytes) -> bool:
    """Whether the content of a file is a reference, in a folder where references are read."""
    return path.parent.name == FOLDER and len(raw) <= MAX_REFERENCE_BYTES and f'"{VERSION_KEY}"'.encode() in raw[:100]


def open_reference(path: Path, raw: bytes, open_canonical: OpenCheckpoint) -> Checkpoint:
    """The model that a reference names.

    Raises:
        CheckpointError: the reference is damaged or refers to itself, or the model is missing or damaged.
    """
    file = printable(path.name)
    model, like, metadata = _read_content(path, raw)
    if not exists(model):  # noqa: PTH110 - Path.exists raises for a path that no disk can have
        raise CheckpointError(
            f"{file} refers to {printable(model, 300)}, which is missing: fetch it again, name the folder that "
            f"holds it now ({find_command(path.parent.parent)}), or make the benchmark again."
        )
    with _refuse_cycle(path):
        inner = open_canonical(Path(model))
        if like:
            if Path(like).name != like:
                raise CheckpointError(f"{file} names a model outside of its folder; refused.")
            inner = rename_to_pretrained(open_canonical(path.parent / like), inner)
    return ReferencedModel(inner, raw + model.encode(), metadata)


def _read_content(path: Path, raw: bytes) -> tuple[str, str, dict[str, str]]:
    """The current path of the model, the name of the file whose names its tensors get, and its metadata."""
    file = printable(path.name)
    content = parse_json(raw, file)
    model, like, metadata = (content.get(name) for name in ("model", "like", "metadata"))
    is_text_mapping = isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    if (
        content.get(VERSION_KEY) != VERSION
        or not isinstance(model, str)
        or not isinstance(like, str)
        or not is_text_mapping
    ):
        raise CheckpointError(f"{file} does not say where a model is; make the benchmark again.")
    path_to_try = _path_to_try.get()
    if model.startswith(BUNDLED_PREFIX):
        model = str(locate(model))
    assert isinstance(metadata, dict)
    return (
        path_to_try[1] if path_to_try and path_to_try[0] == path.absolute() else recorded_path(path) or model,
        like,
        metadata,
    )


def find_command(folder: Path) -> str:
    """The command that finds the files that a benchmark refers to; the user replaces FOLDER."""
    return f"mergescope benchmark find {printable(shlex.quote(str(folder.absolute())), 1000)} FOLDER"


@contextlib.contextmanager
def _refuse_cycle(path: Path) -> Iterator[None]:
    """Refuse a reference that leads back to itself, directly or through others."""
    outer_references, reference_path = _open_references.get(), path.resolve()
    if reference_path in outer_references:
        raise _make_cycle_error(path)
    token = _open_references.set((*outer_references, reference_path))
    try:
        yield
    finally:
        _open_references.reset(token)


def _make_cycle_error(path: Path) -> CheckpointError:
    return CheckpointError(f"{printable(path.name)} refers to itself; make the benchmark again.")


@contextlib.contextmanager
def open_at(path: Path, model: Path) -> Iterator[None]:
    """Open a reference as if its model were at path ``model`` while the block runs; nothing is written."""
    token = _path_to_try.set((path.absolute(), str(model)))
    try:
        yield
    finally:
        _path_to_try.reset(token)


def model_path(path: Path, raw: bytes) -> str:
    """The current path of a reference's model, which need not exist.

    Raises:
        CheckpointError: the reference is damaged or refers to itself.
    """
    model, _, _ = _read_content(path, raw)
    if exists(model) and Path(model).resolve() == path.resolve():  # noqa: PTH110 - as above
        raise _make_cycle_error(path)
    return model


def resolve_model_path(reference: str) -> str:
    """The path of the model if ``reference`` is the path of a reference file; else ``reference`` itself."""
    with contextlib.suppress(MergingError, OSError, ValueError):
        path = locate(reference)
        if path.suffix == SUFFIX and is_reference(path, raw := path.read_bytes()):
            return _read_content(path, raw)[0]
    return reference


def recorded_path(path: Path) -> str:
    """The path at which the model of a reference was found again; empty if it was never moved."""
    with contextlib.suppress(MergingError, OSError, ValueError), _moved_path_file(path).open("rb") as file:
        model = parse_json(file.read(MAX_REFERENCE_BYTES), printable(path.name)).get("model")
        return model if isinstance(model, str) else ""
    return ""


def record_path(path: Path, model: Path | None) -> None:
    """Store the current path of a reference's model; None removes it, so that the path in the reference counts."""
    if model is None:
        _moved_path_file(path).unlink(missing_ok=True)
    else:
        write_json(_moved_path_file(path), {"model": str(model)})
    os.utime(path)  # so that caches read the reference again


def _moved_path_file(path: Path) -> Path:
    return path.with_name(f"{path.name}{MOVED_SUFFIX}")
