"""Texts of errors quote files, so that what is invisible in them is shown."""

from __future__ import annotations

import pickle

import pytest

from merging.base import errors

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MergingError)]


@pytest.mark.parametrize("kind", KINDS)
def test_invisible_characters_are_escaped_and_lines_stay(kind: type[errors.MergingError]) -> None:
    error = kind("a\x00b \x1b[31mred \u202ex\nsecond line " + "y" * 500)
    assert str(error) == "a\\x00b \\x1b[31mred \\u202ex\nsecond line " + "y" * 500
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(kind("Größe 3 × 4")) == "Größe 3 × 4"
