"""What people and programs rely on stays as it is, unless a change is meant; see ``frozen_words``."""

from __future__ import annotations

import difflib

import pytest
from frozen_words import FROZEN, written


@pytest.mark.parametrize("name", FROZEN)
def test_it_is_as_it_was(name: str) -> None:
    now = [line.rstrip() for line in FROZEN[name]()]
    assert not list(difflib.unified_diff(written(name), now, "before", "now", lineterm="", n=0))
