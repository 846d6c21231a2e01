"""Runs side by side: their scores by task, measured by Mergescope or imported ("given"), and their storage."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import ChartError, Names, NothingToDraw, chart, distinct_names
from viz.drawing import Drawing, Picture, Trace
from viz.figure_text import clean_text, percent, plural, real, safe_text
from viz.hover import describe_extreme, hover_texts
from viz.parts import axes, lanes, legends, series

REFERENCE_MARKS: dict[str, tuple[str, dict[str, Any], str]] = {
    "expert": ("Own expert", {"color": theme.INK, "width": 2.5}, "line-ns"),
    "zero_shot": ("Pretrained, zero-shot", {"color": theme.REFERENCE, "width": 2.5}, "line-ns"),
    "chance": ("Chance", {"color": theme.REFERENCE, "width": 1.5}, "x-thin"),
}
HOVER = (
    "<b>{title}</b><br>{label}: {accuracy:percent}[ ({low:percent} to {high:percent})]<br>{correct:count} of {n:count} "
    "images" + "".join(f"[<br>{name.lower()} {{{column}:percent}}]" for column, (name, *_) in REFERENCE_MARKS.items())
)
IMPORTED_HOVER = (
    "<b>{task}</b><br>{label}: {value_words}[ ({low_words} to {high_words})]<br>{metric}[, n = {n:count}]"
    "<br>from {origin}"
)
LARGEST_SENTENCE = " Largest {metric:plain 30}: {value_words:plain}, {label:plain 30} on {task:plain 30}."

MIB = 1 << 20
ACCOUNTS: Mapping[str, str] = {  # way to count the bytes of a merge -> its name
    "paper": "Paper's rule",
    "dense": "Files",
    "sparse": "Changes only",
    "deploy": "All that its user needs",
}
ACCOUNT_COLORS = dict(zip(ACCOUNTS, (theme.VERMILION, theme.BLUE, theme.SKY, theme.GREEN), strict=True))
# In addition to color, so that a gray print stays readable.
ACCOUNT_SHAPES = dict(zip(ACCOUNTS, ("", "/", ".", "\\"), strict=True))


def _format_mib(size: float) -> str:
    """A number of bytes in MiB with two decimals, as papers print it; with three digits if it is below one."""
    return f"{size / MIB:,.2f}" if size >= MIB else real(size / MIB)


TEXT_FORMATS: dict[str, Any] = {"mib": _format_mib, "account": ACCOUNTS.__getitem__, "markup": str}
STORAGE_HOVER = "<b>{label}</b><br>{counted}: {bytes:mib} MiB ({bytes:count} bytes)[{parts:markup}]"
LEAST_SENTENCE = " {account:account}: from {bytes:mib} MiB ({label:plain 30})"
MOST_SENTENCE = " to {bytes:mib} MiB ({label:plain 30})."


@chart(
    title="Accuracy per task",
    question="Which task pays for the merge?",
    columns=("run", "label", "task", "title", "in_domain", "accuracy", "low", "high", "n", "correct"),
    optional=("expert", "zero_shot", "chance"),
    rows=("run", "task"),
    picks=("run", "task"),
    empty="No run has been evaluated yet.",
)
def task_accuracy(
    table: pd.DataFrame, *, normalized: bool = False, runs: Names = None, selected: str | None = None
) -> Picture:
    """A dot with its Wilson interval for each run and task, in-domain tasks above out-of-domain ones.

    Columns: expert (own expert's accuracy), zero_shot (pretrained's) and chance, which are ticks. ``normalized``
    divides by ``expert``; tasks without one are left out, and a note counts them.
    """
    tasks = distinct_names(table["task"])
    table = _normalize(table) if normalized else table
    if table.empty:
        raise NothingToDraw("Nothing to draw: no task has its own expert's accuracy.")
    names, inside = distinct_names(table["run"]), table["in_domain"].astype(bool)
    mark_styles, rows = theme.mark_styles(runs or names), lanes.Lanes(names, 11, max(28, len(names) * 11 + 12))
    groups = (("In-domain tasks", table[inside]), ("Out-of-domain tasks", table[~inside]))
    panels = [
        (title, panel_rows, panel_rows.drop_duplicates("task")) for title, panel_rows in groups if len(panel_rows)
    ]
    domains, inner = axes.stack_panels([len(first) * rows.row for *_, first in panels], 44)
    fig, names_width = Drawing(), axes.names_width(table["title"])
    for (title, panel_rows, first), domain, axis in zip(panels, domains, ("", "2"), strict=False):
        fig.add_traces(_draw_references(first, f"y{axis}", normalized))
        fig.add_traces(lanes.dots(rows, panel_rows, list(first["task"]), "accuracy", mark_styles, HOVER, axis=axis))
        axis_title = {"text": "Task", "standoff": 8 + names_width - axes.names_width(first["title"])}
        settings = axes.name_axis("Task", list(first["title"]), down=True, domain=domain, anchor="x")
        fig.update_layout({f"yaxis{axis}": settings | {"title": axis_title}})
        fig.update_layout(shapes=[*fig.layout.get("shapes", ()), *lanes.tints(len(first), axis)])
        for frame in lanes.selection_frame(list(first["task"]), selected, axis):
            fig.add_shape(frame)
        fig.add_annotation(theme.caption(f"<b>{title}</b>", domain[1]))
    title = "Accuracy relative to the task's own expert (%)" if normalized else "Accuracy (%), Wilson 95% interval"
    ends = _padded_range(table, ["accuracy", "low", "high", *REFERENCE_MARKS], 0.04, 0.01)
    ends[0] = max(-0.01, ends[0])
    fig.update_xaxes(title={"text": title}, tickformat=".0%", anchor=f"y{'2' * (len(panels) - 1)}", range=ends)
    if normalized:
        fig.add_shape(axes.vertical_line(1, {"color": theme.INK, "width": 1.2, "dash": "dash"}))
    missing_count = len(tasks) - table["task"].nunique()
    words = f"Left out, no accuracy of its own expert: {plural(missing_count, 'task')}" if missing_count else ""
    notes, _ = axes.make_note(words, 46)
    fig.update_layout(annotations=[*fig.annotations, *notes])
    legends.merge_entries(fig)
    below = 54 + (20 if missing_count else 0)
    return legends.add_legend(
        fig, _describe_highest(table, normalized), inner + 34 + below, zoom_key=str(normalized), left=names_width + 38,
        right=30, below=below, gap=34, wide=True,
    )  # fmt: skip


def _normalize(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of tasks whose own expert has an accuracy, with accuracies as multiples of it."""
    expert = table["expert"].astype(float) if "expert" in table else pd.Series(np.nan, index=table.index)
    columns = [name for name in ("accuracy", "low", "high", "zero_shot", "chance") if name in table]
    return table.assign(**{name: table[name].astype(float) / expert for name in columns})[expert > 0]


