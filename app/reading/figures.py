"""Figures and tables, each made once for what it is made of."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import streamlit as st

from app.reading.page_data import CACHED
from merging.study.analysis.measurement_store import StoredMeasurement

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Make = TypeVar("Make", bound=Callable[..., Any])


def fingerprint(table: pd.DataFrame) -> bytes:
    """Bytes that differ where tables of numbers and texts do; Streamlit's own take longer, and sample large tables."""
    digest = hashlib.blake2b(repr([*table.dtypes.items()]).encode("utf-8", "replace"), digest_size=16)
    for column in (table.index, *(table[name] for name in table)):
        plain = isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf"
        values = column.to_numpy().tobytes() if plain else repr(column.tolist()).encode("utf-8", "backslashreplace")
        digest.update(len(values).to_bytes(8) + values)
    return digest.digest()


@st.cache_resource(max_entries=CACHED, show_spinner=False, hash_funcs={"pandas.DataFrame": fingerprint})
def figure(key: str, table: pd.DataFrame, options: dict[str, Any], dark: bool = False) -> go.Figure:
    """A chart's figure on a light or a dark ground. It is shared and must not be changed."""
    from viz import draw

    drawn = draw(key, table, ground="dark" if dark else "light", **options)
    return _encode_arrays(drawn, drawn.to_dict())


@st.cache_resource(max_entries=CACHED, show_spinner=False, hash_funcs={"pandas.DataFrame": fingerprint})
def page_figure(key: str, table: pd.DataFrame, options: dict[str, Any], dark: bool) -> go.Figure:
    """What pages show of that figure, with room for its tool bar. It is shared, and has its traces only encoded."""
    import plotly.graph_objects as go

    from viz import theme

    sent = figure(key, table, options, dark).to_dict()
    shown = theme.add_toolbar_strip(go.Figure([], sent["layout"], _validate=False))
    return _encode_arrays(shown, sent | {"layout": shown.layout.to_plotly_json()})


def _encode_arrays(drawn: go.Figure, sent: dict[str, Any]) -> go.Figure:
    """The figure, of which this is sent, with arrays encoded; every rerun would encode them again."""
    drawn.to_dict = lambda: sent
    return drawn


# What tells arguments apart; a measurement's folder states all that it depends on, but for files it was measured from.
HASH_FUNCTIONS: dict[str | type[Any], Callable[[Any], Any]] = {
    "pandas.DataFrame": fingerprint,
    StoredMeasurement: lambda measured: f"{measured.path} {measured.notes.get('digests', '')}",
}


def cache_shared(most: int) -> Callable[[Make], Make]:
    """What a function makes, once for the same arguments, for the last ``most`` of them; it must not be changed."""
    keep: Callable[[Make], Make] = st.cache_resource(max_entries=most, show_spinner=False, hash_funcs=HASH_FUNCTIONS)
    return keep


def cache_table(make: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
    """A function that makes a table once for the same arguments, but for those whose names begin with an underscore.

    Writing to what it gives leaves the kept table as it is.
    """
    kept = cache_shared(CACHED)(make)

    @wraps(make)
    def copied(*given: Any) -> pd.DataFrame:
        return kept(*given).copy(deep=False)

    return copied
