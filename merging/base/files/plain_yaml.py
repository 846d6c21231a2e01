"""A plain subset of YAML: mappings, lists, text, numbers, true and false. No aliases, dates or tags.

Recipes are untrusted, and the server reads them. Aliases can expand a few hundred bytes to gigabytes. Tags and dates
run constructors that fail in various ways. If a key is written twice, the last value silently wins.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

import yaml
from yaml.composer import Composer

from merging.base.errors import RecipeError
from merging.base.text import did_you_mean, printable

MAX_CHARACTERS = 100_000
MAX_DEPTH = 20
MAX_DIGITS = 40
PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")}


def read_plain_yaml(text: str, noun: str = "recipe") -> Any:
    """The data in a YAML document; messages call it ``noun``.

    Raises:
        RecipeError: not YAML, too large, too deep, or more than plain data; the message has the problem and its line.
    """
    try:
        return _read(text)
    except RecipeError as error:
        raise RecipeError(f"The {noun} {error}") from None


def check_fields(data: Any, noun: str, fields: Sequence[str], version: int) -> dict[str, Any]:
    """The data as a mapping, after checking that it has only these fields and this version.

    Raises:
        RecipeError: the data is not such a mapping; the message names the field.
    """
    if not isinstance(data, dict):
        raise RecipeError(f"A {noun} is a mapping with the fields {', '.join(fields)}; got {type(data).__name__}.")
    for field in data:
        if field not in fields:
            raise RecipeError(f"The {noun} has an unknown field {field!r}.{did_you_mean(str(field), fields)}")
    if (stated_version := data.get("version", version)) != version:
        raise RecipeError(
            f"The {noun} is of version {reprlib.repr(stated_version)}; this program reads version {version}."
        )
    return data


def read_text_field(value: Any, field: str, noun: str = "recipe") -> str:
    """The value of a field as text; numbers become text. Raises RecipeError for any other value."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        text = str(value)
        if not any(
            "\ud800" <= character <= "\udfff" for character in text
        ):  # lone surrogates cannot be written to any file
            return text
    raise RecipeError(f"In a {noun}, {field} is a piece of text; got {reprlib.repr(value)}.")


def _read(text: str) -> Any:
    if len(text) > MAX_CHARACTERS:
        raise RecipeError(f"has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read.")
    try:
        return _Loader(text).get_single_data()
    except yaml.YAMLError as error:
        raise RecipeError(f"is not valid YAML{_describe_yaml_error(error, text)}.") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, RecipeError):
            raise
        raise RecipeError("is not valid YAML: it cannot be parsed.") from None


def write_yaml(data: Any) -> str:
    """A YAML document that ``read_plain_yaml`` reads back as equal data, unless a text has lone surrogates.

    Keys stay in order, and invisible characters are escaped.
    """
    document = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    if all(line.isprintable() for line in document.split("\n")):
        return document
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=False)


def _describe_yaml_error(error: yaml.YAMLError, text: str) -> str:
    """The line and the problem, without the parser's excerpt of the text; libyaml's end of the text is a line below."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    lines = max(1, len(text.rstrip().splitlines()))
    line = f" in line {min(mark.line + 1, lines)}" if mark else ""
    return f"{line}: {printable(str(problem or 'it cannot be parsed'), 200)}"


def _make_error(position: yaml.Event | yaml.Node, reason: str) -> RecipeError:
    line = f", line {position.start_mark.line + 1}" if position.start_mark else ""
    return RecipeError(f"cannot be read{line}: {reason}.")


# Where PyYAML was built with libyaml, that splits the text into events, ten times faster. Nodes are composed in Python:
# in C a deeply nested text would overflow the stack.
_BASES = (Composer, yaml.CSafeLoader) if yaml.__with_libyaml__ else (yaml.SafeLoader,)


class _Loader(*_BASES):  # type: ignore[misc]
    """Safe YAML without aliases, deep nesting, dates, tags and duplicate keys."""

    depth = 0

    def __init__(self, text: str) -> None:
        _BASES[-1].__init__(self, text)
        Composer.__init__(self)

    def get_event(self) -> yaml.Event:
        event: yaml.Event = super().get_event()
        self.depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _make_error(event, "anchors and aliases (&, *) are not used here")
        if self.depth > MAX_DEPTH:
            raise _make_error(event, f"lists are nested more than {MAX_DEPTH} deep")
        return event

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag == "tag:yaml.org,2002:timestamp":  # so that 2001-02-03 may be a title
            node.tag = "tag:yaml.org,2002:str"
        if node.tag not in PLAIN_TAGS:
            raise _make_error(node, f"tags such as {node.tag[:40]!r} are not used here")
        if node.tag.endswith(("int", "float")) and len(str(node.value)) > MAX_DIGITS:
            raise _make_error(node, "a number has too many digits")
        return super().construct_object(node, deep=deep)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = set[str]()
        for name in (key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if name in names:
                raise _make_error(node, f"{name[:40]!r} is written twice")
            names.add(name)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping
