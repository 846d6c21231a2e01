"""Hover texts of marks: a template, filled with each row of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from string import Formatter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from viz.figure_text import clean_text, count, percent, plural, real, role_name, safe_text, short_name

LAYER_TEXT = "{section}, {part} ({role:role})"  # a tensor's position in the model


class Field(NamedTuple):
    """A text, and the column whose value follows it (None for no value), with its format."""

    text: str
    column: str | None
    format: str


def decimal(number: float, digits: int = 2) -> str:
    """0.123 as "0.12", with a minus sign as wide as a digit; "—" where there is no number."""
    return f"{number:.{digits}f}".replace("-", "−") if math.isfinite(number) else "—"


def format_points(difference: float) -> str:
    """A difference of shares in percentage points, with its sign: 0.0123 as "+1.2"; "—" where there is none."""
    return f"{100 * difference:+.1f}" if math.isfinite(difference) else "—"


VALUE_FORMATS: Mapping[str, Callable[..., str]] = {
    "text": safe_text,
    "plain": clean_text,  # for alt texts, which are not markup
    "short": short_name,
    "percent": percent,
    "count": count,
    "real": real,
    "general": "{:g}".format,
    "points": format_points,
    "decimal": decimal,
    "role": lambda role: safe_text(role_name(role)),
    "plural": lambda number, *noun: plural(int(number), " ".join(noun)),
    "known": lambda value: "",  # shows nothing, but in brackets it leaves the part out where the value is missing
}


def hover_texts(rows: pd.DataFrame, template: str, **formats: Callable[[Any], str]) -> list[str]:
    """The template filled with each row. ``{column:format argument}`` names one of ``VALUE_FORMATS`` or of ``formats``.

    A value without a format is escaped text. A part in [brackets] is left out of a row that lacks one of its values:
    no such column, no number, an empty text. Raises KeyError if another value has no column.
    """
    texts = [""] * len(rows)
    for optional, fields in _parse_template(template):
        columns = [field.column for field in fields if field.column is not None]
        if optional and not set(columns) <= set(rows):
            continue
        values = {name: rows[name].tolist() for name in columns}
        complete_rows = [
            index
            for index in range(len(texts))
            if not (optional and any(_is_absent(values[name][index]) for name in columns))
        ]
        written = [
            [field.text] * len(complete_rows) if field.column is None else
            [field.text + text for text in _format_values(
                field.format, [values[field.column][row] for row in complete_rows], formats
            )]
            for field in fields
        ]  # fmt: skip
        for index, pieces in zip(complete_rows, zip(*written, strict=True), strict=True):
            texts[index] += "".join(pieces)
    return texts


def describe_extreme(
    table: pd.DataFrame, value: str, template: str, smallest: bool = False, **formats: Callable[[Any], str]
) -> str:
    """The template filled with the row of the largest number, or of the ``smallest``; empty if no row has a number."""
    numbers = table[value].to_numpy(np.float64)
    finite = np.flatnonzero(np.isfinite(numbers))
    if not len(finite):
        return ""
    row = finite[(numbers[finite].argmin if smallest else numbers[finite].argmax)()]
    return hover_texts(table.iloc[[row]], template, **formats)[0]


def describe_extremes(
    table: pd.DataFrame, value: str, template: str, **formats: Callable[[Any], str]
) -> tuple[str, str]:
    """The template filled with the row of the largest number, and with that of the least."""
    most, least = (describe_extreme(table, value, template, smallest, **formats) for smallest in (False, True))
    return most, least


def _format_values(format: str, values: list[Any], formats: Mapping[str, Callable[[Any], str]]) -> list[str]:
    """The values in a format; texts that repeat in thousands of rows are formatted once."""
    name, *arguments = format.split(" ")
    write = formats.get(name) or VALUE_FORMATS[name or "text"]
    numbers = [int(argument) if argument.isdecimal() else argument for argument in arguments]
    formatted = {text: write(text, *numbers) for text in {value for value in values if isinstance(value, str)}}
    return [formatted[value] if isinstance(value, str) else write(value, *numbers) for value in values]


def _is_absent(value: Any) -> bool:
    return value is None or value is pd.NA or value == "" or (isinstance(value, float) and not math.isfinite(value))


@lru_cache(512)
def _parse_template(template: str) -> list[tuple[bool, list[Field]]]:
    """The parts of a template, each with whether it is in brackets."""
    parts = []
    for index, part in enumerate(template.replace("]", "[").split("[")):
        fields = [Field(text, column, format or "") for text, column, format, _ in Formatter().parse(part)]
        parts += [(index % 2 == 1, fields)] if fields else []
    return parts
