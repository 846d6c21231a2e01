"""Splits a data set: exemplars from its training part, and test images from its test part, in two halves or whole.

A part is what a data set comes in: "train", "validation", "test", or "whole" if it is in one piece. The splits of a
benchmark are the exemplars and the two halves of its test images, to choose on and to report on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merging.base.errors import TaskError
from merging.base.text import first_few, printable
from merging.images.data_sets.labeled_images import TEST, TRAIN, VALIDATION, DataSet, Labels, part_of_name

Order = NDArray[np.intp]
PartOrder = tuple[str, Order]  # a part, and its image indices (n,) in random order


@dataclass(frozen=True)
class Split:
    """The parts from which exemplars and test images are sampled, each with its images in random order.

    With ``whole``, all test images are for reporting; images to choose on come from ``choosing``, if it is not None.
    """

    exemplars: PartOrder | None
    test: PartOrder
    rule: str  # a phrase on where the images come from, for the manifest
    cautions: tuple[str, ...] = ()
    whole: bool = False
    choosing: PartOrder | None = None


def split_data_set(
    data: DataSet,
    key: str,
    seed: int,
    test_split: str | None = None,
    *,
    balanced: bool = False,
    whole: bool = False,
) -> Split:
    """The split of a data set, which depends only on its key and the seed, not on the benchmark's other tasks.

    Test images come from the part "test", or from "validation" if there is no such part; exemplars come from "train".
    A data set in one piece is cut: half for exemplars, half for tests. ``test_split`` names another part to test on, as
    the data set writes it. ``balanced`` samples equally from all classes. ``whole`` reports on all test images; then
    images to choose on come from "validation", if that is not the test part.

    Raises:
        TaskError: the data set has no such part, or exemplars are sampled from it.
    """
    shuffled = {part: _shuffle(len(labels), key, part, seed) for part, labels in data.parts.items() if len(labels)}
    if balanced:
        shuffled = {part: order_evenly(order, data.parts[part]) for part, order in shuffled.items()}
    test = next((part for part in (TEST, VALIDATION) if part in shuffled), None)
    if test_split is not None:
        test = _find_part(test_split, shuffled)
    if test is None:
        return _split_single_part(shuffled, seed, whole=whole)
    unused = [part for part in shuffled if part not in {TRAIN, test}]
    choosing = (VALIDATION, shuffled[VALIDATION]) if whole and VALIDATION in unused else None
    unused = [part for part in unused if choosing is None or part != VALIDATION]
    rule = f"test images from part {test!r}" + (f"; part {first_few(unused)!r} is not used" if unused else "")
    rule += ", all to report on" if whole else ""
    rule += f"; images to choose on from part {VALIDATION!r}" if choosing else ""
    options: dict[str, Any] = {"whole": whole, "choosing": choosing}
    if TRAIN not in shuffled:
        caution = (
            "There is no training part, so there are no exemplars: methods that need them cannot run with this task."
        )
        return Split(None, (test, shuffled[test]), f"{rule}; no exemplars", (caution,), **options)
    exemplars = (TRAIN, shuffled[TRAIN])
    return Split(exemplars, (test, shuffled[test]), f"exemplars from part 'train', {rule}", **options)


def _split_single_part(shuffled: dict[str, Order], seed: int, *, whole: bool) -> Split:
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


def order_evenly(order: Order, labels: Labels) -> Order:
    """The same images (n,) in an order that takes turns between the classes that still have images."""
    classes = labels[order]
    by_class = np.argsort(classes, kind="stable")
    ranks = np.empty(len(order), np.intp)  # (n,): number of earlier images of the same class
    ranks[by_class] = np.arange(len(order)) - np.searchsorted(classes[by_class], classes[by_class])
    return order[np.argsort(ranks, kind="stable")]


def _find_part(test_split: str, parts: Collection[str]) -> str:
    """The part that a data set's own name of a split refers to; raises TaskError if it has none."""
    part = test_split if test_split in parts else part_of_name(test_split)
    if part is None or part not in parts:
        raise TaskError(f"It has no split {printable(test_split, 60)!r}; it has {first_few(parts)}.")
    if part == TRAIN:
        raise TaskError(f"Exemplars are drawn from the split {test_split!r}, so it cannot be the one to test on.")
    return part


def _shuffle(count: int, key: str, part: str, seed: int) -> Order:
    """All indices (count,) in a seeded random order."""
    entropy = [seed, *f"{key}/{part}".encode()]
    return np.random.default_rng(entropy).permutation(count)
