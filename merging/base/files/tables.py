"""Tables as CSV: stored in a run's folder with a schema, or exported with no cell that a spreadsheet would execute.

A table is a DataFrame or ``Columns``, which let a merge be stored and exported without loading pandas. Large tables of
the bundled library, and tables with many rows that only charts use, are packed as ``<name>.csv.gz``. All other tables
are plain CSV.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Container, ItemsView, Iterator, Mapping, Sequence, ValuesView
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from merging.base.errors import StoreError
from merging.base.text import printable

if TYPE_CHECKING:
    import pandas as pd

SCORES = "scores"
TABLE_NAME = re.compile(r"[a-z0-9_]{1,80}")
PACKED_SUFFIX = ".gz"
UNPACKED_LIMIT = 1 << 26  # bytes of a packed table after unpacking
csv.field_size_limit(UNPACKED_LIMIT)  # Python's own is 128 kB

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


class Columns(Mapping[str, NDArray[Any]]):
    """A tidy table as arrays (rows,) by column; texts are objects. A single value is repeated in every row."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        rows = next((len(values) for values in columns.values() if not _is_single(values)), 1)
        self._arrays = {name: _column_array(values, rows) for name, values in columns.items()}

    @classmethod
    def from_rows(cls, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Self:
        """The table with columns ``names`` and these rows, each as long as ``names``."""
        return cls(dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True)))

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def frame(self) -> pd.DataFrame:
        """The table as a DataFrame."""
        import pandas as pd

        texts = {name: pd.Series(values.tolist(), dtype="str") for name, values in self.items() if values.dtype == "O"}
        return pd.DataFrame({**self._arrays, **texts})


Table: TypeAlias = "Columns | pd.DataFrame"


def _is_single(values: object) -> bool:
    return isinstance(values, str) or not hasattr(values, "__len__")


def _column_array(values: Any, rows: int) -> NDArray[Any]:
    """A column (rows,) from the values of all rows, or from a single value."""
    cells = [values] * rows if _is_single(values) else values
    texts = any(isinstance(value, str) for value in cells)
    return np.array(cells, dtype=object) if texts else np.asarray(cells)


class Frames(dict[str, Any]):
    """Tables by name, as a dictionary of DataFrames, each of which is built on first access."""

    def __getitem__(self, name: str) -> pd.DataFrame:
        table: Table = super().__getitem__(name)
        if isinstance(table, Columns):
            table = table.frame()
            self[name] = table
        return table

    def __iter__(self) -> Iterator[str]:  # makes dict(frames) and {**frames} call __getitem__, which builds DataFrames
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        """The DataFrame of that name, or the default."""
        try:
            return self[name]
        except KeyError:
            return default

    def values(self) -> Any:
        """All DataFrames."""
        return ValuesView(self)

    def items(self) -> Any:
        """All DataFrames with their names."""
        return ItemsView(self)

    def pop(self, name: str, *default: Any) -> Any:
        """Remove a table and return it as a DataFrame."""
        self.get(name)
        return super().pop(name, *default)

    def to_dicts(self) -> dict[str, Table]:
        """The tables as they were added, DataFrames or ``Columns``."""
        return dict(super().items())


def unconverted_tables(tables: Mapping[str, pd.DataFrame]) -> Mapping[str, Table]:
    """The tables as they were added: ``Columns`` are not converted to DataFrames."""
    return tables.to_dicts() if isinstance(tables, Frames) else tables


def csv_bytes(table: Table) -> bytes:
    """The table as CSV; a text that a spreadsheet would execute as a formula is prefixed with an apostrophe."""
    if isinstance(table, Columns):
        texts = {name: values for name, values in table.items() if values.dtype == "O"}
        escaped = {name: [_escape_formula(value) for value in values] for name, values in texts.items()}
        return _csv_text(
            Columns({_escape_formula(name): escaped.get(name, values) for name, values in table.items()})
        ).encode()
    escaped_table = table.copy()
    for name in escaped_table.columns:
        if escaped_table[name].dtype.kind not in "biufc":
            escaped_table[name] = [_escape_formula(value) for value in escaped_table[name]]
    escaped_table.columns = [_escape_formula(name) for name in escaped_table.columns]
    buffer = io.StringIO()
    escaped_table.to_csv(buffer, index=False, quoting=_quoting_style(escaped_table), lineterminator="\n")
    return buffer.getvalue().encode()


