"""JSON from files that others wrote: a mapping in which no key comes twice, or one sentence about what is wrong."""

from __future__ import annotations

import json
from typing import Any

from merging.errors import CheckpointError


def parse(raw: bytes, label: str, what: str = "the file") -> dict[str, Any]:
    """The mapping that a JSON text holds; ``what`` is the part of ``label`` that it is.

    Raises:
        CheckpointError: not JSON, not a mapping, or a key that comes twice.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen:
                raise CheckpointError(f"{label}: {what} names {key[:80]!r} twice.")
            key.encode()  # a lone surrogate cannot be written back, and raises a ValueError
            seen[key] = value
        return seen

    try:
        entries = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except CheckpointError:
        raise
    except (ValueError, RecursionError):  # a number of thousands of digits is a plain ValueError
        raise CheckpointError(
            f"{label}: {what} is not valid JSON; the file is damaged or not what its name says."
        ) from None
    if not isinstance(entries, dict):
        raise CheckpointError(f"{label}: {what} is a {type(entries).__name__}, not a mapping.")
    return entries
