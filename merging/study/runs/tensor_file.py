"""A merged tensor as the bytes of a worker's answer: a safetensors file with counts in its metadata.

The counts, called a tally, are the number of scalars that the merge changes, and the squared norm of the change.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from merging.base.errors import CheckpointError, WorkerError
from merging.engine.outputs import Rows, StoredSlot, Tally
from merging.models.formats.safetensors import decode_tensor, encode_tensor
from merging.models.tensor_info import TensorInfo

FACTS = "facts"


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
