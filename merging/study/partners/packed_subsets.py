"""Measured subsets in one small file, for libraries: a bit for each image and subset, beside the points of own sweeps.

The name depends on the names of all points, hence on the models, the chain, the images and the versions of methods.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from merging.base.errors import StoreError
from merging.base.files.short_digest import short_digest
from merging.images.benchmarks.resampled_tasks import is_whole
from merging.study.partners.subsets import MeasuredSubsets
from merging.study.runs.run_store import Store
from merging.study.sweeps.sweep import NamedPoint
from merging.tasks.results import Result, ResultKind, Results

FACTS, FOLDER, VERSION = "subsets.json", "subsets", 1
KIND = ResultKind("measurement of subsets", FOLDER, FACTS, "Measure it again.")
RIGHT = "right"  # the array: (images, ceil(subsets / 8)) bits, data set by data set


def name_subsets(planned: Sequence[NamedPoint]) -> str:
    """The name of the measurement of all these points."""
    return short_digest(json.dumps([VERSION, sorted(point.name for point in planned)]))


def packed_results(store: Store) -> Results[Result]:
    """The packed measurements of a store and its libraries."""
    return store.results(KIND, lambda result: result)


def write_packed(
    store: Store, planned: Sequence[NamedPoint], measured: MeasuredSubsets, root: Path | None = None
) -> None:
    """Write a complete measurement into ``root``, by default the store's own folder.

    Raises:
        StoreError: subsets are missing, answers are shares of several models, or the disk cannot be written to.
    """
    subsets, tasks = list(measured.right), {task: measured.count_images(task) for task in measured.tasks}
    if not measured.complete:
        raise StoreError(f"{measured.total - len(subsets)} of {measured.total} subsets are not measured.")
    answers = np.concatenate([measured.stack(task, subsets) for task in tasks], axis=1)
    if not is_whole(answers):
        raise StoreError("Answers that several models share are not packed.")
    facts = {
        "experts": list(measured.experts), "subsets": subsets, "images": tasks, "seed": measured.seed,
        "device": measured.device,
    }  # fmt: skip
    packed = np.packbits(answers.T.astype(np.uint8), axis=1)
    packed_results(store).write(name_subsets(planned), facts, {}, {RIGHT: packed}, root=root)


def find_packed(store: Store, planned: Sequence[NamedPoint]) -> MeasuredSubsets | None:
    """The packed measurement of all these points, or None."""
    if (result := packed_results(store).find(name_subsets(planned))) is None:
        return None
    facts, subsets = result.facts, [int(subset) for subset in result.facts["subsets"]]
    answers = np.unpackbits(result.array(RIGHT), axis=1, count=len(subsets)).T.astype(np.float64)
    ends = np.cumsum(list(facts["images"].values()))[:-1]
    by_task = dict(zip(facts["images"], np.split(answers, ends, axis=1), strict=True))
    right = {subset: {task: rows[place] for task, rows in by_task.items()} for place, subset in enumerate(subsets)}
    return MeasuredSubsets(tuple(facts["experts"]), right, len(right), int(facts["seed"]), str(facts["device"]))
