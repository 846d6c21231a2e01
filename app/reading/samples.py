"""Which images the scores of the session's benchmark are of, in words: of whole test sets, or of halves of them."""

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
    from merging.images.benchmarks import test_images

    return test_images.in_words(list(test_images.draws(folder, split).values()))


def is_whole() -> bool:
    """Whether the session's benchmark reports on whole test sets and keeps no half of them to choose on."""
    return _is_whole(benchmark.folder(), data.digest())


@lru_cache(maxsize=data.KEPT)
def _is_whole(folder: Path, digest: str) -> bool:
    from merging.images.benchmarks import test_images

    return test_images.is_whole(folder)


def part(split: str = data.SPLIT) -> str:
    """What is scored: 'reporting half', or 'test set' where it is not cut in halves."""
    from merging.images.benchmarks import test_images

    return test_images.part(split, whole=is_whole())


def of_each(split: str = data.SPLIT) -> str:
    """The same of all data sets: 'reporting half of each test set' or 'test set of each task'."""
    return f"{part(split)} of each {'task' if is_whole() else 'test set'}"


def sentence(split: str = data.SPLIT) -> str:
    """The same as a sentence, with a space before it; empty if nothing says."""
    words = in_words(split)
    return f" Images: {words}." if words else ""
