"""The storage of a merge, counted in several ways."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import ChartError, NothingToDraw, chart
from viz.drawing import Drawing, Picture, Trace, scatter
from viz.hover import hover_texts, in_words
from viz.parts import axes, lanes, series
from viz.text import clean_text, plural, real, safe_text

MIB = 1 << 20
ACCOUNTS: Mapping[str, str] = {
    "paper": "Paper's rule",
    "dense": "Files",
    "sparse": "Changes only",
    "deploy": "All that its user needs",
}
COLORS = dict(zip(ACCOUNTS, ("#D55E00", "#0072B2", "#56B4E9", "#009E73"), strict=True))
SHAPES = dict(zip(ACCOUNTS, ("", "/", ".", "\\"), strict=True))  # beside color, so that a gray print can be read


def _mib(size: float) -> str:
    """A number of bytes in MiB with two decimals, as papers print it; with three digits if it is below one."""
    return f"{size / MIB:,.2f}" if size >= MIB else real(size / MIB)


FORMATS: dict[str, Any] = {"mib": _mib, "account": ACCOUNTS.__getitem__, "markup": str}
HOVER = "<b>{label}</b><br>{counted}: {bytes:mib} MiB ({bytes:count} bytes)[{parts:markup}]"
LEAST, MOST = " {account:account}: from {bytes:mib} MiB ({label:plain 30})", " to {bytes:mib} MiB ({label:plain 30})."


@chart(
    title="Storage",
    question="What does it take to store the merge?",
    columns=("run", "label", "account", "part", "bytes"),
    rows=("run", "account", "part"),
    empty="No run has recorded its storage.",
)
def storage(table: pd.DataFrame) -> Picture:
    """A group of bars for each run, one bar for each way of counting, in MiB (2²⁰ bytes).

    account (paper, dense, sparse or deploy), part (what is counted in it), bytes. The parts of an account add up to its
    bar; an account with an unknown part has no bar.
    """
    if unknown := sorted(set(table["account"].astype(str)) - set(ACCOUNTS)):
        takes = ", ".join(ACCOUNTS)
        raise ChartError(f"storage does not know the account {clean_text(unknown[0])!r}; it takes {takes}")
    sums = series.finite_rows(_sums(table), "bytes")
    if sums.empty:
        raise NothingToDraw("Nothing to draw: these runs did not record their storage.")
    runs = table.drop_duplicates("run")
    lines = [textwrap.wrap(clean_text(label), 24, max_lines=3, placeholder=" …") for label in runs["label"]]
    accounts = [account for account in ACCOUNTS if account in set(sums["account"])]
    rows = lanes.Lanes(accounts, 15, len(accounts) * 15 + 16)
    fig = Drawing()
    for account in accounts:
        fig.add_traces(_bars(sums[sums["account"] == account], account, rows, list(runs["run"])))
    most = max(sums["bytes"].max() / MIB, 1e-6)
    fig.update_xaxes(title={"text": "MiB (2²⁰ bytes)"}, range=[0, 1.12 * most])
    names = ["<br>".join(map(safe_text, own)) or "\xa0" for own in lines]
    fig.update_yaxes(**axes.of_names("Run", names, down=True) | {"ticktext": names, "fixedrange": False})
    legend = {"orientation": "h", "x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top"}
    margin = {"t": 58, "b": 56, "l": axes.room(line for own in lines for line in own or [" "]) + 40, "r": 64}
    fig.update_layout(barmode="overlay", legend=legend | {"tracegroupgap": 0}, margin=margin)
    words = f"{plural(sums['run'].nunique(), 'run')}."
    for account in accounts:
        own = sums[sums["account"] == account]
        words += in_words(own, "bytes", LEAST, least=True, **FORMATS) + in_words(own, "bytes", MOST, **FORMATS)
    return Picture(fig, words, len(runs) * rows.row + 114)


def _sums(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each run and account, with its bytes; ``parts`` are lines about its parts if it has several."""
    rows = []
    for (run, account), own in table.groupby(["run", "account"], sort=False):
        parts = hover_texts(own, "<br>   {part} {bytes:mib} MiB", **FORMATS) if len(own) > 1 else []
        rows.append((run, own["label"].iloc[-1], account, own["bytes"].to_numpy(np.float64).sum(), "".join(parts)))
    return pd.DataFrame(rows, columns=["run", "label", "account", "bytes", "parts"])


def _bars(sums: pd.DataFrame, account: str, rows: lanes.Lanes, runs: list[str]) -> list[Trace]:
    """One account's bars, and the number at the end of each."""
    pattern = {"shape": SHAPES[account], "fgcolor": "white", "fillmode": "overlay", "size": 6, "solidity": 0.25}
    mib, places = sums["bytes"] / MIB, rows.places(account, sums["run"], runs)
    return [
        series.bars(
            sums.assign(counted=ACCOUNTS[account].lower()), mib, places, COLORS[account], HOVER, formats=FORMATS,
            orientation="h", name=ACCOUNTS[account], legendgroup=account, width=0.9 * rows.lane / rows.row,
            marker={"line": theme.edge(0.5), "pattern": pattern},
        ),
        scatter(
            x=series.numbers(sums, mib), y=places, legendgroup=account, mode="text",
            text=hover_texts(sums, "\xa0{bytes:mib}", **FORMATS), textposition="middle right", cliponaxis=False,
            hoverinfo="skip", showlegend=False, name=f"{ACCOUNTS[account]}, MiB", textfont={"size": theme.SMALL},
        ),
    ]  # fmt: skip
