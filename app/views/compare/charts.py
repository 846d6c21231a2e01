"""The charts of Explore for two runs: A, B and their difference, in one range of colors.

A ``ComparisonChart`` states what it draws, what it needs, and which function gives the cells of one run (see
``compare_rows``); the rest is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from app import text
from app.reading import measurements
from app.session import address, pages
from app.views.compare import features, pictures
from app.views.compare import rows as compare_rows
from app.views.compare.data import Pair
from app.views.compare.rows import Rows
from app.views.compare.scores import file_name
from app.widgets import chart
from app.widgets import page as page_parts
from app.widgets.jobs import measure_button
from merging.study.analysis.stored import Measured
from merging.study.runs.run import Run, same_models
from viz.text import plural

if TYPE_CHECKING:
    import pandas as pd

MOST = 10  # differences in the table


@dataclass(frozen=True, kw_only=True)
class ComparisonChart:
    """One chart for two runs; ``needs`` is the key of a measurement, empty for tables that are stored with the run."""

    rows: Callable[[Run, Measured | None], Rows]
    what: str  # the number in a cell
    unit: str  # what a row is
    note: str
    page: tuple[str, str]  # path and name of the page with the same chart of one run
    needs: str = ""
    over: str = "Tensors"
    percents: bool = True
    log: bool = False
    limits: tuple[float, float] | None = None
    of_experts: bool = False  # the same for all runs on the same experts
    pretrained: Callable[[Run, Measured | None], Rows] | None = None  # B, if it is that model, from A's


VIEWS = {  # name in the picker and in links -> the chart
    "kept share": ComparisonChart(
        rows=compare_rows.kept, what="share of scalars", unit="Model", limits=(0.0, 1.0), page=(pages.MASKS, "Masks"),
        note="The share of each tensor's scalars in which the merged model differs from the pretrained one, before "
        "rounding to the checkpoint's data type.",
    ),
    "change of the weights": ComparisonChart(
        rows=compare_rows.changed, what="change of the norm", unit="Model", log=True, page=(pages.MASKS, "Masks"),
        note="The norm of merged minus pretrained weights over that of the pretrained ones, tensor by tensor.",
    ),
    "masks": ComparisonChart(
        rows=compare_rows.masks, what="merged", unit="Expert", limits=(0.0, 1.0), percents=False,
        page=(pages.MASKS, "Masks"),
        note="1 where an expert's tensor is merged, 0 where it is dropped.",
    ),
    "saliency": ComparisonChart(
        rows=compare_rows.saliency, what="saliency", unit="Expert", log=True, percents=False,
        page=(pages.MASKS, "Masks"),
        note="Saliency of the task vectors as the run scored them when it pruned; for runs that prune no tensors, by "
        "LwPTV's score.",
    ),
    "drift by depth": ComparisonChart(
        rows=compare_rows.by_depth, what="1 − cosine", unit="Task", over="Places", percents=False,
        needs=measurements.DRIFT, pretrained=compare_rows.pretrained_by_depth, page=(pages.DRIFT, "Drift"),
        note="1 − cosine between the class token of the model and that of the task's own expert after every part of "
        "the network.",
    ),
    "layer-isolated drift": ComparisonChart(
        rows=compare_rows.isolated, what="share of the output", unit="Task", log=True, needs=measurements.DRIFT,
        page=(pages.DRIFT, "Drift"),
        note="How far a tensor's output moves if only that tensor of the expert is replaced by the merged one (LOT, "
        "Eq. 4).",
    ),
    "LOT's objective": ComparisonChart(
        rows=compare_rows.objective, what="share of that before", unit="Model", log=True, needs=measurements.DRIFT,
        page=(pages.DRIFT, "Drift"),
        note="What LOT minimizes (Eq. 6) after the merge, over its value for the pretrained weights; above 100% the "
        "merge is farther from the experts than the pretrained model is.",
    ),
    "what CAT removes": ComparisonChart(
        rows=compare_rows.removed, what="share of squared norm", unit="Expert", limits=(0.0, 1.0),
        page=(pages.DRIFT, "Drift"),
        note="The share of each task vector's squared norm that the edit CAT projects out.",
    ),
    "sign agreement": ComparisonChart(
        rows=compare_rows.signs, what="excess over random signs", unit="Space", needs=measurements.SIGNS,
        of_experts=True, page=(pages.CONFLICTS, "Conflicts"),
        note="Agreement of the experts' signs beyond what random signs give, each matrix trimmed to its largest 20%.",
    ),
    "who wins the election": ComparisonChart(
        rows=compare_rows.elections, what="share that survives", unit="Expert", limits=(0.0, 1.0),
        needs=measurements.SIGNS, of_experts=True, page=(pages.CONFLICTS, "Conflicts"),
        note="The share of an expert's entries whose sign is elected (as in TIES), each matrix trimmed to its largest "
        "20%.",
    ),
    "experts against experts": ComparisonChart(
        rows=compare_rows.pairs, what="cosine", unit="Pair", percents=False, needs=measurements.PAIRS, of_experts=True,
        page=(pages.CONFLICTS, "Conflicts"),
        note="Cosine of the task vectors of every two experts, tensor by tensor.",
    ),
}  # fmt: skip
DISTANCE = "distance to pretrained"
PICTURES = {  # charts with a figure of their own: name -> function
    "saliency of one tensor": pictures.one_tensor,
    "drift against accuracy": pictures.against_accuracy,
    "joint space of DRM": pictures.joint,
}
FEATURES = {  # charts of features: name -> function
    DISTANCE: features.distance,
    "feature maps": features.maps,
}


def offered(of: Pair) -> tuple[str, ...]:
    """The charts that both have: a model that was not merged has no masks and no merged tensors."""
    if not of.reference:
        return (*VIEWS, *PICTURES, *FEATURES)
    if of.b.kind != measurements.PRETRAINED:
        return tuple(FEATURES)
    names = (name for name, comparison in VIEWS.items() if comparison.pretrained)
    return (*names, *(name for name in FEATURES if name != DISTANCE))  # its distance to itself is zero


def view(of: Pair) -> None:
    """The chosen chart."""
    name = st.selectbox("Chart", offered(of), key=address.CHART, bind=address.BIND, width=320)
    if draw := (PICTURES | FEATURES).get(name):
        draw(of)
    else:
        cells(of, name, VIEWS[name])


def cells(of: Pair, name: str, comparison: ComparisonChart) -> None:
    """Three heat maps and the largest differences; or what is missing for them."""
    if comparison.of_experts and same_models(of.a, of.b):
        st.info("Both runs merge the same experts, and this chart depends on the experts only: nothing differs.")
        return
    measurable = (of.a,) if of.reference else of.runs
    measured = pictures.stored(comparison.needs, measurable) if comparison.needs else {}
    if measured is None:
        return
    one = comparison.rows(of.a, measured.get(of.a.id))
    of_b = (comparison.pretrained, of.a) if of.reference and comparison.pretrained else (comparison.rows, of.b)
    other = of_b[0](of_b[1], measured.get(of_b[1].id))
    if one.table is None or other.table is None:
        lacking(of, one, other)
        return
    table, left_out = joined(one.table, other.table)
    options = {"unit": comparison.unit, "over": comparison.over, "percents": comparison.percents, "log": comparison.log}
    limits = comparison.limits or span(table, comparison.log)
    caption = " ".join([comparison.note, colors(limits, comparison), *origin(measured), *missing_cells(left_out)])
    chart.chart(
        "compare_cells", table, name=f"{name}_{file_name(of)}", labels=of.labels, what=comparison.what, limits=limits,
        caption=caption, of=of.runs, heading=f"{name[0].upper()}{name[1:]}: where do the two runs differ?", **options,
    )  # fmt: skip
    largest(table, comparison)
    with st.container(horizontal=True):
        for letter, run in zip("AB", measurable, strict=False):
            where = {"runs": run.id} if comparison.page[0] == pages.DRIFT else {"run": run.id}
            page_parts.open_page(comparison.page[0], f"{comparison.page[1]} of {letter}", "open_in_new", **where)


def lacking(of: Pair, one: Rows, other: Rows) -> None:
    """Says which run lacks what, with a link to merge another one."""
    reasons = {
        run.id: f"**{letter}, {text.safe_text(run.name, 60)}**, {text.safe_text(rows.why, 400)}."
        for letter, run, rows in zip("AB", of.runs, (one, other), strict=True)
        if rows.table is None
    }
    page_parts.empty(" ".join(reasons.values()), "Merge experts", pages.MERGE)


def joined(one: pd.DataFrame, other: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The cells that both runs have, with columns a and b; and how many cells only one of them has."""
    keys = ["row", "tensor"]
    both = one.rename(columns={"value": "a"}).merge(other[[*keys, "value"]].rename(columns={"value": "b"}), on=keys)
    return both.assign(difference=both["b"] - both["a"]), len(one) + len(other) - 2 * len(both)


