"""A small file that says where a model is, and what of it counts: benchmarks keep it in place of a copy of the model.

It is JSON with the path of the model's file or folder; ``like``, the file beside it of the pretrained model whose names
the tensors get; and the metadata that a copy would have. It counts only in a folder called models, as benchmarks have.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from os.path import exists
from pathlib import Path

from merging.checkpoints.checkpoint import Checkpoint
from merging.checkpoints.families import TEXT_TOWER
from merging.checkpoints.references import locate
from merging.checkpoints.views import CheckpointView, renamed, under_names_of
from merging.errors import CheckpointError, MergingError
from merging.files.records import write_json
from merging.files.strict_json import parse
from merging.text import printable

MARK, VERSION = "mergescope_model_reference", 1
FOLDER, SUFFIX = "models", ".json"
MOST = 1 << 20  # bytes of such a file
Open = Callable[[Path], Checkpoint]  # under canonical names

_opening: ContextVar[tuple[Path, ...]] = ContextVar("opening", default=())  # such files that are being followed


class ReferencedModel(CheckpointView):
    """A model that lies elsewhere, without its text tower: the tensors that a copy of it would have."""

    def __init__(self, inner: Checkpoint, raw: bytes, metadata: Mapping[str, str], label: str) -> None:
        names = {each.name: each.name for each in inner.parameters if each.part != TEXT_TOWER}
        super().__init__(inner, renamed(inner, names), same=False)
        self.metadata, self.label, self._crc = dict(metadata), label, zlib.crc32(raw)

    def state(self) -> tuple[int, ...] | None:
        """Another one than the file's own: its digest is of fewer tensors, or of more."""
        state = self.inner.state()
        return None if state is None else (*state, self._crc)


def write_reference(path: Path, model: Path, metadata: Mapping[str, str], like: str = "") -> None:
    """Write where a model is."""
    write_json(path, {MARK: VERSION, "model": str(model), "like": like, "metadata": dict(metadata)})


def is_reference(path: Path, raw: bytes) -> bool:
    """Whether the content of a file is such a reference, in a folder where it counts."""
    return path.parent.name == FOLDER and len(raw) <= MOST and f'"{MARK}"'.encode() in raw[:100]


def open_reference(path: Path, raw: bytes, label: str, open_canonical: Open) -> Checkpoint:
    """The model that a file refers to.

    Raises:
        CheckpointError: the file is damaged or refers to itself, or the model is missing or damaged.
    """
    file = printable(path.name)
    content = parse(raw, file)
    place, like, metadata = (content.get(name) for name in ("model", "like", "metadata"))
    texts = isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    if content.get(MARK) != VERSION or not isinstance(place, str) or not isinstance(like, str) or not texts:
        raise CheckpointError(f"{file} does not say where a model is; make the benchmark again.")
    if not exists(place):  # noqa: PTH110 - Path.exists raises for a path that no disk can have
        raise CheckpointError(
            f"{file} refers to {printable(place, 300)}, which is missing: fetch it again, or make the benchmark again."
        )
    with _once(path):
        inner = open_canonical(Path(place))
        if like:
            if Path(like).name != like:
                raise CheckpointError(f"{file} names a model outside of its folder; refused.")
            inner = under_names_of(open_canonical(path.parent / like), inner)
    assert isinstance(metadata, dict)
    return ReferencedModel(inner, raw, metadata, label)


@contextlib.contextmanager
def _once(path: Path) -> Iterator[None]:
    """Refuse a file that refers to itself, by way of whatever others."""
    above, own = _opening.get(), path.resolve()
    if own in above:
        raise CheckpointError(f"{printable(path.name)} refers to itself; make the benchmark again.")
    token = _opening.set((*above, own))
    try:
        yield
    finally:
        _opening.reset(token)


def place_of_model(reference: str) -> str:
    """The path in a file that refers to a model, if a reference is to such a file; else the reference itself."""
    with contextlib.suppress(MergingError, OSError, ValueError):
        path = locate(reference)
        if path.suffix == SUFFIX and is_reference(path, raw := path.read_bytes()):
            return str(json.loads(raw)["model"])
    return reference
