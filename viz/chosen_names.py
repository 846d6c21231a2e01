"""Marks what a visitor has chosen in any chart: the lines of an expert or a class, and its name in the picture."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from viz.drawing import Drawing
from viz.figure_text import clean_text, safe_text

FAINT = 0.25  # opacity of the lines and marks of other names
LINE_COLUMNS = {"expert": ("expert", "task"), "class": ("class",)}  # of which lines have the names


def mark_chosen(fig: Drawing, chosen: Mapping[str, Sequence[str]]) -> None:
    """Fade lines of other names, and write chosen ones in bold; ``chosen`` are names by "expert" and "class".

    Names on axes are experts' or tasks', never classes'; an annotation has the kind that it names as its name.
    """
    for kind, columns in LINE_COLUMNS.items():
        names = [clean_text(name) for name in chosen.get(kind, ())]
        for column in columns if names else ():
            own = {safe_text(f"{column} {name}") for name in names}
            groups = [str(trace.get("legendgroup", "")) for trace in fig.data]
            for trace, group in zip(fig.data, groups, strict=True):
                if own & set(groups) and group.startswith(f"{column} ") and group not in own:
                    trace["opacity"] = FAINT
        axes = [fields for name, fields in fig.layout.items() if name[1:5] == "axis" and fields.get("ticktext")]
        for axis in axes if kind == "expert" else ():
            axis["ticktext"] = [_emphasize(text, names) for text in axis["ticktext"]]
        for text in fig.annotations:
            if text.get("name") == kind:
                text["text"] = "<br>".join(_emphasize(line, names) for line in text["text"].split("<br>"))


def _emphasize(text: str, names: Sequence[str]) -> str:
    """The text in bold after a mark if it is one of the names, maybe cut off."""
    plain = html.unescape(str(text))
    is_cut = len(plain) > 4 and plain.endswith("…") and any(name.startswith(plain[:-1]) for name in names)
    return f"<b>▸ {text}</b>" if plain in names or is_cut else text
