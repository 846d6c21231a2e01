"""A lesson for a static page: its texts with facts filled in, and a figure of every view."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlencode

from markupsafe import Markup

from app.session import address
from app.snapshot.headless import Headless, PageAddress, SnapshotError
from app.snapshot.live_desk import DESK_FILE
from app.snapshot.markdown_html import StepMarkdown
from app.snapshot.site_contents import StaticAnswer, StaticLesson, StaticPaper, StaticStep
from app.snapshot.static_figures import StaticFigure, make_static_figure
from merging.recipes.papers.published_figures import SOURCES
from merging.teaching import lesson as kinds
from merging.teaching import lesson_progress
from merging.teaching.fact import Fact
from merging.teaching.facts.fact_computation import compute_fact
from merging.teaching.fill import fill_facts
from merging.teaching.goals import is_met
from merging.teaching.lesson import Guess, Lesson, Paper, Step
from merging.teaching.lesson_context import LessonContext
from merging.teaching.paper_verdict import describe_change, judge_paper

CELLS_CHART, CELLS_TITLE = "guess_cells", "Which cells?"
CELLS_CAPTIONS = (
    "Click a cell to mark it; click again to remove the mark.",
    "Diamonds are your marks. Dark cells are the measured ones.",
)
CELLS_ALTS = (
    "A map of {} blank cells, for your marks.",
    "A map of {} cells. {} of them are dark: the measured ones.",
)


def make_static_lesson(
    lesson: Lesson, context: LessonContext, app: Headless, titles: Mapping[str, str]
) -> StaticLesson:
    """A lesson with its figures; ``titles`` are the snapshot's lessons by key. Raises SnapshotError."""
    if missing := context.list_missing_runs():
        raise SnapshotError(
            f"The lesson {lesson.key} needs runs that are not stored here: {', '.join(missing)}. Run their recipes "
            f"first: mergescope lessons check {lesson.path.name} --compute."
        )
    facts = {name: compute_fact(spec, context) for name, spec in lesson.facts.items()}
    figures = _Figures(lesson, context, app)
    steps = tuple(_make_step(step, number, facts, context, figures) for number, step in enumerate(lesson.steps, 1))
    return StaticLesson(
        key=lesson.key,
        title=lesson.title,
        question=lesson.question,
        minutes=lesson.minutes,
        level=lesson.level,
        after=tuple((key, titles[key]) for key in lesson.after if key in titles),
        steps=steps,
        figures=tuple(figures.figures.values()),
    )


class _Figures:
    """The figures of one lesson, each drawn once: by address, chart, and the control that has a slider."""

    def __init__(self, lesson: Lesson, context: LessonContext, app: Headless) -> None:
        self.lesson, self.context, self.app = lesson, context, app
        self.figures: dict[tuple[PageAddress, str, str], StaticFigure] = {}

    def draw_step_figure(self, number: int, extra: Mapping[str, str], control: str = "") -> StaticFigure:
        """The figure of a step, counted from 1, with further values in its address."""
        page, view = self.lesson.page_and_view(number)
        position = f"Lesson {self.lesson.key}, step {number}"
        address = PageAddress(page, tuple(self.context.resolve_view({**view, **extra}).items()))
        chart = self.lesson.chart(number)
        if (address, chart, control) not in self.figures:
            name = f"figure-{len(self.figures) + 1}"
            slider = self.app.open_slider(address, chart, control, position, sliders_only=True) if control else None
            recorded = (
                slider.drawn[slider.first] if slider else self.app.open_chart(address, chart, position, bool(extra))
            )
            self.figures[address, chart, control] = make_static_figure(name, recorded, slider)
        return self.figures[address, chart, control]

    def cells(self, number: int) -> StaticFigure:
        """The map whose cells the learner marks in a step: blank, and with the measured values."""
        page, position = self.lesson.page_and_view(number)[0], f"Lesson {self.lesson.key}, step {number}"
        step_query = ((address.LESSON, self.lesson.key), (address.STEP, str(number)))
        progress = (address.PROGRESS, lesson_progress.format_finished_steps(frozenset({number})))
        blank_address, known_address = PageAddress(page, step_query), PageAddress(page, (*step_query, progress))
        if (blank_address, CELLS_CHART, "") not in self.figures:
            blank_chart, measured_chart = (
                self.app.open_chart(page_address, CELLS_CHART, position)
                for page_address in (blank_address, known_address)
            )
            table = measured_chart[0].table
            alts = [text.format(len(table), int(table["truth"].sum())) for text in CELLS_ALTS]
            blank_chart, measured_chart = (
                (replace(view, title=CELLS_TITLE, caption=caption), sources)
                for (view, sources), caption in zip((blank_chart, measured_chart), CELLS_CAPTIONS, strict=True)
            )
            figure = make_static_figure(f"figure-{len(self.figures) + 1}", blank_chart, later_charts=[measured_chart])
            self.figures[blank_address, CELLS_CHART, ""] = replace(figure, alts=tuple(alts))
        return self.figures[blank_address, CELLS_CHART, ""]


