"""Hugging Face data sets on disk: a column of images and one of labels, in parquet files or arrow streams.

No code of a data set is imported or run. A feature is the type of a column, such as image or class label; features are
taken from the files' own metadata, or from ``dataset_info.json``.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from merging.base.errors import TaskError
from merging.base.text import first_few, printable
from merging.images.data_sets.class_list import read_listed_names
from merging.images.data_sets.image_references import ImageReference
from merging.images.data_sets.labeled_images import DataSet, Labels
from merging.images.data_sets.table_files import TableFile, extract_image
from merging.images.data_sets.table_layouts import INFO, Tables, read_description
from merging.images.preprocess import MAX_BYTES, read_image

IMAGE_TYPE, LABEL_TYPE = "Image", "ClassLabel"  # types of features
USUAL_NAMES = {
    IMAGE_TYPE: ("image", "images", "img", "jpg", "jpeg", "png", "webp"),
    LABEL_TYPE: ("label", "labels", "fine_label", "cls"),
}


class TableData(DataSet):
    """A column of images and one of labels; rows come in batches."""

    kind = "Hugging Face data set"

    def __init__(self, tables: Tables, image: str | None = None, label: str | None = None) -> None:
        self._name, self._root = tables.name, Path(os.path.realpath(tables.root))
        self._files = {part: [TableFile(file) for file in files] for part, files in tables.parts.items()}
        features = self._read_features(next(iter(self._files.values()))[0])
        images, labels = (
            _choose_column(features, *choice, tables.name) for choice in ((IMAGE_TYPE, image), (LABEL_TYPE, label))
        )
        self._image_column, self._label_column = images.name, labels.name
        self._notes = [*tables.notes, *images.notes, *labels.notes]
        self._first_indices: dict[str, list[int]] = {}  # part -> the first index of each file, and the number of images
        self.parts: Mapping[str, Labels] = {part: self._read_labels(part) for part in tables.parts}
        feature_names = features[self._label_column].get("names")
        if isinstance(feature_names, list) and feature_names:
            self.class_names = tuple(map(str, feature_names))
        else:
            self.class_names = read_listed_names(tables.root)
        self.lists_classes = self.class_names is not None
        self.notes = tuple(dict.fromkeys(self._notes))

    def _read_features(self, table: TableFile) -> dict[str, dict[str, Any]]:
        """{column: its feature in the data set's description}."""
        schema, described = table.read_schema(), table.file.with_name(INFO)
        raw = (schema.metadata or {}).get(b"huggingface")
        try:
            features = json.loads(raw)["info"]["features"] if raw else {}
        except (ValueError, KeyError, TypeError, RecursionError):
            features = {}
        if not features and described.exists():
            features = read_description(described).get("features") or {}
        if not isinstance(features, dict):
            features = {}
        valid = {name: feature for name, feature in features.items() if isinstance(feature, dict)}
        return {name: valid.get(name, {}) for name in schema.names}

    def _read_labels(self, part: str) -> Labels:
        files = [self._read_file_labels(table) for table in self._files[part]]
        self._first_indices[part] = list(accumulate((len(labels) for labels in files), initial=0))
        return np.concatenate([np.empty(0, np.int64), *files])

    def _read_file_labels(self, table: TableFile) -> Labels:
        labels = [np.empty(0, np.int64)]
        for column in table.read_batches(self._label_column):
            if column.null_count or not _is_whole_number(column.type):
                raise TaskError(
                    f"{self._name}: column {self._label_column!r} of {table.file.name} must be whole numbers, or true "
                    f"and false, without gaps; it is {column.type}{' with gaps' * bool(column.null_count)}."
                )
            if str(column.type) == "bool":
                self._notes.append(f"Labels of column {self._label_column!r} are false and true, taken as 0 and 1.")
            labels.append(column.to_numpy(zero_copy_only=False).astype(np.int64))
        return np.concatenate(labels)

    def read_images(self, part: str, indices: Sequence[int]) -> Iterator[tuple[int, Image.Image | TaskError]]:
        firsts = self._first_indices[part]
        for number, table in enumerate(self._files[part]):
            file_indices = [index for index in indices if firsts[number] <= index < firsts[number + 1]]
            rows = [index - firsts[number] for index in file_indices]
            if file_indices:
                for index, row, cell in zip(
                    file_indices, rows, table.read_cells(self._image_column, rows), strict=True
                ):
                    yield index, self._read_cell(cell, f"{table.file.name}, row {row}")

    def find_reference(self, part: str, index: int) -> ImageReference | None:
        firsts = self._first_indices[part]
        number = bisect_right(firsts, index) - 1
        table = self._files[part][number]
        return ImageReference(table.file, index - firsts[number], self._image_column) if table.is_parquet else None

    def _read_cell(self, cell: Any, label: str) -> Image.Image | TaskError:
        """The image in a cell: bytes, or the path of a file inside the folder."""
        try:
            if isinstance(cell, dict) and cell.get("bytes") is None and cell.get("path"):
                return read_image(self._read_file(str(cell["path"])), label)
            data = extract_image(cell, label)
            return data if isinstance(data, TaskError) else read_image(data, label)
        except TaskError as error:
            return error

    def _read_file(self, name: str) -> bytes:
        """The bytes of an image file beside the table. Raises TaskError if it is not in the data set's folder."""
        target = Path(os.path.realpath(self._root / name))
        if not target.is_relative_to(self._root) or not target.is_file() or target.stat().st_size > MAX_BYTES:
            raise TaskError(f"the image {printable(name, 60)!r} is neither in the table nor in its folder.")
        return target.read_bytes()


@dataclass(frozen=True, slots=True)
class ChosenColumn:
    """The column that was chosen, and notes on the choice."""

    name: str
    notes: tuple[str, ...] = ()


def _choose_column(
    features: Mapping[str, Mapping[str, Any]], kind: str, column_name: str | None, name: str
) -> ChosenColumn:
    """The column of a kind: the chosen one, the only one, or the one with the most usual name."""
    if column_name is not None:
        if column_name not in features:
            raise TaskError(f"{name} has no column {column_name!r}; it has {first_few(features)}.")
        return ChosenColumn(column_name)
    usual = USUAL_NAMES[kind]
    columns = [column for column, feature in features.items() if feature.get("_type") == kind]
    columns = columns or [column for column in usual if column in features][:1]
    if len(columns) == 1:
        return ChosenColumn(columns[0])
    content, option = ("images", "image_column") if kind == IMAGE_TYPE else ("labels", "label_column")
    if not columns:
        columns_text = first_few(features)
        raise TaskError(f"{name}: none of its columns ({columns_text}) is known to hold {content}; give {option}.")
    if usual[0] in columns:
        other_columns = first_few(column for column in columns if column != usual[0])
        return ChosenColumn(
            usual[0], (f"Column {usual[0]!r} gives the {content}; {option} can name {other_columns} instead.",)
        )
    raise TaskError(f"{name} has several columns of {content}: {first_few(columns)}. Choose one with {option}.")


def _is_whole_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))
