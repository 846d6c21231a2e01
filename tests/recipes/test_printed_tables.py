"""Published figures against a second transcription of the papers' tables: swapped and mistyped values differ."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from merging.recipes.papers import published_figures
from merging.recipes.papers.published_figures import (
    IN_DOMAIN_TASKS,
    OUT_OF_DOMAIN_TASKS,
    PUBLISHED_FILE,
    Figure,
    read_figures,
)

TABLES = Path(__file__).with_name("printed_tables.txt")
# Sources of which rows are one average, so that nothing in them can be swapped.
AVERAGES_ONLY = {"TSV-M", "WUDI", "FusionBench", "E-WEMoE", "experts of TALL masks"}
Key = tuple[str, str, str]  # source, model, name


def second_reading() -> dict[Key, dict[str, float]]:
    """{row: {column: value}} of the tables that were typed a second time."""
    rows: dict[Key, dict[str, float]] = {}
    for block in TABLES.read_text("utf-8").split("\n\n")[1:]:
        head, *lines = block.strip().split("\n")
        place, columns = head.split(": ")
        source, model = place.rsplit(", ", 1)
        for line in lines:
            name, values = line.rsplit(": ", 1)
            row = rows.setdefault((source, model, name), {})
            for column, value in zip(columns.split(), values.split(), strict=True):
                assert row.setdefault(column, float(value)) == float(value), (name, column)
    return rows


def first_reading(path: Path = PUBLISHED_FILE) -> dict[Key, dict[str, float]]:
    """The same of the file that the program reads."""
    return {
        (figure.source or f"experts of {figure.experts}", figure.model, figure.name): values(figure)
        for figures in read_figures(path).values()
        for figure in figures
    }


def values(figure: Figure) -> dict[str, float]:
    printed = figure.printed
    averages = zip(published_figures.AVERAGES, printed[: len(published_figures.AVERAGES)], strict=True)
    row = {name: value for name, value in averages if value is not None}
    row |= dict(zip(IN_DOMAIN_TASKS, printed.tasks, strict=False)) | dict(
        zip(OUT_OF_DOMAIN_TASKS, printed.outside, strict=False)
    )
    return row if figure.seconds is None else row | {"seconds": figure.seconds}


def is_average(key: Key, row: dict[str, float]) -> bool:
    return key[0] in AVERAGES_ONLY and set(row) == {"in_domain"}


def differences(first: dict[Key, dict[str, float]]) -> list[tuple[Key, str]]:
    """Every value of the first reading that the second does not have in the same place."""
    second = second_reading()
    from_tables = {key: row for key, row in first.items() if not is_average(key, row)}
    assert set(from_tables) == set(second)
    return [
        (key, column)
        for key, row in from_tables.items()
        for column, value in row.items()
        if second[key].get(column) != value
    ]


def test_every_value_is_the_one_that_the_papers_table_prints() -> None:
    first = first_reading()
    assert differences(first) == []
    assert sum(len(row) for key, row in first.items() if not is_average(key, row)) > 1500


def test_rows_of_one_average_are_few() -> None:
    averages = [key for key, row in first_reading().items() if is_average(key, row)]
    assert {source for source, *_ in averages} == AVERAGES_ONLY and len(averages) == 13


@pytest.mark.parametrize(("one", "other"), [("SUN397", "Cars"), ("RESISC45", "EuroSAT"), ("MNIST", "DTD")])
def test_two_swapped_tasks_are_noticed(tmp_path: Path, one: str, other: str) -> None:
    """Their average stays what it is."""
    with PUBLISHED_FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    row = next(row for row in rows if row["name"] == "LOT Merging")
    row[one], row[other] = row[other], row[one]
    path = tmp_path / "published.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.DictWriter(file, list(row))
        lines.writeheader()
        lines.writerows(rows)
    key = ("LOT, Tables 1 and 2", "ViT-B/32", "LOT Merging")
    assert differences(first_reading(path)) == [(key, one), (key, other)]
