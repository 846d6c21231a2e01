"""Sections of a network ("embeddings", "block 3", "encoder block 3", "output") as groups of neighboring columns.

A network with several towers has the tower's name before each section. Ticks are the blocks' numbers then, too, with
the tower below them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from viz import theme
from viz.text import safe_text

BLOCK = re.compile(r"(?:(?P<tower>.+) )?block (?P<number>\d+)")


class Span(NamedTuple):
    """Neighboring columns of one group: its name, its first and its last column."""

    label: str
    first: int
    last: int


def is_block(section: str) -> bool:
    """Whether a section is a block."""
    return BLOCK.fullmatch(section) is not None


def short(section: str) -> str:
    """A block as its number, with its tower if there are several ("encoder 3"); other names as they are."""
    match = BLOCK.fullmatch(section)
    return " ".join(filter(None, match.groups())) if match else section


def spans(labels: Sequence[str]) -> list[Span]:
    """Every sequence of columns of one group."""
    starts = [j for j in range(len(labels)) if j == 0 or labels[j] != labels[j - 1]]
    return [Span(labels[a], a, b - 1) for a, b in zip(starts, [*starts[1:], len(labels)], strict=True)]


def ticks(groups: Iterable[Span]) -> dict[str, Any]:
    """The ticks of an axis: the number of every block in its middle, and below the middle one its tower's name."""
    inside = [(span, match) for span in groups if (match := BLOCK.fullmatch(span.label))]
    texts = [match["number"] for _, match in inside]
    towers = [match["tower"] or "" for _, match in inside]
    for tower in filter(None, dict.fromkeys(towers)):
        own = [at for at, name in enumerate(towers) if name == tower]
        texts[own[len(own) // 2]] += f"<br>{safe_text(tower, 24)}"
    return {"tickvals": [(span.first + span.last) / 2 for span, _ in inside], "ticktext": texts}


def end_labels(groups: Sequence[Span], columns: int) -> list[dict[str, Any]]:
    """Labels of the sections before and after the blocks; being narrow, they grow away from the block numbers.

    Between two towers there is no room for one.
    """
    towers = {match["tower"] for span in groups if (match := BLOCK.fullmatch(span.label))}
    labels = []
    for at, (label, first, last) in enumerate(groups):
        if is_block(label) or (len(towers) > 1 and 0 < at < len(groups) - 1):
            continue
        at_left = first + last < columns
        text = label.rpartition(" ")[2] if len(towers) > 1 else label
        labels.append({
            "text": safe_text(text, 16), "x": last + 0.5 if at_left else first - 0.5, "xref": "x", "y": 0,
            "yref": "paper", "yanchor": "top", "yshift": 0, "xanchor": "right" if at_left else "left",
            "font": {"size": theme.SMALL, "color": theme.INK}, "showarrow": False,
        })  # fmt: skip
    return labels
