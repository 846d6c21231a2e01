"""The storage of a merge, counted in several ways."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import ChartError, chart
from viz.drawing import Drawing, Trace, bar, scatter
from viz.text import clean_text, count, plural, real, safe_text

MIB = 1 << 20
LANE, GAP = 15, 16  # px: height of a bar, and between runs
LABEL = 24  # characters in a line of a run's name
ACCOUNTS: Mapping[str, str] = {
    "paper": "Paper's rule",
    "dense": "Files",
    "sparse": "Changes only",
    "deploy": "All that its user needs",
}
COLORS = dict(zip(ACCOUNTS, ("#D55E00", "#0072B2", "#56B4E9", "#009E73"), strict=True))
SHAPES = dict(zip(ACCOUNTS, ("", "/", ".", "\\"), strict=True))  # beside color, so that a gray print can be read


@chart(
    title="Storage",
    question="What does it take to store the merge?",
    columns=("run", "label", "account", "part", "bytes"),
    rows=("run", "account", "part"),
    empty="No run has recorded its storage.",
)
def storage(table: pd.DataFrame, *, present: bool = False) -> go.Figure:
    """A group of bars for each run, one bar for each way of counting, in MiB (2²⁰ bytes).

    run (id), label, account (paper, dense, sparse or deploy), part (what is counted in it), bytes. The parts of an
    account add up to its bar; an account with an unknown part has no bar.
    """
    parts = _parts(table)
    if unknown := sorted({account for _, account in parts} - set(ACCOUNTS)):
        takes = ", ".join(ACCOUNTS)
        raise ChartError(f"storage does not know the account {clean_text(unknown[0])!r}; it takes {takes}")
    sums = {key: sum(sizes.values()) / MIB for key, sizes in parts.items()}
    complete = {key: mib for key, mib in sums.items() if math.isfinite(mib)}
    if not complete:
        return theme.notice("storage", "Nothing to draw: these runs did not record their storage.", present)
    labels = dict(zip(table["run"].astype(str), table["label"], strict=True))
    accounts = [account for account in ACCOUNTS if any(account == other for _, other in complete)]
    group = len(accounts) * LANE + GAP
    fig = Drawing()
    for lane, account in enumerate(accounts):
        offset = (lane - (len(accounts) - 1) / 2) * LANE / group
        places = {run: row + offset for row, run in enumerate(labels) if (run, account) in complete}
        hovers = [_hover(labels[run], account, parts[run, account]) for run in places]
        fig.add_traces(_bars(account, [complete[run, account] for run in places], [*places.values()], hovers, group))
    _lay_out_axes(fig, max(complete.values()), [_lines(label) for label in labels.values()])
    top, bottom = 58, 56
    fig.update_layout(margin={"t": top, "b": bottom})
    return theme.finish(fig, "storage", _alt(complete, labels), len(labels) * group + top + bottom, present)


def _parts(table: pd.DataFrame) -> dict[tuple[str, str], dict[str, float]]:
    """Bytes by part, for each run and account, in the table's order."""
    parts: dict[tuple[str, str], dict[str, float]] = {}
    columns = (table[name] for name in ("run", "account", "part", "bytes"))
    for run, account, part, size in zip(*columns, strict=True):
        parts.setdefault((str(run), str(account)), {})[str(part)] = float(size)
    return parts


def _bars(account: str, mib: list[float], y: list[float], hovers: list[str], group: float) -> list[Trace]:
    """One account's bars, and the number at the end of each."""
    common = {"x": np.array(mib, np.float32), "y": np.array(y, np.float32), "legendgroup": account}
    pattern = {"shape": SHAPES[account], "fgcolor": "white", "fillmode": "overlay", "size": 6, "solidity": 0.25}
    return [
        bar(
            **common, orientation="h", name=ACCOUNTS[account], width=0.9 * LANE / group, text=hovers,
            textposition="none", hovertemplate="%{text}<extra></extra>",
            marker={"color": COLORS[account], "line": theme.edge(0.5), "pattern": pattern},
        ),
        scatter(
            **common, mode="text", text=[f"\xa0{_mib(value)}" for value in mib], textposition="middle right",
            cliponaxis=False, hoverinfo="skip", showlegend=False, name=f"{ACCOUNTS[account]}, MiB",
            textfont={"size": theme.SMALL},
        ),
    ]  # fmt: skip


def _mib(value: float) -> str:
    """A number of MiB with two decimals, as papers print it; with three digits if it is below one."""
    return f"{value:,.2f}" if value >= 1 else real(value)


def _hover(label: str, account: str, parts: Mapping[str, float]) -> str:
    total = sum(parts.values())
    text = f"<b>{safe_text(label)}</b><br>{ACCOUNTS[account].lower()}: {_mib(total / MIB)} MiB ({count(total)} bytes)"
    if len(parts) > 1:
        text += "".join(f"<br>   {safe_text(part)} {_mib(size / MIB)} MiB" for part, size in parts.items())
    return text


def _lines(label: str) -> list[str]:
    """A run's name in at most three lines beside its bars."""
    lines = textwrap.wrap(clean_text(label), LABEL, max_lines=3, placeholder=" …")
    return [safe_text(line) for line in lines] or ["\xa0"]


def _lay_out_axes(fig: Drawing, most: float, labels: list[list[str]]) -> None:
    fig.update_xaxes(title={"text": "MiB (2²⁰ bytes)"}, range=[0, 1.12 * max(most, 1e-6)])
    fig.update_yaxes(
        title={"text": "Run"}, tickmode="array", tickvals=np.arange(len(labels)), showgrid=False,
        ticktext=["<br>".join(lines) for lines in labels], range=[len(labels) - 0.5, -0.5],
    )  # fmt: skip
    fig.update_layout(
        barmode="overlay",
        legend={
            "orientation": "h", "x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top",
            "tracegroupgap": 0,
        },
        margin={"l": max(theme.text_width(line) for lines in labels for line in lines) + 40, "r": 64},
    )  # fmt: skip


def _alt(complete: Mapping[tuple[str, str], float], labels: Mapping[str, str]) -> str:
    sentences = [f"{plural(len({run for run, _ in complete}), 'run')}."]
    for account, name in ACCOUNTS.items():
        if sizes := {run: mib for (run, other), mib in complete.items() if other == account}:
            least, most = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
            sentences.append(
                f"{name}: from {_mib(sizes[least])} MiB ({clean_text(labels[least], 30)}) "
                f"to {_mib(sizes[most])} MiB ({clean_text(labels[most], 30)})."
            )
    return " ".join(sentences)
