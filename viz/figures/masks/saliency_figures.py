"""Saliency of tensors for experts, and the masks that follow from it: of all tensors (LwPTV, Fig. 6), and of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.chart import TENSOR_COLUMNS, Names, chart, distinct_names
from viz.drawing import Drawing, Picture, Trace, heatmap
from viz.figure_text import first_few, percent, plural, short_name
from viz.hover import LAYER_TEXT, hover_texts
from viz.parts import axes, heat_maps, series, tensor_columns
from viz.parts.cell_targets import NO_CELL, CellPosition, click_targets, outline

Numbers = npt.NDArray[Any]
TOP, GAP, FINAL_ROW = 38, 34, 30  # px: above the first panel (for the tool bar), between panels, the shared mask's row
MASK_SCALE = [[0, theme.PRUNED], [0.5, theme.PRUNED], [0.5, theme.KEPT], [1, theme.KEPT]]
PANEL_AXES = ("y", "y2", "y3")
CELL_HOVER = "<b>{tensor:short}</b><br>{expert}: saliency {saliency:real}, {kept:state}"
CELL_DETAILS = f" (final: {{applied:state}})<br>{LAYER_TEXT}, {{numel:count}} scalars"
COLUMN_HOVER = (
    "<b>{tensor:short}</b><br>{applied:state}; own masks keep it for {keepers:count} of {experts:plural expert}<br>"
    "{section}, {part}"
)
TENSOR_HOVER = "<b>{expert}</b><br>saliency {saliency:real}, threshold {threshold:real}: {kept:state}"


def _state_in_words(kept: object) -> str:
    return "kept" if kept else "pruned"


@chart(
    title="Saliency and masks",
    question="Which tensors are salient for each expert, and which does the merge keep?",
    columns=(*TENSOR_COLUMNS, "numel", "expert", "saliency", "kept", "final"),
    rows=("expert", "tensor"),
    picks=("expert", "tensor"),
    empty="This method has no mask: it keeps every tensor of every expert.",
)
def saliency_matrix(
    table: pd.DataFrame,
    *,
    selected: CellPosition = NO_CELL,
    group: str = "order",
    guides: bool = False,
) -> Picture:
    """Three aligned heat maps over the tensors: saliency, own masks, final mask.

    Columns: saliency (mean absolute deviation, in units of the weights), kept (the expert's own mask), final (the mask
    that is applied). ``group`` is order, block (kinds of layer lined up inside each block) or part (same kinds side by
    side); ``guides`` draws the first two maps only, in the columns of the figure ``manual_canvas``, which is then shown
    below.
    """
    experts, columns = distinct_names(table["expert"]), tensor_columns.TensorColumns.from_table(table, group)
    cells = columns.complete_cells(table, "expert", experts)
    saliency, kept, final = (
        cells[name].to_numpy(kind).reshape(len(experts), -1)
        for name, kind in (("saliency", np.float64), ("kept", bool), ("final", bool))
    )
    applied = np.asarray(final.any(axis=0))
    panel = max(len(experts) * (22 if len(experts) <= 8 else 17), 84)  # with room for the color bar even for one expert
    domains, inner = axes.stack_panels([panel, panel] if guides else [panel, panel, FINAL_ROW], GAP)
    maps = [
        _draw_saliency(saliency, domains[0]),
        _draw_mask(kept, "Own mask", "y2", heat_maps.panel_color_bar(domains[1]) | {"len": min(60, panel) / inner}),
        _draw_mask(applied[None], "Final mask", "y3"),
    ]
    tensors = columns.tensors.assign(applied=applied, keepers=kept.sum(axis=0), experts=len(experts))
    targets = _make_targets(cells.assign(applied=np.tile(applied, len(experts))), tensors, experts)
    fig = Drawing([*maps[: len(domains)], *targets[: len(domains)]])
    bottom = 12 if guides else 96 if group == "part" else 52
    _lay_out(fig, columns, experts, domains, selected)
    left = heat_maps.left_margin(experts) - (tensor_columns.NAMES_SHARE * tensor_columns.NARROW_PX if guides else 0)
    shared = (
        "Mask applied to all experts" if (final == applied).all() else "Kept for at least one expert: no mask is shared"
    )
    titles = ("(a) Saliency", "(b) Each expert's own mask", f"(c) {shared}")
    captions = [theme.caption(title, top) for title, (_, top) in zip(titles, domains, strict=False)]
    fig.update_layout(
        annotations=[*([] if guides or group == "part" else columns.end_labels()), *captions],
        margin={"l": left, "r": 92, "t": TOP, "b": bottom}, showlegend=False, barmode="overlay",
    )  # fmt: skip
    return Picture(fig, _describe_matrix(tensors), inner + TOP + bottom, zoom_key=group)


def _draw_saliency(values: Numbers, domain: list[float]) -> Trace:
    heat = heat_maps.heat(values, heat_maps.ColorScale("saliency"), xaxis="x", yaxis="y", ygap=1, name="Saliency")
    return heat | {"colorbar": heat["colorbar"] | heat_maps.panel_color_bar(domain)}


def _draw_mask(mask: Numbers, name: str, axis: str, bar: dict[str, Any] | None = None) -> Trace:
    ticks = {"tickvals": [0.25, 0.75], "ticktext": ["pruned", "kept"], "thickness": 12, "outlinewidth": 0}
    return heatmap(
        z=mask.astype(np.uint8), zmin=0, zmax=1, colorscale=MASK_SCALE, xaxis="x", yaxis=axis, ygap=1, name=name,
        hoverinfo="skip", showscale=bar is not None, **({"colorbar": bar | ticks} if bar else {}),
    )  # fmt: skip


def _make_targets(cells: pd.DataFrame, tensors: pd.DataFrame, experts: list[str]) -> list[Trace]:
    """Invisible marks that take clicks on the three maps.

    In large maps of own masks, a mark covers a column instead of a cell.
    """
    names, is_large = list(tensors["tensor"]), len(cells) > tensor_columns.LARGE_CELL_COUNT
    texts = hover_texts(cells, CELL_HOVER if is_large else CELL_HOVER + CELL_DETAILS, state=_state_in_words)
    column_texts = hover_texts(tensors, COLUMN_HOVER, state=_state_in_words)
    if is_large:
        mask_targets = click_targets([""], names, column_texts, "Own mask columns", "y2", height=len(experts))
    else:
        mask_targets = click_targets(experts, names, texts, "Own mask cells", "y2")
    return [
        click_targets(experts, names, texts, "Saliency cells"),
        mask_targets,
        click_targets([""], names, column_texts, "Final mask cells", "y3"),
    ]


def _lay_out(
    fig: Drawing,
    columns: tensor_columns.TensorColumns,
    experts: list[str],
    domains: list[list[float]],
    selected: CellPosition,
) -> None:
    """Axes, separators and frames of the panels; the first two alone are guides, above a canvas that has the labels."""
    panels = PANEL_AXES[: len(domains)]
    axis = columns.axis()
    if len(panels) == 2:
        axis = columns.bare_axis()
        axis["title"]["font"] = {"color": theme.CLEAR}  # invisible, but there for readers of the figure's data
    rows = [axes.name_axis("Expert", experts, down=True)] * 2 + [axes.name_axis("", ["final"], down=True)]
    fig.update_layout({
        f"yaxis{panel[1:]}": row | {"domain": domain, "anchor": "x"}
        for panel, row, domain in zip(panels, rows, domains, strict=False)
    })  # fmt: skip
    fig.update_xaxes(**axis, anchor=panels[-1])
    frames = [
        frame
        for panel, names, expert in zip(
            panels, (experts, experts, [""]), (selected[0], selected[0], None), strict=False
        )
        for frame in outline(names, columns.names, (expert, selected[1]), xref="x", yref=panel)
    ]
    fig.update_layout(shapes=[*columns.separators(panels=panels), *frames])


def _describe_matrix(tensors: pd.DataFrame) -> str:
    applied, experts, numel = tensors["applied"], int(tensors["experts"].iloc[0]), tensors["numel"].astype(float)
    share = float(numel[applied].sum() / numel.sum()) if numel.sum() else float("nan")
    number = plural(len(tensors), "tensor")
    return (
        f"Saliency of {number} for {plural(experts, 'expert')}. The final mask keeps {int(applied.sum())} of {number}, "
        f"{percent(share)} of the scalars; own masks agree to keep {int((tensors['keepers'] == experts).sum())} and to "
        f"prune {int((tensors['keepers'] == 0).sum())} of them."
    )


@chart(
    title="Saliency of one tensor",
    question="For which experts is this tensor salient enough to keep?",
    columns=("expert", "saliency", "threshold", "kept"),
    rows=("expert",),
    picks=("expert",),
    empty="No saliency was recorded for this tensor.",
)
def saliency_tensor(
    table: pd.DataFrame, *, tensor: str = "", selected: str | None = None, experts: Names = None
) -> Picture:
    """A dot for each expert's saliency, filled if its own mask keeps the tensor, and a tick at its threshold."""
    names, kept = table["expert"].tolist(), table["kept"].to_numpy(bool)
    mark_styles = theme.mark_styles(experts or names)
    expert_styles = [mark_styles.get(name, theme.KINDS["individual"]) for name in names]
    y, colors = np.arange(len(names)), [mark_style.color for mark_style in expert_styles]
    saliency, threshold = (table[name].to_numpy(np.float64) for name in ("saliency", "threshold"))
    missing, stem = np.full(len(names), np.nan), {"color": theme.FADED, "width": 1.5}
    ends = np.stack([threshold, saliency, missing], 1).ravel()  # the longer the line, the clearer the case
    dots = {"size": 12, "symbol": [mark_style.symbol for mark_style in expert_styles]}
    filled = {"color": colors, "line": theme.edge()}
    open_fill = {"color": theme.GROUND, "line": {"color": colors, "width": 2.5}}
    tick = theme.MarkStyle(theme.INK, "line-ns")
    fig = Drawing([
        series.line(ends, np.repeat(y, 3), "Distance", stem, showlegend=False),
        *(
            series.marks(table, x, y, tick, TENSOR_HOVER, name=name, formats={"state": _state_in_words}, marker=marker,
                         picks=picks)
            for name, x, marker, picks in (
                ("Threshold", threshold, {"size": 16, "line": {"color": theme.INK, "width": 2.5}}, ()),
                ("Kept", np.where(kept, saliency, missing), dots | filled, ("expert",)),
                ("Pruned", np.where(kept, missing, saliency), dots | open_fill, ("expert",)),
            )
        ),
    ])  # fmt: skip
    beginning = f"Saliency of {short_name(tensor, 40)}<br>" if tensor else "Saliency "
    fig.update_xaxes(
        title={"text": f"{beginning}(mean |deviation|, units of the weights)"},
        **_make_axis([*saliency, *threshold]),
    )
    fig.update_yaxes(**axes.name_axis("Expert", names, down=True, showgrid=True, fixedrange=False))
    frame = outline(names, [""], (selected, None), xref="x domain", x0=0, x1=1)
    fig.update_layout(
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "yref": "paper"}, shapes=frame,
        margin={"l": axes.names_width(names) + 40, "t": 40, "r": 24, "b": 64},
    )  # fmt: skip
    keepers = f": {first_few(table.loc[kept, 'expert'], 8)}." if kept.any() else "."
    alt = f"{plural(int(kept.sum()), 'expert')} of {len(names)} keep this tensor{keepers}"
    return Picture(fig, alt, 124 + 24 * max(len(names), 3), zoom_key=tensor)


def _make_axis(values: list[float]) -> dict[str, object]:
    """An axis from zero, with room for half a mark at its end."""
    high = 1.06 * float(np.nan_to_num(values, posinf=0).max(initial=0)) or 1.0
    return theme.ticks(0, high) | {"range": [0, high]}
