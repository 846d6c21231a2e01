"""Calls of the command ``published`` whose answers are read as JSON."""

from __future__ import annotations

import json
from typing import Any

from merging.cli.main import main


def call(capsys: Any, *words: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the JSON on stdout, and stderr."""
    code = main(["published", *words, "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out or "{}"), printed.err


def run(capsys: Any, *words: str, key: str = "smoke") -> dict[str, Any]:
    """The table of a whole run."""
    code, table, err = call(capsys, "run", key, "--yes", *words)
    assert code == 0, err
    return table


def keys(table: dict[str, Any]) -> list[str]:
    """The keys of a table's rows."""
    return [row["key"] for row in table["rows"]]


def row(table: dict[str, Any], key: str) -> dict[str, Any]:
    """A row of a table."""
    return next(each for each in table["rows"] if each["key"] == key)


def accuracies(table: dict[str, Any], key: str) -> list[float]:
    """Those of a row, task by task."""
    return [line["ours"] for line in row(table, key)["tasks"]]
