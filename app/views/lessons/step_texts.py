"""Texts of a lesson with facts filled in and glossary words explained."""

from __future__ import annotations

from app.reading import offered_lessons
from app.views.lessons.learner import LessonPosition
from app.widgets.page_parts import explain_words


def fill_text(position: LessonPosition, markdown: str, name: str, with_glossary: bool = True) -> str:
    """Markdown of the step with its facts; ``name`` identifies the text, as words are explained at their first use."""
    text = offered_lessons.fill_in_facts(position.lesson, markdown)
    return explain_words(text, f"{position.key}_{name}") if with_glossary else text
