"""The task "tensor": one whole tensor of a merge.

Workers compute it only on the same kind of hardware as the requesting process, so that a file has the same bytes as if
one machine had computed it. The answer is a safetensors file with counts in its metadata: the number of scalars
that the merge changes, and the squared norm of the change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch

from merging.base.errors import CheckpointError, WorkerError
from merging.engine.outputs import Rows, StoredSlot, Tally
from merging.engine.run import SingleTensors
from merging.models.digest_cache import DIGESTS
from merging.models.formats.safetensors import decode_tensor, encode_tensor
from merging.models.tensor_info import TensorInfo
from merging.recipes.recipe import Recipe
from merging.study.runs.opened_recipe import OpenedRecipe
from merging.study.runs.worker_requests import open_with_digests
from merging.tasks.context import Context
from merging.tasks.kinds import Request, TaskKind

FACTS = "facts"


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


def write_tensor_file(stored: StoredSlot, rows: Rows) -> bytes:
    """The file of a merged tensor, its counts, and the rows of tables that methods noted; numbers are exact."""
    facts = {"kept": stored.tally.kept.tolist(), "squared": stored.tally.squared.tolist(), "rows": rows}
    return encode_tensor(stored.name, stored.values[0], {FACTS: json.dumps(facts)})


def read_tensor_file(raw: bytes, name: str, info: TensorInfo) -> tuple[StoredSlot, Rows]:
    """The tensor ``name`` and the rows that ``write_tensor_file`` wrote. Raises WorkerError for another tensor."""
    try:
        stored_name, values, metadata = decode_tensor(raw, "A worker's answer")
        facts: dict[str, Any] = json.loads(metadata[FACTS])
        rows: Rows = facts["rows"]
        tally = Tally(torch.tensor(facts["kept"]), torch.tensor(facts["squared"], dtype=torch.float64))
    except (CheckpointError, ValueError, KeyError, TypeError) as error:
        raise WorkerError(f"A worker answered with something else than a tensor ({error}). Restart it.") from None
    if (stored_name, values.shape, values.dtype) != (name, info.shape, info.dtype):
        raise WorkerError(
            f"A worker answered with {stored_name} {list(values.shape)} instead of {name} {list(info.shape)}."
        )
    return StoredSlot(name, start=0, values=[values], tally=tally), rows  # one model's tensor, whole


KIND = TaskKind("tensor", open_merge, compute_tensor, name_tensor, shared_keys=("recipe", "base", "device", "digests"))
