"""Ablations of DRM on the Conflicts page: the contribution of each part to accuracy, and the ranks that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app.reading import measurements, samples
from app.reading.papers import published_tables as published_rows
from app.widgets import chart_view, page_parts, paper_line
from app.widgets.jobs import measure_button
from viz.figure_text import percent, plural, span

if TYPE_CHECKING:
    import pandas as pd

NOT_MEASURED = (
    "The contribution of each part of DRM has not been measured on this benchmark. This merges all experts about 25 "
    "times and evaluates every model in and out of domain. It takes minutes, in the background, and you can cancel it."
)
DOMAIN_COLUMNS = {"in domain": ("in_domain", "in_low", "in_high", "n_in"),
          "out of domain": ("out_of_domain", "out_low", "out_high", "n_out")}  # fmt: skip


def draw_view() -> None:
    """Draw DRM with one part left out at a time (DRM, Tables 3, 7 and 8), and with fewer ranks (Fig. 6)."""
    if (measurement := measurements.find_measurement(measurements.DRM_ABLATIONS)) is None:
        measure_button.draw_missing_benchmark(measurements.DRM_ABLATIONS, NOT_MEASURED)
        return
    rows = measurements.measured_table(measurement, "ablations")
    st.header("What does each part of DRM contribute?", anchor=False)
    _draw_table(rows)
    inside, outside = (f"n = {span(rows[name])}" for name in ("n_in", "n_out"))
    st.caption(
        f"Means over data sets on the {samples.scored_part()} with 95% intervals; {inside} images over "
        f"{plural(int(rows['tasks_in'].max()), 'task')} in domain, {outside} over "
        f"{plural(int(rows['tasks_out'].max()), 'task')} out of domain. All rows are evaluated on the same images, so "
        "a change is more certain than the intervals suggest. All other parts are as in the full method. No value is "
        "tuned again, so a row that shrinks the merged task vector (as sums divided by the number of tasks do) loses "
        "accuracy for this reason, too. Figures marked ◇ are the paper's (DRM, Tables 1, 3, 7 and 8), for other "
        f"experts on other images: compare only their order. {measure_button.origin_in_words([measurement])}"
    )
    paper_line.draw_claims(paper_line.claims_in_words("conflicts/drm_ablations"))
    caption = (
        "Every dot first drops the singular values up to a share of the largest; point at a dot to "
        "see the share. Matrices lose different shares of their ranks, and the axis shows the mean; the paper drops "
        f"the same share of every matrix. Bars are 95% intervals. {inside} images in domain, {outside} out of domain, "
        f"{samples.scored_part()}. {measure_button.origin_in_words([measurement])}"
    )
    table = build_truncation_table(measurements.measured_table(measurement, "ranks"))
    claims = paper_line.claims_in_words("conflicts/rank_truncation")
    chart_view.draw_chart(
        "rank_truncation", table, name="drm_rank_truncation", caption=caption, claims=claims, sources=()
    )


def _draw_table(rows: pd.DataFrame) -> None:
    full_accuracy = rows.drop_duplicates("method").set_index("method")["in_domain"]
    printed_accuracy = read_published_accuracies()
    cells = rows[["method", "variant"]].assign(
        In=100 * rows["in_domain"],
        change=100 * (rows["in_domain"] - rows["method"].map(full_accuracy)),
        in_interval=_intervals_in_words(rows, "in_low", "in_high"),
        Out=100 * rows["out_of_domain"],
        out_interval=_intervals_in_words(rows, "out_low", "out_high"),
        H=100 * rows["h_score"],
        printed=[f"{printed_accuracy[chain]:.1f}%" if chain in printed_accuracy else "" for chain in rows["chain"]],
        chain=rows["chain"],
    )
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    change_help = "Change of in-domain accuracy, in percentage points."
    printed_help = "In-domain accuracy in the paper; empty if the paper prints none."
    columns = {
        "method": text("Method", width=70, pinned=True),
        "variant": text("Variant", width=160, pinned=True),
        "In": number("In-domain", width=80, format="%.1f%%"),
        "change": number("Change", width=66, format="%+.1f", help=change_help),
        "in_interval": text("In, 95%", width=112),
        "Out": number("Out-of-domain", width=106, format="%.1f%%"),
        "out_interval": text("Out, 95%", width=112),
        "H": number("H-score", width=68, format="%.1f%%"),
        "printed": text(published_rows.TOWER_HEADS[published_rows.main_tower()], width=156, help=printed_help),
        "chain": text("Recipe", width=300),
    }
    page_parts.draw_table(cells, "Accuracy of DRM and of DRM without single parts", columns)


def _intervals_in_words(rows: pd.DataFrame, low: str, high: str) -> list[str]:
    return [
        f"{percent(low_value)} to {percent(high_value)}"
        for low_value, high_value in zip(rows[low], rows[high], strict=True)
    ]


def read_published_accuracies() -> dict[str, float]:
    """{chain: in-domain accuracy in percent} that the DRM paper prints for the main tower (image encoder)."""
    from merging.recipes.papers.published_figures import FROM_DRM
    from merging.recipes.recipe import Recipe

    accuracies = {}
    for figure in FROM_DRM:
        if figure.model == published_rows.main_tower() and not figure.uses_unstated_values:
            *edits, (merge, parameters) = figure.chain
            accuracies[Recipe.build(merge, parameters, edits).text()] = figure.printed.in_domain
    return accuracies


def build_truncation_table(ranks: pd.DataFrame) -> pd.DataFrame:
    """The chart's table: one row for each method, cut (share of the singular values) and domain of tasks."""
    import pandas as pd

    shared_columns = ["method", "cut", "kept", "kept_low", "kept_high"]
    names = ["accuracy", "low", "high", "n"]
    frames = [
        ranks[[*shared_columns, *columns]].rename(columns=dict(zip(columns, names, strict=True))).assign(group=group)
        for group, columns in DOMAIN_COLUMNS.items()
    ]
    return pd.concat(frames, ignore_index=True)
