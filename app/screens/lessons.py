"""Lessons: paths through the pages, with guesses, tasks and questions. No chart, so that it loads fast."""

from __future__ import annotations

from app.views.lessons import cards, sheet, teach
from app.widgets import page

page.heading(
    "Lessons", "Paths through the real pages: you predict, do, see and read why. Every number is computed from what is "
    "stored here, and every step has an address.",
)  # fmt: skip
teach.draw()
cards.draw()
sheet.restore()
page.link()
