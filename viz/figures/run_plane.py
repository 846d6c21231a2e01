"""One run among the others that merge the same experts, in the plane of in-domain and out-of-domain accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from viz import theme
from viz.chart import chart
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, percent, plural, short_name
from viz.figures.score_plane import MERGES
from viz.hover import describe_extreme
from viz.parts import series

HOVER = "<b>{label}</b><br>in domain {in_domain:percent}, out of domain {out_of_domain:percent}"
HEIGHT = 240
NAMES = {"merge": "Other merges", "pretrained": "Pretrained", "individual": "Individual experts"}


@chart(
    title="A run among the others",
    question="Where is this run among the merges of the same experts?",
    columns=("run", "label", "kind", "in_domain", "out_of_domain"),
    rows=("run",),
    picks=("run",),
    empty="No run on these experts has scores in and out of domain.",
)
def run_plane(table: pd.DataFrame, *, selected: str | None = None, pinned: Sequence[str] = ()) -> Picture:
    """Small marks of all merges, the references, and a large mark with the name of the run ``selected``."""
    table = series.finite_rows(table, "in_domain", "out_of_domain")
    own = table[table["run"] == selected]
    fig = Drawing()
    for kind, name in NAMES.items():
        is_merge = kind == "merge"
        of_kind = table["kind"].isin(MERGES) if is_merge else table["kind"] == kind
        rows = table[of_kind & (table["run"] != selected)]
        style = theme.MarkStyle(theme.REFERENCE, "circle") if is_merge else theme.KINDS[kind]
        if rows.empty:
            continue
        marker = {"opacity": 0.6, "line": {"width": 0}} if is_merge else {}
        fig.add_trace(
            series.marks(rows, "in_domain", "out_of_domain", style, HOVER, picks=("run",), name=name,
                         size=6 if is_merge else 10, marker=marker)
        )  # fmt: skip
    if len(own):
        style = theme.mark_styles(pinned)[str(selected)]
        fig.add_trace(
            series.marks(own, "in_domain", "out_of_domain", style, HOVER, picks=("run",), name="This run", size=14)
        )
    for title, axis in (("In-domain accuracy", fig.update_xaxes), ("Out-of-domain accuracy", fig.update_yaxes)):
        axis(title={"text": title}, tickformat=".0%")
    for row in own.to_dict("records"):
        fig.add_annotation(
            x=row["in_domain"], y=row["out_of_domain"], text=f"<b>{short_name(row['label'], 34)}</b>", yshift=14,
            xanchor="center",
        )  # fmt: skip
    fig.update_layout(showlegend=False, margin={"l": 56, "r": 12, "t": 12, "b": 44})
    return Picture(fig, _describe(table, own), HEIGHT, str(selected))


def _describe(table: pd.DataFrame, own: pd.DataFrame) -> str:
    merges = table[table["kind"].isin(MERGES)]
    words = f"{plural(len(merges), 'merge')} by in-domain and out-of-domain accuracy."
    for row in own.to_dict("records"):
        better = (merges["in_domain"] > row["in_domain"]) & (merges["out_of_domain"] > row["out_of_domain"])
        words += (
            f" {clean_text(row['label'], 60)}: {percent(row['in_domain'])} in domain, {percent(row['out_of_domain'])} "
            f"out of domain; {plural(int(better.sum()), 'other merge')} better at both."
        )
    best = describe_extreme(merges, "in_domain", " Best in domain: {label:plain}, {in_domain:percent}.")
    return words + best
