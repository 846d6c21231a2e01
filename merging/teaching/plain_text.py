"""Texts of lessons: Markdown without HTML, images or links, with formulas between dollar signs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from merging.base.text import printable

PLACEHOLDER_PATTERN = re.compile(r"\{([^{}]*)\}")
PLACEHOLDER_NAME_PATTERN = re.compile(r"([a-z][a-z0-9_]*)(:long)?")
FORMULA_PATTERN = re.compile(r"\$[^$]+\$")
REFUSED_PATTERNS = (
    (re.compile(r"<[a-zA-Z/!?]|&(#|[a-zA-Z][0-9a-zA-Z]*;)"), "HTML"),
    (re.compile(r"!\["), "an image"),
    (re.compile(r"\]\s*[(:\[]"), "a link"),
    (re.compile(r"(?i)\b(https?|ftp|mailto|javascript|data|file):|\bwww\.|\w@\w"), "an address outside this program"),
)


def find_text_problem(text: str) -> str:
    """The reason to refuse a text; empty if it is accepted."""
    for pattern, content in REFUSED_PATTERNS:
        if match := pattern.search(text):
            excerpt = printable(text[max(0, match.start() - 10) : match.end() + 20], 60)
            return f"holds {content} ({excerpt!r}); texts are Markdown without HTML, images or links"
    return ""


def split_formulas(text: str) -> Iterator[tuple[bool, str]]:
    """The text cut into pieces, as (whether the piece is a formula, piece); braces in formulas are not placeholders."""
    start = 0
    for match in FORMULA_PATTERN.finditer(text):
        yield False, text[start : match.start()]
        yield True, match.group()
        start = match.end()
    yield False, text[start:]


def find_placeholders(text: str) -> list[str]:
    """The texts in braces outside formulas, in order, such as "gain" or "gain:long"; they may be invalid."""
    return [
        found for formula, piece in split_formulas(text) if not formula for found in PLACEHOLDER_PATTERN.findall(piece)
    ]
