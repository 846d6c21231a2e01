"""The unit ``tensor``: a worker computes one whole tensor of a merge, from the files that it sees itself.

It refuses to merge files with other digests than those that came with the request, and computes on the same kind of
hardware as the program that asked, so that all tensors of a file are as one machine makes them.
"""

from __future__ import annotations

import json
import platform
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from merging.checkpoints.digests import DIGESTS
from merging.engine.run import OneByOne
from merging.errors import CheckpointError, WorkerError
from merging.formats.handed_out import believe, unseen
from merging.recipes.recipe import Recipe
from merging.runs.elsewhere.wire import tensor_file
from merging.runs.inputs import OpenedRecipe, open_inputs

last: dict[str, tuple[OpenedRecipe, OneByOne]] = {}  # by what was asked, of this process
_one_at_a_time = threading.Lock()


def tensor(request: Mapping[str, Any]) -> bytes:
    """The merged tensor as a file.

    Raises:
        WorkerError: this worker does not see a file, or sees another one. MergingError: it cannot be merged.
    """
    with _one_at_a_time:  # memory is for one tensor
        opened, merge = _merge({key: value for key, value in request.items() if key != "tensor"})
        stored, rows = merge.tensor(str(request["tensor"]))
        opened.raise_if_changed()
    return tensor_file(stored, rows)


def _merge(asked: Mapping[str, Any]) -> tuple[OpenedRecipe, OneByOne]:
    key = json.dumps(asked)
    if key in last:
        try:
            last[key][0].raise_if_changed()
        except CheckpointError:
            last.clear()
    if key not in last:
        last.clear()
        opened = _opened(Recipe.from_plain(asked["recipe"]), Path(str(asked["base"])), asked["digests"])
        models = opened.pretrained, opened.experts
        last[key] = opened, OneByOne(opened.recipe, *models, str(asked["device"]))
    return last[key]


def _opened(recipe: Recipe, base: Path, digests: list[Mapping[str, Any]]) -> OpenedRecipe:
    try:
        opened = open_inputs(recipe, base)
    except CheckpointError as error:
        raise unseen((recipe.pretrained, *dict(recipe.experts).values()), error, base) from None
    for checkpoint, given in zip(opened, digests, strict=True):
        believe(checkpoint, given)
        if DIGESTS.digest(checkpoint) != given["digest"]:
            raise WorkerError(
                f"Worker {platform.node()} sees another file as {checkpoint.name} than the program that asked for it. "
                "Copy the files there again, or put them where all workers read."
            )
    return opened
