"""The share of every section of the network that the merge keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_forward_order, in_order, one_of
from viz.drawing import Drawing, Trace, bar, scatter
from viz.parts import legends
from viz.text import count, first_few, percent, plural, role_name, safe_text

COLORS = 7  # kinds of layer with a color of their own; the rest share one
OTHER = "other kinds"
RIGHT = 64  # px
SHAPES = ("", "/", "x", ".", "\\", "-", "+")  # beside color, so that a gray print can be read
PATTERN = {"fgcolor": "white", "fillmode": "overlay", "size": 6, "solidity": 0.2}


@chart(
    title="Kept share",
    question="How much of each block does the merge keep?",
    columns=("section", "role", "part", "numel", "kept"),
    optional=("tensor", "kept_numel", "order", "component"),
    rows=(),
    empty="This method has no mask: it keeps everything.",
)
def kept_share(table: pd.DataFrame, *, by: str = "role", present: bool = False) -> go.Figure:
    """A bar for each section, whose length is the kept share of its scalars, split by role, kind of layer or component.

    section, role, part, numel (scalars), kept (bool), one row a tensor; kept_numel (scalars, where single parameters
    are masked), tensor (name), order (model order; without it rows must be in that order), component (for instance
    Attention, MLP or Other). ``by`` is role, part or component.
    """
    one_of("by", by, ("role", "part", *(("component",) if "component" in table else ())))
    table = in_forward_order(table)
    table = table.assign(_kept=_kept_scalars(table), _kind=_kinds(table, by), section=table["section"].astype(str))
    sections = in_order(table["section"])
    totals = table.groupby("section", sort=False)["numel"].sum().reindex(sections).to_numpy(np.float64)
    size = table.groupby("_kind")["numel"].sum()
    kinds = sorted(in_order(table["_kind"]), key=lambda kind: (kind == OTHER, -float(size[kind])))
    colors = _colors(kinds, by)
    rows = np.arange(len(sections), dtype=np.float32)
    traces: list[Trace] = []
    kept_in_all = np.zeros(len(sections))
    for index, kind in enumerate(kinds):
        members = table[table["_kind"] == kind]
        kept = members.groupby("section")["_kept"].sum().reindex(sections, fill_value=0).to_numpy(np.float64)
        kept_in_all += kept
        traces.append(
            bar(
                x=_ratio(kept, totals).astype(np.float32), y=rows, orientation="h", name=safe_text(kind, 40),
                text=_hover(members, sections), hovertemplate="%{text}<extra></extra>", textposition="none",
                marker={
                    "color": colors[kind], "line": {"color": "white", "width": 0.5},
                    "pattern": PATTERN | {"shape": SHAPES[index % len(SHAPES)]},
                },
            )
        )  # fmt: skip
    shares = _ratio(kept_in_all, totals)
    traces.append(_rest(shares, totals, rows, sections))
    traces.append(_labels(shares, rows))
    labels = [safe_text(section, 24) for section in sections]
    shown = [trace for trace in traces if trace.get("showlegend", True)]
    for trace in shown:
        trace["legendgroup"] = trace["name"]
    left = max(map(theme.text_width, labels)) + 40
    legend, top = legends.above([trace["name"] for trace in shown], margins=left + RIGHT)
    fig = Drawing(traces)
    fig.update_xaxes(title={"text": "Share of the section's scalars that is kept (%)"}, range=[0, 1], tickformat=".0%")
    fig.update_yaxes(
        title={"text": "Section"}, tickmode="array", tickvals=rows, ticktext=labels,
        range=[len(sections) - 0.5, -0.5], showgrid=False,
    )  # fmt: skip
    fig.update_layout(
        barmode="stack", bargap=0.22,
        legend=legend, margin={"l": left, "t": top + 12, "r": RIGHT},
    )  # fmt: skip
    height = top + 102 + 24 * len(sections)
    return theme.finish(fig, "kept_share", _alt(shares, totals, sections), height, present, by)


def _kept_scalars(table: pd.DataFrame) -> pd.Series[float]:
    whole = table["numel"].astype(float) * table["kept"].astype(bool)
    return table["kept_numel"].astype(float).fillna(whole) if "kept_numel" in table else whole


def _kinds(table: pd.DataFrame, by: str) -> pd.Series[str]:
    """The role of every row in words, its part or its component; all parts except the largest few are ``OTHER``."""
    kinds = table[by].astype(str)
    if by == "role":
        kinds = kinds.map(role_name)
    largest = table["numel"].groupby(kinds).sum().nlargest(COLORS).index
    return kinds if kinds.nunique() <= COLORS else kinds.where(kinds.isin(largest), OTHER)


def _colors(kinds: list[str], by: str) -> Mapping[str, str]:
    free = iter(theme.PALETTE)
    roles = {role_name(role): color for role, color in theme.ROLE_COLORS.items()}
    fixed = roles if by == "role" else {OTHER: "#999999"}
    return {kind: fixed.get(kind) or next(free, "#999999") for kind in kinds}


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), 0.0)


def _hover(members: pd.DataFrame, sections: list[str]) -> list[str]:
    """What stands beside the bar of one kind of layer in each section."""
    rows_of: dict[str, list[dict[Any, Any]]] = {}
    for row in members.to_dict("records"):
        rows_of.setdefault(row["section"], []).append(row)
    return [_words(section, rows_of[section]) if section in rows_of else "" for section in sections]


def _words(section: str, rows: list[dict[Any, Any]]) -> str:
    kept, numel = (float(sum(row[name] for row in rows)) for name in ("_kept", "numel"))
    survivors = [row for row in rows if row["_kept"] > 0]
    scalars = f"{count(kept)} of {count(numel)} scalars ({percent(kept / numel if numel else 0)})"
    text = f"<b>{safe_text(section)}, {safe_text(rows[0]['_kind'])}</b>"
    text += f"<br>kept {len(survivors)} of {plural(len(rows), 'tensor')}, {scalars}"
    for word, some in (("kept", survivors), ("pruned", [row for row in rows if row["_kept"] == 0])):
        if some and "tensor" in some[0]:
            text += f"<br>{word}: {first_few([row['tensor'] for row in some], 4).replace(', ', ',<br>   ')}"
    return text


def _rest(shares: np.ndarray, totals: np.ndarray, rows: np.ndarray, sections: list[str]) -> Trace:
    hover = [
        f"<b>{safe_text(section)}</b><br>pruned: {count((1 - share) * total)} of {count(total)} scalars "
        f"({percent(1 - share)})"
        for section, share, total in zip(sections, shares, totals, strict=True)
    ]
    return bar(
        x=(1 - shares).astype(np.float32), y=rows, orientation="h", name="pruned", text=hover, textposition="none",
        hovertemplate="%{text}<extra></extra>", marker={"color": theme.PRUNED},
    )  # fmt: skip


def _labels(shares: np.ndarray, rows: np.ndarray) -> Trace:
    return scatter(
        x=np.ones(len(rows), np.float32), y=rows, mode="text", text=[f"\xa0{percent(share)}" for share in shares],
        textposition="middle right", cliponaxis=False, hoverinfo="skip", showlegend=False, name="Kept share",
        textfont={"size": theme.SMALL},
    )  # fmt: skip


def _alt(shares: np.ndarray, totals: np.ndarray, sections: list[str]) -> str:
    overall = float((shares * totals).sum() / totals.sum()) if totals.sum() else 0.0
    most, least = int(shares.argmax()), int(shares.argmin())
    return (
        f"The merge keeps {percent(overall)} of the scalars: most in {sections[most]} ({percent(shares[most])}), "
        f"least in {sections[least]} ({percent(shares[least])})."
    )
