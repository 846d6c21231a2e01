"""What a server makes once outlives the caches that any session can clear."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import streamlit as st

from app import process_values
from app.reading import page_data, polls, previews


def clear() -> None:
    """What Streamlit does where a session asks for it."""
    st.cache_data.clear()
    st.cache_resource.clear()


def test_queue_and_processes_are_those_from_before_caches_were_cleared(open_app: Any, library: Path) -> None:
    open_app("home", library)
    before = page_data.job_queue().runner, page_data.job_queue().runner.spare, previews.preview_process()
    clear()
    assert (page_data.job_queue().runner, page_data.job_queue().runner.spare, previews.preview_process()) == before


def test_an_answer_that_is_changed_after_caches_were_cleared_counts_once(open_app: Any, library: Path) -> None:
    open_app("home", library)
    code = polls.server_polls().begin()
    polls.server_polls().count_answer(code, "lesson/1", "a session", [20.0])
    clear()
    polls.server_polls().count_answer(code, "lesson/1", "a session", [40.0])
    assert polls.server_polls().count_answers(code, "lesson/1") == [{40.0: 1}]


def test_what_could_not_be_made_is_tried_again() -> None:
    tries: list[int] = []

    @process_values.make_once
    def made() -> str:
        tries.append(len(tries))
        if len(tries) == 1:
            raise OSError("The disk is not there.")
        return f"value {len(tries)}"

    with pytest.raises(OSError, match="not there"):
        made()
    assert [made(), made()] == ["value 2", "value 2"] and tries == [0, 1]


def test_a_result_is_computed_once_for_all_sessions_and_the_latest_are_stored() -> None:
    begun, go_on = [], threading.Event()

    @process_values.store_results(2)
    def double(number: int) -> int:
        begun.append(number)
        assert go_on.wait(60)
        return 2 * number

    with ThreadPoolExecutor(4) as sessions:
        answers = [sessions.submit(double, 3) for _ in range(4)]
        while not begun:
            time.sleep(0.001)
        go_on.set()
        assert [answer.result(60) for answer in answers] == [6] * 4
    assert begun == [3]
    assert [double(4), double(3), double(5), double(3)] == [8, 6, 10, 6] and begun == [3, 4, 5]
    assert double(4) == 8 and begun == [3, 4, 5, 4]  # the one that was asked for longest ago is gone
    process_values.forget_results()
    assert double(4) == 8 and begun[-2:] == [4, 4]


def test_an_error_is_no_result() -> None:
    tries: list[str] = []

    @process_values.store_results(2)
    def read(name: str) -> str:
        tries.append(name)
        if len(tries) == 1:
            raise OSError("The disk is not there.")
        return name

    with pytest.raises(OSError, match="not there"):
        read("a")
    assert [read("a"), read("a")] == ["a", "a"] and tries == ["a", "a"]


def test_each_copy_of_a_run_has_its_own_scores(open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_app("home", library)
    known = next(run for run in page_data.stored_runs() if run.has_scores)
    changed = known.scores.assign(accuracy=0.5)
    other = SimpleNamespace(
        id=known.id, path=Path("elsewhere"), created=known.created, benchmark=known.benchmark, scores=changed,
        has_scores=True,
    )  # fmt: skip
    monkeypatch.setattr(type(page_data.store()), "list_copies", lambda self, run_id: [known, other])
    assert set(page_data.scores(other)["accuracy"]) == {0.5}
    assert set(page_data.scores(known)["accuracy"]) != {0.5}
    assert set(page_data.scores(other)["accuracy"]) == {0.5}
