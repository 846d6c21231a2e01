"""What a worker can do: units of work by name, with requests in JSON, and answers in JSON or as a tensor's file.

``call`` is the only function that an engine is ever given. Engines pickle its name and two byte strings, so that no
function or object of a user travels. A unit is found by its name in ``UNITS`` and lies in the room that it computes.
"""

from __future__ import annotations

import gc
import importlib
import json
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from merging import errors
from merging.errors import MergingError, WorkerError

ABOUT, POINT, TRIAL, TENSOR, SCORE, RUN, MEASURE = "about", "point", "trial", "tensor", "score", "run", "measure"
UNITS: Mapping[str, str] = {
    ABOUT: "merging.workers.about:about",
    POINT: "merging.sweeps.point_unit:point",
    TRIAL: "merging.analysis.trials.unit:trial",
    TENSOR: "merging.runs.elsewhere.tensor_unit:tensor",
    SCORE: "merging.runs.elsewhere.score_unit:score",
    RUN: "merging.runs.several.run_unit:run",
    MEASURE: "merging.analysis.several.measure_unit:measure",
}
FILE, IN_FILE = 7, b"\0{"  # the last byte of a header's length, and its first: so begin safetensors files, never JSON
OUT_OF_MEMORY = "A worker ran out of memory. Start fewer workers on a machine, or use fewer or smaller models."

Plain = dict[str, Any]
Function = Callable[[Mapping[str, Any]], Plain | bytes]


def call(unit: str, request: bytes) -> bytes:
    """The answer of a unit, or its error: {"answer": ...} or {"error": {"type", "text"}}. Raises nothing."""
    gc.enable()  # the program's own start, which a new process may repeat, disables it
    try:
        answer = _function(unit)(_mapping(request))
        return answer if isinstance(answer, bytes) else json.dumps({"answer": answer}).encode()
    except MergingError as error:
        said: Plain = {"type": type(error).__name__, "text": str(error)}
    except MemoryError:
        said = {"type": MergingError.__name__, "text": OUT_OF_MEMORY}
    except Exception as error:
        traceback.print_exception(error)  # where the worker prints; the asker gets a sentence
        said = {"type": MergingError.__name__, "text": _sentence(error)}
    return json.dumps({"error": said}).encode()


def written(request: Mapping[str, Any]) -> bytes:
    """A request as ``call`` takes it."""
    return json.dumps(request).encode()


def answered(raw: bytes) -> Plain:
    """The answer of ``call``; of bytes that are a safetensors file {"file": bytes}.

    Raises:
        MergingError: the unit raised that error. WorkerError: what came is no answer.
    """
    if raw[FILE : FILE + len(IN_FILE)] == IN_FILE:
        return {"file": raw}
    said = _mapping(raw)
    if isinstance(said.get("answer"), dict):
        return dict(said["answer"])
    error = said.get("error")
    if not isinstance(error, dict):
        raise WorkerError("A worker answered with something else than an answer or an error. Restart the workers.")
    kind = getattr(errors, str(error.get("type")), MergingError)
    known = isinstance(kind, type) and issubclass(kind, MergingError)
    raise (kind if known else MergingError)(str(error.get("text")))


def _function(unit: str) -> Function:
    if unit not in UNITS:
        raise WorkerError(f"There is no unit of work {unit[:40]!r}; a worker does one of {', '.join(UNITS)}.")
    module, _, name = UNITS[unit].partition(":")
    function: Function = getattr(importlib.import_module(module), name)
    return function


def _mapping(raw: bytes) -> Plain:
    try:
        read = json.loads(raw)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise WorkerError("What workers are asked, and what they answer, is a mapping in JSON; this is not.")
    return read


def _sentence(error: Exception) -> str:
    if isinstance(error, RuntimeError) and "allocate memory" in str(error):
        return OUT_OF_MEMORY
    return f"Unexpected {type(error).__name__}: {str(error)[:200] or 'no reason given'}"
