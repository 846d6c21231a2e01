"""Saliency of one task's tensors in forward order, by component, and the share kept in each layer (LwPTV, Fig. 9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, bar, scatter
from viz.parts import depth, legends
from viz.text import clean_text, layer_name, percent, plural, real, safe_text, short_name

UPPER, LOWER, GAP, BOTTOM, LEFT = 260, 120, 40, 56, 84
STATES = (("Kept", True), ("Pruned", False))  # filled or open, in the component's color and symbol
WIDTH = 0.85  # of a bar, in shares of its place


@chart(
    title="Saliency by layer",
    question="Does pruning prefer a kind of layer, early or late in the network?",
    columns=("tensor", "section", "role", "part", "component", "saliency", "kept"),
    optional=("order", "numel"),
    rows=("tensor",),
    empty="No saliency was recorded for this expert.",
)
def feature_layers(table: pd.DataFrame, *, expert: str = "", present: bool = False) -> go.Figure:
    """A mark for each tensor in forward order, above bars of the share of tensors kept, by layer and component.

    tensor, section, role, part, component (Attention, MLP or Other), saliency (units of the weights, drawn on a log
    scale), kept, order (model order), numel. Filled marks are kept, open ones pruned; tensors whose saliency is zero
    are counted and not drawn. Colors and symbols are those of components.
    ``expert`` is the name of the saliency's expert.
    """
    columns = depth.Columns.of(table)
    components = sorted(in_order(table["component"]), key=lambda name: (name == "Other", name))
    placed = table.assign(_x=table["tensor"].astype(str).map({name: x for x, name in enumerate(columns.names)}))
    looks, fig = theme.looks(components), Drawing()
    spans = {str(at): (int(some["_x"].min()), int(some["_x"].max())) for at, some in placed.groupby("section")}
    for name in components:
        rows = placed[placed["component"].astype(str) == name]
        for word, is_kept in STATES:
            fig.add_trace(_marks(rows[rows["kept"].to_numpy(bool) == is_kept], name, word, looks[name]))
        fig.add_trace(_shares(rows, spans, components.index(name), len(components), looks[name].color))
    inner = UPPER + GAP + LOWER
    whose = f"Saliency of {safe_text(expert, 30)}" if expert else "Saliency"
    fig.update_xaxes(**columns.axis(), anchor="y2")
    fig.update_yaxes(title={"text": f"{whose}<br>(units of the weights)"}, type="log", domain=[1 - UPPER / inner, 1],
                     exponentformat="power")  # fmt: skip
    fig.update_layout(
        yaxis2={
            "title": {"text": "Tensors<br>kept (%)"}, "tickformat": ".0%", "range": [0, 1.05], "anchor": "x",
            "domain": [0, LOWER / inner], "fixedrange": True,
        }
    )  # fmt: skip
    legend, top = legends.above([f"{name}, {word.lower()}" for name in components for word, _ in STATES])
    fig.update_layout(
        legend=legend, margin={"l": LEFT, "r": 24, "t": top + 12, "b": BOTTOM}, barmode="overlay",
        shapes=columns.separators(theme.GRID, 1), annotations=columns.end_labels(),
    )  # fmt: skip
    height = inner + top + 12 + BOTTOM
    return theme.finish(fig, "feature_layers", _alt(table, components), height, present, expert)


def _marks(rows: pd.DataFrame, name: str, word: str, look: theme.Look) -> Trace:
    drawn = rows[rows["saliency"].to_numpy(np.float64) > 0]
    filled = word == "Kept"
    return scatter(
        x=drawn["_x"].to_numpy(np.float32), y=drawn["saliency"].to_numpy(np.float32), mode="markers",
        name=legends.entry(f"{name}, {word.lower()}"), legendgroup=f"{safe_text(name)}, {word}",
        text=[_hover(row, word) for row in drawn.to_dict("records")], hovertemplate="%{text}<extra></extra>",
        marker={
            "color": look.color, "size": 9, "symbol": look.symbol + ("" if filled else "-open"),
            "line": theme.edge(0.8) if filled else {"color": look.color, "width": 1.8},
        },
    )  # fmt: skip


def _shares(rows: pd.DataFrame, spans: dict[str, tuple[int, int]], place: int, count: int, color: str) -> Trace:
    """A bar for each section that has such tensors, the ``place``-th of ``count`` beside each other."""
    members = {section: rows[rows["section"].astype(str) == section] for section in in_order(rows["section"])}
    name, width = str(rows["component"].iloc[0]), {section: b - a + 1 for section, (a, b) in spans.items()}
    x = [spans[section][0] - 0.5 + (place + 0.5) / count * width[section] for section in members]
    shares = [float(some["kept"].to_numpy(bool).mean()) for some in members.values()]
    return bar(
        x=np.array(x, np.float32), y=np.array(shares, np.float32), yaxis="y2", showlegend=False, textposition="none",
        width=np.array([WIDTH * width[section] / count for section in members], np.float32),
        name=safe_text(f"{name}, share kept"), hovertemplate="%{text}<extra></extra>",
        text=[_share_hover(section, name, some) for section, some in members.items()],
        marker={"color": color, "line": {"color": theme.INK, "width": 0.6}},
    )  # fmt: skip


def _hover(row: Mapping[Any, Any], word: str) -> str:
    return (
        f"<b>{short_name(row['tensor'])}</b><br>saliency {real(row['saliency'])}, {word.lower()}<br>{layer_name(row)}"
    )


def _share_hover(section: str, name: str, members: pd.DataFrame) -> str:
    kept = members["kept"].to_numpy(bool)
    share, of = percent(float(kept.mean())), plural(len(kept), "tensor")
    return f"<b>{safe_text(section)}, {safe_text(name)}</b><br>{int(kept.sum())} of {of} kept: {share}"


def _alt(table: pd.DataFrame, components: list[str]) -> str:
    names, kept = table["component"].astype(str), table["kept"].astype(bool)
    sections = kept.groupby(table["section"].astype(str), sort=False).mean()
    shares = [f"{clean_text(name)} {percent(float(kept[names == name].mean()))}" for name in components[:6]]
    most, least = str(sections.idxmax()), str(sections.idxmin())
    return (
        f"Saliency of {plural(len(table), 'tensor')} in forward order. Share kept: {', '.join(shares)}; most in "
        f"{clean_text(most)}, {percent(float(sections[most]))}, least in {clean_text(least)}, "
        f"{percent(float(sections[least]))}."
    )
