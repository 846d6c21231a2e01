"""Streamlit's settings lie beside ``main.py``: a server reads them by itself, a process without a server does not."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from streamlit import config

FILE = Path(__file__).with_name(".streamlit") / "config.toml"


def apply_settings() -> None:
    """Give this process, in which no server runs, the settings of one."""
    for option, value in _list_options(tomllib.loads(FILE.read_text("utf-8"))):
        config.set_option(option, value)


def _list_options(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _list_options(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
