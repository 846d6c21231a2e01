"""The line of provenance under a saved picture: runs or sweeps, images, seeds, program version."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import merging
from app.reading import page_data, report_sources, samples
from app.saving.shown_chart import ShownChart
from merging.study.runs.edit_pairs import read_recipe
from merging.study.runs.run import Run
from viz.figure_text import clean_text, span

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.sweeps.sweep import Sweep

MOST_NAMED = 4  # runs or sweeps; the others are counted
CHOOSING = "choosing"
COUNTS = {"n": "n = {}", "n_in": "n = {} in domain", "n_out": "n = {} out of domain"}  # columns with numbers of images


def provenance_line(chart: ShownChart) -> str:
    """The line of provenance of a chart; plain text.

    It names the part of the test sets that the caption names first.
    """
    table, shown = chart.table, report_sources.shown_sources(chart.table, chart.options, chart.of, chart.place)
    named = {samples.scored_part(split): split for split in (CHOOSING, page_data.SPLIT)}
    part = re.search(rf"\b(?:{'|'.join(named)})\b", chart.caption, re.IGNORECASE)
    taken = samples.sampling_in_words(named[part[0].casefold()]) if part else ""
    parts = [_preview_names(table, _names(shown)), _images(table), part[0] if part else "", taken, _seeds(shown)]
    parts.append(f"Mergescope {merging.__version__}")
    return " · ".join(part for part in parts if part)


def _preview_names(table: pd.DataFrame, names: str) -> str:
    """The names, or for a preview the titles of its chain and of its reference."""
    if not {"of", "against"} <= set(table) or table.empty:
        return names
    against = names or clean_text(table["against"].iloc[0], 60)
    return f"preview of {clean_text(table['of'].iloc[0], 80)} against {against}"


def _names(shown: Sequence[Run | Sweep]) -> str:
    named = [(one.name if isinstance(one, Run) else one.title, one.id[:8]) for one in shown[:MOST_NAMED]]
    names = [f"{clean_text(name, 40)} ({run_id})".strip() for name, run_id in named]
    more = [f"{len(shown) - MOST_NAMED} more"] if len(shown) > MOST_NAMED else []
    return ", ".join([*names, *more])


def _images(table: pd.DataFrame) -> str:
    counts = [words.format(span(table[name])) for name, words in COUNTS.items() if name in table]
    return f"{', '.join(counts)} images" if counts else ""


def _seeds(shown: Sequence[Run | Sweep]) -> str:
    seeds = sorted({seed for one in shown if (seed := _seed(one)) is not None})
    return f"seed {', '.join(map(str, seeds))}" if seeds else ""


def _seed(one: Run | Sweep) -> int | None:
    """The seed of a sweep, or of a run's methods or else its exemplars; None if nothing is random."""
    if not isinstance(one, Run) or one.seed is not None:
        return one.seed
    recipe = read_recipe(one)  # None for a method of another version
    return recipe.exemplars.seed if recipe and recipe.exemplars else None
