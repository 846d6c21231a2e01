"""Sections of the network: how many of their scalars the merge keeps."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import chart, check_option, distinct_names, sort_forward
from viz.drawing import Drawing, Picture, bar
from viz.figure_text import first_few, percent, role_name, safe_text
from viz.hover import describe_extremes, hover_texts
from viz.parts import axes, series
from viz.parts.legends import add_legend

MAX_COLORED_KINDS = 7  # kinds of layer with a color of their own; all others share one
OTHER_KINDS = "other kinds"
PATTERN_SHAPES = ("", "/", "x", ".", "\\", "-", "+")
KIND_HOVER = (
    "<b>{section}, {kind}</b><br>kept {survivors:count} of {tensors:plural tensor}, {kept:count} of {numel:count} "
    "scalars ({share:percent})[<br>kept: {kept_names:raw}][<br>pruned: {pruned_names:raw}]"
)
PRUNED_HOVER = "<b>{section}</b><br>pruned: {pruned:count} of {numel:count} scalars ({rest:percent})"


@chart(
    title="Kept share",
    question="How much of each block does the merge keep?",
    columns=("section", "role", "part", "numel", "kept"),
    optional=("tensor", "kept_numel", "order", "component"),
    rows=(),
    empty="This method has no mask: it keeps everything.",
)
def kept_share(table: pd.DataFrame, *, by: str = "role") -> Picture:
    """A bar for each section, whose length is the kept share of its scalars, split by role, kind of layer or component.

    Columns: kept (bool), one row for each tensor; kept_numel (scalars, where single parameters are masked), order
    (without it rows must be in that order), component (for instance Attention, MLP or Other). ``by`` is role, part or
    component.
    """
    check_option("by", by, ("role", "part", *(("component",) if "component" in table else ())))
    table = _add_kinds(sort_forward(table), by)
    sections = distinct_names(table["section"])
    totals = _sum_groups(table, "section").set_index("section").loc[sections].reset_index()
    sums = _sum_groups(table, "kind", "section")
    if "tensor" in table:
        for name, chosen_rows in (
            ("kept_names", table[table["kept"] > 0]),
            ("pruned_names", table[table["kept"] == 0]),
        ):
            names = chosen_rows.groupby(["kind", "section"])["tensor"].agg(first_few, 4).rename(name)
            sums = sums.join(names.str.replace(", ", ",<br>   "), on=["kind", "section"])
    totals = totals.assign(rest=1 - totals["share"], pruned=(1 - totals["share"]) * totals["numel"])
    size = table.groupby("kind")["numel"].sum()
    kinds = sorted(distinct_names(table["kind"]), key=lambda kind: (kind == OTHER_KINDS, -float(size[kind])))
    colors = _choose_colors(kinds, by)
    y = np.arange(len(sections), dtype=np.float32)
    bar_fields = {"y": y, "orientation": "h", "hovertemplate": "%{text}<extra></extra>", "textposition": "none"}
    fig = Drawing()
    for kind, shape in zip(kinds, cycle(PATTERN_SHAPES), strict=False):
        rows = sums[sums["kind"] == kind]
        texts = dict(zip(rows["section"], hover_texts(rows, KIND_HOVER, raw=str), strict=True))
        kept = rows.set_index("section")["kept"].reindex(sections, fill_value=0).to_numpy(np.float64)
        fig.add_trace(bar(
            x=series.numbers(rows, _divide(kept, totals["numel"])), text=[texts.get(name, "") for name in sections],
            name=safe_text(kind, 40), legendgroup=safe_text(kind, 40), **bar_fields,
            marker={
                "color": colors[kind], "line": {"color": theme.GROUND, "width": 0.5},
                "pattern": theme.stripes(shape),
            },
        ))  # fmt: skip
    fig.add_traces([
        bar(x=totals["rest"].to_numpy(np.float32), text=hover_texts(totals, PRUNED_HOVER), name="pruned",
        legendgroup="pruned",
            marker={"color": theme.PRUNED}, **bar_fields),
        series.text_trace(np.ones(len(y)), y, hover_texts(totals, "\xa0{share:percent}"), "Kept share",
                     textposition="middle right", cliponaxis=False),
    ])  # fmt: skip
    fig.update_xaxes(title={"text": "Share of the section's scalars that is kept (%)"}, range=[0, 1], tickformat=".0%")
    fig.update_yaxes(**axes.name_axis("Section", sections, down=True, fixedrange=False))
    fig.update_layout(barmode="stack", bargap=0.22)
    overall = float(totals["kept"].sum() / totals["numel"].sum()) if totals["numel"].sum() else 0.0
    most, least = describe_extremes(totals, "share", "{section:plain} ({share:percent})")
    alt = f"The merge keeps {percent(overall)} of the scalars: most in {most}, least in {least}."
    left, inner = axes.names_width(sections) + 40, 102 + 24 * len(sections)
    return add_legend(fig, alt, inner, zoom_key=by, left=left, right=64, below=50, gap=12, wide=True)


def _add_kinds(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """The table with kept scalars in place of flags, and the kind of every row.

    The kind is the role in words, the part or the component; all parts except the largest few are ``OTHER_KINDS``.
    """
    kept = table["numel"].astype(float) * table["kept"].astype(bool)
    if "kept_numel" in table:
        kept = table["kept_numel"].astype(float).fillna(kept)
    kinds = table[by].map(role_name) if by == "role" else table[by]
    largest = table["numel"].groupby(kinds).sum().nlargest(MAX_COLORED_KINDS).index
    return table.assign(
        kept=kept, kind=kinds if kinds.nunique() <= MAX_COLORED_KINDS else kinds.where(kinds.isin(largest), OTHER_KINDS)
    )


def _sum_groups(rows: pd.DataFrame, *by: str) -> pd.DataFrame:
    """A row for each group: its scalars and tensors, and how many are kept."""
    groups = rows.assign(survives=rows["kept"] > 0).groupby(list(by), as_index=False)
    sums = groups.agg(
        numel=("numel", "sum"), kept=("kept", "sum"), survivors=("survives", "sum"), tensors=("kept", "size")
    )  # fmt: skip
    return sums.assign(share=_divide(sums["kept"], sums["numel"]))


def _divide(part: Any, total: Any) -> Any:
    return np.divide(part, total, out=np.zeros(len(part)), where=np.asarray(total) > 0)


def _choose_colors(kinds: list[str], by: str) -> Mapping[str, str]:
    unused_colors = iter(theme.PALETTE)
    roles = {role_name(role): color for role, color in theme.ROLE_COLORS.items()}
    fixed_colors = roles if by == "role" else {OTHER_KINDS: theme.OTHER_COLOR}
    return {kind: fixed_colors.get(kind) or next(unused_colors, theme.OTHER_COLOR) for kind in kinds}
