"""A class on the lessons: a lecturer begins it, sessions answer, and the presented step shows what they said."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import segno
import small_lesson
import streamlit as st
from page_harness import charts, press, words
from small_lesson import KEY
from streamlit.testing.v1 import AppTest

from app.reading import polls
from app.session.lesson_visit import Visit

STEP = f"{KEY}/2"
MODULES = re.compile(r' d="(M4 [^"]+)"')  # the dark modules of a QR code


@pytest.fixture(autouse=True)
def one_lesson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_lesson.install(tmp_path / "lessons", monkeypatch)


def chart(at: AppTest) -> str:
    return str(at.get("plotly_chart")[0].proto.spec)


@pytest.mark.full
def test_a_class_from_its_code_to_the_reveal(open_app: Any, library: Path) -> None:
    at = open_app("lessons", library)
    press(at, "Begin a class")
    code = str(at.query_params["class"]).strip("[]'")
    assert (
        code in words(at) and f"?class={code}" in at.code[0].value and "End the class" in [b.label for b in at.button]
    )
    for session in range(59):
        polls.server_polls().count_answer(code, STEP, f"session {session}", [20.0 if session < 30 else 60.0])

    student = AppTest.from_file(at._script_path, default_timeout=60)
    student.query_params.update({"class": code})
    student.run().switch_page("screens/lessons.py").run()
    assert code in words(student) and "End the class" not in [button.label for button in student.button]
    student.query_params.update({"lesson": KEY, "step": "2", "class": code})
    student.switch_page("screens/masks.py").run()
    student.slider(key="lesson_small_2_guess").set_value(40.0).run()
    press(student, "Lock in")
    assert polls.server_polls().count_answers(code, STEP) == [{20.0: 30, 40.0: 1, 60.0: 29}]
    assert "guess_number" in chart(student) and "The class" not in words(student)
    press(student, "Reveal")
    assert "The class: **30 % \\(the median of 60 sessions\\)**" in words(student)

    at.query_params.update({"lesson": KEY, "step": "2", "class": code})
    at.switch_page("screens/masks.py").run()
    at.toggle(key="presentation").set_value(True).run()
    assert not at.exception and charts(at) == 1
    assert "class_answers" in chart(at) and "Measured" not in chart(at)
    assert f"Sessions of class {code}, not people; n = 60" in chart(at)
    again = AppTest.from_file(at._script_path, default_timeout=60)
    again.query_params.update({"lesson": KEY, "step": "2", "class": code, "progress": "2", "presentation": "true"})
    again.run().switch_page("screens/masks.py").run()
    assert "class_answers" in chart(again) and "Measured" in chart(again)


def test_a_class_is_joined_by_its_typed_code(open_app: Any, library: Path) -> None:
    code = polls.server_polls().begin()
    at = open_app("lessons", library)
    at.text_input(key="class_code").set_value("bcdfg <b>").run()
    assert "This server has no class with the code" in words(at) and not visit_of(at).class_code
    at.text_input(key="class_code").set_value(f" {code[:3].lower()}-{code[3:]} ").run()
    assert visit_of(at).class_code == code and code in str(at.query_params["class"])
    assert f"You are in class **{code}**" in words(at) and "has no class with" not in words(at)
    assert [field.key for field in at.text_input if field.key == "class_code"] == []
    press(at, "Leave the class")
    assert not visit_of(at).class_code and "class" not in at.query_params and polls.server_polls().is_open(code)


@pytest.mark.parametrize(
    ("opened", "reached"),
    [
        ("http://localhost:8501/lessons", False),
        ("http://127.0.0.1:8501/lessons", False),
        ("http://[::1]:8501/lessons", False),
        ("http://0.0.0.0:8501/lessons", False),
        ("http://192.168.1.20:8501/lessons", True),
        ("https://mergescope.example.org/lessons", True),
    ],
)
def test_the_address_of_a_class_is_a_qr_code_and_says_who_cannot_open_it(
    open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch, opened: str, reached: bool
) -> None:
    monkeypatch.setattr(type(st.context), "url", opened)
    at = open_app("lessons", library)
    press(at, "Begin a class")
    link = f"{opened}?class={visit_of(at).class_code}"
    assert at.code[0].value == link
    assert ("Others cannot open this address" in words(at)) is not reached
    (drawn,) = (one.proto.imgs[0].url for one in at.get("image") if "Scan to open this address" in str(one.proto))
    svg = base64.b64decode(drawn.removeprefix("data:image/svg+xml;base64,")).decode()
    assert MODULES.findall(svg) == MODULES.findall(segno.make(link, error="l", micro=False).svg_inline(border=4)) != []


def test_the_median_of_a_class_is_called_its_own(open_app: Any, library: Path) -> None:
    at = open_app("lessons", library)
    press(at, "Begin a class")
    code = visit_of(at).class_code
    at.query_params.update({"lesson": KEY, "step": "5", "class": code})
    at.switch_page("screens/masks.py").run()
    at.toggle(key="presentation").set_value(True).run()
    assert "guess_curve" in chart(at) and f"Class {code}: no session has answered yet" in chart(at)
    assert "Your guess" not in chart(at) and not guessed(at)
    for session in range(5):
        polls.server_polls().count_answer(code, f"{KEY}/5", f"session {session}", [10.0 * session, 50.0, 20.0])
    at.run()
    assert f"Class {code}: median of 5 sessions" in chart(at) and "Your guess" not in chart(at)
    assert guessed(at) == [20.0, 50.0, 20.0]
    for _ in range(3):
        at.button(key="lesson_back").click().run()
    assert f"Sessions of class {code}, not people; n = 0" in chart(at)


def guessed(at: AppTest) -> list[float]:
    """The guesses that the curve shows."""
    values = json.loads(chart(at))["data"][0]["y"]
    numbers = np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"])
    return [float(number) for number in numbers if np.isfinite(number)]


def test_a_guess_that_nobody_made_is_not_drawn(open_app: Any, library: Path) -> None:
    at = open_app("masks", library, lesson=KEY, step="5", progress="g")  # done, and no guess
    drawn = next(str(one.proto.spec) for one in at.get("plotly_chart") if "guess_curve" in str(one.proto.spec))
    assert "Measured" in drawn and "Your guess" not in json.dumps([one["name"] for one in json.loads(drawn)["data"]])


def test_a_code_that_is_over_changes_nothing(open_app: Any, library: Path) -> None:
    at = open_app("masks", library, **{"lesson": KEY, "step": "2", "class": "BCDFGH", "presentation": "true"})
    assert not at.exception and "guess_number" in chart(at)


def test_a_session_has_one_class(open_app: Any, library: Path) -> None:
    at = open_app("lessons", library)
    codes = []
    for _ in range(2):
        press(at, "Begin a class")
        codes.append(visit_of(at).class_code)
        visit_of(at).class_code = ""  # as after a link without its code
        at.query_params.clear()
        at.run()
    assert len(set(codes)) == 2 and [polls.server_polls().is_open(code) for code in codes] == [False, True]


def visit_of(at: AppTest) -> Visit:
    visit: Visit = at.session_state["_lesson_visit"]
    return visit
