"""Charts for a static page: plain data with every frame of a slider, texts, table and sources."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.snapshot.headless import Slider
from app.widgets.chart_recorder import RecordedChart
from viz.report.report_contents import Source
from viz.report.report_tables import TableText, table_text


@dataclass(frozen=True)
class StaticFigure:
    """One chart of a page. ``key`` names its data in the page; ``frames`` is JSON for a script element.

    ``alts`` describe the chart, ``captions`` are the app's texts about it: one for each value of the slider, or a
    single one.
    """

    key: str
    question: str
    frames: str
    alts: tuple[str, ...]
    captions: tuple[str, ...]
    address: str
    table: TableText | None
    sources: tuple[Source, ...]
    slider: Slider | None = None

    @property
    def first(self) -> int:
        """The index of the frame that is shown first."""
        return self.slider.first if self.slider else 0


def make_static_figure(
    key: str, recorded: RecordedChart, slider: Slider | None = None, later_charts: Sequence[RecordedChart] = ()
) -> StaticFigure:
    """The chart of a view, at every value of its slider if it has one; otherwise followed by ``later_charts``."""
    from viz.chart_registry import find
    from viz.report.document import plain_figure, script_json

    charts = slider.drawn if slider else (recorded, *later_charts)
    figures = [view.draw() for view, _ in charts]
    view, sources = recorded
    return StaticFigure(
        key=key, question=view.title or find(view.key).question,
        frames=script_json(share_parts([plain_figure(figure) for figure in figures])),
        alts=tuple(figure.layout.meta["alt"] for figure in figures),
        captions=tuple(chart.caption or f"{find(chart.key).title}." for chart, _ in charts), address=view.place,
        table=table_text(view.table), sources=sources, slider=slider,
    )  # fmt: skip


def share_parts(figures: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Figures as lists of indices into shared values, because the frames of a slider share most of their values.

    "values" has the values of fields, "parts" the layouts and traces as {field: index of its value}, and "frames" a
    list for each figure: the index of its layout in "parts", then the indices of its traces.
    """
    values: dict[str, int] = {}
    parts: dict[str, int] = {}

    def index_part(part: dict[str, Any]) -> int:
        fields = {name: _index_of_text(json.dumps(value, sort_keys=True), values) for name, value in part.items()}
        return _index_of_text(json.dumps(fields, sort_keys=True), parts)

    frames = [[index_part(figure["layout"]), *map(index_part, figure["data"])] for figure in figures]
    return {"values": [*map(json.loads, values)], "parts": [*map(json.loads, parts)], "frames": frames}


def _index_of_text(text: str, indices: dict[str, int]) -> int:
    return indices.setdefault(text, len(indices))