def span(table: pd.DataFrame, log: bool) -> tuple[float, float]:
    """The range of both runs: from smallest to largest on a logarithmic scale, else including zero."""
    import numpy as np

    values = table[["a", "b"]].to_numpy(float)
    finite = values[np.isfinite(values)]
    positive = finite[finite > 0]
    if log:
        return (float(positive.min()), float(positive.max())) if len(positive) else (0.0, 1.0)
    return min(0.0, float(finite.min(initial=0.0))), float(finite.max(initial=0.0)) or 1.0


def colors(limits: tuple[float, float], comparison: ComparisonChart) -> str:
    """What the colors mean, in a sentence."""
    low, high = (f"{100 * end:.3g}%" if comparison.percents else f"{end:.3g}" for end in limits)
    scale = ", on a logarithmic scale" if comparison.log else ""
    return f"A and B share one range of colors, {low} to {high}{scale}; in the difference white is zero."


def origin(measured: Mapping[str, Measured]) -> list[str]:
    """Where measured numbers come from; and the numbers of exemplars if A and B differ in them."""
    both = list(measured.values())
    counts = [str(one.notes["exemplars"]) for one in both if "exemplars" in one.notes]
    exemplars = [f"n = {' and '.join(counts)} exemplars per task for A and B."] if len(set(counts)) > 1 else []
    return [*exemplars, measure_button.origin(both)] if both else []


