"""Which images the scores of the session's benchmark are of, in words."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from app.reading import data
from app.session import benchmark


def in_words(split: str = data.SPLIT) -> str:
    """How the images of a split were taken, without a full stop; empty if nothing says."""
    return _in_words(benchmark.folder(), data.digest(), split)


@lru_cache(maxsize=data.KEPT)
def _in_words(folder: Path, digest: str, split: str) -> str:
    from merging.benchmarks import drawn

    return drawn.in_words(list(drawn.draws(folder, split).values()))


def sentence(split: str = data.SPLIT) -> str:
    """The same as a sentence, with a space before it; empty if nothing says."""
    words = in_words(split)
    return f" Images: {words}." if words else ""
