"""What has to be kept to use a merge, part by part."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, bar
from viz.parts import legends
from viz.text import clean_text, count, percent, plural, real, safe_text

MIB = 1 << 20
LANE, BOTTOM, LABEL = 34, 58, 24  # px, px, characters in a line of a run's name
SHAPES = ("", "/", ".", "\\", "x", "-", "|", "+")  # beside color, so that a gray print can be read


@chart(
    title="What one model is made of",
    question="What must be kept to use each merge?",
    columns=("run", "label", "part", "bytes"),
    rows=("run", "part"),
    picks=("run",),
    empty="No run has recorded its storage.",
)
def storage_parts(table: pd.DataFrame, *, parts: list[str] | None = None, present: bool = False) -> go.Figure:
    """A bar for each run, in MiB (2²⁰ bytes), made of its parts: the merged model, heads, modules, a router.

    run (id), label, part, bytes. ``parts`` is the full ordered list that fixes the colors.
    """
    table = table.assign(run=table["run"].astype(str), part=table["part"].astype(str))
    drawn = table[np.isfinite(table["bytes"].to_numpy(np.float64))]
    if drawn.empty:
        return theme.notice("storage_parts", "Nothing to draw: these runs did not record their storage.", present)
    names, runs = in_order(parts or drawn["part"]), in_order(drawn["run"])
    labels, sums = dict(zip(drawn["run"], drawn["label"], strict=True)), drawn.groupby("run")["bytes"].sum()
    fig = Drawing()
    before = dict.fromkeys(runs, 0.0)
    for place, name in enumerate(names):
        rows = drawn[drawn["part"] == name]
        if len(rows):
            fig.add_trace(_bars(rows, runs, before, sums, place))
    lines = ["<br>".join(_lines(labels[run])) for run in runs]
    legend, top = legends.above([name for name in names if name in set(drawn["part"])])
    fig.update_xaxes(title={"text": "MiB (2²⁰ bytes)"}, range=[0, 1.05 * max(float(sums.max()) / MIB, 1e-6)])
    fig.update_yaxes(
        title={"text": "Run"}, tickmode="array", tickvals=list(range(len(runs))), ticktext=lines, showgrid=False,
        range=[len(runs) - 0.5, -0.5], fixedrange=True,
    )  # fmt: skip
    left = max(theme.text_width(line) for label in labels.values() for line in _lines(label)) + 40
    fig.update_layout(barmode="overlay", legend=legend, margin={"l": left, "r": 30, "t": top + 14, "b": BOTTOM})
    height = max(LANE, theme.LINE_HEIGHT * 2) * max(len(runs), 3) + top + 14 + BOTTOM
    return theme.finish(fig, "storage_parts", _alt(sums, labels), height, present)


def _bars(
    rows: pd.DataFrame, runs: list[str], before: dict[str, float], sums: Mapping[Any, float], place: int
) -> Trace:
    """One part's pieces, each where the run's earlier parts end; ``before`` moves on by their lengths."""
    sizes = {row["run"]: float(row["bytes"]) for row in rows.to_dict("records")}
    starts = {run: before[run] for run in sizes}
    before.update({run: before[run] + size for run, size in sizes.items()})
    name = str(rows["part"].iloc[0])
    labels = dict(zip(rows["run"], rows["label"], strict=True))
    return bar(
        x=np.array([size / MIB for size in sizes.values()], np.float32),
        base=np.array([starts[run] / MIB for run in sizes], np.float32),
        y=np.array([runs.index(run) for run in sizes], np.float32), orientation="h", width=0.62,
        name=legends.entry(name), legendgroup=legends.entry(name), textposition="none",
        marker={
            "color": theme.PALETTE[place % len(theme.PALETTE)], "line": theme.edge(0.5),
            "pattern": {
                "shape": SHAPES[place % len(SHAPES)], "fgcolor": "white", "fillmode": "overlay", "size": 6,
                "solidity": 0.25,
            },
        },
        customdata=[[run] for run in sizes],
        text=[_hover(labels[run], name, size, float(sums[run])) for run, size in sizes.items()],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _mib(size: float) -> str:
    return real(size / MIB) if size < 100 * MIB else count(size / MIB)


def _hover(label: str, part: str, size: float, whole: float) -> str:
    share = f", {percent(size / whole)} of {_mib(whole)} MiB" if whole > 0 else ""
    return f"<b>{safe_text(label)}</b><br>{safe_text(part)}: {_mib(size)} MiB{share}<br>{count(size)} bytes"


def _lines(label: object) -> list[str]:
    """A run's name in at most two lines beside its bar."""
    lines = textwrap.wrap(clean_text(label), LABEL, max_lines=2, placeholder=" …")
    return [safe_text(line) for line in lines] or ["\xa0"]


def _alt(sums: Mapping[Any, float], labels: Mapping[str, str]) -> str:
    sizes = {run: float(size) for run, size in sums.items() if math.isfinite(size)}
    least, most = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    words = (
        f"What {plural(len(sizes), 'run')} must keep: from {_mib(sizes[least])} MiB ({clean_text(labels[least], 30)})"
    )
    return f"{words} to {_mib(sizes[most])} MiB ({clean_text(labels[most], 30)})."
