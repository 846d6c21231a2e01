"""Saliency of one task's tensors by component and by layer: is pruning tied to a kind of layer? (LwPTV, Fig. 9)"""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import NothingToDraw, chart, distinct_names, sort_forward
from viz.drawing import Drawing, Picture, Trace, scatter
from viz.figure_text import clean_text, percent, plural, safe_text
from viz.hover import LAYER_TEXT
from viz.parts import axes, legends, series, tensor_columns

TABLE_COLUMNS = ("tensor", "section", "role", "part", "component", "saliency", "kept")
STATES = (("Kept", True, "circle"), ("Pruned", False, "circle-open"))  # filled or open
HOVER = f"<b>{{tensor:short}}</b><br>saliency {{saliency:real}}, {{state}}<br>{LAYER_TEXT}"
BELOW, GAP = 76, 40  # px: under the columns of components, and between two panels
SALIENCY_PANEL, SHARE_PANEL = 260, 120  # px: the panels of saliency by layer
# Width of a component's column and of a bar, in shares of the width available to each.
COLUMN_WIDTH, BAR_WIDTH = 0.7, 0.85


@chart(
    title="Saliency by component",
    question="Does pruning prefer a kind of layer?",
    columns=TABLE_COLUMNS,
    optional=("order", "numel"),
    rows=("tensor",),
    empty="No saliency was recorded for this expert.",
)
def feature_components(table: pd.DataFrame, *, expert: str = "", what: str = "kept") -> Picture:
    """A mark for each tensor above its component, from the input (left) to the output (right); kept ones are filled.

    Box plots are behind the marks. Columns: component (Attention, MLP or Other, each in its color), saliency (units of
    the weights, on a log scale; zeros are counted, not plotted). A label under each component counts the tensors that
    are ``what``.
    """
    table, components = _add_states(sort_forward(table)), _sort_components(table)
    plotted = table[table["saliency"].to_numpy(np.float64) > 0]
    if plotted.empty:
        raise NothingToDraw("Every tensor's saliency is zero: all experts are equal.")
    mark_styles, fig = theme.mark_styles(components), Drawing()
    position = plotted["component"].map({name: index for index, name in enumerate(components)})
    rank, size = plotted.groupby("component").cumcount(), plotted["component"].map(plotted["component"].value_counts())
    plotted = plotted.assign(_x=position + COLUMN_WIDTH * ((rank + 0.5) / size - 0.5), _position=position)
    for _, rows, entry in series.rows_by_name(plotted, "component", components, "component"):
        fig.add_trace(_draw_box(rows, entry["name"]))
    for word, kept, symbol in STATES:
        of_state = plotted[plotted["kept"].to_numpy(bool) == kept]
        for name, rows, entry in series.rows_by_name(of_state, "component", label="component"):
            mark_style = theme.MarkStyle(mark_styles[name].color, symbol)
            fig.add_trace(series.marks(
                rows, "_x", "saliency", mark_style, HOVER, size=8, marker=_mark_edge(kept, mark_style),
                name=f"{entry['name']}, {word.lower()}", legendgroup=word, showlegend=False,
            ))  # fmt: skip
        if not of_state.empty:
            mark_style, nowhere = theme.MarkStyle(theme.FADED, symbol), np.array([np.nan], np.float32)
            marker = {"color": mark_style.color, "size": 8, "symbol": symbol} | _mark_edge(kept, mark_style)
            fig.add_trace(scatter(x=nowhere, y=nowhere, mode="markers", name=word, legendgroup=word, hoverinfo="skip",
                                  marker=marker))  # fmt: skip
    title, room = f"{_expert_title(expert)}<br>(mean |deviation|, units of the weights)", 10**0.15
    ends = axes.log_axis(plotted["saliency"].min() / room, plotted["saliency"].max() * room)
    fig.update_yaxes(title={"text": title}, **ends)
    counts = table.groupby("component")["kept"].agg(["sum", "size"]).astype(int)
    texts = [f"<b>{safe_text(name)}</b><br>{counts['sum'][name]} of {counts['size'][name]} {safe_text(what)}"
             for name in components]  # fmt: skip
    title = "Component; within each, tensors in forward order"
    fig.update_xaxes(**axes.name_axis(title, components, ticktext=texts, fixedrange=None))
    alt = f"Saliency of {plural(len(table), 'tensor')} by component. Share kept: {_shares_in_words(table, components)}."
    return legends.add_legend(fig, alt, 350 + BELOW, zoom_key=expert, left=74, right=20, gap=10, below=BELOW)


