"""Reading lessons: what is refused, and that the message says where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lesson_text import LESSON

from merging.base.errors import LessonError
from merging.base.files.plain_yaml import MAX_CHARACTERS
from merging.teaching import lesson_files
from merging.teaching.lesson import FactSpec
from merging.teaching.skeleton import make_skeleton


def parse(text: str) -> object:
    return lesson_files.parse_lesson(text, Path("small.yaml"))


def test_a_lesson_is_read_with_its_steps_facts_and_goals() -> None:
    lesson = lesson_files.parse_lesson(LESSON, Path("small.yaml"))
    step = lesson.steps[0]
    assert step.view == {"run": "@lw", "ratio": "0.7", "shared_mask": "true"} and step.show == {"ratio": "0.9"}
    assert lesson.facts["kept"] == FactSpec("kept", {"run": "lw", "of": "scalars"})
    assert step.goal is not None and (step.goal.low, step.goal.high) == (0, 0.5)
    assert lesson.page_and_view(1) == ("masks", dict(step.view)) and lesson.chart(1) == "saliency_matrix"


REFUSED = {
    "unknown field": ("minutes: 5", "minuets: 5", "unknown field 'minuets'. Did you mean 'minutes'"),
    "of a step": ("  hint:", "  hnit:", "step 1.*unknown field 'hnit'. Did you mean 'hint'"),
    "not of its kind": ("  hint:", "  ask:", r"step 1 \(do\) has an unknown field 'ask'"),
    "unknown kind": ("kind: do", "kind: due", "kind of step 1 is one of .*got 'due'"),
    "HTML in signs": ('hint: "More."', 'hint: "&#104;ttps://example.org"', r"hint of step 1 \(do\) holds HTML"),
    "HTML": ('hint: "More."', 'hint: "<b>More</b>"', r"hint of step 1 \(do\) holds HTML"),
    "an image": ('hint: "More."', 'hint: "![x](y.png)"', "step 1.*an image"),
    "a link": ('hint: "More."', 'hint: "[x](/masks)"', "step 1.*a link"),
    "an address": ('hint: "More."', 'hint: "See www.example.org"', "step 1.*outside this program"),
    "an unknown fact": ("{kept} of", "{kpet} of", "step 1.*{kpet}.*Did you mean 'kept'"),
    "an unknown kind of fact": ("fact: accuracy", "fact: acuracy", "the fact before: .*Did you mean 'accuracy'"),
    "an unknown argument": ("run: ta, over", "run: ta, ovr", "the fact before.*'ovr'. Did you mean 'over'"),
    "a missing argument": ("run: ta, over: out", "run: ta", "the fact before.*has no over"),
    "an argument of another kind": ("of: scalars}", "of: scalars, ratio: much}", "ratio of the fact kept.*is a number"),
    "an argument that is a list": ("of: scalars}", "of: [scalars]}", "of of the fact kept.*is a word or a number"),
    "a switch that is none": ("of: scalars}", "of: scalars, shared: 3}", "shared of the fact kept.*is true or false"),
    "an unknown run": ("run: ta, over", "run: tb, over", "the fact before.*the run 'tb'.*Did you mean"),
    "an unknown run in a view": ("@lw", "@lv", "run of step 1.*'lv'.*Did you mean 'lw'"),
    "a fact of the view": ("fact: accuracy, run: ta, over: out", "fact: kept_now, of: scalars", "only a goal"),
    "a page without chart": ("  chart: saliency_matrix\n", "", "step 1.*without a chart"),
    "no goal": ("between: [0, 0.5]", "within: [0, 0.5]", "goal of step 1.*exactly one of is, between, at_least"),
    "another version": ("version: 1", "version: 2", "version 2; this program reads version 1"),
    "another key": ("key: small", "key: large", "its key is 'large', but the file is named 'small'"),
    "a run of two kinds": ("{preset: task_arithmetic}", "{preset: ties, chain: ties}", "got preset, chain"),
    "a tag": ("title: A small lesson", "title: !!python/name:os.system x", "line 4: tags such as"),
    "an anchor": ("title: A small lesson", "title: &x y", "line 4: anchors"),
    "written twice": ("minutes: 5", "minutes: 5\nminutes: 6", "line 2: 'minutes' is written twice"),
    "no YAML": ("title: A small lesson", "title: [", "not valid YAML in line"),
    "no number": ("minutes: 5", "minutes: soon", "minutes of the lesson is a number; got 'soon'"),
    "goal of a list": ("fact: kept_now, of", "fact: [kept_now], of", "is a mapping with fact"),
    "no steps": ("steps:", "steps: []\nnothing:", "unknown field 'nothing'"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_file_is_refused_with_its_place(what: str) -> None:
    old, new, message = REFUSED[what]
    assert LESSON.count(old) >= 1
    with pytest.raises(LessonError, match=f"The lesson small.yaml: .*{message}"):
        parse(LESSON.replace(old, new, 1))


GUESSES = {
    "{}": "exactly one of number, choice",
    "{number: {low: 5, high: 1}}": "needs a low below its high",
    "{choice: {options: [a]}}": "2 to 5 options; got 1",
    "{order: {options: [a, b]}}": "the truth of step 1 .* has 2 facts; got 1",
    "{curve: {at: [2, 1]}}": "must increase",
    "{curve: {at: [1, 2, 3]}}": "has 3 facts; got 1",
    "{cells: {}}": "lacks the field most",
    "{number: {low: .nan}}": "is a number",
}


@pytest.mark.parametrize("guess", GUESSES)
def test_a_guess_that_makes_no_sense_is_refused(guess: str) -> None:
    start = LESSON[: LESSON.index("  say:")].replace("kind: do", "kind: predict")
    with pytest.raises(LessonError, match=GUESSES[guess]):
        parse(f'{start}  ask: "?"\n  guess: {guess}\n  truth: before\n')


def test_a_question_has_one_right_answer_and_a_sentence_for_each_wrong_one() -> None:
    start = LESSON[: LESSON.index("  say:")].replace("kind: do", "kind: check") + '  ask: "?"\n  answers:\n'
    right, wrong, mute = "  - {text: a, right: true}\n", "  - {text: b, say: why}\n", "  - {text: c}\n"
    assert parse(start + right + wrong + wrong)
    for answers, message in (
        (wrong * 3, "one of them right"),
        (right + wrong, "3 or 4"),
        (right + mute * 2, "has no say"),
    ):
        with pytest.raises(LessonError, match=message):
            parse(start + answers)


def test_a_large_file_is_refused_unread(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_bytes(b"a" * 1_000_000)
    with pytest.raises(LessonError, match=rf"large.yaml is 1,000,000 bytes; at most {MAX_CHARACTERS:,}"):
        lesson_files.read_lesson(large)
    (tmp_path / "latin.yaml").write_bytes(b"title: \xe4")
    with pytest.raises(LessonError, match=r"latin\.yaml is not text in UTF-8"):
        lesson_files.read_lesson(tmp_path / "latin.yaml")
    with pytest.raises(LessonError, match=r"nothing\.yaml cannot be read: No such file"):
        lesson_files.read_lesson(tmp_path / "nothing.yaml")


def test_own_folders_add_lessons_and_say_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.yaml").write_text(make_skeleton("own"), encoding="utf-8")
    (tmp_path / "broken.yaml").write_text("version: 1\n", encoding="utf-8")
    (tmp_path / "pretty_maps.yaml").write_text(make_skeleton("pretty_maps"), encoding="utf-8")
    monkeypatch.setenv(lesson_files.FOLDERS_VARIABLE, os.pathsep.join([str(tmp_path), str(tmp_path / "none")]))
    refused: list[LessonError] = []
    found = {lesson.key: lesson for lesson in lesson_files.list_lessons(refused=refused)}
    assert found["own"].path.parent == tmp_path and found["pretty_maps"].path.parent == lesson_files.BUNDLED_LESSONS
    assert ["broken.yaml" in str(error) for error in refused] == [True]
    with pytest.raises(LessonError, match=r"broken\.yaml"):
        lesson_files.list_lessons()


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(make_skeleton("own"), encoding="utf-8")
    assert lesson_files.read_lesson(path) is lesson_files.read_lesson(path)
    path.write_text(make_skeleton("own").replace("title: A title", "title: Another"), encoding="utf-8")
    assert lesson_files.read_lesson(path).title == "Another"
