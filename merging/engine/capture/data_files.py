"""Files of layer inputs and of gradients: safetensors files whose tensors are read on demand."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from merging.base.errors import NeedsError
from merging.base.files.disk import explain_os_errors
from merging.base.files.paths import open_regular
from merging.base.progress import Meter
from merging.base.text import first_few, printable
from merging.engine.capture.row_store import LayerRows
from merging.methods.moments import Moments
from merging.methods.slot import Gradients
from merging.models.digest_cache import DIGESTS
from merging.models.formats.safetensors import SafetensorsCheckpoint, save

ROWS, GRAM, SUM, ENERGY = "rows/", "gram/", "sum/", "energy/"  # prefixes of the tensors of a file of layer inputs
LAYER_INPUTS, GRADIENTS = "mergescope layer inputs 1", "mergescope gradients 1"  # formats, in the metadata
WRITERS = {LAYER_INPUTS: "save_layer_inputs", GRADIENTS: "save_gradients"}
TITLES = {LAYER_INPUTS: "layer inputs", GRADIENTS: "gradients"}
# Kinds of gradients: the word in files and calls, and the statistic that methods declare.
KINDS = {"fisher": Gradients.FISHER, "sensitivity": Gradients.SENSITIVITY}


class DataFile:
    """An opened file of layer inputs or of gradients. ``name`` is the file's name, for messages."""

    def __init__(self, path: str | os.PathLike[str], expected: str) -> None:
        self.name = printable(Path(path).name, 80)
        self._file = SafetensorsCheckpoint(open_regular(Path(path)), self.name, self.name)
        self._fingerprint = self._file.file_fingerprint()
        actual = self._file.metadata.get("format", "")
        if actual != expected:
            content = f"it holds {TITLES[actual]}" if actual in TITLES else "its metadata names another format"
            raise NeedsError(
                f"{self.name} is not a file of {TITLES[expected]}: {content}. "
                f"Write it with merging.{WRITERS[expected]}."
            )

    @property
    def model(self) -> str:
        """The digest of the checkpoint that the data belong to; empty if the file does not name it."""
        return self._file.metadata.get("model", "")

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors in the file."""
        return self._file.nbytes

    def has_changed(self) -> bool:
        """Whether the file has been overwritten since it was opened."""
        return self._file.file_fingerprint() != self._fingerprint

    def digest(self, meter: Meter | None = None) -> str:
        """A digest of the tensors and of the metadata, except the model's digest."""
        metadata = {key: value for key, value in self._file.metadata.items() if key != "model"}
        numbers = DIGESTS.digest(self._file, meter)
        return hashlib.sha256(json.dumps([numbers, metadata], sort_keys=True).encode()).hexdigest()

    def read_mapping(self, key: str) -> dict[str, Any]:
        """The mapping that the metadata store under ``key``. Raises NeedsError if the entry is not a mapping."""
        try:
            value = json.loads(self._file.metadata.get(key, "{}"))
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict) or any(isinstance(entry, list | dict) for entry in value.values()):
            raise NeedsError(f"{self.name}: {key} in its metadata is not a mapping of names; the file is damaged.")
        return value


class LayerInputFile(DataFile, Mapping[str, Moments]):
    """A file of layer inputs, {parameter name: moments}, each read on demand.

    Raises:
        NeedsError: it is another kind of file, or its tensors do not match its metadata.
        CheckpointError: it is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, LAYER_INPUTS)
        # {name: number of rows}, and {name: the name under which the same rows are stored}
        self._counts, self._shared_names = self.read_mapping("counts"), self.read_mapping("same")
        for name in self:
            self._check(name)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        stored = (key.partition("/")[2] for key in self._file.infos if key.startswith((ROWS, GRAM, ENERGY)))
        return tuple(dict.fromkeys((*stored, *self._shared_names)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Moments:
        if name not in self._names:
            raise KeyError(name)
        stored_name = self._shared_names.get(name, name)
        if ROWS + stored_name in self._file.infos:
            return Moments.from_rows(self._file.read(ROWS + stored_name))
        gram_or_energy = self._file.read((GRAM if GRAM + stored_name in self._file.infos else ENERGY) + stored_name)
        has_sum = SUM + stored_name in self._file.infos
        total = self._file.read(SUM + stored_name) if has_sum else torch.zeros(len(gram_or_energy), dtype=torch.float64)
        return Moments.from_sums(self._counts[stored_name], total.double(), gram_or_energy.double())

    def _check(self, name: str) -> None:
        """Raise NeedsError if an entry lacks a part, or the shapes of its parts do not match."""
        stored_name, infos = self._shared_names.get(name, name), self._file.infos
        rows, gram, energy, total = (infos.get(f"{kind}{stored_name}") for kind in (ROWS, GRAM, ENERGY, SUM))
        count = self._counts.get(stored_name)
        has_count = type(count) is int and count > 0
        if rows is not None:
            is_valid = len(rows.shape) == 2
        elif gram is not None:
            is_square = len(gram.shape) == 2 and gram.shape[0] == gram.shape[1]
            is_valid = is_square and has_count and total is not None and total.shape == gram.shape[-1:]
        elif energy is not None:
            is_valid = len(energy.shape) == 1 and has_count and (total is None or total.shape == energy.shape)
        else:
            is_valid = False
        if not is_valid:
            raise NeedsError(
                f"{self.name} is damaged: its entry {printable(str(name), 80)!r} is neither rows (n, d), nor a Gram "
                "matrix (d, d) with a sum and a count, nor an energy (d,) with a count."
            )


class GradientMeans(dict[str, Tensor]):
    """Means over examples of a loss's squared (``fisher``) or absolute (``sensitivity``) gradients, {tensor: (*S)}."""

    def __init__(self, means: Mapping[str, Tensor], kind: str, examples: int, model: str = "") -> None:
        super().__init__(means)
        self.kind, self.examples, self.model = kind, examples, model