def _draw_references(tasks: pd.DataFrame, axis: str, normalized: bool) -> Iterator[Trace]:
    """Ticks at the accuracies of the reference models."""
    tasks = tasks.assign(row=range(len(tasks)))
    for column, (name, line, symbol) in REFERENCE_MARKS.items():
        if column not in tasks or (normalized and column == "expert"):
            continue
        if len(rows := series.finite_rows(tasks, column)):
            yield series.marks(
                rows, column, "row", theme.MarkStyle(line["color"], symbol), f"<b>{{title}}</b><br>{name.lower()} "
                f"{{{column}:percent}}", name=name, legendgroup=column, legendrank=2000, yaxis=axis,
                size=18 if symbol == "line-ns" else 8, marker={"line": line},
            )  # fmt: skip


def _padded_range(table: pd.DataFrame, columns: list[str], share: float, min_margin: float) -> list[float]:
    """The range of all marks and intervals, with a margin that is a share of it."""
    values = table[[name for name in columns if name in table]].to_numpy(np.float64)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    pad = max(share * (high - low), min_margin)
    return [low - pad, high + pad]


def _describe_highest(table: pd.DataFrame, normalized: bool) -> str:
    means = table.groupby("run")["accuracy"].mean()
    best = str(means.idxmax())
    label = table.loc[table["run"] == best, "label"].iloc[0]
    return (
        f"{plural(len(means), 'run')} on {plural(table['task'].nunique(), 'task')}. Highest mean "
        f"{'relative ' * normalized}accuracy: {clean_text(label)}, {percent(means[best])}."
    )


