"""Saliency of one task's tensors by component: is pruning tied to a kind of layer? (LwPTV, Fig. 9)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_forward_order, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import clean_text, layer_name, percent, plural, real, safe_text, short_name

INNER, BOTTOM, LEFT = 340, 76, 74
STATES = (("Kept", True, "circle"), ("Pruned", False, "circle-open"))  # filled or open, in the component's color
WIDTH = 0.7  # width of a component's column, in units of the distance between two columns


@chart(
    title="Saliency by component",
    question="Does pruning prefer a kind of layer?",
    columns=("tensor", "section", "role", "part", "component", "saliency", "kept"),
    optional=("order", "numel"),
    rows=("tensor",),
    empty="No saliency was recorded for this expert.",
)
def feature_components(
    table: pd.DataFrame, *, expert: str = "", what: str = "kept", present: bool = False
) -> go.Figure:
    """A mark for each tensor above its component, from the input (left) to the output (right); kept ones are filled.

    Box plots are behind the marks. Colors are those of components.

    tensor, section, role, part, component (Attention, MLP or Other), saliency (units of the weights, drawn on a log
    scale), kept, order (model order), numel. A label under each component counts the tensors that are ``what``.
    Tensors whose saliency is zero are counted and not drawn. ``expert`` is the name of the saliency's expert.
    """
    table = in_forward_order(table)
    components = sorted(in_order(table["component"]), key=lambda name: (name == "Other", name))
    drawn = table[table["saliency"].to_numpy(np.float64) > 0]
    if drawn.empty:
        return theme.notice("feature_components", "Every tensor's saliency is zero: all experts are equal.", present)
    drawn = drawn.assign(_x=_columns(drawn, components))
    fig = Drawing()
    looks = theme.looks(components)
    for place, name in enumerate(components):
        fig.add_trace(_box(drawn[drawn["component"].astype(str) == name], place, name))
    for word, is_kept, symbol in STATES:
        rows = drawn[drawn["kept"].to_numpy(bool) == is_kept]
        for name in in_order(rows["component"]):
            fig.add_trace(_marks(rows[rows["component"].astype(str) == name], name, word, symbol, looks[name].color))
        if not rows.empty:
            fig.add_trace(_entry(word, symbol))
    values = np.log10(drawn["saliency"].to_numpy(np.float64))
    span = (float(values.min()) - 0.15, float(values.max()) + 0.15)
    marks = theme.ticks(10 ** span[0], 10 ** span[1], log=True)
    whose = f"Saliency of {safe_text(expert, 30)}" if expert else "Saliency"
    fig.update_yaxes(
        title={"text": f"{whose}<br>(mean |deviation|, units of the weights)"}, type="log", range=list(span),
        tickmode="array", tickvals=[10.0**at for at in marks["tickvals"]], ticktext=marks["ticktext"],
    )  # fmt: skip
    fig.update_xaxes(
        title={"text": "Component; within each, tensors in forward order"}, tickmode="array", showgrid=False,
        tickvals=np.arange(len(components)), range=[-0.5, len(components) - 0.5],
        ticktext=[_counted(table, name, what) for name in components],
    )  # fmt: skip
    legend, top = legends.above([str(trace["name"]) for trace in fig.data if trace.get("showlegend", True)])
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 20, "t": top + 10, "b": BOTTOM})
    height = INNER + top + 10 + BOTTOM
    return theme.finish(fig, "feature_components", _alt(table, components), height, present, expert)


def _columns(rows: pd.DataFrame, components: list[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Positions within a component's column, in the order of the rows."""
    names = rows["component"].astype(str)
    rank = rows.groupby(names).cumcount().to_numpy(np.float64)
    size = names.map(names.value_counts()).to_numpy(np.float64)
    return np.array([components.index(name) for name in names]) + WIDTH * ((rank + 0.5) / size - 0.5)


def _box(rows: pd.DataFrame, place: int, name: str) -> Trace:
    return {
        "type": "box", "x": np.full(len(rows), place, np.float32), "y": rows["saliency"].to_numpy(np.float32),
        "name": safe_text(name), "boxpoints": False, "width": WIDTH + 0.1, "fillcolor": theme.PANEL,
        "line": {"color": theme.FADED, "width": 1.2}, "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip


def _marks(rows: pd.DataFrame, name: str, word: str, symbol: str, color: str) -> Trace:
    line = theme.edge(0.8) if symbol == "circle" else {"color": color, "width": 1.8}
    return scatter(
        x=rows["_x"].to_numpy(np.float32), y=rows["saliency"].to_numpy(np.float32), mode="markers",
        name=f"{safe_text(name)}, {word.lower()}", legendgroup=word, showlegend=False,
        text=[_hover(row, word) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
        marker={"color": color, "size": 8, "symbol": symbol, "line": line},
    )  # fmt: skip


def _entry(word: str, symbol: str) -> Trace:
    """A legend entry, whose color is that of no component."""
    nowhere = np.array([np.nan], np.float32)
    line = theme.edge(0.8) if symbol == "circle" else {"color": theme.FADED, "width": 1.8}
    return scatter(
        x=nowhere, y=nowhere, mode="markers", name=word, legendgroup=word, hoverinfo="skip",
        marker={"color": theme.FADED, "size": 8, "symbol": symbol, "line": line},
    )  # fmt: skip


def _hover(row: Mapping[Any, Any], word: str) -> str:
    return (
        f"<b>{short_name(row['tensor'])}</b><br>saliency {real(row['saliency'])}, {word.lower()}<br>{layer_name(row)}"
    )


def _counted(table: pd.DataFrame, name: str, what: str) -> str:
    kept = table[table["component"].astype(str) == name]["kept"].to_numpy(bool)
    return f"<b>{safe_text(name)}</b><br>{int(kept.sum())} of {len(kept)} {safe_text(what)}"


def _alt(table: pd.DataFrame, components: list[str]) -> str:
    names, kept = table["component"].astype(str), table["kept"].astype(bool)
    shares = [f"{clean_text(name)} {percent(float(kept[names == name].mean()))}" for name in components[:6]]
    return f"Saliency of {plural(len(table), 'tensor')} by component. Share kept: {', '.join(shares)}."
