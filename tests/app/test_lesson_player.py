"""A lesson beside the pages: every kind of step, fresh, by a link into the middle, and finished."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import small_lesson
from page_harness import charts, open_page, press, words
from small_lesson import KEY, STEPS
from streamlit.testing.v1 import AppTest

from app.reading import offered_lessons, page_data, step_text
from app.session import lesson_visit
from app.views.lessons import sheet
from merging.base import settings
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run_store import Store
from merging.teaching import lesson_files
from merging.teaching.lesson_context import LessonContext

BUNDLED = lesson_files.BUNDLED_LESSONS
KEYS = sorted(path.stem for path in BUNDLED.glob("*.yaml"))
NEXT, BACK = "lesson_next", "lesson_back"


@pytest.fixture(autouse=True)
def one_lesson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_lesson.install(tmp_path / "lessons", monkeypatch)


def at_step(at: AppTest, number: int) -> bool:
    return f"step {number} of {STEPS}" in words(at) and str(at.query_params["step"]).strip("[]'") == str(number)


def said(at: AppTest, key: str) -> str:
    return str(at.query_params.get(key, "")).strip("[]'")


def turn(at: AppTest, key: str = NEXT) -> AppTest:
    at.button(key=key).click().run()
    assert not at.exception and not at.error
    return at


def test_the_page_lists_lessons_and_what_is_done(open_app: Any, library: Path, tmp_path: Path) -> None:
    (tmp_path / "lessons" / "broken.yaml").write_text("version: 1\nkey: broken\n", encoding="utf-8")
    at = open_app("lessons", library, lesson=KEY, progress="3")
    assert not at.exception and charts(at) == 0
    assert "A small lesson" in words(at) and "2 of 10 steps done" in str([bar.proto.text for bar in at.get("progress")])
    assert "broken.yaml" in words(at).replace("\\", "")


@pytest.mark.full
def test_a_fresh_lesson_from_its_first_step_to_its_last(open_app: Any, library: Path) -> None:
    at = open_app("masks", library, lesson=KEY, step="1")
    assert not at.exception and not at.error and at_step(at, 1)
    assert at.slider(key="ratio").value == 0.5  # the step's view, which the link does not name
    assert "Task arithmetic has" in words(at) and "{ta_out}" not in words(at) and charts(at) >= 2
    turn(at)
    assert at_step(at, 2) and "And with a mask?" in words(at)
    assert charts(at) == 1 and "guess_number" in at.get("plotly_chart")[0].proto.spec
    assert "Measured is withheld" in at.get("plotly_chart")[0].proto.spec
    assert "Now you know" not in words(at) and not [slider for slider in at.slider if slider.key == "ratio"]
    at.slider(key="lesson_small_2_guess").set_value(40.0).run()
    press(at, "Lock in")
    assert said(at, "answers") == "2_40" and "Your guess: **40 %**" in words(at) and charts(at) == 1
    press(at, "Reveal")
    assert not at.exception and "Measured: **" in words(at) and "Now you know" in words(at)
    assert charts(at) >= 3 and at.slider(key="ratio").value == 0.5
    assert said(at, "progress") == "3"
    turn(at)
    at.radio[0].set_value("rises").run()
    press(at, "Lock in")
    press(at, "Reveal")
    assert "points" in words(at)
    turn(at)
    at.multiselect(key="lesson_small_4_guess").set_value(["first", "second"]).run()
    assert next(button for button in at.button if button.label == "Lock in").disabled  # the third one is missing
    at.multiselect(key="lesson_small_4_guess").set_value(["third", "first", "second"]).run()
    press(at, "Lock in")
    press(at, "Reveal")
    assert "third" in words(at) and said(at, "answers").endswith("4_2_0_1")
    turn(turn(turn(at)))  # past a curve and cells
    assert at_step(at, 7) and at.slider(key="ratio").value == 0.5
    assert "Not done yet" in words(at) and "To the right." in words(at)
    press(at, "Show me")
    assert at.slider(key="ratio").value == 0.85 and "Done." in words(at)
    turn(at)
    assert "51.3" in words(at) and at.slider(key="ratio").value == 0.85  # the view stays as it was left
    turn(at)
    at.radio[0].set_value(1).run()
    assert "Look at the interval." in words(at)
    at.radio[0].set_value(0).run()
    assert "Right." in words(at) and said(at, "answers").endswith("9_0")
    turn(at)
    at.text_area(key="lesson_small_10_free").set_value("A larger ratio.").run()
    assert at.button(key=NEXT).disabled and at_step(at, STEPS)
    at.button(key="lesson_leave").click().run()
    assert not at.exception and "lesson" not in at.query_params and "A small lesson" not in words(at)
    assert at.slider(key="ratio").value == 0.85


@pytest.mark.full
def test_a_link_into_the_middle_keeps_guesses_and_answers(open_app: Any, library: Path) -> None:
    at = open_app("masks", library, lesson=KEY, step="9", progress="8", answers="2_40~9_1")
    assert at_step(at, 9) and "Look at the interval." in words(at)
    for _ in range(7):
        turn(at, BACK)
    assert at_step(at, 2) and "Your guess: **40 %**" in words(at) and charts(at) == 1


def test_a_lesson_of_a_page_that_is_not_there_leaves_the_others(open_app: Any, library: Path, tmp_path: Path) -> None:
    written = small_lesson.TEXT.replace("key: small", "key: lost").replace("page: masks", "page: nowhere")
    (tmp_path / "lessons" / "lost.yaml").write_text(written, encoding="utf-8")
    at = open_app("lessons", library)
    assert not at.exception and "A small lesson" in words(at) and "nowhere" in words(at)
    at = open_app("masks", library, lesson="lost", step="1")
    assert not at.exception and "does not have" in words(at)


def test_a_step_may_stand_beside_home(open_app: Any, library: Path, tmp_path: Path) -> None:
    first = small_lesson.TEXT[: small_lesson.TEXT.index("- kind: predict")].replace("page: masks", "page: home")
    (tmp_path / "lessons" / f"{KEY}.yaml").write_text(first.replace('run: "@lw", ratio: 0.5', ""), encoding="utf-8")
    at = open_app("masks", library, lesson=KEY, step="1")
    assert not at.exception and "step 1 of 1" in words(at)


def test_what_is_stored_meanwhile_counts(open_app: Any, library: Path) -> None:
    open_app("lessons", library)
    lesson = offered_lessons.lessons()[KEY]
    before = offered_lessons.lesson_context(lesson)
    assert before is not None and offered_lessons.lesson_context(lesson) is before
    offered_lessons.check_store_again()
    assert offered_lessons.lesson_context(lesson) is before  # it is kept from one drawing to the next
    for place in ("points", "sweeps", "measured"):
        folder = page_data.store().root / place
        folder.mkdir(parents=True, exist_ok=True)
        known = offered_lessons.lesson_context(lesson)
        (folder / "0123456789ab").mkdir()
        offered_lessons.check_store_again()  # at the next drawing
        assert offered_lessons.lesson_context(lesson) is not known, place


@pytest.mark.full
@pytest.mark.parametrize(("did", "said"), [("", "2_1_2~3_7~4_9_9_9~5_10~6_99999~9_-9"), ("vv", "3_-1~4_0_0_0~6_1_2_3")])
def test_a_link_may_say_what_no_step_takes(open_app: Any, library: Path, did: str, said: str) -> None:
    at = open_app("masks", library, lesson=KEY, step="9", answers=said, progress=did)
    for step in range(9, 1, -1):
        assert not at.exception and not at.error and at_step(at, step)
        for button in [one for one in at.button if one.label == "Change my guess"]:
            assert not button.click().run().exception
        turn(at, BACK)


@pytest.mark.full
def test_the_browsers_back_turns_the_step_and_keeps_what_was_done(
    open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_app("masks", library, lesson=KEY, step="8")
    turn(at)
    at.radio[0].set_value(1).run()
    assert at_step(at, 9) and (said(at, "progress"), said(at, "answers")) == ("c0", "9_1")
    before = {"lesson": KEY, "step": "8", "progress": "40"}
    at.query_params.clear()
    at.query_params.update(before)
    assert at_step(at.run(), 9)  # as when two clicks overlap: the address is the one before
    at.query_params.clear()
    at.query_params.update(before)
    monkeypatch.setattr(lesson_visit, "is_history_navigation", lambda: True)
    at.run()
    assert not at.exception and at_step(at, 8) and (said(at, "progress"), said(at, "answers")) == ("c0", "9_1")


def test_a_link_to_a_view_beside_a_lesson_shows_that_view(open_app: Any, library: Path) -> None:
    at = open_app("masks", library, lesson=KEY, step="7", ratio="0.82")
    assert at.slider(key="ratio").value == 0.82 and "Done." in words(at)


@pytest.mark.full
def test_a_finished_lesson_shows_guesses_and_truths(open_app: Any, library: Path) -> None:
    at = open_app(
        "masks", library, lesson=KEY, step=str(STEPS), progress="vv", answers="2_40~3_2~4_2_0_1~5_10_20_30~6_0_3~9_0"
    )
    assert at_step(at, STEPS) and [button.label for button in at.get("download_button")].count("My sheet") == 1
    for number in range(STEPS - 1, 0, -1):
        turn(at, BACK)
        assert at_step(at, number) and charts(at) >= 2
        if 2 <= number <= 6:
            assert "Measured: **" in words(at)


def test_a_lesson_that_is_not_here_and_a_step_that_is_not(open_app: Any, library: Path) -> None:
    at = open_app("masks", library, lesson="<b>gone</b>", step="99")
    assert not at.exception and "which this server does not have" in words(at)
    press(at, "Continue without it")
    assert not at.exception and "lesson" not in at.query_params
    at = open_app("masks", library, lesson=KEY, step="99")
    assert not at.exception and at_step(at, STEPS)


@pytest.mark.full
def test_the_sheet_holds_guesses_truths_and_texts_and_restores_them(
    open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Callable[[], str]] = []
    monkeypatch.setattr(sheet.st, "download_button", lambda label, data, *given, **options: made.append(data))
    at = open_app("masks", library, lesson=KEY, step=str(STEPS), progress="vv", answers="2_40~3_2~9_1")
    at.text_area(key="lesson_small_10_free").set_value("</script><b>A larger ratio</b>").run()
    assert not at.exception and not at.error
    with ThreadPoolExecutor(1) as pool:  # as a server calls it: outside of the session
        document = pool.submit(made[-1]).result()
    assert "40 %" in document and "Measured" in document and "By chance." in document and "not this one" in document
    assert "&lt;b&gt;A larger ratio&lt;/b&gt;" in document and "<b>A larger" not in document
    assert "LwPTV" in document and "plotly.js" not in document and len(document) < 100_000
    fresh = open_app("lessons", library)
    choose(monkeypatch, document)
    fresh.run()
    assert not fresh.exception and "Restored “A small lesson”" in words(fresh)
    assert "10 of 10 steps done" in str([bar.proto.text for bar in fresh.get("progress")])
    assert fresh.session_state["_lesson_free"][KEY][10] == "</script><b>A larger ratio</b>"
    choose(monkeypatch, document.replace('"answers"', '"answered"'))
    fresh.run()
    assert "damaged" in fresh.error[0].value


def test_a_sheet_keeps_what_the_address_has_no_room_for(
    open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Callable[[], str]] = []
    monkeypatch.setattr(sheet.st, "download_button", lambda label, data, *given, **options: made.append(data))
    at = open_app("masks", library, lesson=KEY, step=str(STEPS), progress="vv", answers="2_40~3_2")
    kept = dict.fromkeys((5, *range(11, 17)), (12.345, 23.456, 34.567))  # of a longer lesson
    at.session_state["_lesson_said"][KEY].update(kept)
    at.run()
    document = made[-1]()
    choose(monkeypatch, document)
    fresh = open_app("lessons", library)
    assert not fresh.exception and fresh.session_state["_lesson_said"][KEY] == {2: (40.0,), 3: (2.0,), **kept}
    choose(monkeypatch, document.replace('"progress": "vv"', f'"progress": "{"v" * 13}"'))
    fresh = open_app("lessons", library, lesson=KEY)
    assert said(fresh, "progress") == "vv" and len(said(fresh, "answers")) <= 120


def choose(monkeypatch: pytest.MonkeyPatch, document: str) -> None:
    """Have the field of the page Lessons give what the browser reads of this sheet."""
    kept = sheet.SHEET_PATTERN.search(document)
    chosen = SimpleNamespace(sheet={"kept": kept[0] if kept else "", "chosen": len(document)})
    monkeypatch.setattr(sheet, "register_component", lambda: lambda **options: chosen)


def test_a_view_becomes_a_step_that_opens_it(open_app: Any, library: Path, tmp_path: Path) -> None:
    at = open_app("masks", library, ratio="0.35")
    run_id = at.selectbox(key="picker").value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_text.view_state, "relative_address", lambda: f"masks?run={run_id}")
        written = step_text.step_yaml({"run": run_id, "ratio": "0.35", "lesson": "x"}, "saliency_matrix")
    header = "version: 1\nkey: mine\ntitle: Mine\nquestion: Mine?\nminutes: 5\nlevel: introductory\n"
    lesson = lesson_files.parse_lesson(header + written, tmp_path / "mine.yaml")
    assert lesson.page_and_view(1) == ("masks", {"run": "@a", "ratio": "0.35"}) and lesson.chart(1) == "saliency_matrix"
    known = LessonContext(Store(libraries=(library / "runs",)), Benchmark.load(library), lesson)
    assert known.resolve_view(lesson.page_and_view(1)[1]) == {"run": run_id, "ratio": "0.35"}


@pytest.mark.full
@pytest.mark.parametrize("key", KEYS)
def test_every_step_of_bundled_lessons_stands_beside_its_page(
    open_app: Any, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(lesson_files, "BUNDLED_LESSONS", BUNDLED)
    lesson = lesson_files.read_lesson(BUNDLED / f"{key}.yaml")
    open_app("lessons", settings.BUNDLED_FOLDER)
    for number in range(1, len(lesson.steps) + 1):
        query = {"lesson": key, "step": str(number), "progress": "vvvvvvvv"}
        at = open_page(lesson.page_and_view(number)[0], query)
        assert not at.exception and not at.error, number
        assert f"step {number} of {len(lesson.steps)}" in words(at) and "has not stored" not in words(at)


def test_a_presented_step_shows_all_of_its_words(open_app: Any, library: Path, tmp_path: Path) -> None:
    premise = " ".join(f"Premise {number} stands here." for number in range(30))  # 120 words
    written = small_lesson.TEXT.replace("And with a mask?", f"{premise} And with a mask?")
    (tmp_path / "lessons" / f"{KEY}.yaml").write_text(written, encoding="utf-8")
    at = open_app("masks", library, lesson=KEY, step="2")
    at.toggle(key="presentation").set_value(True).run()
    shown = presented(at)
    assert f"{premise} And with a mask?" in shown and "Now you know." not in shown and "Measured" not in shown
    at.button(key="lesson_reveal").click().run()
    shown = presented(at)
    assert f"{premise} And with a mask?" in shown and "Measured: **" in shown and "Now you know." in shown


def presented(at: AppTest) -> str:
    """The words above the chart that fills the window."""
    assert not at.exception and charts(at) == 1
    return next(str(one.value) for one in at.markdown if one.value.startswith("Premise 0"))
