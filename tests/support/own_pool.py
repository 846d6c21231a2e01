"""A pool as a laboratory would open it for MERGESCOPE_WORKERS=module:function."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def open_pool() -> ProcessPoolExecutor:
    """Two processes of this machine, from the standard library."""
    return ProcessPoolExecutor(2, get_context("spawn"))
