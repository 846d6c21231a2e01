"""Accuracies of models when the images of a task are sampled again with replacement.

For a task and its number of images the same images are always drawn, whichever models are compared.
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DRAWS, SEED = 10_000, 0  # of the bootstrap
BLOCK = 2**17  # counts that are drawn at a time, which fit the cache of a processor
MOST_KEPT = 128 * 2**20  # bytes of counts that are kept for the next comparison
MOST_DRAWS_KEPT, MOST_MODELS_KEPT = 512, 32  # accuracies on resamples, 80 kB each; models of a comparison with these
FIXED_POINT = 2.0**36  # shares are rounded to multiples of 1/2³⁶, so that sums are exact in any order

kept_counts: dict[tuple[str, int], list[NDArray[np.uint8]]] = {}
kept_draws: OrderedDict[tuple[str, bytes], Floats] = OrderedDict()  # by task and answers; the latest used are last
_kept_lock, _counts_lock = threading.Lock(), threading.Lock()


def _draw_counts(task: str, n: int) -> Iterator[NDArray[np.uint8]]:
    """How often each of n images is drawn, in blocks (draws, n) of ``DRAWS`` in all.

    They depend on the task and n only. A count of 256 would need as many draws of one image, which does not occur.
    """
    generator = np.random.default_rng([SEED, zlib.crc32(task.encode()), n])
    rows = max(1, BLOCK // n)
    for start in range(0, DRAWS, rows):
        size = min(rows, DRAWS - start)
        images = generator.integers(n, size=(size, n))
        images += n * np.arange(size)[:, None]
        yield np.bincount(images.ravel(), minlength=size * n).reshape(size, n).astype(np.uint8)


def _read_counts(task: str, n: int) -> Iterable[NDArray[np.uint8]]:
    """The blocks of ``_draw_counts``, which are kept as long as there is memory for them.

    None makes room for another, since comparisons read the tasks in turn, so that each would come back too late.
    """
    if (task, n) in kept_counts:
        return kept_counts[task, n]
    with _counts_lock:  # another thread may be drawing them
        if (task, n) not in kept_counts:
            if (sum(size for _, size in kept_counts) + n) * DRAWS > MOST_KEPT:
                return _draw_counts(task, n)
            kept_counts[task, n] = list(_draw_counts(task, n))
    return kept_counts[task, n]


def draw_ahead(sizes: Mapping[str, int]) -> None:
    """Draw the images of tasks, {task: n}, before models are compared on them, as far as ``MOST_KEPT`` allows."""
    for task, n in sizes.items():
        if n:
            _read_counts(task, n)


def resample_task(task: str, right: Floats) -> Floats:
    """Accuracies (m, draws) of m models on resamples of the n images of a task; ``right`` is (m, n).

    Those of a few models are kept for their next comparison.
    """
    if len(right) > MOST_MODELS_KEPT:
        return _compute_draws(task, right)
    keys = [(task, hashlib.blake2b(one.tobytes()).digest()) for one in right]
    with _kept_lock:
        found = {key: kept_draws[key] for key in keys if key in kept_draws}
    if places := [place for place, key in enumerate(keys) if key not in found]:
        found |= zip([keys[place] for place in places], map(np.copy, _compute_draws(task, right[places])), strict=True)
    with _kept_lock:
        kept_draws.update(found)
        for key in found:
            kept_draws.move_to_end(key)
        while len(kept_draws) > MOST_DRAWS_KEPT:
            kept_draws.popitem(last=False)
    return np.stack([found[key] for key in keys])


def _compute_draws(task: str, right: Floats) -> Floats:
    """What ``resample_task`` returns."""
    has_whole = is_whole(right)
    # Sums of zeros and ones are exact in single precision, and those of rounded shares in double precision.
    weights = (right if has_whole else np.rint(right * FIXED_POINT) / FIXED_POINT).T
    precision: type[np.floating[Any]] = np.float32 if has_whole else np.float64
    weights = np.asarray(weights, precision)
    sums = [counts.astype(precision) @ weights for counts in _read_counts(task, len(weights))]
    return np.ascontiguousarray(np.concatenate(sums).T, np.float64) / len(weights)


def is_whole(right: Floats) -> bool:
    """Whether each answer is that of one model, 0 or 1, and not a share of several."""
    return bool(np.isin(right, (0, 1)).all())
