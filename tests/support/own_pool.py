"""Pools as a laboratory would open them for MERGESCOPE_WORKERS=module:function."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context


def open_pool() -> ProcessPoolExecutor:
    """Two processes of this machine, from the standard library."""
    return ProcessPoolExecutor(2, get_context("spawn"))


def open_threads() -> ThreadPoolExecutor:
    """Two threads of this process."""
    return ThreadPoolExecutor(2)
