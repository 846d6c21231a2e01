"""Units of work that the tests of workers let processes do instead of the real ones."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from merging.base.errors import RecipeError
from merging.tasks import worker
from merging.tasks.kinds import TaskKind


def call(unit: str, request: bytes) -> bytes:
    """As ``worker.answer_request``; "stand_in" waits, kills its process, or says where it ran."""
    if unit != "stand_in":
        return worker.answer_request(unit, request)
    wanted = json.loads(request)
    if wanted.get("begun"):
        with Path(wanted["begun"]).open("a", encoding="utf-8") as file:
            file.write(f"{wanted['name']}\n")
    time.sleep(wanted.get("seconds", 0))
    if wanted.get("kills") and not Path(wanted.get("unless", "/none")).exists():
        if "unless" in wanted:
            Path(wanted["unless"]).touch()
        os._exit(9)
    return json.dumps({"answer": describe_process()}).encode()


def describe_process() -> dict[str, Any]:
    names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_")
    return {"pid": os.getpid(), "environment": {name: os.environ.get(name) for name in names}}


RAISED: Exception = RecipeError("")


def raise_error(*_said: Any) -> Any:
    """A task that fails with ``RAISED``."""
    raise RAISED


KIND = TaskKind("unit", lambda request: None, raise_error)
