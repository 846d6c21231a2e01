"""Short names derived from content (of runs, sweeps, points, sets, widgets): the first twelve digits of a sha-256."""

from __future__ import annotations

import hashlib
import re

DIGITS = 12
SHORT_DIGEST = re.compile(rf"[0-9a-f]{{{DIGITS}}}")


def short_digest(text: str) -> str:
    """Twelve hexadecimal digits that name a text; the text may be a path that is not UTF-8."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:DIGITS]
