"""The scored images of the session's benchmark, in words: whole test sets, or their reporting or choosing half."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from app.reading import page_data
from app.session import benchmark_choice


def sampling_in_words(split: str = page_data.SCORED_SPLIT) -> str:
    """How the images of a split were sampled, without a full stop; empty if the benchmark does not state it."""
    return _in_words(benchmark_choice.benchmark_folder(), page_data.current_digest(), split)


@lru_cache(maxsize=page_data.MAX_CACHED)
def _in_words(folder: Path, digest: str, split: str) -> str:
    from merging.images.benchmarks import image_draws

    return image_draws.describe_draws(list(image_draws.read_draws(folder, split).values()))


def is_whole_test_set() -> bool:
    """Whether the session's benchmark reports on whole test sets, without a choosing half."""
    return _is_whole(benchmark_choice.benchmark_folder(), page_data.current_digest())


@lru_cache(maxsize=page_data.MAX_CACHED)
def _is_whole(folder: Path, digest: str) -> bool:
    from merging.images.benchmarks import image_draws

    return image_draws.is_whole(folder)


def scored_part(split: str = page_data.SCORED_SPLIT) -> str:
    """The scored part: 'reporting half', or 'test set' where it is not divided."""
    from merging.images.benchmarks import image_draws

    return image_draws.name_images(split, whole=is_whole_test_set())


def scored_part_of_each(split: str = page_data.SCORED_SPLIT) -> str:
    """The scored part of all data sets: 'reporting half of each test set' or 'test set of each task'."""
    return f"{scored_part(split)} of each {'task' if is_whole_test_set() else 'test set'}"


def sampling_sentence(split: str = page_data.SCORED_SPLIT) -> str:
    """``sampling_in_words`` as a sentence after a space; empty if the benchmark does not state it."""
    words = sampling_in_words(split)
    return f" Images: {words}." if words else ""
