"""Tables as CSV: what is stored comes back as it was, and what is exported holds no formula."""

from __future__ import annotations

import csv
import gzip
import io
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from merging.base.errors import StoreError
from merging.base.files import tables
from merging.base.files.tables import (
    Columns,
    Frames,
    csv_bytes,
    find_table_file,
    read_columns,
    read_table,
    table_file,
    unconverted_tables,
    write_table,
)

Packed = tuple[Path, dict[str, str], pd.DataFrame]
HOSTILE = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "plain", "a=b", ""]


def test_no_exported_text_or_column_begins_as_a_formula_does() -> None:
    table = pd.DataFrame({"=cmd": HOSTILE, "number": [-1.5] * len(HOSTILE), "on": [True] * len(HOSTILE)})
    head, *rows = csv.reader(io.StringIO(csv_bytes(table).decode(), newline=""))
    assert head == ["'=cmd", "number", "on"]
    assert [row[0] for row in rows] == [f"'{text}" if text[:1] in "=+-@\t\r" and text else text for text in HOSTILE]
    assert {row[1] for row in rows} == {"-1.5"}


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_a_stored_table_comes_back_with_its_types_and_texts(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "text": ["NA", "1", "", "a,b\n\"c\"", "x\r=1"], "number": [0.1 + 0.2, float("nan"), -0.0, 1e300, 1.0],
            "count": [1, 2, 3, 4, 2**53 + 1], "flag": [True, False, True, False, True],
        }
    )  # fmt: skip
    schema = write_table(tmp_path, "any_table", table)
    pd.testing.assert_frame_equal(read_table(tmp_path / table_file("any_table"), schema), table, check_exact=True)
    assert table_file("scores") == "scores.csv"


@pytest.mark.parametrize("line", ["1", "1,2,3"])
def test_a_line_with_too_few_or_too_many_cells_is_refused(line: str, tmp_path: Path) -> None:
    (path := tmp_path / "scores.csv").write_text(f"a,b\n1,2\n{line}\n")
    with pytest.raises(ValueError, match="zip"):
        read_table(path, {"a": "int64", "b": "int64"})


@pytest.mark.parametrize("texts", [[], ["", "x", ""], ["x" * 200_000]])
def test_empty_texts_and_tables_and_long_texts_come_back(texts: list[str], tmp_path: Path) -> None:
    table = pd.DataFrame({"text": pd.Series(texts, dtype="str")})
    schema = write_table(tmp_path, "texts", table)
    pd.testing.assert_frame_equal(read_table(tmp_path / table_file("texts"), schema), table)


@pytest.mark.parametrize("name", ["", "../x", "Upper", "a b", "x" * 81])
def test_a_table_has_a_plain_name(name: str) -> None:
    with pytest.raises(StoreError, match="A table cannot be called"):
        table_file(name)


@pytest.fixture
def packed(tmp_path: Path) -> Packed:
    """A folder with one packed table, its schema, and the table."""
    table = pd.DataFrame({"expert": ["NA", "a,b", "1"] * 50, "value": [0.1, float("nan"), -0.0] * 50})
    schema = write_table(tmp_path, "numbers", table)
    plain = tmp_path / table_file("numbers")
    plain.with_name("numbers.csv.gz").write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()
    return tmp_path, schema, table


def test_a_packed_table_reads_as_the_plain_one(packed: Packed) -> None:
    folder, schema, table = packed
    assert find_table_file(files_in(folder), "numbers") == "tables/numbers.csv.gz"
    pd.testing.assert_frame_equal(
        read_table(folder / find_table_file(files_in(folder), "numbers"), schema), table, check_exact=True
    )
    write_table(folder, "numbers", table)
    assert find_table_file(files_in(folder), "numbers") == "tables/numbers.csv"  # what was computed here comes first
    assert find_table_file(files_in(folder), "others") == "tables/others.csv"


