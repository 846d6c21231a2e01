"""Lessons: paths through the pages, with guesses, tasks and questions. No chart, so that it loads fast."""

from __future__ import annotations

from app.views.lessons import class_panel, lesson_cards, sheet
from app.widgets import page_parts

page_parts.draw_heading(
    "Lessons", "Paths through the real pages: you predict, do, see and read why. Every number is computed from stored "
    "results, and every step has an address.",
)  # fmt: skip
class_panel.draw_class()
lesson_cards.draw_cards()
sheet.draw_sheet_field()
page_parts.draw_link()
