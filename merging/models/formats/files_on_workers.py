"""What programs that compute for each other say of files: digests, and that one is not there.

Digests travel with the size, time and inode of the file that they are of: who sees the same file need not read it.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from merging.base.errors import CheckpointError, WorkerError
from merging.models.checkpoint import Checkpoint
from merging.models.digest_cache import DIGESTS
from merging.models.formats.model_sources import ModelRef

FILE = 4  # numbers of a file's state: device, inode, size, time of change


def digest_for_request(checkpoint: Checkpoint) -> dict[str, Any]:
    """The digest of a checkpoint, with the file that it is of; empty for one in memory."""
    state = checkpoint.state()
    return {} if state is None else {"digest": DIGESTS.digest(checkpoint), "file": list(_portable(state))}


def check_handed_digest(checkpoint: Checkpoint, handed: Mapping[str, Any]) -> None:
    """Take over the digest of a file that is, by all that can be seen from here, the one that was handed out."""
    state = checkpoint.state()
    if state is not None and list(_portable(state)) == handed.get("file"):
        DIGESTS.remember({state: str(handed["digest"])})


def _portable(state: Sequence[int]) -> Sequence[int]:
    """A file's state without the device, whose number differs between machines; that of several files as it is."""
    return state[1:] if len(state) == FILE else state


def first_missing(models: Iterable[ModelRef]) -> str:
    """The text of the first model whose file is not here; empty if all are."""
    for model in models:
        try:
            if not model.is_on_hub and not model.path.exists():
                return model.text
        except CheckpointError:
            return model.text
    return ""


def unseen_file_error(what: str, variable: str = "MERGESCOPE_MODELS") -> WorkerError:
    """This worker has no such file; a ``variable`` of its environment may say where it lies."""
    return WorkerError(
        f"Worker {platform.node()} does not see {what}; set {variable} there, or put the file where all workers read."
    )


def explain_unseen(models: Iterable[ModelRef], error: CheckpointError) -> CheckpointError | WorkerError:
    """What is to be done where one of these files is missing on a worker; any other error as it is."""
    missing = first_missing(models)
    return unseen_file_error(missing) if missing else error
