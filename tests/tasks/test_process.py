"""Requests in stages: sessions take turns, newer requests stop older ones, and errors are sentences."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from merging.base.errors import MergingError
from merging.tasks import process
from merging.tasks.context import Context
from merging.tasks.kinds import STAGED_KINDS, StageAnswer, find_staged_kind
from merging.tasks.process import RequestLoop

ERRORS = {
    "own": MergingError("No such <b>thing\u202e."),
    "memory": MemoryError(),
    "torch": RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    "odd": KeyError("x"),
}


class Asked:
    """A loop with one kind of request, of two pieces a stage; its answers, and whose pieces were computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[dict[str, Any]] = []
        self.pieces: list[str] = []
        self.during: dict[int, tuple[Any, ...]] = {}  # after so many pieces: what is asked then
        monkeypatch.setattr(process, "find_staged_kind", {"counted": self.stages}.__getitem__)
        self.loop = RequestLoop(self.answers.append, "cpu")

    def stages(self, request: Mapping[str, Any], context: Context) -> Iterator[StageAnswer | None]:
        assert context.device == "cpu"
        if request["error"]:
            raise ERRORS[request["error"]]
        for stage in range(1, request["stages"] + 1):
            for piece in range(2):
                context.check()
                self.pieces.append(request["session"])
                if len(self.pieces) in self.during:
                    self.take(*self.during[len(self.pieces)])
                yield StageAnswer({"n": stage}, stage == request["stages"], request["suffices"]) if piece else None

    def take(self, number: int, session: str, stages: int = 2, suffices: bool = False, error: str = "") -> None:
        about = {"kind": "counted", "stages": stages, "suffices": suffices, "error": error} if stages else {}
        self.loop.add_requests([json.dumps({"id": number, "session": session, **about})])

    def run(self) -> list[tuple[int, int, bool]]:
        """The number of the request, that of the stage, and whether it is the last, of each new answer."""
        self.answers.clear()
        self.loop.run(0.01)
        assert not self.loop._newest_requests  # nothing is remembered of sessions that wait for nothing
        return [(answer["id"], answer.get("n", 0), answer["done"]) for answer in self.answers]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


@pytest.mark.parametrize("kind", STAGED_KINDS)
def test_every_kind_is_found(kind: str) -> None:
    assert callable(find_staged_kind(kind))


def test_sessions_take_turns_by_pieces(asked: Asked) -> None:
    asked.take(1, "a")
    asked.take(2, "b")
    assert asked.run() == [(1, 1, False), (2, 1, False), (1, 2, True), (2, 2, True)]
    assert asked.pieces == ["a", "b"] * 4


@pytest.mark.parametrize("suffices", [False, True])
def test_who_had_its_time_is_left_at_a_stage_that_suffices_while_others_wait(asked, monkeypatch, suffices) -> None:
    monkeypatch.setattr(process, "SECONDS_BEFORE_YIELDING", -1.0)
    asked.take(1, "a", suffices=suffices)
    asked.take(2, "b", suffices=suffices)
    assert [answer for answer in asked.run() if answer[0] == 1] == [(1, 1, suffices), *[(1, 2, True)][suffices:]]
    assert asked.answers[-1] == {"id": 2, "n": 2, "done": True}  # nobody waits for its first answer any more


def test_a_newer_request_of_a_session_or_its_end_stops_the_older_one_between_pieces(asked: Asked) -> None:
    asked.during = {1: (2, "a"), 2: (3, "b", 1), 8: (5, "a", 0)}
    asked.take(1, "a")
    assert asked.run() == [(2, 1, False), (3, 1, True), (2, 2, True)]
    assert asked.pieces.count("a") == 1 + 4
    asked.take(4, "a")
    assert asked.run() == [] and len(asked.pieces) == 8  # stopped in its first piece
    asked.take(6, "a")
    asked.take(7, "a", 0)
    assert asked.run() == [] and len(asked.pieces) == 8


def test_errors_are_sentences_and_the_next_request_is_answered(asked: Asked) -> None:
    for number, error in enumerate(ERRORS):
        asked.take(number, error, error=error)
    asked.take(9, "z", 1)
    assert asked.run()[-1] == (9, 1, True)
    said = [answer.get("error", "") for answer in asked.answers]
    assert said[0].startswith("No such <b>thing\\u202e")
    assert said[1:] == [process.OUT_OF_MEMORY] * 2 + ["Unexpected KeyError: 'x'", ""]
