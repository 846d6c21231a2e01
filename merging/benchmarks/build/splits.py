"""How the images of a data set are used: exemplars from the training part, two halves of the test part or all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merging.datasets.base import TEST, TRAIN, VALIDATION, DataSet, Labels

Order = NDArray[np.intp]
Drawn = tuple[str, Order]  # a part, and its images in the order of the draw


@dataclass(frozen=True)
class Split:
    """Where exemplars and test images are drawn from, each a part and its images in the order of the draw.

    With ``whole``, all test images are reported on; images to choose on come from ``choosing``, if that is not None.
    """

    exemplars: Drawn | None
    test: Drawn
    rule: str
    cautions: tuple[str, ...] = ()
    whole: bool = False
    choosing: Drawn | None = None


def split(data: DataSet, key: str, seed: int, *, balanced: bool = False, whole: bool = False) -> Split:
    """The split of a data set, the same for the same key and seed whatever else is in the benchmark.

    Test images come from the part "test", or from "validation" where there is none; exemplars from "train". A data set
    in one piece is cut: half to draw exemplars from, half to test on. ``balanced`` draws equally from all classes.
    ``whole`` reports on all test images; then images to choose on come from "validation", if that is not tested on.
    """
    shuffled = {part: _shuffled(len(labels), key, part, seed) for part, labels in data.parts.items() if len(labels)}
    if balanced:
        shuffled = {part: evenly(order, data.parts[part]) for part, order in shuffled.items()}
    test = next((part for part in (TEST, VALIDATION) if part in shuffled), None)
    if test is None:
        return _cut(shuffled, seed, whole=whole)
    unused = [part for part in (VALIDATION,) if part in shuffled and part != test]
    chosen = (unused.pop(), shuffled[VALIDATION]) if whole and unused else None
    rule = f"test images from part {test!r}" + (f"; part {unused[0]!r} is not used" if unused else "")
    rule += ", all to report on" if whole else ""
    rule += f"; images to choose on from part {chosen[0]!r}" if chosen else ""
    after: dict[str, Any] = {"whole": whole, "choosing": chosen}
    if TRAIN not in shuffled:
        lacking = (
            "There is no training part, so there are no exemplars: methods that need them cannot run with this task."
        )
        return Split(None, (test, shuffled[test]), f"{rule}; no exemplars", (lacking,), **after)
    drawn = (TRAIN, shuffled[TRAIN])
    return Split(drawn, (test, shuffled[test]), f"exemplars from part 'train', {rule}", **after)


def _cut(shuffled: dict[str, Order], seed: int, *, whole: bool) -> Split:
    """The split of a data set in one part."""
    (part, order), *_ = shuffled.items()
    middle = len(order) // 2
    return Split(
        (part, order[:middle]),
        (part, order[middle:]),
        f"one part, cut by seed {seed}: 50 % to draw exemplars from, "
        + ("50 % to report on" if whole else "25 % to choose and 25 % to report on"),
        ("There is no test part; an expert that was trained on these images looks better than it is.",),
        whole,
    )


def evenly(order: Order, labels: Labels) -> Order:
    """The same images, so that after any number of them no class has two more than another that has images left."""
    classes = labels[order]
    by_class = np.argsort(classes, kind="stable")
    before = np.empty(len(order), np.intp)  # how many of its class come before an image
    before[by_class] = np.arange(len(order)) - np.searchsorted(classes[by_class], classes[by_class])
    return order[np.argsort(before, kind="stable")]


def _shuffled(count: int, key: str, part: str, seed: int) -> Order:
    """All indices in a seeded order."""
    entropy = [seed, *f"{key}/{part}".encode()]
    return np.random.default_rng(entropy).permutation(count)
