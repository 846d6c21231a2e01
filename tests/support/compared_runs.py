"""The runs that the tests of the Compare page look at, and links to two of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from page_harness import runs

TIES_NAMED = "TIES (sum, λ 0.3)"  # as pages show the run of the title TIES
LWPTV, TIES, CAT, EMR, FEW = "Task Arithmetic w/ LwPTV", "Ties", "CAT Merging", "EMR-Merging", "Three experts"
PRETRAINED = "Pretrained"


def link_to_both(folder: Path, a: str = TIES, b: str = LWPTV) -> dict[str, str]:
    """The part of a link that names two runs."""
    known = runs(folder)
    return {"run": known[a].id, "run_b": known[b].id}


def read_warnings(at: Any) -> str:
    return " ".join(str(warning.value) for warning in at.warning)
