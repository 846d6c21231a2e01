"""Texts of a lesson with facts filled in and the words of the glossary linked."""

from __future__ import annotations

from app.reading import offered_lessons
from app.views.lessons.learner import LessonPosition
from app.widgets.page_parts import explain_words


def fill_text(at: LessonPosition, markdown: str, name: str, linked: bool = True) -> str:
    """Markdown of the step; ``name`` says where it stands, so that words are explained where they are first used."""
    words = offered_lessons.fill_in(at.lesson, markdown)
    return explain_words(words, f"{at.key}_{name}") if linked else words