@chart(
    title="Imported scores",
    question="What did other programs measure?",
    columns=("run", "label", "task", "metric", "value", "low", "high", "origin"),
    optional=("n", "better", "proportion", "source"),
    rows=("run", "task", "metric"),
    picks=("run", "task"),
    empty="These runs have no scores from other programs.",
)
def given_scores(table: pd.DataFrame, *, runs: Names = None) -> Picture:
    """A panel for each metric on its own scale, with an open diamond for each run and task.

    Columns: task (with its split, if the file names one), metric, value, low, high (of proportions with a known n, else
    NaN), origin (the file or program), source ("given" by a file, or "program"), better ("higher", "lower" or empty),
    proportion (bool: drawn as percent).
    """
    table = _format_scores(series.require_finite_rows(table, "value", empty_reason="no score is a number"))
    names = distinct_names(table["run"])
    mark_styles = {
        run: mark_style._replace(symbol="diamond-open")
        for run, mark_style in theme.mark_styles(distinct_names([*(runs or ()), *names])).items()
    }
    rows = lanes.Lanes(names, 13, max(30, len(names) * 13 + 12))
    panels = [panel_rows for _, panel_rows in table.groupby("metric", sort=False)]
    domains, inner = axes.stack_panels([panel_rows["task"].nunique() * rows.row for panel_rows in panels], 78)
    fig, names_width = Drawing(), axes.names_width(table["task"], 28)
    for index, (panel_rows, domain) in enumerate(zip(panels, domains, strict=True)):
        axis, tasks = str(index + 1) if index else "", distinct_names(panel_rows["task"])
        fig.add_traces(lanes.dots(
            rows, panel_rows, tasks, "value", mark_styles, IMPORTED_HOVER, axis=axis, xaxis=f"x{axis}", size=11,
            marker={"line": {"width": 2}},
        ))  # fmt: skip
        axis_title = {"text": "Task", "standoff": 8 + names_width}
        settings = axes.name_axis("Task", tasks, 28, down=True, domain=domain, anchor=f"x{axis}")
        x_axis = {**_make_scale(panel_rows), "anchor": f"y{axis}"}
        fig.update_layout({f"xaxis{axis}": x_axis, f"yaxis{axis}": settings | {"title": axis_title}})
    legends.merge_entries(fig)
    counts = (plural(table[name].nunique(), name) for name in ("run", "task", "metric"))
    alt = "Imported scores of {} on {}, in {}.".format(*counts)
    alt += "".join(describe_extreme(panel_rows, "value", LARGEST_SENTENCE) for panel_rows in panels[:3])
    return legends.add_legend(fig, alt, inner + 82, left=names_width + 40, right=30, gap=26, wide=True)