def test_a_table_is_packed_on_request_unless_it_could_not_be_read_back(
    packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, schema, table = packed
    for name in ("one", "other"):
        assert write_table(tmp_path, name, table, packed=True) == schema
    paths = [tmp_path / find_table_file(files_in(tmp_path), name) for name in ("one", "other")]
    assert {path.suffix for path in paths} == {".gz"} and paths[0].read_bytes() == paths[1].read_bytes()
    pd.testing.assert_frame_equal(read_table(paths[0], schema), table, check_exact=True)
    monkeypatch.setattr(tables, "UNPACKED_LIMIT", 100)
    write_table(tmp_path, "large", table, packed=True)
    assert find_table_file(files_in(tmp_path), "large") == "tables/large.csv"


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-9], lambda b: b[:20], lambda b: b"no gzip", lambda b: b[:30] + b"x" + b[31:]]
)
def test_a_damaged_packed_table_is_named(damage: Callable[[bytes], bytes], packed: Packed) -> None:
    folder, schema, _ = packed
    path = folder / "tables" / "numbers.csv.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        StoreError, match=r"tables/numbers\.csv\.gz cannot be unpacked \(.+\). Put the whole file back\."
    ):
        read_table(path, schema)


def test_a_packed_table_is_unpacked_no_further_than_the_limit(packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, schema, _ = packed
    monkeypatch.setattr(tables, "UNPACKED_LIMIT", 1 << 20)
    path = folder / "tables" / "numbers.csv.gz"
    path.write_bytes(gzip.compress(b"expert,value\n" + b"a,1\n" * (1 << 22)))
    tracemalloc.start()
    try:
        with pytest.raises(StoreError, match=r"numbers\.csv\.gz unpacks to more than 1,048,576 bytes; refused"):
            read_table(path, schema)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def columns() -> dict[str, Any]:
    """Values of every kind, with those of which a text is hard to write."""
    numbers = [0.1 + 0.2, float("nan"), -0.0, 1e300, 1e16, 1e-5, float("inf"), 123456789.125, 5e-324]
    return {
        "text": ["NA", "1", "", 'a,b\n"c"', "=1+1", "é", " x", "'", "nan"], "number": numbers, "count": range(9),
        "flag": [n > 1 for n in numbers], "one": "x", "density": 0.2, "all": 2**53 + 1,
        "array": np.linspace(0, 1, 9), "mask": np.arange(9) > 4,
    }  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"return": "a\rb"}])
def test_columns_are_written_as_pandas_writes_them(more: dict[str, str], tmp_path: Path) -> None:
    plain = Columns(columns() | more)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    schema = write_table(tmp_path / "a", "any_table", plain)
    assert schema == write_table(tmp_path / "b", "any_table", plain.frame())
    paths = [tmp_path / folder / table_file("any_table") for folder in "ab"]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert csv_bytes(plain) == csv_bytes(plain.frame()) != paths[0].read_bytes()
    back = read_columns(paths[0], schema)
    assert csv_bytes(back) == csv_bytes(plain)
    pd.testing.assert_frame_equal(back.frame(), pd.DataFrame(columns() | more), check_exact=True)


def test_rows_become_columns_also_where_there_are_none() -> None:
    assert Columns.from_rows(("a", "b"), [("x", 1), ("y", 2)]).frame().to_dict("list") == {"a": ["x", "y"], "b": [1, 2]}
    assert list(Columns.from_rows(("a", "b"), []).frame()) == ["a", "b"]


def test_frames_are_a_dictionary_of_data_frames() -> None:
    frame = pd.DataFrame({"b": [1]})

    def frames() -> Frames:
        return Frames({"a": Columns({"n": [1, 2]}), "b": frame})

    for made in (dict(frames()), {**frames()}, frames().copy(), frames() | {}, dict(frames().items())):
        assert [type(table) for table in made.values()] == [pd.DataFrame] * 2
    assert [len(table) for table in frames().values()] == [2, 1] and frames()["b"] is frame
    assert (
        len(frames().get("a")) == len(frames().pop("a")) == 2 and frames().get("c") is frames().pop("c", None) is None
    )
    asked = frames()
    assert asked["a"] is asked["a"] and isinstance(asked, dict) and list(asked) == ["a", "b"]
    assert isinstance(unconverted_tables(frames())["a"], Columns) and unconverted_tables({"b": frame})["b"] is frame
    with pytest.raises(KeyError):
        frames()["c"]
