"""The rows of a list of runs, and each row's small picture of accuracy in and out of domain."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import page_data
from app.reading.runs import run_names
from app.views.runs.disk_usage import run_size
from merging.base.errors import MergingError
from merging.images.benchmarks.metrics import Summary, summarize
from merging.study.runs.run import PRECOMPUTED, Run
from viz.figure_text import clean_text
from viz.theme import BLUE

if TYPE_CHECKING:
    import pandas as pd

PICTURE_WIDTH, PICTURE_HEIGHT = 44, 28  # px
GRAY = "#8A94A0"  # visible on a light and on a dark ground
SCORE_COLUMNS = ("in", "out", "h")


def build_rows(runs: Sequence[Run], stored_runs: Sequence[Run], named_runs: Sequence[Run] = ()) -> pd.DataFrame:
    """A row for each run, at least one; no two of ``named_runs`` (by default these runs) have the same title."""
    import pandas as pd

    names, rows = run_names.name_runs(named_runs or runs), []
    for run in runs:
        summary = page_data.summary(run, stored_runs)
        rows.append(
            {
                "title": clean_text(page_text.title_with_note(run, names[run.id]), 120),
                "plane": draw_plane(summary, _summarize_pretrained(run, stored_runs)),
                "in": None if summary is None else 100 * summary.in_domain,
                "out": None if summary is None else 100 * summary.out_of_domain,
                "h": None if summary is None else 100 * summary.h_score,
                "n": None if summary is None else f"{summary.n_in:,} in, {summary.n_out:,} out",
                "warnings": len(run.cautions) or None,
                "chain": clean_text(chain_of_run(run), 200),
                "made": "precomputed" if run.provenance == PRECOMPUTED else f"here, {clean_text(run.device, 30)}",
                "experts": len(run.experts),
                "Seed": run.seed,
                "size": run_size(run) / 1e6,
                "weights": run.has_model,
                "date": (run.created or "")[:16].replace("T", " "),
                "id": run.id,
            }
        )
    return pd.DataFrame(rows).astype({"Seed": "Int64", "warnings": "Int64", **dict.fromkeys(SCORE_COLUMNS, "float64")})


def chain_of_run(run: Run) -> str:
    """The recipe's chain in words."""
    try:
        return page_text.chain_words(run.recipe) if run.recipe else ""
    except MergingError:
        return " → ".join(run.chain)


def _summarize_pretrained(run: Run, stored_runs: Sequence[Run]) -> Summary | None:
    if (reference := page_data.references(run.benchmark, stored_runs).get("pretrained")) is None:
        return None
    return _summarize_cached(reference.id, run.benchmark, run.experts, reference)


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def _summarize_cached(run_id: str, benchmark_digest: str | None, experts: tuple[str, ...], _run: Run) -> Summary | None:
    scores = page_data.scores(_run)
    return None if scores is None else summarize(scores, experts, split=page_data.SCORED_SPLIT)


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
