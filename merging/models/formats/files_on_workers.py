"""Digests of model files in requests to workers, and errors for files that a worker does not see.

A digest is sent with the size, time and inode of its file. A worker that sees the same file need not read it.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from merging.base.errors import CheckpointError, WorkerError
from merging.models.checkpoint import Checkpoint
from merging.models.digest_cache import DIGESTS
from merging.models.formats.model_sources import ModelRef

FINGERPRINT_LENGTH = 4  # numbers in the fingerprint of a single file: device, inode, size, time of change


def digest_for_request(checkpoint: Checkpoint) -> dict[str, Any]:
    """The digest of a checkpoint and the fingerprint of its file, for a request; empty for a checkpoint in memory."""
    fingerprint = checkpoint.file_fingerprint()
    if fingerprint is None:
        return {}
    return {"digest": DIGESTS.digest(checkpoint), "file": list(_without_device(fingerprint))}


def remember_received_digest(checkpoint: Checkpoint, request: Mapping[str, Any]) -> None:
    """Remember the digest that a request states, if its file has the same size, time and inode in this process."""
    fingerprint = checkpoint.file_fingerprint()
    if fingerprint is not None and list(_without_device(fingerprint)) == request.get("file"):
        DIGESTS.remember({fingerprint: str(request["digest"])})


def _without_device(fingerprint: Sequence[int]) -> Sequence[int]:
    """A file's fingerprint without the device number, which differs between machines; unchanged for several files."""
    return fingerprint[1:] if len(fingerprint) == FINGERPRINT_LENGTH else fingerprint


def first_missing(models: Iterable[ModelRef]) -> str:
    """The text of the first model whose file is missing on this machine; empty if all exist."""
    for model in models:
        try:
            if not model.is_on_hub and not model.path.exists():
                return model.text
        except CheckpointError:
            return model.text
    return ""


def unseen_file_error(file: str, variable: str = "MERGESCOPE_MODELS") -> WorkerError:
    """The error of a worker that has no such file; an environment ``variable`` may set its folder."""
    return WorkerError(
        f"Worker {platform.node()} does not see {file}; set {variable} there, or put the file where all workers read."
    )


def explain_unseen(models: Iterable[ModelRef], error: CheckpointError) -> CheckpointError | WorkerError:
    """An error with the remedy if one of these files is missing on this worker; else ``error`` itself."""
    missing = first_missing(models)
    return unseen_file_error(missing) if missing else error
