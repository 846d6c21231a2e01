"""One mapping in a lesson's file: its fields, checked when they are read, with errors that name the mapping."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from merging.base.errors import LessonError
from merging.base.files.plain_yaml import read_text_field
from merging.base.text import did_you_mean, first_few
from merging.teaching import plain_text

NAME_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,39}")
MAX_TEXT_CHARACTERS = 4000  # of one text


class LessonFields:
    """A mapping that may have only the fields ``known``; ``description`` names it in messages.

    Raises:
        LessonError: the data are not a mapping, or have another field; every method raises it for a wrong value.
    """

    def __init__(self, data: Any, description: str, known: Sequence[str]) -> None:
        if not isinstance(data, dict):
            raise LessonError(
                f"{description} is a mapping with the fields {', '.join(known)}; got {reprlib.repr(data)}."
            )
        for field in data:
            if field not in known:
                near = did_you_mean(str(field), known)
                raise LessonError(
                    f"{description} has an unknown field {reprlib.repr(field)}.{near} Known: {', '.join(known)}."
                )
        self.data: Mapping[str, Any] = data
        self.description = description

    def has(self, field: str) -> bool:
        """Whether the field is present and not null."""
        return self.data.get(field) is not None

    def get(self, field: str) -> Any:
        """The unchecked value of a field; None if it is absent."""
        return self.data.get(field)

    def read_text(self, field: str, needed: bool = False) -> str:
        """A text to show, without HTML, images and links; empty if the field is absent."""
        value = self.data.get(field)
        if value is None or value == "":
            if needed:
                raise LessonError(f"{self.description} has no {field}. Write one.")
            return ""
        text = read_text_field(value, f"{field} of {self.description}", "lesson").strip()
        if len(text) > MAX_TEXT_CHARACTERS:
            raise LessonError(
                f"{field} of {self.description} has {len(text):,} characters; at most {MAX_TEXT_CHARACTERS:,}."
            )
        if problem := plain_text.find_text_problem(text):
            raise LessonError(f"{field} of {self.description} {problem}.")
        return text

    def read_number(
        self, field: str, low: float = -math.inf, high: float = math.inf, default: float | None = None
    ) -> float:
        """A field that is a finite number in [low, high]."""
        value = self.data.get(field, default)
        return self.check_number(value, field, low, high)

    def check_number(self, value: Any, field: str, low: float = -math.inf, high: float = math.inf) -> float:
        """A value within a field that is a finite number in [low, high]."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise LessonError(f"{field} of {self.description} is a number; got {reprlib.repr(value)}.")
        if not low <= value <= high:
            raise LessonError(f"{field} of {self.description} is from {low:g} to {high:g}; got {value:g}.")
        return float(value)

    def read_choice(self, field: str, choices: Iterable[str], default: str = "") -> str:
        """A field that is one of these words."""
        value, known = self.data.get(field, default), list(choices)
        if value not in known:
            near = did_you_mean(str(value), known)
            raise LessonError(
                f"{field} of {self.description} is one of {', '.join(known)}; got {reprlib.repr(value)}.{near}"
            )
        return str(value)

    def read_mapping(self, field: str) -> Mapping[Any, Any]:
        """A field that is a mapping; empty if it is absent."""
        value = self.data.get(field)
        if value is not None and not isinstance(value, dict):
            raise LessonError(f"{field} of {self.description} is a mapping; got {reprlib.repr(value)}.")
        return value or {}

    def read_list(self, field: str) -> Sequence[Any]:
        """A field that is a list; empty if it is absent."""
        value = self.data.get(field)
        if value is not None and not isinstance(value, list):
            raise LessonError(f"{field} of {self.description} is a list; got {reprlib.repr(value)}.")
        return value or []

    def read_texts(self, field: str) -> tuple[str, ...]:
        """A field that is a list of texts to show."""
        pieces = (
            LessonFields({"text": entry}, f"{field} of {self.description}", ("text",))
            for entry in self.read_list(field)
        )
        return tuple(piece.read_text("text", needed=True) for piece in pieces)

    def check_name(self, value: Any, field: str) -> str:
        """A value that is a name: small letters, digits and underscores."""
        if not isinstance(value, str) or not NAME_PATTERN.fullmatch(value):
            raise LessonError(
                f"{field} of {self.description} is a name of small letters, digits and underscores; got "
                f"{reprlib.repr(value)}."
            )
        return value

    def read_address(self, field: str) -> dict[str, str]:
        """A field that maps keys of the address to values, in the form that addresses have."""
        words = {}
        for key, value in self.read_mapping(field).items():
            name = self.check_name(key, f"a key of {field}")
            words[name] = format_address_value(value, f"{name} in {field} of {self.description}")
        return words

    def find_only_field(self, fields: Sequence[str]) -> str:
        """The name of the only one of these fields that is present."""
        present = [way for way in fields if self.has(way)]
        if len(present) != 1:
            got = first_few(present) or "none of them"
            raise LessonError(f"{self.description} has exactly one of {', '.join(fields)}; got {got}.")
        return present[0]


def format_address_value(value: Any, description: str) -> str:
    """A value in the form that addresses have: true and false in small letters, numbers in the shortest form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return read_text_field(value, description, "lesson")