def missing_cells(count: int) -> list[str]:
    """A sentence on the cells that are not drawn; none if all are."""
    return [f"{plural(count, 'cell')} that only one run has {'is' if count == 1 else 'are'} left out."] if count else []


def largest(table: pd.DataFrame, comparison: ComparisonChart) -> None:
    """The cells in which the runs differ most."""
    far = table["difference"].abs()
    rows = table.loc[far[far > 0].nlargest(MOST).index]
    if rows.empty:
        st.markdown("**The two runs do not differ in any cell.**")
        return
    higher, lower = (int((sign * table["difference"] > 0).sum()) for sign in (1, -1))
    st.markdown(
        f"They differ in {higher + lower:,} of {len(table):,} cells: B is higher in {higher:,} and lower in {lower:,}. "
        "The largest differences:"
    )
    scaled = rows.assign(**{key: (100 if comparison.percents else 1) * rows[key] for key in ("a", "b", "difference")})
    form = "%.2f%%" if comparison.percents else "%.3g"
    number = st.column_config.NumberColumn
    st.dataframe(
        scaled[["title", "difference", "a", "b", "tensor"]],
        hide_index=True,
        column_config={
            "title": comparison.unit,
            "tensor": st.column_config.TextColumn(comparison.over.removesuffix("s"), width="large"),
            "a": number("A", format=form),
            "b": number("B", format=form),
            "difference": number(
                "B − A, points" if comparison.percents else "B − A", format="%+.2f" if comparison.percents else "%+.3g"
            ),
        },
        alt="Cells in which the two runs differ most",
    )
