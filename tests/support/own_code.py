"""A method that is not ours, packages with entry points that are not installed, and a process that knows neither."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from merging.base import outside_code
from merging.methods import own_methods, registry
from merging.methods.method import ORIGINS, REGISTERED

HALVES = '''
"""Adds a share of the task vectors' mean."""

from dataclasses import dataclass

from merging.methods.method import Citation, Merge, register
from merging.methods.params import Params, fraction


@dataclass(frozen=True, kw_only=True)
class HalvesParams(Params):
    share: float = fraction(0.5, label="Share", help="Share of the mean.")


def halves(slot, params, statistics):
    return params.share * slot.task_vectors.mean(dim=0)


HALVES = Merge(
    key="my_halves", title="My Halves", summary="Adds a share of the mean.", formula="x", params=HalvesParams,
    cite=Citation(key="you", authors="You", title="Halves", venue="Unpublished", year=2026), run=halves,
)
register(HALVES)
'''


@contextmanager
def nothing_loaded() -> Iterator[None]:
    """No methods of others before and after."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(outside_code.FOLDER_VARIABLE, raising=False)
        registry.list_methods()  # ours
        outside_code.forget_entry_points()
        methods, origins = dict(REGISTERED), dict(ORIGINS)
        patch.setattr(own_methods, "load_state", own_methods.LoadState())
        registry.load_all.cache_clear()
        yield
    for table, before in ((REGISTERED, methods), (ORIGINS, origins)):
        table.clear()
        table.update(before)
    registry.load_all.cache_clear()
    outside_code.forget_entry_points()


def install(
    site: Path, patch: pytest.MonkeyPatch, source: str, entries: str = "halves = lab_merges:HALVES",
    group: str = outside_code.METHODS, name: str = "lab_merges",
) -> Path:  # fmt: skip
    """Put a package with one module and entry points on the path; returns the module's file."""
    info = site / f"{name}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entries}\n")
    (site / f"{name}.py").write_text(source)
    patch.syspath_prepend(site)
    outside_code.forget_entry_points()
    return site / f"{name}.py"


def forget_packages() -> None:
    """Let the next question read the installed packages again."""
    outside_code.forget_entry_points()


def forget_modules() -> None:
    """Let a later test import other packages with these names."""
    for name in [one for one in sys.modules if one.startswith("lab_")]:
        del sys.modules[name]
