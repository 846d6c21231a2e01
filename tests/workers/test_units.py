"""Tasks in a worker: JSON in and out, and errors that keep their type."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
import stand_in_units
import torch

from merging.base import errors
from merging.base.errors import MergingError, RecipeError, WorkerError
from merging.tasks import kinds, worker
from merging.tasks.kinds import ABOUT
from merging.tasks.worker import answer_request, decode_answer, encode_request
from merging.tasks.workers.worker_facts import sources_digest


def test_a_worker_says_what_it_runs_and_what_it_sees(tmp_path: Any) -> None:
    (tmp_path / "probe").write_text("7", "utf-8")
    for text, sees in (("7", True), ("8", False)):
        probe = {"path": str(tmp_path / "probe"), "text": text}
        said = decode_answer(answer_request(ABOUT, encode_request({"device": "cpu", "probe": probe})))
        assert said["sees_store"] is sees
        assert said["sources"] == sources_digest() and said["hardware"].startswith("CPU ") and said["memory"] > 0


@pytest.mark.parametrize("unit", ["", "open", "os:system", "merging.tasks.workers.worker_facts:describe_worker"])
def test_what_is_no_kind_is_refused(unit: str) -> None:
    with pytest.raises(WorkerError, match="There is no kind of task"):
        decode_answer(answer_request(unit, b"{}"))


def test_errors_keep_their_type(monkeypatch: Any) -> None:
    monkeypatch.setattr(kinds, "TASK_KINDS", {ABOUT: "stand_in_units:KIND"})
    cases = [
        (RecipeError("The chain."), RecipeError, "The chain."),
        (KeyError("x"), MergingError, "Unexpected KeyError"),
    ]
    for raised, kind, text in cases:
        monkeypatch.setattr(stand_in_units, "RAISED", raised)
        with pytest.raises(kind, match=text) as caught:
            decode_answer(answer_request(ABOUT, b"{}"))
        assert type(caught.value) is kind


@pytest.mark.parametrize("grab", [lambda: bytearray(1 << 62), lambda: torch.empty(1 << 58)])
def test_a_worker_that_really_runs_out_of_memory_says_so_and_does_the_next_task(monkeypatch: Any, grab: Any) -> None:
    tasks = iter((grab, dict))
    kind = kinds.TaskKind("unit", lambda request: None, lambda *_said: next(tasks)())
    monkeypatch.setattr(worker, "find_kind", lambda key: kind)
    with pytest.raises(MergingError, match=r"^A worker ran out of memory\. Start fewer workers on a machine, or"):
        decode_answer(answer_request(ABOUT, b"{}"))
    assert decode_answer(answer_request(ABOUT, b"{}")) == {}


@pytest.mark.parametrize("raw", [b"", b"[]", pickle.dumps({"answer": {}}), b'{"answer": 3}'])
def test_what_is_no_answer_is_an_error(raw: bytes) -> None:
    with pytest.raises(WorkerError):
        decode_answer(raw)


def test_an_error_of_an_unknown_type_stays_an_error_of_ours() -> None:
    for kind in ("SystemExit", "visible_lines", "HUB_REASONS", None):
        with pytest.raises(MergingError, match=r"^text$") as caught:
            decode_answer(json.dumps({"error": {"type": kind, "text": "text"}}).encode())
        assert type(caught.value) is MergingError
    assert hasattr(errors, "visible_lines") and set(kinds.TASK_KINDS) >= {"about", "point"}


def test_inputs_stay_for_the_next_task_of_a_kind_and_for_no_other(monkeypatch: Any) -> None:
    opened = list[str]()

    def kind(key: str) -> kinds.TaskKind:
        def open_inputs(request: kinds.Request) -> str:
            opened.append(f"{key} {request['file']}")
            return opened[-1]

        return kinds.TaskKind(
            key, open_inputs, lambda inputs, _request, _context: {"inputs": inputs}, lambda _, request: request["name"],
            shared_keys=("file",),
        )  # fmt: skip

    monkeypatch.setattr(worker, "find_kind", kind)
    for key, file in (("a", "x"), ("a", "x"), ("b", "x"), ("a", "x"), ("a", "y")):
        answer = decode_answer(answer_request(key, encode_request({"file": file, "name": "one"})))
        assert answer == {"inputs": f"{key} {file}", "warnings": []} and len(worker.last_inputs) == 1
    assert opened == ["a x", "b x", "a x", "a y"]
    worker.last_inputs.clear()
