"""Short names derived from content (of runs, sweeps, points, sets, widgets): the first twelve digits of a sha-256.

Pages print six or eight of the digits. Where a user enters a name, at least six digits suffice if they are unique.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

DIGEST_DIGITS, MIN_PREFIX_DIGITS = 12, 6
DIGEST_PREFIX = re.compile(rf"[0-9a-f]{{{MIN_PREFIX_DIGITS},{DIGEST_DIGITS}}}")
SHORT_DIGEST = re.compile(rf"[0-9a-f]{{{DIGEST_DIGITS}}}")


def short_digest(text: str) -> str:
    """Twelve hexadecimal digits that name a text; the text may be a path that is not UTF-8."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:DIGEST_DIGITS]


def match_prefix(prefix: str, names: Iterable[str]) -> list[str]:
    """The names that begin with ``prefix``, if that is at least six hexadecimal digits; otherwise an empty list."""
    return [name for name in names if name.startswith(prefix)] if DIGEST_PREFIX.fullmatch(prefix) else []


def resolve_prefix(prefix: str, names: Iterable[str]) -> str:
    """The only name that begins with ``prefix``; ``prefix`` itself if no name or several names begin with it."""
    matches = match_prefix(prefix, dict.fromkeys(names))
    return matches[0] if len(matches) == 1 else prefix
