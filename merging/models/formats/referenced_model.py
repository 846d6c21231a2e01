"""A small file that says where a model is, and what of it counts: benchmarks keep it in place of a copy of the model.

It is JSON with the path of the model's file or folder; ``like``, the file beside it of the pretrained model whose names
the tensors get; and the metadata that a copy would have. It counts only in a folder called models, as benchmarks have.
Where the model was moved to is kept in a file beside it, so that the reference stays as it was written.
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
from merging.models.model_references import locate

MARK, VERSION = "mergescope_model_reference", 1
FOLDER, SUFFIX = "models", ".json"
MOVED_SUFFIX = ".place"  # behind the name of a reference: the file that says where its model is now
MOST = 1 << 20  # bytes of such a file
Open = Callable[[Path], Checkpoint]  # under canonical names

_opening: ContextVar[tuple[Path, ...]] = ContextVar("opening", default=())  # such files that are being followed
_trial_path: ContextVar[tuple[Path, str] | None] = ContextVar("tried", default=None)  # one of them, and another place


class ReferencedModel(CheckpointView):
    """A model that lies elsewhere, without its text tower: the tensors that a copy of it would have."""

    def __init__(self, inner: Checkpoint, raw: bytes, metadata: Mapping[str, str]) -> None:
        names = {each.name: each.name for each in inner.parameters if each.part != TEXT_TOWER}
        super().__init__(inner, rename_tensors(inner, names), keeps_digest=False)
        self.metadata, self._crc = dict(metadata), zlib.crc32(raw)

    def state(self) -> tuple[int, ...] | None:
        """Another one than the file's own: its digest is of fewer tensors, or of more."""
        state = self.inner.state()
        return None if state is None else (*state, self._crc)


def write_reference(path: Path, model: Path, metadata: Mapping[str, str], names_from: str = "") -> None:
    """Write where a model is."""
    write_json(path, {MARK: VERSION, "model": str(model), "like": names_from, "metadata": dict(metadata)})


def is_reference(path: Path, raw: bytes) -> bool:
    """Whether the content of a file is such a reference, in a folder where it counts."""
    return path.parent.name == FOLDER and len(raw) <= MOST and f'"{MARK}"'.encode() in raw[:100]


def open_reference(path: Path, raw: bytes, open_canonical: Open) -> Checkpoint:
    """The model that a file refers to.

    Raises:
        CheckpointError: the file is damaged or refers to itself, or the model is missing or damaged.
    """
    file = printable(path.name)
    place, like, metadata = _content(path, raw)
    if not exists(place):  # noqa: PTH110 - Path.exists raises for a path that no disk can have
        raise CheckpointError(
            f"{file} refers to {printable(place, 300)}, which is missing: fetch it again, name the folder that "
            f"holds it now ({find_command(path.parent.parent)}), or make the benchmark again."
        )
    with _refuse_cycle(path):
        inner = open_canonical(Path(place))
        if like:
            if Path(like).name != like:
                raise CheckpointError(f"{file} names a model outside of its folder; refused.")
            inner = rename_to_pretrained(open_canonical(path.parent / like), inner)
    return ReferencedModel(inner, raw + place.encode(), metadata)


def _content(path: Path, raw: bytes) -> tuple[str, str, dict[str, str]]:
    """Where the model is now, the name of the file whose names its tensors get, and its metadata."""
    file = printable(path.name)
    content = parse_json(raw, file)
    place, like, metadata = (content.get(name) for name in ("model", "like", "metadata"))
    texts = isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    if content.get(MARK) != VERSION or not isinstance(place, str) or not isinstance(like, str) or not texts:
        raise CheckpointError(f"{file} does not say where a model is; make the benchmark again.")
    tried = _trial_path.get()
    assert isinstance(metadata, dict)
    return tried[1] if tried and tried[0] == path.absolute() else recorded_path(path) or place, like, metadata


def find_command(folder: Path) -> str:
    """The command that finds what a benchmark refers to; FOLDER is left to the reader."""
    return f"python -m merging benchmark find {printable(shlex.quote(str(folder.absolute())), 1000)} FOLDER"


@contextlib.contextmanager
def _refuse_cycle(path: Path) -> Iterator[None]:
    """Refuse a file that refers to itself, by way of whatever others."""
    above, own = _opening.get(), path.resolve()
    if own in above:
        raise _circular(path)
    token = _opening.set((*above, own))
    try:
        yield
    finally:
        _opening.reset(token)


def _circular(path: Path) -> CheckpointError:
    return CheckpointError(f"{printable(path.name)} refers to itself; make the benchmark again.")


@contextlib.contextmanager
def open_at(path: Path, model: Path) -> Iterator[None]:
    """Let a reference be opened as if its model were at another place; nothing is written."""
    token = _trial_path.set((path.absolute(), str(model)))
    try:
        yield
    finally:
        _trial_path.reset(token)


def model_path(path: Path, raw: bytes) -> str:
    """Where the model of a reference is now, be it there or not.

    Raises:
        CheckpointError: the file is damaged or refers to itself.
    """
    place, _, _ = _content(path, raw)
    if exists(place) and Path(place).resolve() == path.resolve():  # noqa: PTH110 - as above
        raise _circular(path)
    return place


def resolve_model_path(reference: str) -> str:
    """The path in a file that refers to a model, if a reference is to such a file; else the reference itself."""
    with contextlib.suppress(MergingError, OSError, ValueError):
        path = locate(reference)
        if path.suffix == SUFFIX and is_reference(path, raw := path.read_bytes()):
            return _content(path, raw)[0]
    return reference


def recorded_path(path: Path) -> str:
    """Where the model of a reference was found again; empty if it never was looked for."""
    with contextlib.suppress(MergingError, OSError, ValueError), _note(path).open("rb") as file:
        place = parse_json(file.read(MOST), printable(path.name)).get("model")
        return place if isinstance(place, str) else ""
    return ""


def record_path(path: Path, model: Path | None) -> None:
    """Note where the model of a reference is now; None: where the reference says."""
    if model is None:
        _note(path).unlink(missing_ok=True)
    else:
        write_json(_note(path), {"model": str(model)})
    os.utime(path)  # whatever was read of it before is read again


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}{MOVED_SUFFIX}")
