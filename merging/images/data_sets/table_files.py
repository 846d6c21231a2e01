"""Parquet files and arrow streams: their columns in batches, and single cells without unpacking the whole file.

They are read with pyarrow alone. Arrow streams are not memory-mapped: a file that is truncated meanwhile would crash
the process.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from merging.base.errors import TaskError
from merging.base.text import printable
from merging.images.preprocess import MAX_BYTES

PARQUET_MAGIC = b"PAR1"
BATCH_ROWS = 256  # rows of a parquet file that are in memory at a time
MAX_GROUP_BYTES = 1 << 32  # of a row group, which is unpacked at once


def is_parquet(file: Path) -> bool:
    """Whether a file begins as parquet does."""
    with file.open("rb") as start:
        return start.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC


class TableFile:
    """One parquet file, or one arrow stream. Methods raise TaskError for a damaged file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with _convert_errors(file):
            self.is_parquet = is_parquet(file)

    def read_schema(self) -> Any:
        """Its pyarrow schema."""
        with _convert_errors(self.file), self._open() as reader:
            return reader.schema_arrow if self.is_parquet else reader.schema

    def read_batches(self, column: str) -> Iterator[Any]:
        """The pyarrow arrays of a column, one in memory at a time."""
        with _convert_errors(self.file), self._open() as reader:
            if self.is_parquet:
                groups = range(reader.metadata.num_row_groups)
                for group in groups:
                    yield from self._read_group(reader, group, column)
                return
            for batch in reader:
                yield batch.column(column)

    def read_cells(self, column: str, rows: Iterable[int]) -> Iterator[Any]:
        """The cells of a column at rows in increasing order; parquet's other row groups are not read.

        Other orders are possible, but every step back reads the row group or the arrow stream again.
        """
        with _convert_errors(self.file), self._open() as reader:
            starts = self._find_starts(reader)
            group, first, arrays, array = -1, 0, iter(()), None
            for row in rows:
                row_group = bisect_right(starts, row) - 1
                # The end of an arrow stream is not known yet.
                if not 0 <= row_group < len(starts) - 1 if self.is_parquet else row < 0:
                    raise TaskError(f"{self.file.name} has no row {row}; it has {starts[-1]}.")
                if row_group != group or row < first:
                    group, first, array = row_group, starts[row_group], None
                    arrays = self._read_group(reader, group, column) if self.is_parquet else self.read_batches(column)
                while array is None or row >= first + len(array):
                    first += 0 if array is None else len(array)
                    array = next(arrays, None)
                    if array is None:
                        raise TaskError(f"{self.file.name} has no row {row}; it has {first}.")
                yield array[row - first].as_py()

    def _find_starts(self, reader: Any) -> list[int]:
        """The first row of every row group, and the number of rows; an arrow stream is one group of unknown length."""
        if not self.is_parquet:
            return [0]
        metadata = reader.metadata
        return list(accumulate((metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)), initial=0))

    def _read_group(self, reader: Any, group: int, column: str) -> Iterator[Any]:
        if reader.metadata.row_group(group).total_byte_size > MAX_GROUP_BYTES:
            raise TaskError(f"{self.file.name} has a row group of more than {MAX_GROUP_BYTES:,} bytes; refused.")
        for batch in reader.iter_batches(batch_size=BATCH_ROWS, row_groups=[group], columns=[column]):
            yield batch.column(0)

    def _open(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        return pq.ParquetFile(self.file) if self.is_parquet else pa.ipc.open_stream(pa.OSFile(str(self.file)))


def extract_image(cell: Any, label: str) -> bytes | TaskError:
    """The bytes of an image file in a cell, which is bytes or ``{"bytes": …}``; an error if the cell has no image."""
    data = cell.get("bytes") if isinstance(cell, Mapping) else cell
    if not isinstance(data, bytes):
        return TaskError(f"{printable(label)} holds no image.")
    if len(data) > MAX_BYTES:
        return TaskError(f"{printable(label)} is {len(data):,} bytes; at most {MAX_BYTES:,} are read.")
    return data


@contextlib.contextmanager
def _convert_errors(file: Path) -> Iterator[None]:
    """Raise any error of reading a file as a TaskError of one sentence."""
    import pyarrow as pa

    try:
        yield
    except TaskError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = printable(str(error).split("\n", maxsplit=1)[0], 100)
        raise TaskError(f"{file.name} is damaged, or not an arrow or parquet file: {reason}.") from None
