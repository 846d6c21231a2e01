"""Markdown in which text from anybody stays text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MARKUP = re.compile(r"([\\`*_{}\[\]()#+\-.!|~$:<>&\"'=@/])")  # ASCII punctuation, all of which Markdown lets escape


def escape(text: str) -> str:
    """Text of one line that shows exactly the characters that it has."""
    return MARKUP.sub(r"\\\1", text)


def fenced(text: str, language: str = "") -> str:
    """A block of code that ends where it should, whatever is in it."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
