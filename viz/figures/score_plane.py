"""Runs in the plane of in-domain and out-of-domain accuracy (LwPTV, Fig. 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import ChartError, chart
from viz.drawing import Picture, Trace
from viz.figure_text import clean_text, plural
from viz.hover import describe_extreme, hover_texts
from viz.parts import legends, plane, series
from viz.parts.plane import IN, OUT, SCORES, Labels, PlotWindow, Point

KIND_NAMES: Mapping[str, str] = {
    "pretrained": "Pretrained",
    "individual": "Individual experts",
    "multitask": "Trained on all tasks",
    "merge": "Merge",
    "per_task": "Merge that gives one model per task ‡",
    "task_modules": "Merge with a module per task ‡",
    "paper": "Quoted from a paper, not measured here",
}
MERGES, REFERENCES, PAPER = ("merge", "per_task", "task_modules"), ("pretrained", "individual", "multitask"), "paper"
ADAPTING_NAME = "Merge that adapts on test data †"
KIND_SIGNS = {"per_task": " ‡", "task_modules": " ‡", "paper": " (paper)"}  # after the label
HOVER = (
    f"<b>{{label}}</b><br>{SCORES}<br>{{kind:kind}}[<br>in domain: {{experts:text 100}}]"
    "[<br>{adapts} adapts on test data][<br>source: {source}]"
)
HEIGHT, TOP, BOTTOM = 560, 50, 82  # px; a paper's legend takes 20 more above
LEGEND_LAYOUT = {"orientation": "h", "x": 0, "xanchor": "left", "tracegroupgap": 0}
INTERVALS = ("in_low", "in_high", "out_low", "out_high", "n_in", "n_out")
Pairs = pd.DataFrame | Sequence[tuple[str, str]]
BEST_SENTENCE = (
    " {label:plain}, {h_score:percent} (in-domain {in_domain:percent}, out-of-domain {out_of_domain:percent})."
)

START_PREFIX = "Start: "  # before the label of a model where an arrow begins
PLAIN, PLUGGED = "plain", "plugged"  # the two ends of a pair
# The end with the edit, by H.
RISING_STYLE = theme.MarkStyle(theme.BLUE, "circle")
FALLING_STYLE = theme.MarkStyle(theme.VERMILION, "diamond")
UNPAIRED_STYLE = theme.MarkStyle(theme.FADED, "circle-open")
INTERVAL_COLOR = theme.INTERVAL  # intervals: two for every merge
FAR_SHARE = 0.5  # share of the range of all ends; starts farther outside would squeeze the others into a corner
OUTSIDE_TEXT = "{pair:text 26} starts outside, at {in_domain:percent} in, {out_of_domain:percent} out"
MAX_NAMED_STARTS = 3  # starts outside that are named
LARGEST_SENTENCE = "; the largest change is {pair:plain}'s, {gained_h_score:points} points."
CHANGE_HOVER = (
    f"<b>{{label}}</b><br>{SCORES}[<br>change: in-domain {{gained_in_domain:points}}, "
    "out-of-domain {gained_out_of_domain:points}, H-score {gained_h_score:points} points]"
)


@chart(
    title="In-domain against out-of-domain",
    question="Which merge is good in-domain without losing out-of-domain?",
    columns=("run", "label", "kind", "in_domain", "out_of_domain", "h_score"),
    optional=(*INTERVALS, "adapts_on_test", "source", "experts", "tasks_in", "tasks_out"),
    rows=("run",),
    picks=("run",),
    empty="No run has been evaluated yet.",
)
def id_ood_scatter(
    table: pd.DataFrame, *, selected: str | None = None, arrows: Pairs = (), pinned: Sequence[str] = ()
) -> Picture:
    """A mark for each run: open for references, filled for merges, a cross with its own legend for a paper's numbers.

    Columns: experts (whose tasks are in domain, separated by commas; the same in all rows, because other sets cannot be
    compared), adapts_on_test (bool), source (of a paper's row). ``arrows`` are pairs (from run, to run). A row without
    one of the scores is left out, and a note counts these rows. Runs that are ``pinned`` have the color and symbol of
    their position there.
    """
    return _draw_runs(table, selected, arrows, pinned)


def _draw_runs(table: pd.DataFrame, selected: str | None, arrows: Pairs, pinned: Sequence[str] = ()) -> Picture:
    """The picture of ``id_ood_scatter``."""
    _check_table(table)
    plotted, left_out = plane.split_complete(table)
    plane.require_rows(plotted, left_out)
    adapts = plotted["adapts_on_test"].eq(True) if "adapts_on_test" in plotted else pd.Series(False, plotted.index)
    plotted = plotted.assign(adapts=np.where(adapts, "†", ""))
    top = TOP + (20 if PAPER in set(plotted["kind"]) else 0)
    joined, positions = _find_arrow_rows(arrows, table, plotted), plane.points(plotted)
    texts = hover_texts(plotted, "{label:text 36}[ {adapts}]{kind:sign}", sign=lambda kind: KIND_SIGNS.get(kind, ""))
    first = {end for pair in joined for end in pair}
    labels = Labels(plotted, texts, (700, 1300), HEIGHT - top - BOTTOM, avoid_intervals=True, first=first)
    pointers = [plane.arrow(positions[start], positions[end]) for start, end in joined]
    fig = plane.draw(_draw_marks_by_kind(plotted, pinned), PlotWindow.around_rows(plotted), labels, pointers, left_out)
    for point, run in zip(positions, plotted["run"], strict=True):
        if run == selected:  # a circle in px, so that it stays round
            fig.add_shape(
                type="circle", xsizemode="pixel", ysizemode="pixel", xanchor=point[0], yanchor=point[1], x0=-12, x1=12,
                y0=-12, y1=12, line={"color": theme.ACCENT, "width": 3}, name="selected",
            )  # fmt: skip
    fig.update_layout(
        legend=LEGEND_LAYOUT | {"y": 1, "yanchor": "bottom"},
        legend2=LEGEND_LAYOUT | {"y": 1, "yanchor": "top", "yref": "container"},
        margin={"l": plane.LEFT, "r": plane.RIGHT, "t": top, "b": BOTTOM},
    )
    return Picture(fig, _describe_best_run(plotted, left_out), HEIGHT)


def _check_table(table: pd.DataFrame) -> None:
    """Raise ChartError for an unknown kind, and for averages over different tasks, which no picture can compare."""
    if unknown := sorted(set(table["kind"].astype(str)) - set(KIND_NAMES)):
        raise ChartError(f"id_ood_scatter does not know the kind {unknown[0]!r}; it takes {', '.join(KIND_NAMES)}")
    if "experts" in table:
        sets = {frozenset(str(names).split(", ")) for names in table["experts"].dropna()}
        if len(sets) > 1:
            raise ChartError(f"id_ood_scatter takes runs of one set of experts; the table has {len(sets)} sets")


def _find_arrow_rows(arrows: Pairs, table: pd.DataFrame, plotted: pd.DataFrame) -> list[tuple[int, int]]:
    """Pairs of rows of ``plotted`` that arrows join, without pairs that contain a left-out run."""
    pairs = arrows[["from", "to"]].itertuples(index=False) if isinstance(arrows, pd.DataFrame) else arrows
    row_by_run = {run: row for row, run in enumerate(plotted["run"])}
    joined = []
    for start, end in pairs:
        if unknown := {str(start), str(end)} - set(table["run"]):
            raise ChartError(f"an arrow names the run {clean_text(min(unknown))!r}, which is not in the table")
        if str(start) in row_by_run and str(end) in row_by_run:
            joined.append((row_by_run[str(start)], row_by_run[str(end)]))
    return joined


def _draw_marks_by_kind(plotted: pd.DataFrame, pinned: Sequence[str]) -> list[Trace]:
    """One trace for each kind of run, one for merges that adapt on test data, and one for each pinned run."""
    traces, pins = [], series.pinned_marks(plotted, IN, OUT, pinned)
    gray = {"color": theme.REFERENCE} if pins else {}
    for kind, kind_style in theme.KINDS.items():
        mark_style = kind_style._replace(**gray) if kind in MERGES else kind_style
        for sign in ("", "†"):
            rows = plotted[(plotted["kind"] == kind) & (plotted["adapts"] == sign)]
            if rows.empty:
                continue
            name = (ADAPTING_NAME if kind == "merge" else f"{KIND_NAMES[kind]} †") if sign else KIND_NAMES[kind]
            line = theme.edge(3.5 if sign else 1) if kind in MERGES else {"color": mark_style.color, "width": 2.5}
            legend = {"legend": "legend2", "legendgroup": "papers"} if kind == PAPER else {"legend": "legend"}
            formats = {"kind": KIND_NAMES.__getitem__}
            marker = {"size": 12, "line": line}
            traces.append(
                plane.marks(
                    rows, mark_style, HOVER, mark_style.color, formats=formats, name=name, marker=marker, **legend
                )
            )
    return [*traces, *pins]


def _describe_best_run(plotted: pd.DataFrame, left_out: pd.DataFrame) -> str:
    kinds = plotted["kind"]
    merges = plotted[kinds == "merge"]
    counts = {"run": kinds.isin(MERGES), "reference": kinds.isin(REFERENCES), "published result": kinds == PAPER}
    marks = [plural(int(is_kind.sum()), noun) for noun, is_kind in counts.items() if is_kind.any()]
    sentence = f"{', '.join(marks)}. Highest H-score{' of a merge' if len(merges) else ''}:"
    sentence += describe_extreme(merges if len(merges) else plotted, "h_score", BEST_SENTENCE)
    return sentence + (f" {len(left_out):,} left out." if len(left_out) else "")


@chart(
    title="From the start to the learned model",
    question="What does learning buy in domain, and what does it cost out of domain?",
    columns=("run", "label", "kind", "in_domain", "out_of_domain", "h_score", "start"),
    optional=(*INTERVALS, "adapts_on_test", "experts", "tasks_in", "tasks_out"),
    rows=("run",),
    picks=("run",),
    empty="No learned merge has been evaluated together with the model that it starts from.",
)
def learning_arrows(table: pd.DataFrame, *, selected: str | None = None, pinned: Sequence[str] = ()) -> Picture:
    """The marks of ``id_ood_scatter``, with an arrow to each learned model from its start, labeled "Start: …".

    Columns: start (the run of the table where learning starts, if any). A model that learned on the images of its own
    score is marked †.
    """
    pairs = _find_pairs(table)
    is_start = table["run"].isin({start for start, _ in pairs})
    labeled = table.assign(
        label=[START_PREFIX * starts + str(label) for starts, label in zip(is_start, table["label"], strict=True)]
    )
    return _draw_runs(labeled, selected, pairs, pinned)._replace(alt=_describe_arrows(table, pairs))


def _find_pairs(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Start and end of every arrow whose ends both have all scores."""
    scored, _ = plane.split_complete(table)
    ids = set(scored["run"])
    return [pair for pair in zip(scored["start"].astype(str), scored["run"], strict=True) if pair[0] in ids]


def _describe_arrows(table: pd.DataFrame, pairs: list[tuple[str, str]]) -> str:
    rows = {row["run"]: row for row in table.to_dict("records")}
    words = f"In- and out-of-domain accuracy of {plural(len(table), 'model')}, with {plural(len(pairs), 'arrow')} from "
    words += "the start of learning to the learned model."
    for start, end in pairs[:2]:
        inside, outside = (100 * float(rows[end][name] - rows[start][name]) for name in ("in_domain", "out_of_domain"))
        label = clean_text(rows[end]["label"], 40)
        words += f" {label}: {inside:+.1f} points in domain, {outside:+.1f} out of domain."
    return words


@chart(
    title="An edit in front of a merge",
    question="Which merges does the edit help, and at what cost?",
    columns=("pair", "kind", "run", "label", "in_domain", "out_of_domain", "h_score"),
    optional=INTERVALS,
    rows=("pair", "kind"),
    picks=("run",),
    empty="No merge has been run both without and with this edit.",
)
def plugin_arrows(table: pd.DataFrame, *, edit: str = "the edit", pinned: Sequence[str] = ()) -> Picture:
    """An arrow per pair over curves of equal H-score, with an open mark at its start and a filled one at its end.

    Columns: pair (the merge's name, drawn at its end), kind (plain and plugged, the ends of a pair; or a reference,
    whose mark is open). A pair without both ends is left out; a note counts these pairs, and names the arrows that
    start far outside. ``edit`` is the edit's name in the description.
    """
    if unknown := sorted(set(table["kind"].astype(str)) - {PLAIN, PLUGGED, *REFERENCES}):
        raise ChartError(f"plugin_arrows does not know the kind {unknown[0]!r}")
    plotted, left_out = _split_pairs(table)
    plane.require_rows(plotted, left_out)
    starts, plugged, is_far = plotted["kind"] == PLAIN, plotted["kind"] == PLUGGED, _is_far_start(plotted)
    window = PlotWindow.around_rows(plotted[~is_far])
    before = plotted[starts].set_index("pair")
    gains = {
        f"gained_{name}": (plotted[name] - plotted["pair"].map(before[name])).where(plugged)
        for name in (IN, OUT, "h_score")
    }
    plotted = plotted.assign(**gains)
    after = plotted[plugged]
    joined = zip(plane.points(before.loc[after["pair"]]), plane.points(after), after["gained_h_score"], strict=True)
    arrows = [
        plane.arrow(_clip_start(start, end, window), end, (RISING_STYLE if gain >= 0 else FALLING_STYLE).color)
        for start, end, gain in joined
    ]
    pins = series.pinned_marks(plotted, IN, OUT, pinned)
    ends, outside = plotted[~starts], _describe_far_starts(plotted[is_far])
    texts = hover_texts(ends, "{pair:text 26}")
    labels = Labels(ends, texts, (500, 1200), 500, other_marks=plane.points(plotted[starts]))
    fig = plane.draw([*_draw_marks_by_change(plotted, bool(pins)), *pins], window, labels, arrows, left_out, outside)
    notes_height = theme.LINE_HEIGHT * len(outside)
    return legends.add_legend(
        fig, _describe_best_change(after, left_out, edit), 592 + notes_height, zoom_key=edit, left=plane.LEFT,
        right=plane.RIGHT, gap=10, below=82 + notes_height,
    )  # fmt: skip


def _split_pairs(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows to draw, and those left out, which lack scores or the other end of their arrow."""
    complete, left_out = plane.split_complete(table)
    is_end = complete["kind"].isin([PLAIN, PLUGGED])
    kinds = complete[is_end].groupby("pair")["kind"].nunique()
    single = is_end & ~complete["pair"].isin(kinds[kinds == 2].index)
    return complete[~single].reset_index(drop=True), pd.concat([left_out, complete[single]])


def _is_far_start(plotted: pd.DataFrame) -> pd.Series[bool]:
    """Which rows are starts far outside the range of all ends."""
    starts = plotted["kind"] == PLAIN
    far = pd.Series(False, plotted.index)
    for name in (IN, OUT):
        ends = plotted[~starts][name]
        margin = FAR_SHARE * max(float(ends.max() - ends.min()), 0.1)
        far |= starts & ~plotted[name].between(ends.min() - margin, ends.max() + margin)
    return far


def _clip_start(start: Point, end: Point, window: PlotWindow) -> Point:
    """The point where an arrow's visible part begins: its start, or where it enters the plot."""
    steps = [first - last for first, last in zip(start, end, strict=True)]
    limits = [
        (bound - stop) / step for stop, step, ends in zip(end, steps, window, strict=True) if step for bound in ends
    ]
    share = min([1.0, *(limit for limit in limits if limit > 0)])
    return end[0] + share * steps[0], end[1] + share * steps[1]


def _describe_far_starts(far: pd.DataFrame) -> list[str]:
    """Lines of a note that name the starts of arrows from outside the plot."""
    lines = hover_texts(far, OUTSIDE_TEXT)
    remaining = len(lines) - MAX_NAMED_STARTS
    return lines if remaining <= 0 else [*lines[:MAX_NAMED_STARTS], f"and {remaining} more"]


def _draw_marks_by_change(plotted: pd.DataFrame, is_gray: bool) -> list[Trace]:
    """A trace for the starts, one for the ends where the H-score rises and one where it falls, one per reference."""
    kind, gain = plotted["kind"], plotted["gained_h_score"]
    filled = [
        ("With it, H-score not lower", RISING_STYLE, gain >= 0),
        ("With it, H-score lower", FALLING_STYLE, gain < 0),
    ]
    traces = []
    for name, mark_style, chosen in [
        ("Without the edit", UNPAIRED_STYLE, kind == PLAIN), *filled,
        *((KIND_NAMES[name], theme.KINDS[name], kind == name) for name in REFERENCES),
    ]:  # fmt: skip
        line = (
            theme.edge(0.8) if mark_style in (RISING_STYLE, FALLING_STYLE) else {"color": mark_style.color, "width": 2}
        )
        if chosen.any():
            is_end = mark_style in (RISING_STYLE, FALLING_STYLE)
            marker = {"size": 11, "line": line, "color": theme.REFERENCE if is_gray and is_end else mark_style.color}
            fields = {"name": name, "legendgroup": name, "marker": marker}
            traces.append(plane.marks(plotted[chosen], mark_style, CHANGE_HOVER, INTERVAL_COLOR, **fields))
    return traces


def _describe_best_change(after: pd.DataFrame, left_out: pd.DataFrame, edit: str) -> str:
    sentence = f"{plural(len(after), 'merge')} without and with {clean_text(edit, 40)} in front."
    if len(after):
        sentence += f" The H-score does not fall for {int((after['gained_h_score'] >= 0).sum())}"
        sentence += describe_extreme(after, "gained_h_score", LARGEST_SENTENCE)
    return sentence + (f" {plural(len(left_out), 'row')} left out." if len(left_out) else "")
