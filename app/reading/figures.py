"""Cached figures and tables: each is made once for the same inputs."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import streamlit as st

from app.reading.page_data import MAX_CACHED
from merging.study.analysis.measurement_store import StoredMeasurement

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Function = TypeVar("Function", bound=Callable[..., Any])

NAME_TITLE_PX = 28  # px: an axis's title beside names
MAX_LINE = 22  # characters in a line of a narrow figure's axis title


def fingerprint(table: pd.DataFrame) -> bytes:
    """A hash of a table of numbers and texts; Streamlit's own hash is slower and only samples large tables."""
    digest = hashlib.blake2b(repr([*table.dtypes.items()]).encode("utf-8", "replace"), digest_size=16)
    for column in (table.index, *(table[name] for name in table)):
        plain = isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf"
        values = column.to_numpy().tobytes() if plain else repr(column.tolist()).encode("utf-8", "backslashreplace")
        digest.update(len(values).to_bytes(8) + values)
    return digest.digest()


@st.cache_resource(max_entries=MAX_CACHED, show_spinner=False, hash_funcs={"pandas.DataFrame": fingerprint})
def draw_figure(key: str, table: pd.DataFrame, options: dict[str, Any], dark: bool = False) -> go.Figure:
    """A chart's figure on a light or a dark ground. Shared: do not change it."""
    from viz import draw

    result = draw(key, table, ground="dark" if dark else "light", **options)
    return _encode_arrays(result, result.to_dict())


@st.cache_resource(max_entries=MAX_CACHED, show_spinner=False, hash_funcs={"pandas.DataFrame": fingerprint})
def draw_page_figure(key: str, table: pd.DataFrame, options: dict[str, Any], dark: bool) -> go.Figure:
    """The figure for pages, with space for its tool bar. Shared: do not change it. Its arrays are already encoded."""
    import plotly.graph_objects as go

    from viz import theme

    plain_figure = draw_figure(key, table, options, dark).to_dict()
    with_strip = theme.add_toolbar_strip(go.Figure([], plain_figure["layout"], _validate=False))
    return _encode_arrays(with_strip, plain_figure | {"layout": with_strip.layout.to_plotly_json()})


def draw_small_figure(key: str, table: pd.DataFrame, options: dict[str, Any], dark: bool, height: int) -> go.Figure:
    """The figure ``height`` px high and narrow, without its legend. Shared: do not change it."""
    import plotly.graph_objects as go

    plain_figure = draw_figure(key, table, options, dark).to_dict()
    layout = plain_figure["layout"] | {"height": height, "showlegend": False}
    axes = {name: narrow_axis(name, layout[name]) for name in layout if name.startswith(("xaxis", "yaxis"))}
    margin = layout.get("margin", {})
    layout["margin"] = margin | {
        "t": 8,
        "r": 18 if 18 < margin.get("r", 12) < 40 else margin.get("r", 12),  # wider ones have a color bar
        "l": margin.get("l", 0) - (NAME_TITLE_PX if axes.get("yaxis", {}).get("title") == {} else 0),
        "b": margin.get("b", 0) + (14 if "<br>" in str(axes.get("xaxis", {}).get("title")) else 0),
    }
    small = go.Figure([], layout | axes, _validate=False)
    return _encode_arrays(small, plain_figure | {"layout": layout | axes})


def narrow_axis(name: str, axis: dict[str, Any]) -> dict[str, Any]:
    """An axis with short ticks and a title in at most two lines; one of names needs no title."""
    if "ticktext" in axis and name[0] == "y":
        return axis | {"title": {}}
    title = axis.get("title", {})
    text = str(title.get("text", "")).rpartition("<br>")[2]
    lines = textwrap.wrap(text, len(text) // 2 + 4) if len(text) > MAX_LINE else [text]
    narrow = axis | {"title": title | {"text": "<br>".join(lines)}}
    if name[0] == "y":
        return narrow
    if "ticktext" in axis:
        narrow["ticktext"] = [tick if len(tick) < 5 else "…" for tick in map(str, axis["ticktext"])]
    return narrow | {"tickangle": 0, "nticks": 4}


def _encode_arrays(result: go.Figure, plain_figure: dict[str, Any]) -> go.Figure:
    """The figure whose ``to_dict``, which Streamlit calls at every rerun, returns ``plain_figure`` without work.

    The arrays of ``plain_figure`` are already encoded as base64.
    """
    result.to_dict = lambda: plain_figure
    return result


# Hashes of arguments. A measurement's manifest has the hashes of its files, so a newer one in its folder is another.
HASH_FUNCTIONS: dict[str | type[Any], Callable[[Any], Any]] = {
    "pandas.DataFrame": fingerprint,
    StoredMeasurement: lambda measured: f"{measured.path} {measured.result.manifest}",
}


def cache_shared(max_entries: int) -> Callable[[Function], Function]:
    """A decorator that caches a function's results, shared and unchangeable, for the last ``max_entries`` arguments."""
    cache: Callable[[Function], Function] = st.cache_resource(
        max_entries=max_entries, show_spinner=False, hash_funcs=HASH_FUNCTIONS
    )
    return cache


def cache_table(make: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
    """The function with a cache of its tables; arguments whose names begin with an underscore are not in the key.

    Writing to a returned table does not change the cached one.
    """
    cached = cache_shared(MAX_CACHED)(make)

    @wraps(make)
    def call_and_copy(*arguments: Any) -> pd.DataFrame:
        return cached(*arguments).copy(deep=False)

    return call_and_copy
