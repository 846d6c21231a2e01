"""Makes a snapshot: reads the requested lessons and views, opens every view, and writes pages as bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from markupsafe import Markup

from app.reading import glossary
from app.reading.report_sources import program_versions
from app.snapshot import live_desk
from app.snapshot.formulas import mathml
from app.snapshot.headless import Headless, SnapshotError, parse_page_address
from app.snapshot.lesson_pages import make_static_lesson
from app.snapshot.markdown_html import word_anchor
from app.snapshot.site_contents import Site
from app.snapshot.static_figures import StaticFigure, make_static_figure
from merging.base import settings
from merging.base.errors import LessonError
from merging.base.text import did_you_mean
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run_store import Store
from merging.teaching import lesson_files
from merging.teaching.lesson import Lesson
from merging.teaching.lesson_context import LessonContext
from viz.report.report_contents import Source

TEMPLATES_FOLDER = Path(__file__).parent / "templates"
COPIED_FILES = ("snapshot.css", "snapshot.js")
START_FILE, PLOTLY_FILE = "index.html", "plotly.js"
SITE_TITLE = "Merging vision models: lessons and views"
STEP_NAMES = {"say": "read", "predict": "predict", "do": "do", "explain": "explain", "check": "check", "free": "write"}
ProgressReport = Callable[[str], object]


def make_site(
    lesson_keys: Sequence[str], view_lines: Sequence[str], date: str, repository: str, report_progress: ProgressReport
) -> Site:
    """The contents of a snapshot; ``view_lines`` are the lines of a file of views.

    Raises:
        SnapshotError, LessonError: a requested lesson or view is missing or cannot be drawn.
    """
    if not lesson_keys and not any(map(_is_view_line, view_lines)):
        raise SnapshotError("There is nothing to write: name lessons, a file of views, or both.")
    app, benchmark = Headless(), Benchmark.load()
    store = Store(libraries=(settings.benchmark_folder() / "runs",))
    requested = _find_lessons(lesson_keys)
    titles = {lesson.key: lesson.title for lesson in requested}
    lessons = []
    for lesson in requested:
        report_progress(f"Lesson {lesson.key}, {len(lesson.steps)} steps ...")
        lessons.append(make_static_lesson(lesson, LessonContext(store, benchmark, lesson), app, titles))
    views = []
    for number, line in enumerate(view_lines, 1):
        if _is_view_line(line):
            report_progress(f"View in line {number} ...")
            views.append(_make_view(line, number, f"figure-{len(views) + 1}", app))
    has_desk = any(step.desk for lesson in lessons for step in lesson.steps)
    desk = live_desk.make_desk(benchmark) if has_desk else {}
    return Site(SITE_TITLE, date, repository, tuple(lessons), tuple(views), tuple(program_versions()), desk)


def _find_lessons(keys: Sequence[str]) -> list[Lesson]:
    """The lessons with these keys; problems of other files do not matter. Raises SnapshotError, LessonError."""
    refused: list[LessonError] = []
    readable = {lesson.key: lesson for lesson in lesson_files.list_lessons(refused=refused)}
    for key in keys:
        if key not in readable:
            for error in refused:
                if f"{key}.yaml" in str(error):
                    raise error
            raise SnapshotError(
                f"There is no lesson {key!r}.{did_you_mean(key, readable)} Known: {', '.join(readable)}."
            )
    return [readable[key] for key in dict.fromkeys(keys)]


def _is_view_line(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith("#")


def _make_view(line: str, number: int, key: str, app: Headless) -> StaticFigure:
    """The view of a line: an address as *Link* shows it, then optionally 'chart=KEY' and 'slider=KEY'."""
    address, *option_parts = line.strip().split("\t") if "\t" in line else line.strip().split("  ")
    position = f"Line {number} of the views"
    options = {}
    for word in " ".join(option_parts).split():
        name, _, value = word.partition("=")
        if name not in ("chart", "slider") or not value:
            raise SnapshotError(
                f"{position}: after the address and two spaces, write chart=KEY or slider=KEY; got {word!r}."
            )
        options[name] = value
    page_address, chart = parse_page_address(address, position), options.get("chart", "")
    if control := options.get("slider"):
        slider = app.open_slider(page_address, chart, control, position)
        assert slider is not None
        return make_static_figure(key, slider.drawn[slider.first], slider)
    return make_static_figure(key, app.open_chart(page_address, chart, position))


def render_site(site: Site) -> dict[str, bytes]:
    """Every file of a snapshot by name; equal contents give equal bytes."""
    from viz.report.document import plotly_js

    pages = {START_FILE: _fill_page("index.html.j2", site, site.title), "words.html": _fill_words_page(site)}
    pages["sources.html"] = _fill_page("sources.html.j2", site, "Sources", sources=_list_sources(site))
    if site.views:
        pages["views.html"] = _fill_page("views.html.j2", site, "Views")
    for lesson in site.lessons:
        pages[f"{lesson.key}.html"] = _fill_page("lesson.html.j2", site, lesson.title, lesson=lesson, names=STEP_NAMES)
    texts = (
        pages
        | {name: (TEMPLATES_FOLDER / name).read_text("utf-8") for name in COPIED_FILES}
        | {PLOTLY_FILE: plotly_js()}
    )
    return {name: text.encode() for name, text in texts.items()} | dict(site.desk)


def _fill_page(template: str, site: Site, title: str, **values: object) -> str:
    from viz.report import templates
    from viz.report.document import script_json

    environment = templates.environment(TEMPLATES_FOLDER)
    environment.filters["script_json"] = lambda value: Markup(script_json(value))  # escaped as JSON, see there
    return templates.fill_template(template, TEMPLATES_FOLDER, site=site, title=title, **values)


def _fill_words_page(site: Site) -> str:
    entries = [
        (word.word, word.sentence, Markup(mathml(word.formula)), word_anchor(word.word)) for word in glossary.words()
    ]
    return _fill_page("words.html.j2", site, "Words", words=entries)


def _list_sources(site: Site) -> list[Source]:
    """Every run and sweep that a figure shows, in the order of their first figure."""
    figures = [*(figure for lesson in site.lessons for figure in lesson.figures), *site.views]
    return list({source.id: source for figure in figures for source in figure.sources}.values())
