"""A worker's side of a task: it takes a request in JSON, and returns an answer in JSON or a safetensors file.

``answer_request`` is the only function that is called on workers. Backends pickle its name and two byte strings.
"""

from __future__ import annotations

import contextlib
import gc
import json
import platform
import threading
import traceback
from dataclasses import replace
from typing import Any

from merging.base import errors
from merging.base.errors import MergingError, WorkerError, describe_unexpected, is_out_of_memory
from merging.tasks.context import Context
from merging.tasks.kinds import Plain, Request, TaskKind, find_kind
from merging.tasks.store_mark import watch_for_end

# A safetensors file has these bytes at this offset, where its header's length ends and its header begins. JSON text
# never has them.
HEADER_OFFSET, HEADER_BYTES = 7, b"\0{"
OUT_OF_MEMORY = "A worker ran out of memory. Start fewer workers on a machine, or use fewer or smaller models."
_task_lock = threading.Lock()  # a worker has memory for one task
# Of the last task: its kind, its values of ``shared_keys`` as JSON, and its inputs.
last_inputs: list[tuple[str, str, Any]] = []


def answer_request(kind: str, request: bytes) -> bytes:
    """The answer of a task, or its error: {"answer": ...} or {"error": {"type", "text"}}. Raises nothing."""
    gc.enable()  # the program's own start, which a new process may repeat, disables it
    try:
        answer = compute_task(kind, _decode_mapping(request))
        return answer if isinstance(answer, bytes) else json.dumps({"answer": answer}).encode()
    except MergingError as error:
        facts: Plain = {"type": type(error).__name__, "text": str(error)}
    except Exception as error:
        traceback.print_exception(error)  # into the worker's output; the requesting program gets a sentence
        text = OUT_OF_MEMORY if is_out_of_memory(error) else describe_unexpected(error)
        facts = {"type": MergingError.__name__, "text": text}
    return json.dumps({"error": facts}).encode()


def compute_task(key: str, request: Request) -> Plain | bytes:
    """The answer of a task, with its "warnings" unless it is a file or about the worker itself.

    Raises:
        WorkerError: there is no such kind, or this worker does not see the store or the same files as the program.
        MergingError: the answer cannot be computed. Cancelled: the requesting program is gone.
    """
    kind, warnings = find_kind(key), dict[str, None]()
    context = Context(str(request.get("device", "auto")), warn=lambda sentence: warnings.update({sentence: None}))
    if kind.name_task is None:
        return kind.compute(None, request, context)
    with _task_lock:
        if kind.writes_to_store:
            context = replace(context, cancel=watch_for_end(request.get("probe")))  # the mark in the store
        answer = kind.compute(_open_inputs(key, kind, request), request, context)
    return answer if isinstance(answer, bytes) else {**answer, "warnings": list(warnings)}


def _open_inputs(key: str, kind: TaskKind, request: Request) -> Any:
    """The inputs of a task, after checking that this worker computes the same name for it as the request has."""
    assert kind.name_task is not None
    shared = json.dumps([request[name] for name in kind.shared_keys])
    if _has_last_inputs(key, kind, shared, request):
        return last_inputs[0][2]
    last_inputs.clear()  # the last task had other inputs, or their files have changed since they were opened
    inputs = kind.open_inputs(request)
    if kind.name_task(inputs, request) != request["name"]:
        raise WorkerError(
            f"Worker {platform.node()} sees other checkpoints or images than the program that requested this "
            f"{kind.noun}. Copy the files there again, or put them where all workers read."
        )
    if kind.shared_keys:
        last_inputs.append((key, shared, inputs))
    return inputs


def _has_last_inputs(key: str, kind: TaskKind, shared: str, request: Request) -> bool:
    """Whether this task has the same inputs as the last one, and their files have not changed since."""
    if not last_inputs or last_inputs[0][:2] != (key, shared):
        return False
    with contextlib.suppress(WorkerError):
        return kind.name_task is not None and kind.name_task(last_inputs[0][2], request) == request["name"]
    return False


def encode_request(request: Request) -> bytes:
    """A request as the bytes that ``answer_request`` takes."""
    return json.dumps(request).encode()


def decode_answer(raw: bytes) -> Plain:
    """The answer in the bytes that ``answer_request`` returns; {"file": bytes} if they are a safetensors file.

    Raises:
        MergingError: the error that the task raised. WorkerError: the bytes are not an answer.
    """
    if raw[HEADER_OFFSET : HEADER_OFFSET + len(HEADER_BYTES)] == HEADER_BYTES:
        return {"file": raw}
    reply = _decode_mapping(raw)
    if isinstance(reply.get("answer"), dict):
        return dict(reply["answer"])
    error = reply.get("error")
    if not isinstance(error, dict):
        raise WorkerError("A worker sent neither an answer nor an error. Restart the workers.")
    kind = getattr(errors, str(error.get("type")), MergingError)
    known = isinstance(kind, type) and issubclass(kind, MergingError)
    raise (kind if known else MergingError)(str(error.get("text")))


def _decode_mapping(raw: bytes) -> Plain:
    try:
        data = json.loads(raw)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise WorkerError("A request to a worker, and its answer, is a mapping in JSON; this one is not.")
    return data
