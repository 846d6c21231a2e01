"""References to the encoded images of data sets, and their bytes, read one image at a time.

A benchmark can store references instead of pixels: a row of a parquet file, or a byte range of a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from merging.base.errors import CheckpointError, TaskError
from merging.base.files.paths import open_regular
from merging.base.text import printable
from merging.images.data_sets.table_files import TableFile, extract_image
from merging.images.preprocess import MAX_BYTES


@dataclass(frozen=True, slots=True)
class ImageReference:
    """The position of one encoded image: a row of a parquet file, or a byte range of a file.

    ``row`` counts from 0 in its file, and ``column`` is the column of images. ``row`` is None for an image that is the
    ``size`` bytes from ``offset`` of the file, such as a member of a tar, or a whole file.
    """

    file: Path
    row: int | None = None
    column: str = ""
    offset: int = 0
    size: int = 0

    @property
    def label(self) -> str:
        """The file and position, for messages."""
        return f"{self.file.name}, {f'byte {self.offset:,}' if self.row is None else f'row {self.row}'}"


def read_encoded(references: Iterable[ImageReference]) -> Iterator[bytes | TaskError]:
    """The bytes of each image in the order of the references; an image that cannot be read gives its error instead.

    Rows of a parquet file should be in increasing order: then each row group with such a row is unpacked once, and
    memory holds a few hundred rows.
    """
    for (file, column), group in groupby(references, key=lambda reference: (reference.file, reference.column)):
        if column:
            yield from _read_rows(file, column, list(group))
        else:
            yield from _read_bytes(file, group)


def _read_rows(file: Path, column: str, references: list[ImageReference]) -> Iterator[bytes | TaskError]:
    number = 0
    try:
        for cell in TableFile(file).read_cells(column, [reference.row or 0 for reference in references]):
            number += 1
            yield extract_image(cell, references[number - 1].label)
    except TaskError as error:
        yield from [error] * (len(references) - number)


def _read_bytes(file: Path, references: Iterable[ImageReference]) -> Iterator[bytes | TaskError]:
    try:
        descriptor = open_regular(file)
    except CheckpointError as error:
        yield from (TaskError(str(error)) for _ in references)
        return
    try:
        for reference in references:
            yield _read_range(descriptor, reference)
    finally:
        os.close(descriptor)


def _read_range(descriptor: int, reference: ImageReference) -> bytes | TaskError:
    label = printable(reference.label)
    if reference.size > MAX_BYTES:
        return TaskError(f"{label} is {reference.size:,} bytes; at most {MAX_BYTES:,} are read.")
    try:
        data = os.pread(descriptor, reference.size, reference.offset)
    except OSError as error:
        return TaskError(f"{label} cannot be read: {error.strerror}.")
    if len(data) < reference.size:
        return TaskError(f"{label}: the file ends within this image. The file is incomplete; fetch it again.")
    return data