def _escape_formula(value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def _csv_text(table: Columns) -> str:
    """The table as pandas writes it."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=_quoting_style(table), lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*map(_format_cells, table.values()), strict=True))
    return buffer.getvalue()


def _format_cells(values: NDArray[Any]) -> list[str]:
    """The texts of a column."""
    cells: list[str] = values.astype(str).tolist() if values.dtype.kind in "biuf" else values.tolist()
    return ["" if cell == "nan" else cell for cell in cells] if values.dtype.kind == "f" else cells


def _quoting_style(table: Table) -> Literal[0, 1]:
    """Which cells to quote: all if a text has a carriage return, which would end the line without quotes."""
    texts = [list(table), *(values for _, values in table.items() if values.dtype.kind not in "biufc")]
    has_return = any("\r" in str(text) for column in texts for text in column)
    return csv.QUOTE_ALL if has_return else csv.QUOTE_MINIMAL


def table_file(name: str) -> str:
    """The path of a table relative to its run's folder. Raises StoreError if a table cannot have that name."""
    if not TABLE_NAME.fullmatch(name):
        raise StoreError(f"A table cannot be called {name!r}; use lowercase letters, digits and underscores.")
    return "scores.csv" if name == SCORES else f"tables/{name}.csv"


def find_table_file(files: Container[str], name: str) -> str:
    """The path of a table among the ``files`` of its run: the packed one only if there is no plain one."""
    plain_path = table_file(name)
    packed_path = f"{plain_path}{PACKED_SUFFIX}"
    return packed_path if packed_path in files and plain_path not in files else plain_path


def write_table(folder: Path, name: str, table: Table, *, packed: bool = False) -> dict[str, str]:
    """Write a table as CSV; return the schema {column: dtype} with which ``read_table`` restores it.

    With ``packed`` the file is compressed, unless the table is larger than ``read_table`` would unpack. Equal tables
    produce equal bytes.
    """
    path = folder / table_file(name)
    path.parent.mkdir(exist_ok=True)
    if isinstance(table, Columns):
        text = _csv_text(table).encode()
    else:
        text = table.to_csv(index=False, quoting=_quoting_style(table), lineterminator="\n").encode()
    if packed and len(text) <= UNPACKED_LIMIT:
        path.with_name(path.name + PACKED_SUFFIX).write_bytes(gzip.compress(text, mtime=0))
    else:
        path.write_bytes(text)
    return {str(column): _schema_dtype(values.dtype.kind) for column, values in table.items()}


def _schema_dtype(code: str) -> str:
    return {"f": "float64", "i": "int64", "u": "int64", "b": "bool"}.get(code, "str")


def read_table(path: Path, schema: Mapping[str, str]) -> pd.DataFrame:
    """A table from CSV, plain or packed, by its schema; an expert called "1" or "NA" stays text.

    Raises:
        StoreError: a packed table is damaged, or has more than ``UNPACKED_LIMIT`` bytes.
    """
    return read_columns(path, schema).frame()


def read_columns(path: Path, schema: Mapping[str, str]) -> Columns:
    """The table that ``read_table`` reads, as ``Columns``, without loading pandas.

    Raises:
        StoreError: as ``read_table``.
    """
    content = read_unpacked(path) if path.suffix == PACKED_SUFFIX else path.read_bytes()
    columns = _parse_csv(content.decode("utf-8-sig"))
    return Columns({name: _parse_cells(columns[name], kind) for name, kind in schema.items()})


def _parse_csv(text: str) -> dict[str, list[str]]:
    """The cells of each column of a CSV text, read without pandas, which takes ten times longer for a small table.

    Raises:
        ValueError: a line has more or fewer cells than the first.
    """
    head, *rows = csv.reader(io.StringIO(text, newline=""))
    cells = list(zip(*filter(None, rows), strict=True)) or [()] * len(head)  # without blank lines, as pandas reads
    return {name: list(column) for name, column in zip(head, cells, strict=True)}


def read_unpacked(path: Path) -> bytes:
    """The bytes of a packed table or array; reading stops after ``UNPACKED_LIMIT`` bytes.

    Raises:
        StoreError: it is damaged, or has more than ``UNPACKED_LIMIT`` bytes.
    """
    label = printable(f"{path.parent.parent.name}/{path.parent.name}/{path.name}")
    try:
        with gzip.open(path) as file:
            content = file.read(UNPACKED_LIMIT + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise StoreError(f"The file {label} cannot be unpacked ({error}). Put the whole file back.") from None
    if len(content) > UNPACKED_LIMIT:
        raise StoreError(f"The file {label} unpacks to more than {UNPACKED_LIMIT:,} bytes; refused.")
    return content


def _parse_cells(cells: Sequence[str], kind: str) -> NDArray[Any]:
    """The cells as a column (rows,) of a dtype that ``_schema_dtype`` names."""
    if kind == "bool":
        return np.array([cell == "True" for cell in cells], np.bool_)
    if kind == "str":
        return np.array(cells, dtype=object)
    return np.array([float(cell or "nan") for cell in cells] if kind == "float64" else [*map(int, cells)], kind)
