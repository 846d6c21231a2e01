"""Experts against experts: how similar their task vectors are, pair by pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order, one_of
from viz.drawing import Drawing, Trace, heatmap, scatter
from viz.parts import depth
from viz.parts.cells import click_targets
from viz.text import clean_text, count, percent, plural, safe_text

VALUES = {  # -> title of the scale
    "cosine": "cosine",
    "conflict": "share with<br>other signs",
    "overlap": "shared entries<br>(Jaccard)",
}
NUMBERED = 12  # experts up to which numbers are written into the cells
ROW, TOP, RIGHT, TILT = 42, 26, 110, 30  # px, px, px, degrees
LONGEST = 18
Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.integer[Any]]


@chart(
    title="Experts against experts",
    question="Which experts pull in the same direction, and which against each other?",
    columns=("first", "second", "cosine", "conflict", "overlap"),
    optional=("chance", "both", "opposed"),
    rows=("first", "second"),
    picks=("first", "second"),
    empty="There are no two experts to compare.",
)
def pair_matrix(
    table: pd.DataFrame,
    *,
    value: str = "cosine",
    order: list[str] | None = None,
    selected: tuple[str | None, str | None] = (None, None),
    present: bool = False,
) -> go.Figure:
    """A matrix of experts, without its diagonal.

    first, second (experts, every pair both ways), cosine (of the task vectors), conflict (share of the entries that
    both keep whose signs differ), overlap (Jaccard index of what they keep), chance (overlap of independent masks),
    both and opposed (entries). ``value`` says which is drawn; ``order`` is that of the experts; ``selected`` outlines a
    pair, both ways.
    """
    one_of("value", value, tuple(VALUES))
    names = order or in_order([*table["first"], *table["second"]])
    place = {name: at for at, name in enumerate(names)}
    at = {side: table[side].astype(str).map(place).to_numpy(int) for side in ("first", "second")}
    rows, columns, values = at["first"], at["second"], table[value].to_numpy(np.float64)
    finite = np.isfinite(values)
    heat = _cells(columns[finite], rows[finite], values[finite], _scale(values[finite], value))
    numbers = [_numbers(columns, rows, values, heat, value)] if len(names) <= NUMBERED else []
    texts = [_hover(row) for row in table.to_dict("records")]
    at_cells = list(zip(rows.tolist(), columns.tolist(), strict=True))
    fig = Drawing([heat, *numbers, click_targets(names, names, texts, "Pairs", cells=at_cells)])
    _lay_out(fig, names, place, selected)
    alt = _alt(table, values, names, value)
    height = TOP + ROW * max(len(names), 3) + fig.layout["margin"]["b"]
    return theme.finish(fig, "pair_matrix", alt, height, present, f"{value}:{len(names)}")


def _scale(values: Floats, value: str) -> depth.Scale:
    """The color scale of a value.

    For cosines it is even around zero; for conflicts it is from zero to at least one half, which chance gives; for
    overlaps, which often differ little, it is their own range.
    """
    low, high = float(values.min(initial=1.0)), float(values.max(initial=0.0))
    limits = {"conflict": (0.0, max(0.5, high)), "overlap": (low, high)}.get(value)
    return depth.Scale(VALUES[value], log=False, limits=limits, percent=value != "cosine", diverging=value == "cosine")


def _cells(x: Places, y: Places, values: Floats, scale: depth.Scale) -> Trace:
    z, colors = depth.colored(values, scale)
    return heatmap(
        x=x.astype(np.float32), y=y.astype(np.float32), z=z, xgap=2, ygap=2, hoverinfo="skip",
        colorscale=theme.DIVERGING if scale.diverging else theme.SEQUENTIAL, name=scale.title.replace("<br>", " "),
        **colors,
    )  # fmt: skip


def _numbers(x: Places, y: Places, values: Floats, heat: Trace, value: str) -> Trace:
    """The values as text in the color bar's units, white or dark, whichever is easier to read on the cell's color."""
    with np.errstate(invalid="ignore"):
        share = (values - heat["zmin"]) / (heat["zmax"] - heat["zmin"])
        white = np.abs(share - 0.5) > 0.3 if value == "cosine" else share < 0.5
    return scatter(
        x=x.astype(np.float32), y=y.astype(np.float32), mode="text", name="Values", hoverinfo="skip",
        text=[_number(number, value).removesuffix("%") for number in values], showlegend=False,
        textfont={"size": theme.SMALL, "color": [theme.ON_DARK if it else theme.ON_LIGHT for it in white]},
    )  # fmt: skip


def _number(number: float, value: str) -> str:
    if not np.isfinite(number):
        return "—"
    return f"{number:.2f}".replace("-", "−") if value == "cosine" else percent(number)


def _lay_out(fig: Drawing, names: list[str], place: dict[str, int], selected: tuple[str | None, str | None]) -> None:
    labels = [safe_text(name, LONGEST) for name in names]
    widest = max(map(theme.text_width, labels))
    ticks = {
        "tickmode": "array", "tickvals": list(range(len(names))), "ticktext": labels, "showgrid": False,
        "fixedrange": True,
    }  # fmt: skip
    fig.update_xaxes(title={"text": "Expert"}, range=[-0.5, len(names) - 0.5], tickangle=-TILT, ticks="", **ticks)
    fig.update_yaxes(title={"text": "Expert"}, range=[len(names) - 0.5, -0.5], **ticks)
    bottom = widest * float(np.sin(np.radians(TILT))) + 50
    fig.update_layout(
        barmode="overlay", showlegend=False, margin={"l": widest + 38, "r": RIGHT, "t": TOP, "b": round(bottom)},
        shapes=[*_diagonal(len(names)), *_outline(place, selected)],
    )  # fmt: skip


def _diagonal(count: int) -> list[dict[str, Any]]:
    """Gray cells: comparing an expert with itself says nothing."""
    return [
        {
            "type": "rect", "x0": at - 0.48, "x1": at + 0.48, "y0": at - 0.48, "y1": at + 0.48, "line": {"width": 0},
            "fillcolor": theme.PRUNED, "layer": "below",
        }
        for at in range(count)
    ]  # fmt: skip


def _outline(place: dict[str, int], selected: tuple[str | None, str | None]) -> list[dict[str, Any]]:
    ends = [place[name] for name in selected if name in place]
    if len(ends) < 2 or ends[0] == ends[1]:
        return []
    return [
        {
            "type": "rect", "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5, "name": "selected",
            "line": {"color": theme.ACCENT, "width": 3},
        }
        for x, y in (ends, ends[::-1])
    ]  # fmt: skip


def _hover(row: dict[Any, Any]) -> str:
    lines = [
        f"<b>{safe_text(row['first'])} and {safe_text(row['second'])}</b>",
        f"cosine {row['cosine']:.3f}".replace("-", "−") if np.isfinite(row["cosine"]) else "cosine not defined",
        f"other signs in {percent(row['conflict'])} of the entries that both keep",
        f"overlap {percent(row['overlap'])}",
    ]
    if "both" in row:
        lines[2] += f" ({count(row['opposed'])} of {count(row['both'])})" if "opposed" in row else ""
    if "chance" in row:
        lines[3] += f", by chance {percent(row['chance'])}"
    return "<br>".join(lines)


def _alt(table: pd.DataFrame, values: Floats, names: list[str], value: str) -> str:
    words = f"{value.capitalize()} of {plural(len(names), 'expert')}, pair by pair."
    if not np.isfinite(values).any():
        return f"{words} It is defined for none."
    ends = []
    for word, at in (("most", int(np.nanargmax(values))), ("least", int(np.nanargmin(values)))):
        row = table.iloc[at]
        pair = f"{clean_text(row['first'], 40)} and {clean_text(row['second'], 40)}"
        ends.append(f"{word} for {pair}, {_number(values[at], value)}")
    return f"{words} It is {', '.join(ends)}."
