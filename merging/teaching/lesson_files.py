"""Reads lessons from YAML: plain data, closed lists of fields, errors that name the file, the step and the field."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from merging.base.errors import LessonError, MergingError
from merging.base.files.plain_yaml import MAX_CHARACTERS, check_fields, read_plain_yaml, read_text_field
from merging.base.text import first_few, printable
from merging.teaching import lesson_steps
from merging.teaching.lesson import LEVELS, REFERENCES, Lesson
from merging.teaching.lesson_fields import LessonFields

BUNDLED_LESSONS = Path(__file__).resolve().parents[2] / "app" / "lessons"
FOLDERS_VARIABLE = "MERGESCOPE_LESSONS"  # the environment variable of further folders, joined like PATH
VERSION = 1
MAX_FILES, MAX_STEPS = 200, 40
FIELDS = ("version", "key", "title", "question", "minutes", "level", "after", "runs", "facts", "steps")
RUN_FIELDS = ("preset", "chain", "edits", "merge", "adapt", "exemplars", "test_data", "sweep", "title")
RUN_DEFINITIONS = ("preset", "chain", "merge", "sweep")  # a run has one of them; a sweep is given by its axes


def list_lesson_folders() -> list[Path]:
    """The folders of lessons: the bundled one, then those that the environment names."""
    named = [text for text in os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep) if text.strip()]
    return [BUNDLED_LESSONS, *(Path(text).expanduser() for text in named)]


def list_lessons(folders: Iterable[Path] | None = None, refused: list[LessonError] | None = None) -> list[Lesson]:
    """Every lesson in these folders (by default all), bundled ones first; of lessons with one key, only the first.

    Errors of files that cannot be read are added to ``refused``; without that list the first one is raised.
    """
    lessons: dict[str, Lesson] = {}
    for folder in list_lesson_folders() if folders is None else folders:
        for path in sorted(folder.glob("*.yaml"))[:MAX_FILES]:
            try:
                lesson = read_lesson(path)
            except LessonError as error:
                if refused is None:
                    raise
                refused.append(error)
            else:
                lessons.setdefault(lesson.key, lesson)
    order = {key: number for number, key in enumerate(BUNDLED_ORDER)}
    return sorted(lessons.values(), key=lambda lesson: order.get(lesson.key, len(order)))


BUNDLED_ORDER = (  # the order in which the bundled lessons are listed
    "choosing_lambda", "why_merging_hurts", "election_by_hand", "masks_by_hand", "which_layer_hurts", "which_experts",
    "drift_and_lot", "pretty_maps", "one_image",
)  # fmt: skip


def read_lesson(path: Path) -> Lesson:
    """The lesson in a file; a file that has not changed is read once.

    Raises:
        LessonError: the file cannot be read, is too large, or is not a lesson; the message names file, step and field.
    """
    try:
        stat = path.stat()
        if stat.st_size > MAX_CHARACTERS:
            raise LessonError(
                f"The lesson {path.name} is {stat.st_size:,} bytes; at most {MAX_CHARACTERS:,} are read. Split it "
                "into two lessons."
            )
        return _read_cached(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise LessonError(f"The lesson {path.name} cannot be read: {error.strerror or 'it is not a file'}.") from None
    except UnicodeDecodeError:
        raise LessonError(f"The lesson {path.name} is not text in UTF-8. Save it as UTF-8.") from None


@lru_cache(maxsize=256)
def _read_cached(path: Path, changed: int, size: int) -> Lesson:
    return parse_lesson(path.read_text(encoding="utf-8"), path)


def parse_lesson(text: str, path: Path) -> Lesson:
    """The lesson in a text; ``path`` is the file of the text. Raises LessonError."""
    try:
        return _build_lesson(read_plain_yaml(text, "file"), path)
    except MergingError as error:
        raise LessonError(f"The lesson {path.name}: {error}") from None


def _build_lesson(data: Any, path: Path) -> Lesson:
    fields = LessonFields(check_fields(data, "lesson", FIELDS, VERSION), "the lesson", FIELDS)
    runs = {
        fields.check_name(alias, "a run"): _parse_run(recipe, alias)
        for alias, recipe in fields.read_mapping("runs").items()
    }
    aliases = (*runs, *REFERENCES)
    facts = {
        fields.check_name(name, "a fact"): lesson_steps.parse_fact_spec(spec, f"the fact {name}", aliases)
        for name, spec in fields.read_mapping("facts").items()
    }
    key = fields.check_name(fields.get("key"), "key")
    if key != path.stem:
        raise LessonError(f"its key is {key!r}, but the file is named {path.stem!r}. Give both the same name.")
    entries = fields.read_list("steps")
    if not 1 <= len(entries) <= MAX_STEPS:
        raise LessonError(f"a lesson has 1 to {MAX_STEPS} steps; got {len(entries)}.")
    steps = tuple(lesson_steps.parse_step(entry, number, facts, aliases) for number, entry in enumerate(entries, 1))
    if not steps[0].page:
        raise LessonError("step 1 names no page. Give it a page, a view and a chart.")
    return Lesson(
        key=key,
        title=fields.read_text("title", needed=True),
        question=fields.read_text("question", needed=True),
        minutes=int(fields.read_number("minutes", low=1, high=600)),
        level=fields.read_choice("level", LEVELS),
        after=tuple(fields.check_name(other, "after") for other in fields.read_list("after")),
        runs=runs,
        facts=facts,
        steps=steps,
        path=path,
    )


def _parse_run(recipe: Any, alias: str) -> Mapping[str, Any]:
    """The parts of a recipe, or the name of a preset; the recipe itself is built when the run is searched."""
    description = f"the run {printable(str(alias))}"
    fields = LessonFields(recipe, description, RUN_FIELDS)
    definitions = [way for way in RUN_DEFINITIONS if fields.has(way)]
    if len(definitions) != 1:
        raise LessonError(
            f"{description} has one of {', '.join(RUN_DEFINITIONS)}; got {first_few(definitions) or 'none of them'}."
        )
    if alias in REFERENCES:
        raise LessonError(f"{description} has the name of a reference model. Choose another name.")
    return _read_mapping(fields.data)


def _read_mapping(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return {read_text_field(key, "a field", "lesson"): value for key, value in data.items()}
