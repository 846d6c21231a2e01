"""JSON from files that others wrote: a mapping in which no key comes twice, or one sentence about what is wrong.

A text of a hundred megabytes can hold millions of small things, each of which takes a hundred bytes of memory; so they
are counted before any is made.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from merging.errors import CheckpointError

MAX_THINGS = 500_000  # that commas divide; a header of a thousand tensors has some six thousand
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def parse(raw: bytes, label: str, what: str = "the file") -> dict[str, Any]:
    """The mapping that a JSON text holds; ``what`` is the part of ``label`` that it is.

    Raises:
        CheckpointError: not JSON, not a mapping, a key that comes twice, or more in it than a model has.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise CheckpointError(f"{label}: {what} names {twice[:80]!r} twice.")
        return found

    if _crowded(raw):
        raise CheckpointError(f"{label}: {what} lists more than {MAX_THINGS:,} things; refused.")
    try:
        entries = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
        if b"\\u" in raw:  # half a character, which no file can be written with, raises a ValueError
            json.dumps(entries, ensure_ascii=False).encode()
    except CheckpointError:
        raise
    except (ValueError, RecursionError):  # a number of thousands of digits is a plain ValueError
        raise CheckpointError(
            f"{label}: {what} is not valid JSON; the file is damaged or not what its name says."
        ) from None
    if not isinstance(entries, dict):
        raise CheckpointError(f"{label}: {what} is a {type(entries).__name__}, not a mapping.")
    return entries


def _crowded(raw: bytes) -> bool:
    """Whether there are too many commas; those in texts do not count."""
    if raw.count(b",") <= MAX_THINGS:
        return False
    count = at = 0
    for text in STRING.finditer(raw):
        count += raw.count(b",", at, text.start())
        at = text.end()
        if count > MAX_THINGS:
            return True
    return count + raw.count(b",", at) > MAX_THINGS
