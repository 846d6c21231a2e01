"""Markdown in which text from anybody stays text, and numbers as text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

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


def percent(share: float, low: float, high: float) -> str:
    """'72.8 % [70.1, 75.3]': a share with its interval; a dash if there is none."""
    return "–" if math.isnan(share) else f"{100 * share:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def size_text(count: float) -> str:
    """'1.2 GB'."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def first_few(items: Iterable[object], limit: int = 5) -> str:
    """'a, b, c and 7 more': a list short enough for a sentence."""
    texts = [printable(str(item)) for item in items]
    head = ", ".join(texts[:limit])
    return head if len(texts) <= limit else f"{head} and {len(texts) - limit} more"


def printable(text: str, limit: int = 120) -> str:
    """A name from a file, cut, with what cannot be seen written out: it must forge no line and turn no text around."""
    shown = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text[:limit])
    return shown if len(text) <= limit else f"{shown}…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """' Did you mean x?' or the empty string."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""
