"""Inserts facts into the texts of lessons: '{gain}' becomes a value, '{gain:long}' a value with interval and n."""

from __future__ import annotations

from collections.abc import Mapping
from re import Match

from merging.base.errors import LessonError
from merging.base.text import did_you_mean, escape_markdown
from merging.teaching import plain_text
from merging.teaching.fact import Fact

NO_BREAK_SPACE = "\u00a0"  # between a number and its unit


def fill_facts(text: str, facts: Mapping[str, Fact]) -> str:
    """The text with its facts, as Markdown; names, which may come from files, are escaped.

    Raises:
        LessonError: a name in braces is not the name of a declared fact.
    """

    def fill(found: Match[str]) -> str:
        written = plain_text.PLACEHOLDER_NAME_PATTERN.fullmatch(found.group(1))
        name = written.group(1) if written else found.group(1)
        if written is None or name not in facts:
            raise LessonError(
                f"A text names the fact {{{found.group(1)}}}, which is not declared.{did_you_mean(name, facts)}"
            )
        fact = facts[name]
        words = fact.long_text if written.group(2) else fact.text
        if fact.name:
            return escape_markdown(words)
        return words.replace(f" {fact.unit}", NO_BREAK_SPACE + fact.unit) if fact.unit else words

    return "".join(
        piece if formula else plain_text.PLACEHOLDER_PATTERN.sub(fill, piece)
        for formula, piece in plain_text.split_formulas(text)
    )
