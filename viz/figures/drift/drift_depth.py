"""How far features drift from those of each task's expert, by depth in the network (LOT, Fig. 1b)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order, one_of
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import clean_text, plural, real, safe_text, span

VALUES = {"cosine": "1 − cosine to the expert", "l1": "mean |difference| from the expert, per dimension"}
EVERY = "every"  # value of ``band``: a band for every run, which is readable for two or three
SCALE = "pretrained"  # the kind of run that is drawn for comparison, without a band
HEIGHT, BOTTOM, LEFT = 430, 56, 66


@chart(
    title="Drift by depth",
    question="How does feature drift grow with depth?",
    columns=("run", "label", "kind", "task", "title", "place", "position", "cosine", "l1"),
    optional=("n",),
    rows=("run", "task", "position"),
    empty="No run's drift has been measured yet.",
)
def drift_depth(
    table: pd.DataFrame,
    *,
    value: str = "cosine",
    band: str | None = None,
    runs: list[str] | None = None,
    present: bool = False,
) -> go.Figure:
    """A line for each run, the mean over tasks; one run has a band from the least to the most drifted task.

    run (id), label, kind (merge, or pretrained for the dashed line), task, title, place (stem, "block 0" …,
    embedding), position (of the place, from 0), cosine and l1 (drift, means over images), n (images). ``value`` says
    which of the two is drawn; ``band`` is the run with the band, or EVERY; ``runs`` the full ordered list that fixes
    the colors.
    """
    one_of("value", value, tuple(VALUES))
    table = table.assign(run=table["run"].astype(str))
    kinds = dict(zip(table["run"], table["kind"].astype(str), strict=True))
    names = sorted(in_order(table["run"]), key=lambda run: kinds[run] == SCALE)
    look = theme.looks(runs or [run for run in names if kinds[run] != SCALE])
    traces: list[Trace] = []
    for run in names:
        rows = table[table["run"] == run]
        if kinds[run] == SCALE:
            traces.append(_line(rows, value, theme.KINDS[SCALE], "dash"))
        else:
            color = look.get(run, theme.KINDS["merge"])
            if band in (run, EVERY):
                traces.append(_band(rows, value, color.color))
            traces.append(_line(rows, value, color, "solid"))
    places = table.drop_duplicates("position").sort_values("position")
    labels = table.drop_duplicates("run").set_index("run")["label"]
    legend, top = legends.above([labels[run] for run in names])
    fig = Drawing(traces)
    fig.update_xaxes(
        title={"text": "Place in the network; numbers are blocks"}, tickmode="array", showgrid=False,
        tickvals=places["position"], ticktext=[safe_text(p.removeprefix("block "), 16) for p in places["place"]],
        range=[-0.25, float(places["position"].max()) + 0.25], tickangle=0,
    )  # fmt: skip
    fig.update_yaxes(title={"text": f"Feature drift:<br>{VALUES[value]}"}, rangemode="tozero")
    margin = {"l": LEFT + theme.LINE_HEIGHT, "r": 26, "t": top + 24, "b": BOTTOM}
    fig.update_layout(legend=legend, margin=margin)
    return theme.finish(fig, "drift_depth", _alt(table, names, kinds, value), HEIGHT + top, present, value)


def _line(rows: pd.DataFrame, value: str, look: theme.Look, dash: str) -> Trace:
    places = rows.groupby("position", sort=True)
    means = places[value].mean()
    return scatter(
        x=means.index.to_numpy(np.float32), y=means.to_numpy(np.float32), mode="lines+markers",
        name=legends.entry(rows["label"].iloc[0]), legendgroup=safe_text(f"run {rows['run'].iloc[0]}"),
        line={"color": look.color, "width": 2.5 if dash == "solid" else 1.8, "dash": dash},
        marker={"symbol": look.symbol, "color": look.color, "size": 9, "line": theme.edge(0.8)},
        text=[_hover(group, value) for _, group in places], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _band(rows: pd.DataFrame, value: str, color: str) -> Trace:
    """The band from the task that drifts least to the one that drifts most, as one closed outline."""
    places = rows.groupby("position", sort=True)[value]
    low, high = places.min(), places.max()
    x = np.concatenate([low.index, high.index[::-1]]).astype(np.float32)
    y = np.concatenate([low, high[::-1]]).astype(np.float32)
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return scatter(
        x=x, y=y, mode="lines", line={"width": 0}, fill="toself", fillcolor=f"rgba({red},{green},{blue},0.16)",
        hoverinfo="skip", showlegend=False, name=legends.entry(f"{rows['label'].iloc[0]}, all tasks"),
        legendgroup=safe_text(f"run {rows['run'].iloc[0]}"),
    )  # fmt: skip


def _hover(group: pd.DataFrame, value: str) -> str:
    least, most = (group.loc[group[value].agg(end)] for end in ("idxmin", "idxmax"))
    first = group.iloc[0]
    text = f"<b>{safe_text(first['label'])}, {safe_text(first['place'])}</b><br>mean {real(group[value].mean())}"
    text += f" over {plural(len(group), 'task')}<br>least {real(least[value])} ({safe_text(least['title'])}), "
    text += f"most {real(most[value])} ({safe_text(most['title'])})"
    return text + (f"<br>{span(group['n'])} images a task" if "n" in group else "")


def _alt(table: pd.DataFrame, names: list[str], kinds: dict[str, str], value: str) -> str:
    merges = [run for run in names if kinds[run] != SCALE] or names
    last = table[table["position"] == table["position"].max()].groupby("run")[value].mean()[merges]
    labels = table.drop_duplicates("run").set_index("run")["label"]
    words = f"Feature drift of {plural(len(merges), 'run')} by depth. At the embedding it is least for "
    words += f"{clean_text(labels[last.idxmin()], 40)}, {real(last.min())}"
    return words + (
        f", and most for {clean_text(labels[last.idxmax()], 40)}, {real(last.max())}." if len(last) > 1 else "."
    )