def _make_step(
    step: Step, number: int, facts: Mapping[str, Fact], context: LessonContext, figures: _Figures
) -> StaticStep:
    writer = StepMarkdown()

    def html(text: str) -> Markup:
        return writer.html(fill_facts(text, facts))

    question = html(step.ask)  # first, because a word is explained where the step first uses it
    options = tuple(writer.line(fill_facts(option, facts)) for option in (step.guess.options if step.guess else ()))
    truth = [compute_fact(spec, context) for spec in step.truth]
    control = step.controls[0] if step.kind == kinds.DO and step.controls else ""
    is_desk = figures.lesson.is_on_desk(number)
    figure = None if is_desk else figures.draw_step_figure(number, {}, control)
    return StaticStep(
        number=number,
        kind=step.kind,
        figure=figure,
        desk=f"{DESK_FILE}?{urlencode(figures.lesson.page_and_view(number)[1])}" if is_desk else "",
        slider_fulfils=_check_slider_values(step, number, figure, context) if figure else (),
        shown_figure=figures.draw_step_figure(number, step.show) if step.show else None,
        cells=figures.cells(number) if step.guess and step.guess.kind == kinds.CELLS else None,
        say=html(step.say),
        ask=question,
        hint=html(step.hint),
        guess=step.guess,
        options=options,
        truth=tuple(_list_truths(step.guess, truth)) if step.guess else (),
        paper=_make_paper(step.paper, context) if step.paper else None,
        answers=tuple(
            StaticAnswer(
                writer.line(fill_facts(answer.text, facts)), answer.right, writer.line(fill_facts(answer.say, facts))
            )
            for answer in step.answers
        ),
    )


def _check_slider_values(step: Step, number: int, figure: StaticFigure, context: LessonContext) -> tuple[bool, ...]:
    """Whether each value of the figure's slider reaches the goal; empty without slider or goal."""
    if step.goal is None or figure.slider is None:
        return ()
    view, slider = context.resolve_view(context.lesson.page_and_view(number)[1]), figure.slider
    return tuple(bool(is_met(step.goal, context, {**view, slider.key: value})) for value in slider.values)


def _list_truths(guess: Guess, truth: Sequence[Fact]) -> list[tuple[str, str]]:
    """The measured values as pairs of label and value; for an order, the options in their true order."""
    if guess.kind == kinds.CURVE:
        labels = [f"{guess.axis} {index:g}".strip() for index in guess.at]
    elif len(truth) == len(guess.options):
        labels = list(guess.options)
    else:
        labels = [""] * len(truth)
    lines = [(label, fact.long_text) for label, fact in zip(labels, truth, strict=True)]
    if guess.kind == kinds.ORDER:
        order = sorted(range(len(truth)), key=lambda index: -truth[index].value)
        return [lines[index] for index in order]
    return lines


def _make_paper(paper: Paper, context: LessonContext) -> StaticPaper:
    ours = [compute_fact(spec, context) for spec in paper.ours]
    return StaticPaper(
        source=next((full for name, full in SOURCES.items() if _source_key(name) == paper.source), paper.source),
        where=paper.where,
        unit=paper.unit,
        rows=(
            *(
                (name, f"{value:g} {paper.unit}".strip(), fact.long_text)
                for (name, value), fact in zip(paper.says.items(), ours, strict=True)
            ),
            *describe_change(paper, ours),
        ),
        verdict=judge_paper(paper, context),
    )


def _source_key(source: str) -> str:
    """The key by which lessons name a source."""
    return re.sub("[^a-z0-9]+", "_", source.casefold())
