"""A store as a network file system shows it: a name that was missing stays missing until its folder is listed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


def hide_until_listed(monkeypatch: pytest.MonkeyPatch, path: Path) -> list[str]:
    """Let a file or folder count as missing until the folder that it is in is listed; gives the listings."""
    listings: list[str] = []
    stat, listdir = os.stat, os.listdir

    def asked(place: Any, *rest: Any, **named: Any) -> os.stat_result:
        if not listings and isinstance(place, str | os.PathLike) and os.fspath(place) == str(path):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return stat(place, *rest, **named)

    def listed(place: Any = ".") -> list[str]:
        if os.fspath(place) == str(path.parent):
            listings.append(str(place))
        return listdir(place)

    monkeypatch.setattr(os, "stat", asked)
    monkeypatch.setattr(os, "listdir", listed)
    return listings
