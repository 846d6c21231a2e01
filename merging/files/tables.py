"""Tables as CSV: stored in a run's folder with a schema, or exported with no cell that a spreadsheet runs.

Large tables of the bundled library, and those of runs with many rows for pictures alone, lie packed, as
``<name>.csv.gz``; what else users compute is never packed.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from merging.errors import StoreError
from merging.text import printable

if TYPE_CHECKING:
    import pandas as pd

SCORES = "scores"
TABLE_NAME = re.compile(r"[a-z0-9_]{1,80}")
PACKED = ".gz"
UNPACKED_LIMIT = 1 << 26  # bytes that a packed table may have when it is unpacked
csv.field_size_limit(UNPACKED_LIMIT)  # Python's own is 128 kB

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_bytes(table: pd.DataFrame) -> bytes:
    """The table as CSV; a text that a spreadsheet would run as a formula gets an apostrophe in front."""
    safe = table.copy()
    for name in safe.columns:
        if safe[name].dtype.kind not in "biufc":
            safe[name] = [_inert(value) for value in safe[name]]
    safe.columns = [_inert(name) for name in safe.columns]
    out = io.StringIO()
    safe.to_csv(out, index=False, quoting=_quoting(safe), lineterminator="\n")
    return out.getvalue().encode()


def _inert(value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def _quoting(table: pd.DataFrame) -> Literal[0, 1]:
    """What to quote: all cells if a text holds a carriage return, which would stay bare and end its line."""
    columns = [table.columns, *(table[name] for name in table.columns if table[name].dtype.kind not in "biufc")]
    bare = any("\r" in str(text) for column in columns for text in column)
    return csv.QUOTE_ALL if bare else csv.QUOTE_MINIMAL


def table_file(name: str) -> str:
    """The path of a table in its run's folder."""
    if not TABLE_NAME.fullmatch(name):
        raise StoreError(f"A table cannot be called {name!r}; use lowercase letters, digits and underscores.")
    return "scores.csv" if name == SCORES else f"tables/{name}.csv"


def stored_table(folder: Path, name: str) -> str:
    """The path of a table in its run's folder as it lies there: packed only if there is no plain one."""
    plain = table_file(name)
    packed = f"{plain}{PACKED}"
    return packed if (folder / packed).exists() and not (folder / plain).exists() else plain


def write_table(folder: Path, name: str, table: pd.DataFrame, *, packed: bool = False) -> dict[str, str]:
    """Write a table as CSV; returns the schema {column: dtype} with which ``read_table`` restores it.

    A table to be ``packed`` is, unless ``read_table`` would refuse to unpack it. Equal tables give equal bytes.
    """
    path = folder / table_file(name)
    path.parent.mkdir(exist_ok=True)
    text = table.to_csv(index=False, quoting=_quoting(table), lineterminator="\n").encode()
    if packed and len(text) <= UNPACKED_LIMIT:
        path.with_name(path.name + PACKED).write_bytes(gzip.compress(text, mtime=0))
    else:
        path.write_bytes(text)
    return {str(column): _kind(dtype.kind) for column, dtype in table.dtypes.items()}


def _kind(code: str) -> str:
    return {"f": "float64", "i": "int64", "u": "int64", "b": "bool"}.get(code, "str")


def read_table(path: Path, schema: Mapping[str, str]) -> pd.DataFrame:
    """A table from CSV by its schema, plain or packed; an expert called "1" or "NA" stays text.

    Raises:
        StoreError: a packed table is damaged, or has more than ``UNPACKED_LIMIT`` bytes.
    """
    import pandas as pd

    content = unpacked(path) if path.suffix == PACKED else path.read_bytes()
    columns = _columns(content.decode("utf-8-sig"))
    return pd.DataFrame({name: _typed(columns[name], kind) for name, kind in schema.items()})


def _columns(text: str) -> dict[str, list[str]]:
    """The cells of each column of a CSV text, read without pandas, which takes ten times longer for a small table.

    Raises:
        ValueError: a line has more or fewer cells than the first.
    """
    head, *rows = csv.reader(io.StringIO(text, newline=""))
    cells = list(zip(*filter(None, rows), strict=True)) or [()] * len(head)  # without blank lines, as pandas reads
    return {name: list(column) for name, column in zip(head, cells, strict=True)}


def unpacked(path: Path) -> bytes:
    """The bytes of a packed table or array; a file that would unpack to more than the limit is read no further.

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


def _typed(cells: Sequence[str], kind: str) -> Any:
    """A column of a kind of ``_kind``."""
    import pandas as pd

    if kind == "bool":
        return np.array([cell == "True" for cell in cells], np.bool_)
    if kind == "str":
        return pd.Series(cells, dtype="str")
    return np.array([float(cell or "nan") for cell in cells] if kind == "float64" else [*map(int, cells)], kind)
