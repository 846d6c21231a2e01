"""What a server makes once outlives the caches that any session can clear."""

from __future__ import annotations

from pathlib import Path
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
