"""Streamlit's settings lie beside ``main.py``: a server reads them by itself, a process without a server does not."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamlit import config, runtime
from streamlit.runtime import Runtime

FILE = Path(__file__).with_name(".streamlit") / "config.toml"


def apply_settings() -> None:
    """Give this process the settings of a server, unless a server runs in it."""
    if not runtime.exists():
        for option, value in _list_options(tomllib.loads(FILE.read_text("utf-8"))):
            config.set_option(option, value)


@contextmanager
def restore_settings() -> Iterator[None]:
    """Put back Streamlit's options, and its running server or none, at the end."""
    server, options = Runtime._instance, list(config.get_config_options().values())
    before = [(option.key, option.value, option.where_defined) for option in options]
    try:
        yield
    finally:
        Runtime._instance = server  # its test harness replaces it, and leaves its own after an interrupt
        for (key, *earlier), option in zip(before, options, strict=True):
            if earlier != [option.value, option.where_defined]:
                config.set_option(key, *earlier)


def _list_options(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _list_options(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
