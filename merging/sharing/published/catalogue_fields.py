"""Fields of the catalogue's JSON files, checked when they are read; errors name the file, entry and field."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any

from merging.base.errors import TaskError
from merging.base.text import did_you_mean

MISSING = object()  # the default of a field that must exist


class CatalogueFields:
    """The fields of one entry; ``refuse_unknown`` refuses those that were not read."""

    def __init__(self, data: Any, location: str) -> None:
        if not isinstance(data, Mapping):
            raise TaskError(f"{location}: a mapping is needed; got {short(data)}.")
        self._data, self._read_names, self.location = data, set[str](), location

    def read_text(self, name: str, default: Any = MISSING, *, empty: bool = False) -> str:
        """A text; with ``empty`` it may be empty."""
        value = self._read_value(name, default)
        if not isinstance(value, str) or not (value or empty or value == default):
            raise self.make_field_error(name, "text is needed", value)
        return value

    def read_optional_text(self, name: str) -> str | None:
        """A text, or null if unknown."""
        return self.read_text(name) if self.has(name) else self._read_value(name)

    def read_optional_count(self, name: str) -> int | None:
        """A whole number above zero, or null if unknown."""
        value = self._read_value(name)
        if value is not None and (type(value) is not int or value < 1):
            raise self.make_field_error(name, "a whole number above 0, or null, is needed", value)
        return value

    def read_count(self, name: str) -> int:
        """A whole number, at least zero."""
        value = self._read_value(name)
        if type(value) is not int or value < 0:
            raise self.make_field_error(name, "a whole number, at least 0, is needed", value)
        return value

    def read_choice(self, name: str, allowed: Collection[Any]) -> Any:
        """One of several values."""
        value = self._read_value(name)
        if value not in allowed:
            names = ", ".join(map(json.dumps, allowed))
            hint = did_you_mean(value, [each for each in allowed if isinstance(each, str)]) if value else ""
            raise self.make_field_error(
                name, f"one of {names} is needed", value, hint if isinstance(value, str) else ""
            )
        return value

    def has(self, name: str) -> bool:
        """Whether a field exists and is not null; a null counts as read."""
        self._read_names.add(name)
        return self._data.get(name) is not None

    def read_texts(self, name: str, default: Any = MISSING) -> tuple[str, ...]:
        """A list of texts without repetition."""
        value = self._read_value(name, default)
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) and each for each in value):
            raise self.make_field_error(name, "a list of texts is needed", value)
        if repeated := [each for each in value if value.count(each) > 1]:
            raise self.make_field_error(name, f"{repeated[0]!r} is repeated", value)
        return tuple(value)

    def read_mapping_field(self, name: str, default: Any = MISSING) -> Mapping[str, Any]:
        """A mapping with any values."""
        value = self._read_value(name, default)
        if not isinstance(value, Mapping):
            raise self.make_field_error(name, "a mapping is needed", value)
        return value

    def read_percents(self, name: str) -> dict[str, float]:
        """A mapping to numbers from 0 to 100."""
        value = self.read_mapping_field(name)
        for key, number in value.items():
            if type(number) not in {int, float} or not 0 <= number <= 100:
                raise self.make_field_error(f"{name}.{key}", "a number from 0 to 100 is needed", number)
        return dict(value)

    def read_entries(self, name: str) -> Iterator[CatalogueFields]:
        """The fields of each mapping in a list."""
        value = self._read_value(name)
        if not isinstance(value, list) or not value:
            raise self.make_field_error(name, "a list of mappings, with at least one, is needed", value)
        for number, each in enumerate(value, 1):
            yield CatalogueFields(each, f"{self.location}, {name} {number}")

    def refuse_unknown(self) -> None:
        """Raise TaskError if a field was not read."""
        if unknown := [name for name in self._data if name not in self._read_names]:
            raise TaskError(
                f"{self.location}: unknown field {unknown[0]!r}.{did_you_mean(unknown[0], self._read_names)}"
            )

    def make_field_error(self, name: str, needed: str, value: Any, hint: str = "") -> TaskError:
        """The error of one field."""
        return TaskError(f"{self.location}: field {name}: {needed}; got {short(value)}.{hint}")

    def _read_value(self, name: str, default: Any = MISSING) -> Any:
        self._read_names.add(name)
        if name not in self._data and default is MISSING:
            raise TaskError(f"{self.location}: field {name} is missing.")
        return self._data.get(name, default)


def read_mapping(path: Path) -> Mapping[str, Any]:
    """The mapping in a file of the catalogue.

    Raises:
        TaskError: the file cannot be read, is not JSON, or has a key twice.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise TaskError(f"{path.name}: {twice[0]!r} is repeated.")
        return dict(pairs)

    try:
        data = json.loads(path.read_text("utf-8"), object_pairs_hook=unique)
    except OSError as error:
        raise TaskError(f"{path.name} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path.name} is not JSON: {error}.") from None
    if not isinstance(data, Mapping):
        raise TaskError(f"{path.name}: a mapping is needed; got {short(data)}.")
    return data
