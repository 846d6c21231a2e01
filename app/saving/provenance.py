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

MAX_NAMES = 4  # runs or sweeps; the others are counted
CHOOSING_SPLIT = "choosing"
# Columns with numbers of images.
COUNT_WORDS = {"n": "n = {}", "n_in": "n = {} in domain", "n_out": "n = {} out of domain"}


def provenance_line(chart: ShownChart) -> str:
    """The line of provenance of a chart; plain text.

    It names the part of the test sets that the caption names first.
    """
    table = chart.table
    sources = report_sources.shown_sources(chart.table, chart.options, chart.sources, chart.view_address)
    splits_by_part = {samples.scored_part(split): split for split in (CHOOSING_SPLIT, page_data.SCORED_SPLIT)}
    part = re.search(rf"\b(?:{'|'.join(splits_by_part)})\b", chart.caption, re.IGNORECASE)
    sampling = samples.sampling_in_words(splits_by_part[part[0].casefold()]) if part else ""
    parts = [
        _preview_names(table, _names_in_words(sources)),
        _images_in_words(table),
        part[0] if part else "",
        sampling,
        _seeds_in_words(sources),
    ]
    parts.append(f"Mergescope {merging.__version__}")
    return " · ".join(part for part in parts if part)


def _preview_names(table: pd.DataFrame, names: str) -> str:
    """The names, or for a preview the titles of its chain and of its reference."""
    if not {"of", "against"} <= set(table) or table.empty:
        return names
    reference = names or clean_text(table["against"].iloc[0], 60)
    return f"preview of {clean_text(table['of'].iloc[0], 80)} against {reference}"


def _names_in_words(sources: Sequence[Run | Sweep]) -> str:
    names_and_ids = [
        (source.name if isinstance(source, Run) else source.title, source.id[:8]) for source in sources[:MAX_NAMES]
    ]
    names = [f"{clean_text(name, 40)} ({run_id})".strip() for name, run_id in names_and_ids]
    remaining = [f"{len(sources) - MAX_NAMES} more"] if len(sources) > MAX_NAMES else []
    return ", ".join([*names, *remaining])


def _images_in_words(table: pd.DataFrame) -> str:
    counts = [words.format(span(table[name])) for name, words in COUNT_WORDS.items() if name in table]
    return f"{', '.join(counts)} images" if counts else ""


def _seeds_in_words(sources: Sequence[Run | Sweep]) -> str:
    seeds = sorted({seed for source in sources if (seed := _find_seed(source)) is not None})
    return f"seed {', '.join(map(str, seeds))}" if seeds else ""


def _find_seed(source: Run | Sweep) -> int | None:
    """The seed of a sweep, or of a run's methods or else its exemplars; None if nothing is random."""
    if not isinstance(source, Run) or source.seed is not None:
        return source.seed
    recipe = read_recipe(source)  # None for a method of another version
    return recipe.exemplars.seed if recipe and recipe.exemplars else None
