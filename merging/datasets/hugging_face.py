"""Hugging Face data sets on disk: arrow files as `save_to_disk` writes them, or the parquet files of a downloaded one.

Read with pyarrow alone; no code of the data set is imported or run. Features are taken from the files' own metadata, or
from ``dataset_info.json``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from merging.clip.preprocess import MAX_BYTES, read_image
from merging.datasets.base import WHOLE, DataSet, Labels, part_of
from merging.errors import CheckpointError, TaskError
from merging.formats.configs import read_json
from merging.text import first_few, printable

PARQUET = b"PAR1"
SHARD = re.compile(r"(?P<split>.+?)-\d{5}-of-\d{5}(?:-[0-9a-f]+)?\.parquet")
ROWS = 256  # rows of a parquet file that are in memory at a time
MAX_GROUP = 1 << 32  # bytes of a row group, which is unpacked at once
IMAGE, LABEL = "Image", "ClassLabel"  # types of features
USUAL_NAMES = {IMAGE: ("image", "images", "img"), LABEL: ("label", "labels", "fine_label")}
Tables = Mapping[str, Sequence[Path]]


def tables(path: Path) -> Tables:
    """Part -> its files, if a path holds a Hugging Face data set; empty if not.

    Raises:
        TaskError: the description beside the files is damaged, or names files elsewhere.
    """
    if path.is_file():
        return {WHOLE: [path]} if _is_parquet(path) else {}
    if (path / "state.json").exists():
        return {WHOLE: _arrow(path)}
    if (path / "dataset_dict.json").exists():
        splits = _json(path / "dataset_dict.json").get("splits", [])
        names = [name for name in splits if isinstance(name, str) and re.fullmatch(r"[\w.-]+", name)]
        return _by_part({name: _arrow(path / name) for name in names}, path.name)
    by_split: dict[str, list[Path]] = {}
    for folder in (path, path / "data", path / "default"):
        for file in sorted(folder.glob("*.parquet")):
            shard = SHARD.fullmatch(file.name)
            by_split.setdefault(shard["split"] if shard else file.stem, []).append(file)
        if len(by_split) == 1:
            return {part_of(split) or WHOLE: files for split, files in by_split.items()}
        if by_split:
            return _by_part(by_split, path.name)
    return {}


def _by_part(splits: Mapping[str, list[Path]], name: str) -> Tables:
    """The files of the splits that are named like parts; the others are ignored. Raises TaskError if there is none."""
    parts: dict[str, list[Path]] = {}
    for split, files in splits.items():
        if part := part_of(split):
            parts.setdefault(part, []).extend(files)
    if not parts:
        raise TaskError(
            f"{name} has the splits {first_few(splits)}; at least one named train, validation or test is needed."
        )
    return parts


def _arrow(folder: Path) -> list[Path]:
    files = _json(folder / "state.json").get("_data_files", [])
    names = [entry.get("filename") for entry in files if isinstance(entry, dict)]
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise TaskError(f"{folder.name}/state.json does not say which arrow files belong to it.")
    return [folder / str(name) for name in names]


def _json(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except (CheckpointError, OSError) as error:
        raise TaskError(f"{path.parent.name}/{error}") from None
    if content is None:
        raise TaskError(f"{path.parent.name} has no {path.name}.")
    return content


class TableData(DataSet):
    """A column of images and one of labels; rows come in batches."""

    kind = "Hugging Face data set"

    def __init__(self, path: Path, files: Tables, image: str | None, label: str | None) -> None:
        self._name, self._root, self._files = path.name, Path(os.path.realpath(path)), files
        first = next(iter(files.values()))[0]
        features = self._features(first)
        self._image = _column(features, IMAGE, image, path.name)
        self._label = _column(features, LABEL, label, path.name)
        named = features.get(self._label, {}).get("names")
        if isinstance(named, list) and named:
            self.class_names = tuple(map(str, named))
        self.parts: Mapping[str, Labels] = {part: self._labels(part) for part in files}

    def _features(self, file: Path) -> dict[str, dict[str, Any]]:
        """Column -> its feature, as the data set describes it."""
        schema = _schema(file)
        raw = (schema.metadata or {}).get(b"huggingface")
        try:
            features = json.loads(raw)["info"]["features"] if raw else {}
        except (ValueError, KeyError, TypeError, RecursionError):
            features = {}
        if not features and (file.parent / "dataset_info.json").exists():
            features = _json(file.parent / "dataset_info.json").get("features") or {}
        if not isinstance(features, dict):
            features = {}
        valid = {name: feature for name, feature in features.items() if isinstance(feature, dict)}
        return {name: valid.get(name, {}) for name in schema.names}

    def _labels(self, part: str) -> Labels:
        labels = [np.empty(0, np.int64)]
        for file in self._files[part]:
            for batch in _batches(file, [self._label]):
                column = batch.column(0)
                if column.null_count or not _is_whole(column.type):
                    raise TaskError(f"{self._name}: column {self._label!r} must be whole numbers, without gaps.")
                labels.append(column.to_numpy(zero_copy_only=False).astype(np.int64))
        return np.concatenate(labels)

    def pictures(self, part: str, at: Sequence[int]) -> Iterator[tuple[int, Image.Image | TaskError]]:
        indices = iter(at)
        index = next(indices, None)
        row = 0
        for file in self._files[part]:
            for batch in _batches(file, [self._image]):
                column = batch.column(0)
                while index is not None and index < row + len(column):
                    yield index, self._picture(column[index - row].as_py(), f"{file.name}, row {index}")
                    index = next(indices, None)
                row += len(column)
                if index is None:
                    return

    def _picture(self, cell: Any, label: str) -> Image.Image | TaskError:
        """The image in a cell: bytes, or the path of a file inside the folder."""
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        try:
            if data is None and isinstance(cell, dict) and cell.get("path"):
                return read_image(self._outside_file(str(cell["path"])), label)
            if not isinstance(data, bytes):
                raise TaskError(f"{printable(label)} holds no image.")
            if len(data) > MAX_BYTES:
                raise TaskError(f"{printable(label)} has {len(data):,} bytes; at most {MAX_BYTES:,} are read.")
            return read_image(data, label)
        except TaskError as error:
            return error

    def _outside_file(self, name: str) -> bytes:
        target = Path(os.path.realpath(self._root / name))
        if not target.is_relative_to(self._root) or not target.is_file() or target.stat().st_size > MAX_BYTES:
            raise TaskError(f"the image {printable(name, 60)!r} is neither in the table nor in its folder.")
        return target.read_bytes()


def _column(features: Mapping[str, Mapping[str, Any]], kind: str, chosen: str | None, name: str) -> str:
    """The column of a kind: the one that the caller has chosen, the only one, or the one with a usual name."""
    if chosen is not None:
        if chosen not in features:
            raise TaskError(f"{name} has no column {chosen!r}; it has {first_few(features)}.")
        return chosen
    columns = [column for column, feature in features.items() if feature.get("_type") == kind]
    columns = columns or [column for column in USUAL_NAMES[kind] if column in features][:1]
    if len(columns) == 1:
        return columns[0]
    what, option = ("images", "image_column") if kind == IMAGE else ("labels", "label_column")
    if not columns:
        raise TaskError(f"{name}: none of its columns ({first_few(features)}) is known to hold {what}; give {option}.")
    raise TaskError(f"{name} has several columns of {what}: {first_few(columns)}. Choose one with {option}.")


def _is_whole(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind))


def _schema(file: Path) -> Any:
    with _reading(file), _open(file) as reader:
        return reader.schema_arrow if hasattr(reader, "schema_arrow") else reader.schema


def _batches(file: Path, columns: list[str]) -> Iterator[Any]:
    """Record batches with those columns, one in memory at a time."""
    with _reading(file), _open(file) as reader:
        if hasattr(reader, "iter_batches"):
            groups = (reader.metadata.row_group(number) for number in range(reader.metadata.num_row_groups))
            if any(group.total_byte_size > MAX_GROUP for group in groups):
                raise TaskError(f"{file.name} has a row group of more than {MAX_GROUP:,} bytes; refused.")
            yield from reader.iter_batches(batch_size=ROWS, columns=columns)
            return
        for batch in reader:
            yield batch.select(columns)


def _is_parquet(file: Path) -> bool:
    with file.open("rb") as start:
        return start.read(len(PARQUET)) == PARQUET


def _open(file: Path) -> Any:
    """A reader of a parquet file, or of an arrow stream."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.ParquetFile(file) if _is_parquet(file) else pa.ipc.open_stream(pa.OSFile(str(file)))


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Raise whatever goes wrong with a file as a TaskError of one sentence."""
    import pyarrow as pa

    try:
        yield
    except TaskError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = printable(str(error).split("\n", maxsplit=1)[0], 100)
        raise TaskError(f"{file.name} is damaged, or no arrow or parquet file: {reason}.") from None
