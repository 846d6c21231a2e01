"""A list of runs as a table, and each row's small picture of accuracy in and out of domain."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import page_data
from app.reading.runs import imported_runs, run_names
from app.session import address, benchmark_choice, pages
from app.views.runs.disk_usage import run_size
from app.widgets import page_parts
from merging.base.errors import MergingError
from merging.images.benchmarks.metrics import Summary
from merging.models.task_checkpoints import list_tasks
from merging.study.runs.run import THIS_MACHINE, Run
from viz.figure_text import clean_text, percent, plural
from viz.theme import BLUE

if TYPE_CHECKING:
    import pandas as pd

PICTURE_WIDTH, PICTURE_HEIGHT = 44, 28  # px
NO_ICON = (":material/", ": material/")  # a name that begins with the first would be an icon and the rest
GRAY = "#8A94A0"  # visible on a light and on a dark ground
SCORE_TITLES = {"in": "In", "out": "Out", "h": "H-score"}  # columns of averages -> their heads
PLANE_HELP = "In domain to the right, out of domain up, both from 0 to 100%; the ring is the pretrained model."
IMPORTED_HELP = "Means over tasks from a file or another program, not measured by Mergescope."
MAX_TABLE_HEIGHT = 440  # px


def draw_table(rows: pd.DataFrame, name: str, **options: Any) -> None:
    """Draw the rows of ``build_rows`` as a table; the head of a column sorts it, and a name opens that run's page.

    ``name`` tells tables apart; ``options`` are those of Streamlit's table.
    """
    number, column = st.column_config.NumberColumn, st.column_config.TextColumn
    st.dataframe(
        rows,
        hide_index=True,
        placeholder="—",
        height=page_parts.table_height(len(rows), MAX_TABLE_HEIGHT),
        column_config={
            "title": st.column_config.ButtonColumn(
                "Run", pinned=True, width=240, alignment="left", type="tertiary", key=f"{name}_opened"
            ),
            "plane": st.column_config.ImageColumn("In × out", width=70, help=PLANE_HELP),
            **{score: number(title, format="%.1f%%") for score, title in SCORE_TITLES.items()},
            "imported": column("◇ Imported", width=230, help=IMPORTED_HELP),
            "chain": column("Recipe", width=230),
            "n": column("n", help="Images in domain and out of domain. Averages with another n cover other tasks."),
            "warnings": number("Warnings", help="The number of possible problems; the run's page lists them."),
            "made": column("Made", width=115),
            "experts": number("Experts"),
            "Seed": number(format="%d"),
            "size": number("Size", format="%.2f MB"),
            "weights": st.column_config.CheckboxColumn("Weights", help="Whether the merged weights are stored."),
            "date": column("Date", width=130),
            "id": column("Id", width=110),
        },
        alt="Runs with recipe, scores, provenance and size",
        **options,
    )
    clicked = st.session_state.get(f"{name}_opened")
    for run_id in rows.loc[rows["title"] == clicked["label"], "id"] if clicked else ():
        st.switch_page(pages.RUN, query_params={address.RUN: run_id} | benchmark_choice.link_query())


def _describe_origin(run: Run) -> str:
    """Where a run was computed: here on a device, for the library, or elsewhere and read from a pack."""
    here = f"here, {clean_text(run.device, 30)}"
    return here if run.provenance == THIS_MACHINE else clean_text(run.provenance, 60)


def build_rows(runs: Sequence[Run], stored_runs: Sequence[Run], named_runs: Sequence[Run] = ()) -> pd.DataFrame:
    """A row for each run, at least one; no two of ``named_runs`` (by default these runs) have the same title."""
    import pandas as pd

    names, rows = run_names.name_runs(named_runs or runs), []
    pretrained = page_data.list_pretrained_summaries(runs, stored_runs)
    for run, summary, baseline in zip(runs, page_data.list_summaries(runs, stored_runs), pretrained, strict=True):
        title = page_text.title_with_note(run, names[run.id]) + " ‡" * run.needs_task
        rows.append(
            {
                "title": clean_text(title, 120).replace(*NO_ICON),
                "plane": draw_plane(summary, baseline),
                "in": None if summary is None else 100 * summary.in_domain,
                "out": None if summary is None else 100 * summary.out_of_domain,
                "h": None if summary is None else 100 * summary.h_score,
                "imported": None if summary else imported_in_words(run),
                "n": None if summary is None else f"{summary.n_in:,} in, {summary.n_out:,} out",
                "warnings": len(run.cautions) or None,
                "chain": clean_text(chain_of_run(run), 200),
                "made": _describe_origin(run),
                "experts": len(list_tasks(run.experts)),
                "Seed": run.seed,
                "size": run_size(run) / 1e6,
                "weights": run.has_model,
                "date": (run.created or "")[:16].replace("T", " "),
                "id": run.id,
            }
        )
    if not any(row["imported"] for row in rows):
        rows = [{name: value for name, value in row.items() if name != "imported"} for row in rows]
    return pd.DataFrame(rows).astype({"Seed": "Int64", "warnings": "Int64", **dict.fromkeys(SCORE_TITLES, "float64")})


def imported_in_words(run: Run) -> str | None:
    """The means of a run's imported scores with their origin, marked ◇; None without such scores. Plain text."""
    if (scores := imported_runs.find_scores(run.id)) is None:
        return None
    metric, means = scores.means(run.experts)
    parts = [f"{name} {percent(mean)} ({plural(tasks, 'task')})" for name, (mean, tasks) in means.items()]
    numbers = f" {clean_text(metric, 40)}: {', '.join(parts)}," if parts else ""
    return f"◇{numbers} from {clean_text(scores.origin, 60)}"


def chain_of_run(run: Run) -> str:
    """The recipe's chain in words."""
    try:
        return page_text.chain_words(run.recipe) if run.recipe else ""
    except MergingError:
        return " → ".join(run.chain)


def draw_plane(summary: Summary | None, pretrained: Summary | None) -> str | None:
    """A picture (a data URI) with a mark at accuracy in domain (to the right) and out of domain (up), from 0 to 100 %.

    The pretrained model is a faint ring. None without both averages.
    """
    if summary is None or not math.isfinite(summary.in_domain + summary.out_of_domain):
        return None
    ring = "" if pretrained is None else _draw_mark(pretrained, 2.5, f'fill="none" stroke="{GRAY}"')
    mark = _draw_mark(summary, 3, f'fill="{BLUE}"')
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{PICTURE_WIDTH}" height="{PICTURE_HEIGHT}">'
        f'<path d="M2.5 0.5V{PICTURE_HEIGHT - 2.5}H{PICTURE_WIDTH}" fill="none" stroke="{GRAY}"/>'
        f"{ring}{mark}</svg>"
    )
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.encode()).decode()}"


def _draw_mark(summary: Summary, radius: float, style: str) -> str:
    if not math.isfinite(summary.in_domain + summary.out_of_domain):
        return ""
    x = 3 + summary.in_domain * (PICTURE_WIDTH - 6)
    y = PICTURE_HEIGHT - 3 - summary.out_of_domain * (PICTURE_HEIGHT - 6)
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {style}/>'
