"""Small JSON files of this program, written whole or not at all."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

from merging.files.disk import sync


def write_json(path: Path, data: Any) -> None:
    """Write strict JSON (no NaN); after a failure the file has not changed."""
    partial = path.with_name(f".{path.name}.tmp-{uuid.uuid4().hex}-{os.getpid()}")
    try:
        partial.write_text(json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n", "utf-8")
        sync(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
