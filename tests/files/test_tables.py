"""Tables as CSV: what is stored comes back as it was, and what is exported holds no formula."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pandas as pd
import pytest

from merging.errors import StoreError
from merging.files.tables import csv_bytes, read_table, table_file, write_table

HOSTILE = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "plain", "a=b", ""]


def test_no_exported_text_or_column_begins_as_a_formula_does() -> None:
    table = pd.DataFrame({"=cmd": HOSTILE, "number": [-1.5] * len(HOSTILE), "on": [True] * len(HOSTILE)})
    head, *rows = csv.reader(io.StringIO(csv_bytes(table).decode(), newline=""))
    assert head == ["'=cmd", "number", "on"]
    assert [row[0] for row in rows] == [f"'{text}" if text[:1] in "=+-@\t\r" and text else text for text in HOSTILE]
    assert {row[1] for row in rows} == {"-1.5"}


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


@pytest.mark.parametrize("name", ["", "../x", "Upper", "a b", "x" * 81])
def test_a_table_has_a_plain_name(name: str) -> None:
    with pytest.raises(StoreError, match="A table cannot be called"):
        table_file(name)