@chart(
    title="Saliency by layer",
    question="Does pruning prefer a kind of layer, early or late in the network?",
    columns=TABLE_COLUMNS,
    optional=("order", "numel"),
    rows=("tensor",),
    empty="No saliency was recorded for this expert.",
)
def feature_layers(table: pd.DataFrame, *, expert: str = "") -> Picture:
    """The marks of ``feature_components`` in forward order, above bars of the share of tensors kept by layer."""
    columns, components = tensor_columns.TensorColumns.from_table(table), _sort_components(table)
    table = _add_states(table).assign(tensor_index=table["tensor"].map(columns.names.index))
    mark_styles, fig = theme.mark_styles(components), Drawing()
    for index, (name, rows, _) in enumerate(series.rows_by_name(table, "component", components, "component")):
        for word, kept, symbol in STATES:
            plotted = rows[(rows["kept"].to_numpy(bool) == kept) & (rows["saliency"].to_numpy(np.float64) > 0)]
            mark_style = theme.MarkStyle(
                mark_styles[name].color, mark_styles[name].symbol + symbol.removeprefix("circle")
            )
            fig.add_trace(series.marks(
                plotted, "tensor_index", "saliency", mark_style, HOVER, marker=_mark_edge(kept, mark_style),
                name=legends.legend_name(f"{name}, {word.lower()}"), legendgroup=f"{safe_text(name)}, {word}",
            ))  # fmt: skip
        fig.add_trace(_draw_bars(table, rows, index, len(components), mark_styles[name].color))
    inner = SALIENCY_PANEL + GAP + SHARE_PANEL
    columns.lay_out(fig)
    fig.update_xaxes(anchor="y2")
    fig.update_yaxes(title={"text": f"{_expert_title(expert)}<br>(units of the weights)"}, type="log",
                     domain=[1 - SALIENCY_PANEL / inner, 1], exponentformat="power")  # fmt: skip
    fig.update_layout(
        barmode="overlay",
        yaxis2={
            "title": {"text": "Tensors<br>kept (%)"}, "tickformat": ".0%", "range": [0, 1.05], "anchor": "x",
            "domain": [0, SHARE_PANEL / inner], "fixedrange": True,
        },
    )  # fmt: skip
    kept_in = table["kept"].astype(bool).groupby(table["section"], sort=False).mean()
    most, least = str(kept_in.idxmax()), str(kept_in.idxmin())
    alt = f"Saliency of {plural(len(table), 'tensor')} in forward order. Share kept: "
    alt += f"{_shares_in_words(table, components)}; most in {clean_text(most)}, {percent(kept_in[most])}, "
    alt += f"least in {clean_text(least)}, "
    alt += f"{percent(kept_in[least])}."
    return legends.add_legend(fig, alt, inner + 12 + 56, zoom_key=expert, left=84, right=24, gap=12)


def _add_states(table: pd.DataFrame) -> pd.DataFrame:
    """The tensors with their state in words."""
    return table.assign(state=np.where(table["kept"].to_numpy(bool), "kept", "pruned"))


def _sort_components(table: pd.DataFrame) -> list[str]:
    return sorted(distinct_names(sort_forward(table)["component"]), key=lambda name: (name == "Other", name))


def _expert_title(expert: str) -> str:
    return f"Saliency of {safe_text(expert, 30)}" if expert else "Saliency"


def _mark_edge(kept: bool, mark_style: theme.MarkStyle) -> dict[str, object]:
    return {"line": theme.edge(0.8) if kept else {"color": mark_style.color, "width": 1.8}}


def _draw_box(rows: pd.DataFrame, name: str) -> Trace:
    return {
        "type": "box", "x": series.numbers(rows, "_position"), "y": series.numbers(rows, "saliency"), "name": name,
        "boxpoints": False, "width": COLUMN_WIDTH + 0.1, "fillcolor": theme.PANEL, "hoverinfo": "skip",
        "showlegend": False, "line": {"color": theme.FADED, "width": 1.2},
    }  # fmt: skip


def _draw_bars(table: pd.DataFrame, rows: pd.DataFrame, bar_index: int, bar_count: int, color: str) -> Trace:
    """A bar for each section that has such tensors, bar ``bar_index`` of ``bar_count`` side by side."""
    positions = table.groupby("section")["tensor_index"]
    first, width = positions.min(), positions.max() - positions.min() + 1
    kept = (
        rows.assign(kept=rows["kept"].astype(bool)).groupby("section", sort=False)["kept"].agg(["mean", "sum", "size"])
    )
    shares = kept.reset_index().assign(component=rows["component"].iloc[0])
    sections = shares["section"]
    return series.bars(
        shares, first[sections].to_numpy() - 0.5 + (bar_index + 0.5) / bar_count * width[sections].to_numpy(), "mean",
        color, "<b>{section}, {component}</b><br>{sum:count} of {size:plural tensor} kept: {mean:percent}", yaxis="y2",
        width=(BAR_WIDTH * width[sections] / bar_count).to_numpy(np.float32), showlegend=False,
        name=safe_text(f"{shares['component'].iloc[0]}, share kept"),
    )  # fmt: skip


def _shares_in_words(table: pd.DataFrame, components: list[str]) -> str:
    kept = table["kept"].astype(bool).groupby(table["component"]).mean()
    return ", ".join(f"{clean_text(name)} {percent(kept[name])}" for name in components[:6])
