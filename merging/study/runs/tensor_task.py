"""The task "tensor": one whole tensor of a merge.

Workers compute it only on the same kind of hardware as the requesting process, so that a file has the same bytes as if
one machine had computed it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from merging.base.errors import CheckpointError
from merging.engine.run import SingleTensors
from merging.models.digest_cache import DIGESTS
from merging.recipes.recipe import Recipe
from merging.study.runs.opened_recipe import OpenedRecipe
from merging.study.runs.tensor_file import write_tensor_file
from merging.study.runs.worker_requests import open_with_digests
from merging.tasks.context import Context
from merging.tasks.kinds import Request, TaskKind


class OpenedMerge(NamedTuple):
    """A recipe with its files open, and the merge of single tensors; None if the files are not those of the request."""

    opened: OpenedRecipe
    merge: SingleTensors | None


def open_merge(request: Request) -> OpenedMerge:
    """The recipe and the merge that all tensors of a request's merge share."""
    recipe, base = Recipe.from_plain(request["recipe"]), Path(str(request["base"]))
    opened = open_with_digests(recipe, base, None, request["digests"])
    if [DIGESTS.digest(checkpoint) for checkpoint in opened] != [digest["digest"] for digest in request["digests"]]:
        return OpenedMerge(opened, None)
    return OpenedMerge(opened, SingleTensors(recipe, opened.pretrained, opened.experts, str(request["device"])))


def name_tensor(inputs: OpenedMerge, request: Request) -> str:
    """The tensor's name; empty if this process sees other files, or one has changed since it was opened."""
    try:
        inputs.opened.raise_if_changed()
    except CheckpointError:
        return ""
    return str(request["name"]) if inputs.merge is not None else ""


def compute_tensor(inputs: OpenedMerge, request: Request, _context: Context) -> bytes:
    """The merged tensor as a file."""
    assert inputs.merge is not None  # it has a name
    stored, rows = inputs.merge.compute(str(request["name"]))
    inputs.opened.raise_if_changed()
    return write_tensor_file(stored, rows)


KIND = TaskKind("tensor", open_merge, compute_tensor, name_tensor, shared_keys=("recipe", "base", "device", "digests"))
