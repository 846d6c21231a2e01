"""Over whole data sets: how many broken images are right again with the reference's tokens put in before each block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing
from viz.figures.image.data_set_depths import APART, axis, hover, line
from viz.parts import legends
from viz.text import clean_text, count, percent, plural, safe_text

KINDS = {"class": "Class token", "patches": "Patches", "all": "All tokens"}  # column -> title of the panel
HEIGHT, BOTTOM, LEFT, GAP = 320, 56, 84, 0.03


@chart(
    title="Restoring over a data set",
    question="Which tokens, put back before which block, fix what the merge breaks?",
    columns=("run", "label", "depth", "tokens", "share"),
    optional=("low", "high", "n"),
    rows=("run", "depth", "tokens"),
    empty="Restoring has not been measured of any run.",
)
def data_set_mended(
    table: pd.DataFrame, *, runs: list[str] | None = None, over: str = "", present: bool = False
) -> go.Figure:
    """A panel for each kind of tokens that is put in, with a line for each run over the block before which it is done.

    run (id), label, depth (the number of the block; the last one is the output), tokens (class, patches, all), share of
    the broken images that are right then, low and high (its interval), n (broken images). ``runs`` is the full ordered
    list that fixes the colors; ``over`` names the images in the alt text.
    """
    table = table.assign(run=table["run"].astype(str))[np.isfinite(table["share"].to_numpy(np.float64))]
    if table.empty:
        return theme.notice("data_set_mended", "Nothing to fix: no image is right with the reference only.", present)
    names, kinds = in_order(table["run"]), in_order(table["tokens"])
    looks, last = theme.looks(runs or names), int(table["depth"].max())
    fig = Drawing()
    for panel, kind in enumerate(kinds):
        axes = {"xaxis": f"x{panel + 1 if panel else ''}", "yaxis": "y"}
        for place, name in enumerate(names):
            rows = table[(table["run"] == name) & (table["tokens"] == kind)].sort_values("depth")
            if len(rows):
                texts = [hover(row, before=True, last=last) for row in rows.to_dict("records")]
                look, shift = looks.get(name, theme.KINDS["merge"]), APART * (place - (len(names) - 1) / 2)
                fig.add_trace(line(rows, look, shift, texts, axes=axes))
    legends.one_entry_each(fig)
    labels = table.drop_duplicates("run").set_index("run")["label"]
    legend, top = legends.above([labels[name] for name in names])
    _lay_out(fig, kinds, last)
    fig.update_yaxes(title={"text": "Broken images that<br>are right again (%)"}, tickformat=".0%", range=[0, 1.02])
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 24, "t": top + 36, "b": BOTTOM})
    return theme.finish(fig, "data_set_mended", _alt(table, names, kinds, over), HEIGHT + top, present)


def _lay_out(fig: Drawing, kinds: list[str], last: int) -> None:
    """Panels side by side, each with its title."""
    width = (1 - GAP * (len(kinds) - 1)) / len(kinds)
    ticks = [*map(str, range(last)), "out"]
    for panel, kind in enumerate(kinds):
        start = panel * (width + GAP)
        fig.update_layout({
            f"xaxis{panel + 1 if panel else ''}": {
                **axis(ticks, "Before block"), "domain": [start, min(1.0, start + width)], "anchor": "y",
            }
        })  # fmt: skip
        fig.add_annotation(
            text=safe_text(KINDS.get(kind, kind), 30), x=start, xref="paper", xanchor="left", y=1, yref="paper",
            yanchor="bottom", yshift=4, font={"size": theme.SMALL},
        )  # fmt: skip


def _alt(table: pd.DataFrame, names: list[str], kinds: list[str], over: str) -> str:
    of = f", {clean_text(over, 60)}" if over else ""
    words = f"Broken images that are right with the reference's tokens put in, {plural(len(names), 'run')}{of}."
    parts = []
    for name in names[:3]:
        own = table[(table["run"] == name) & (table["tokens"] == kinds[0])]
        rows: dict[int, Any] = {int(row["depth"]): row for row in own.to_dict("records")}
        some = [depth for depth in sorted(rows) if depth in (min(rows), (min(rows) + max(rows)) // 2, max(rows) - 1)]
        shares = ", ".join(f"{percent(rows[depth]['share'])} before block {depth}" for depth in some)
        if shares:
            first = next(iter(rows.values()))
            n = f" (n = {count(first['n'])})" if "n" in first else ""
            parts.append(f"{clean_text(first['label'], 40)}{n}: {shares}")
    return f"{words} {clean_text(KINDS.get(kinds[0], kinds[0]), 20)}: {'; '.join(parts)}."