class GradientMeansFile(DataFile, Mapping[str, Tensor]):
    """A file of gradients, {tensor: (*S)}, each read on demand.

    Raises:
        NeedsError: it is another kind of file.
        CheckpointError: it is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, GRADIENTS)
        self.kind = self._file.metadata.get("kind", "")
        if self.kind not in KINDS:
            raise NeedsError(f"{self.name}: its kind is {' or '.join(KINDS)}; got {printable(self.kind, 40)!r}.")

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._file.infos:
            raise KeyError(name)
        return self._file.read(name)

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        """The scalars [start, stop) of a tensor, (stop - start,)."""
        return self._file.read_flat(name, start, stop)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading the tensor."""
        return self._file.infos[name].shape

    def __contains__(self, name: object) -> bool:
        return name in self._file.infos

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.infos)

    def __len__(self) -> int:
        return len(self._file.infos)


def save_layer_inputs(path: str | os.PathLike[str], rows: Mapping[str, Any]) -> None:
    """Write the result of ``capture``, or {parameter name: rows (n, d)}, as a safetensors file for ``layer_inputs``.

    Rows that enter several parameters are stored once.

    Raises:
        NeedsError: ``rows`` is not such a mapping.
        StoreError: the file cannot be written.
    """
    if not isinstance(rows, Mapping) or not rows:
        raise NeedsError("Layer inputs are a mapping {parameter name: rows}, as merging.capture returns it.")
    tensors: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    shared_names: dict[str, str] = {}
    first_names: dict[int, str] = {}  # by the identity of the entry
    for name, entry in rows.items():
        if not isinstance(entry, Moments | Tensor) or (isinstance(entry, Tensor) and entry.ndim != 2):
            raise NeedsError(f"Layer inputs of {name!r} are moments, or a tensor (n, d); got {type(entry).__name__}.")
        if (first_name := first_names.setdefault(id(entry), name)) != name:
            shared_names[name] = first_name
            continue
        moments = entry if isinstance(entry, Moments) else Moments.from_rows(entry.detach())
        counts[name] = moments.count
        tensors |= _list_file_tensors(name, moments)
    metadata = {"format": LAYER_INPUTS, "counts": json.dumps(counts), "same": json.dumps(shared_names)}
    if isinstance(rows, LayerRows):
        metadata |= {"examples": str(rows.examples)} | ({"model": rows.model} if rows.model else {})
    with explain_os_errors(Path(path).name):
        save(Path(path), tensors, metadata)


def _list_file_tensors(name: str, moments: Moments) -> dict[str, Tensor]:
    """The tensors that a file stores for one parameter: rows (n, d), a Gram matrix (d, d) and a sum (d,), or, for a
    scale, the energy (d,) of each channel and a sum (d,)."""
    if moments.is_diagonal:
        return {ENERGY + name: moments.energy(), SUM + name: moments.total()}
    if moments.rows is not None:
        return {ROWS + name: moments.rows}
    return {GRAM + name: moments.gram(), SUM + name: moments.total()}


def save_gradients(path: str | os.PathLike[str], means: GradientMeans) -> None:
    """Write the result of ``gradient_means`` as a safetensors file for ``gradients``.

    Raises:
        NeedsError: ``means`` is something else.
        StoreError: the file cannot be written.
    """
    if not isinstance(means, GradientMeans | GradientMeansFile) or not means:
        raise NeedsError("save_gradients writes the result of merging.gradient_means.")
    metadata = {"format": GRADIENTS, "kind": means.kind}
    if isinstance(means, GradientMeans):
        metadata |= {"examples": str(means.examples)} | ({"model": means.model} if means.model else {})
    with explain_os_errors(Path(path).name):
        save(Path(path), dict(means), metadata)


def open_layer_inputs(source: Any, expert: str) -> Mapping[str, Any]:
    """One expert's layer inputs as a mapping: a path is opened, a mapping is returned unchanged.

    Raises:
        NeedsError: ``source`` is neither.
    """
    if isinstance(source, str | os.PathLike):
        return LayerInputFile(source)
    if not isinstance(source, Mapping):
        raise NeedsError(
            "Layer inputs are a mapping {expert: {parameter name: rows}}, or {expert: file}; those of "
            f"{expert!r} are a {type(source).__name__}."
        )
    return source


def open_gradients(source: Any, expert: str, kind: Gradients) -> Mapping[str, Tensor]:
    """One expert's gradients {tensor: values of its shape (*S)}, of the kind that a method needs.

    Raises:
        NeedsError: they are of another kind, or not a mapping.
    """
    means = GradientMeansFile(source) if isinstance(source, str | os.PathLike) else source
    if not isinstance(means, Mapping):
        raise NeedsError(
            f"Gradients of {expert!r} are a file, or a result of merging.gradient_means; got {type(means).__name__}."
        )
    actual_kind = getattr(means, "kind", "")  # empty if the caller passes a plain mapping
    if actual_kind and KINDS.get(actual_kind) != kind:
        needed_kind = next(key for key, value in KINDS.items() if value == kind)
        names = first_few([getattr(means, "name", expert)])
        raise NeedsError(f"The gradients of {expert!r} ({names}) are of kind {actual_kind}; {needed_kind} is needed.")
    return means
