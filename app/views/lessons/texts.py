"""Texts of a lesson with facts filled in and the words of the glossary linked."""

from __future__ import annotations

from app.reading import lessons
from app.views.lessons.learner import Place
from app.widgets.page import explained


def filled(at: Place, markdown: str, name: str, linked: bool = True) -> str:
    """Markdown of the step; ``name`` says where it stands, so that words are explained where they are first used."""
    words = lessons.filled(at.lesson, markdown)
    return explained(words, f"{at.key}_{name}") if linked else words
