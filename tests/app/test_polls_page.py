"""A class on the lessons: a lecturer begins it, sessions answer, and the presented step shows what they said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import small_lesson
from page_harness import charts, press, words
from small_lesson import KEY
from streamlit.testing.v1 import AppTest

from app.reading.lessons import polls
from app.session.lessons.visit import Visit

STEP = f"{KEY}/2"


@pytest.fixture(autouse=True)
def one_lesson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_lesson.install(tmp_path / "lessons", monkeypatch)


def chart(at: AppTest) -> str:
    return str(at.get("plotly_chart")[0].proto.spec)


def test_a_class_from_its_code_to_the_reveal(open_app: Any, library: Path) -> None:
    at = open_app("lessons", library)
    press(at, "Begin a class")
    code = str(at.query_params["class"]).strip("[]'")
    assert (
        code in words(at) and f"?class={code}" in at.code[0].value and "End the class" in [b.label for b in at.button]
    )
    for session in range(59):
        polls.polls().answer(code, STEP, f"session {session}", [20.0 if session < 30 else 60.0])

    student = AppTest.from_file(at._script_path, default_timeout=60)
    student.query_params.update({"class": code})
    student.run().switch_page("screens/lessons.py").run()
    assert code in words(student) and "End the class" not in [button.label for button in student.button]
    student.query_params.update({"lesson": KEY, "step": "2", "class": code})
    student.switch_page("screens/masks.py").run()
    student.slider(key="lesson_small_2_guess").set_value(40.0).run()
    press(student, "Lock in")
    assert polls.polls().counts(code, STEP) == [{20.0: 30, 40.0: 1, 60.0: 29}]
    assert "guess_number" in chart(student) and "The class" not in words(student)
    press(student, "Reveal")
    assert "The class: **30 % \\(the median of 60 sessions\\)**" in words(student)

    at.query_params.update({"lesson": KEY, "step": "2", "class": code})
    at.switch_page("screens/masks.py").run()
    at.toggle(key="present").set_value(True).run()
    assert not at.exception and charts(at) == 1
    assert "class_answers" in chart(at) and "Measured" not in chart(at)
    assert "Sessions, not people; n = 60" in chart(at)
    again = AppTest.from_file(at._script_path, default_timeout=60)
    again.query_params.update({"lesson": KEY, "step": "2", "class": code, "did": "2", "present": "true"})
    again.run().switch_page("screens/masks.py").run()
    assert "class_answers" in chart(again) and "Measured" in chart(again)


def test_a_code_that_is_over_changes_nothing(open_app: Any, library: Path) -> None:
    at = open_app("masks", library, **{"lesson": KEY, "step": "2", "class": "BCDFGH", "present": "true"})
    assert not at.exception and "guess_number" in chart(at)


def test_a_session_has_one_class(open_app: Any, library: Path) -> None:
    at = open_app("lessons", library)
    codes = []
    for _ in range(2):
        press(at, "Begin a class")
        codes.append(visit_of(at).poll)
        visit_of(at).poll = ""  # as after a link without its code
        at.query_params.clear()
        at.run()
    assert len(set(codes)) == 2 and [polls.polls().is_open(code) for code in codes] == [False, True]


def visit_of(at: AppTest) -> Visit:
    visit: Visit = at.session_state["_lesson_visit"]
    return visit