def _format_scores(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its numbers as texts: proportions in percent, empty where there is no number."""
    shares = table["proportion"].eq(True) if "proportion" in table else [False] * len(table)
    texts = {
        f"{name}_words": [
            (percent if share else real)(value) if np.isfinite(value) else ""
            for value, share in zip(table[name], shares, strict=True)
        ]
        for name in ("value", "low", "high")
    }
    return table.assign(**texts)


def _make_scale(panel: pd.DataFrame) -> dict[str, Any]:
    """The title, the range and the ticks of one metric."""
    share = "proportion" in panel and bool(panel["proportion"].eq(True).all())
    better = next((word for word in panel.get("better", ()) if word in ("higher", "lower")), "")
    title = safe_text(panel["metric"].iloc[0], 40) + (" (%)" if share else "")
    title += f", {better} is better" if better else ""
    title += ", Wilson 95% interval" if np.isfinite(panel["low"].to_numpy(np.float64)).any() else ""
    ends = panel[["value", "low", "high"]].to_numpy(np.float64)
    min_margin = max(0.01 * float(np.nanmax(np.abs(ends))), 1e-6)
    return {
        "title": {"text": title}, "tickformat": ".0%" if share else "",
        "range": _padded_range(panel, ["value", "low", "high"], 0.06, min_margin),
    }  # fmt: skip


@chart(
    title="Storage",
    question="What does it take to store the merge?",
    columns=("run", "label", "account", "part", "bytes"),
    rows=("run", "account", "part"),
    empty="No run has recorded its storage.",
)
def storage(table: pd.DataFrame) -> Picture:
    """A group of bars for each run, one bar for each way to count its storage, in MiB (2²⁰ bytes).

    Columns: account (paper, dense, sparse or deploy), part (a counted part of the model), bytes. The parts of an
    account add up to its bar; an account with an unknown part has no bar.
    """
    if unknown := sorted(set(table["account"].astype(str)) - set(ACCOUNTS)):
        known_accounts = ", ".join(ACCOUNTS)
        raise ChartError(f"storage does not know the account {clean_text(unknown[0])!r}; it takes {known_accounts}")
    sums = series.require_finite_rows(
        _sum_accounts(table), "bytes", empty_reason="these runs did not record their storage"
    )
    runs = table.drop_duplicates("run")
    lines = [textwrap.wrap(clean_text(label), 24, max_lines=3, placeholder=" …") for label in runs["label"]]
    accounts = [account for account in ACCOUNTS if account in set(sums["account"])]
    rows = lanes.Lanes(accounts, 15, len(accounts) * 15 + 16)
    fig = Drawing()
    for account in accounts:
        fig.add_traces(_draw_bars(sums[sums["account"] == account], account, rows, list(runs["run"])))
    largest = max(sums["bytes"].max() / MIB, 1e-6)
    fig.update_xaxes(title={"text": "MiB (2²⁰ bytes)"}, range=[0, 1.12 * largest])
    names = ["<br>".join(map(safe_text, own_lines)) or "\xa0" for own_lines in lines]
    fig.update_yaxes(**axes.name_axis("Run", names, down=True) | {"ticktext": names, "fixedrange": False})
    legend = {"orientation": "h", "x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top"}
    left = axes.names_width(line for own_lines in lines for line in own_lines or [" "]) + 40
    margin = {"t": 58, "b": 56, "l": left, "r": 64}
    fig.update_layout(barmode="overlay", legend=legend | {"tracegroupgap": 0}, margin=margin)
    words = f"{plural(sums['run'].nunique(), 'run')}."
    for account in accounts:
        own_lines = sums[sums["account"] == account]
        words += describe_extreme(own_lines, "bytes", LEAST_SENTENCE, smallest=True, **TEXT_FORMATS)
        words += describe_extreme(own_lines, "bytes", MOST_SENTENCE, **TEXT_FORMATS)
    return Picture(fig, words, len(runs) * rows.row + 114)


def _sum_accounts(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each run and account, with its bytes; ``parts`` are lines about its parts if it has several."""
    rows = []
    for (run, account), account_rows in table.groupby(["run", "account"], sort=False):
        parts = (
            hover_texts(account_rows, "<br>   {part} {bytes:mib} MiB", **TEXT_FORMATS) if len(account_rows) > 1 else []
        )
        size = account_rows["bytes"].to_numpy(np.float64).sum()
        rows.append((run, account_rows["label"].iloc[-1], account, size, "".join(parts)))
    return pd.DataFrame(rows, columns=["run", "label", "account", "bytes", "parts"])


def _draw_bars(sums: pd.DataFrame, account: str, rows: lanes.Lanes, runs: list[str]) -> list[Trace]:
    """One account's bars, and the number at the end of each."""
    mib, positions = sums["bytes"] / MIB, rows.mark_positions(account, sums["run"], runs)
    return [
        series.bars(
            sums.assign(counted=ACCOUNTS[account].lower()), mib, positions, ACCOUNT_COLORS[account], STORAGE_HOVER,
            formats=TEXT_FORMATS,
            orientation="h", name=ACCOUNTS[account], legendgroup=account, width=0.9 * rows.lane / rows.row,
            marker={"line": theme.edge(0.5), "pattern": theme.stripes(ACCOUNT_SHAPES[account])},
        ),
        series.text_trace(
            mib, positions, hover_texts(sums, "\xa0{bytes:mib}", **TEXT_FORMATS), f"{ACCOUNTS[account]}, MiB",
            textposition="middle right", cliponaxis=False, legendgroup=account,
        ),
    ]  # fmt: skip
