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
    key: str, drawn: RecordedChart, slider: Slider | None = None, later: Sequence[RecordedChart] = ()
) -> StaticFigure:
    """The chart of a view, at every value of its slider if it has one; otherwise followed by the charts ``later``."""
    from viz.chart_registry import find
    from viz.report.document import plain_figure, script_json

    each = slider.drawn if slider else (drawn, *later)
    figures = [_figure(one) for one in each]
    view, sources = drawn
    return StaticFigure(
        key=key,
        question=view.title or find(view.key).question,
        frames=script_json(shared_parts([plain_figure(figure) for figure in figures])),
        alts=tuple(figure.layout.meta["alt"] for figure in figures),
        captions=tuple(one.caption or f"{find(one.key).title}." for one, _ in each),
        address=view.place,
        table=table_text(view.table),
        sources=sources,
        slider=slider,
    )


def shared_parts(figures: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Figures as lists of indices into shared values, because the frames of a slider have most of them in common.

    "values" are values of fields, "parts" layouts and traces as {field: number of its value}, and "frames" has a list
    for each figure: the number of its layout's part, then those of its traces' parts.
    """
    values: dict[str, int] = {}
    parts: dict[str, int] = {}

    def number(part: dict[str, Any]) -> int:
        fields = {name: _number(json.dumps(value, sort_keys=True), values) for name, value in part.items()}
        return _number(json.dumps(fields, sort_keys=True), parts)

    frames = [[number(figure["layout"]), *map(number, figure["data"])] for figure in figures]
    return {"values": [*map(json.loads, values)], "parts": [*map(json.loads, parts)], "frames": frames}


def _number(text: str, known: dict[str, int]) -> int:
    return known.setdefault(text, len(known))


def _figure(recorded: RecordedChart) -> Any:
    from viz.chart_registry import find

    view = recorded[0]
    return find(view.key)(view.table, **{name: value for name, value in view.options.items() if name != "present"})
