"""JSON from untrusted files: a mapping without duplicate keys, or one sentence about the problem.

A text of a hundred megabytes can hold millions of small values, and each value takes a hundred bytes of memory. So the
values are counted before any of them is created.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from merging.base.errors import CheckpointError

MAX_VALUES = 500_000  # counted by commas; the header of a file with a thousand tensors has about six thousand
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def parse_json(raw: bytes, label: str, noun: str = "the file", max_values: int = MAX_VALUES) -> dict[str, Any]:
    """The mapping in a JSON text of at most ``max_values`` values; messages call the text ``noun``, its file ``label``.

    Raises:
        CheckpointError: not JSON, not a mapping, a duplicate key, or too many values.
    """

    def reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            duplicate = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise CheckpointError(f"{label}: {noun} names {duplicate[:80]!r} twice.")
        return mapping

    if _has_too_many_values(raw, max_values):
        raise CheckpointError(f"{label}: {noun} lists more than {max_values:,} values; refused.")
    try:
        entries = json.loads(raw.decode("utf-8"), object_pairs_hook=reject_duplicates)
        if b"\\u" in raw:  # half of a surrogate pair, which cannot be encoded, raises a ValueError
            json.dumps(entries, ensure_ascii=False).encode()
    except CheckpointError:
        raise
    except (ValueError, RecursionError):  # a number with thousands of digits raises a plain ValueError
        raise CheckpointError(
            f"{label}: {noun} is not valid JSON; the file is damaged or not what its name says."
        ) from None
    if not isinstance(entries, dict):
        raise CheckpointError(f"{label}: {noun} is a {type(entries).__name__}, not a mapping.")
    return entries


def _has_too_many_values(raw: bytes, max_values: int) -> bool:
    """Whether there are more than ``max_values`` commas outside of strings."""
    if raw.count(b",") <= max_values:
        return False
    count = position = 0
    for text in STRING.finditer(raw):
        count += raw.count(b",", position, text.start())
        position = text.end()
        if count > max_values:
            return True
    return count + raw.count(b",", position) > max_values
