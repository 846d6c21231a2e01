"""A figure under construction, in plain fields that become a plotly figure when it is complete.

A trace's field ``meta`` has facts for ``viz.marks``, which writes the figure's numbers as a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import plotly.graph_objects as go

Trace: TypeAlias = dict[str, Any]
TEXT_FIELDS = ("text", "customdata")  # fields of a trace with a text, or a row of texts, for each mark


def scatter(**fields: Any) -> Trace:
    """Points or a line."""
    return {"type": "scatter", **fields}


def bar(**fields: Any) -> Trace:
    """Bars."""
    return {"type": "bar", **fields}


def heatmap(**fields: Any) -> Trace:
    """A map of cells."""
    return {"type": "heatmap", **fields}


class Drawing:
    """Traces and a layout, with the methods of plotly's figure that fill them.

    Plotly's own figure checks, copies and records every field at every call, which took most of a drawing's time.
    """

    def __init__(self, traces: Iterable[Trace] = ()) -> None:
        self.data: list[Trace] = list(traces)
        self.layout: dict[str, Any] = {}

    def figure(self, checked: bool = False) -> go.Figure:
        """The plotly figure. With ``checked``, raises ValueError for a field or value that plotly does not know.

        Plotly's check of every field took up to half of a drawing's time; tests check every chart instead.
        """
        return go.Figure(
            [_to_lists(_compact_texts(trace)) for trace in self.data], _to_lists(self.layout), _validate=checked
        )

    def add_trace(self, trace: Trace) -> None:
        """Add a trace over the others."""
        self.data.append(trace)

    def add_traces(self, traces: Iterable[Trace]) -> None:
        """Add traces over the others."""
        self.data += traces

    def add_annotation(self, annotation: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Add a text or an arrow."""
        self._add("annotations", {**(annotation or {}), **fields})

    def add_shape(self, shape: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Add a line or an area."""
        self._add("shapes", {**(shape or {}), **fields})

    def add_image(self, **fields: Any) -> None:
        """Add a picture."""
        self._add("images", fields)

    def update_layout(self, layout: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Set fields of the layout: nested fields one by one, lists as a whole."""
        _update_fields(self.layout, {**(layout or {}), **fields})

    def update_xaxes(self, **fields: Any) -> None:
        """Set fields of all x axes so far."""
        self._update_axes("xaxis", fields)

    def update_yaxes(self, **fields: Any) -> None:
        """Set fields of all y axes so far."""
        self._update_axes("yaxis", fields)

    def update_traces(self, name: str, **fields: Any) -> None:
        """Set fields of all traces of a name."""
        for trace in self.data:
            if trace["name"] == name:
                _update_fields(trace, fields)

    @property
    def annotations(self) -> list[dict[str, Any]]:
        """The texts and arrows so far."""
        return list(self.layout.get("annotations", ()))

    def _add(self, kind: str, item: dict[str, Any]) -> None:
        self.layout[kind] = [*self.layout.get(kind, ()), item]

    def _update_axes(self, kind: str, fields: Mapping[str, Any]) -> None:
        for name in {kind: None, **self.layout}:
            if name.startswith(kind):
                _update_fields(self.layout, {name: fields})


class Picture(NamedTuple):
    """A complete drawing with its alt text and its height in px; a change of ``zoom_key`` resets the zoom."""

    drawing: Drawing
    alt: str
    height: float
    zoom_key: str = ""


def _compact_texts(trace: Trace) -> Trace:
    """The trace with lists of texts as arrays, which plotly copies at once and not text by text.

    The bases of bars stay lists of numbers: browsers do not read them from bytes.
    """
    lists = {name: trace[name] for name in TEXT_FIELDS if isinstance(trace.get(name), list) and trace[name]}
    bases = {"base": np.asarray(trace["base"]).tolist()} if "base" in trace else {}
    return trace | bases | {name: np.array(texts) for name, texts in lists.items() if _are_texts(texts)}


def _to_lists(fields: Any) -> Any:
    """The fields with lists instead of tuples, as plotly returns them."""
    if isinstance(fields, dict):
        return {name: _to_lists(value) for name, value in fields.items()}
    if isinstance(fields, tuple) or (isinstance(fields, list) and fields and isinstance(fields[0], (dict, tuple))):
        return [_to_lists(value) for value in fields]
    return fields


def _are_texts(values: list[Any]) -> bool:
    """Whether these are texts, or rows of equally many texts, that an array holds unchanged."""
    if isinstance(values[0], list):
        width = len(values[0])
        return all(isinstance(row, list) and len(row) == width and _are_texts(row) for row in values) and width > 0
    return all(isinstance(text, str) and not text.endswith("\0") for text in values)


def _update_fields(fields: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Set copies of the ``changes`` fields, nested ones one by one."""
    for name, value in changes.items():
        if isinstance(value, Mapping):
            before = fields.get(name)
            fields[name] = dict(before) if isinstance(before, Mapping) else {}
            _update_fields(fields[name], value)
        else:
            fields[name] = value
