"""Loads what is slow to load after the first page is out, and takes it out of the garbage collector's way."""

from __future__ import annotations

import gc
import importlib
import logging
import threading

import streamlit as st

SOON = 1.0  # seconds: the browser fetches the page's files from this same process first
SLOW = ("pandas", "plotly.graph_objects", "viz.chart", "torch", "merging.benchmarks.evaluate", "merging.runs.execute")
log = logging.getLogger(__name__)


@st.cache_resource(show_spinner=False)
def settle() -> None:
    """Once a process: freeze what is loaded, then load the rest in the background."""
    _freeze()
    timer = threading.Timer(SOON, _load)
    timer.daemon = True
    timer.start()


def _load() -> None:
    for name in SLOW:
        try:
            importlib.import_module(name)
        except ImportError as error:
            log.warning("%s cannot be loaded: %s", name, error)
    _freeze()


def _freeze() -> None:
    """Streamlit collects garbage after every rerun; with torch loaded that holds up all sessions for 0.1 s."""
    gc.collect()
    gc.freeze()
