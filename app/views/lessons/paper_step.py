"""The paper's numbers beside ours, with a computed verdict."""

from __future__ import annotations

import streamlit as st

from app.page_text import method_title, safe_text
from app.reading import offered_lessons
from app.views.lessons.learner import LessonPosition
from merging.teaching.paper_verdict import judge_paper

VERDICT_STYLES = {
    "same direction": ("green", "check_circle"),
    "other direction": ("orange", "swap_horiz"),
    "not reproduced here": ("gray", "help"),
}


def draw_paper(at: LessonPosition) -> None:
    """In the rail: a row for each number that the paper prints, ours beside it, and what the two say together."""
    paper = at.step.paper
    if paper is None:
        return
    ours = [offered_lessons.lesson_fact(at.lesson, spec) for spec in paper.ours]
    lines = [
        f"| | {safe_text(method_title(paper.source), 40)}, {safe_text(paper.where, 40)} | Here |",
        "|---|---:|---:|",
    ]
    for (name, value), fact in zip(paper.says.items(), ours, strict=True):
        here = safe_text(fact.missing or fact.long_text, 200)
        lines.append(f"| {safe_text(name, 60)} | {value:g} {safe_text(paper.unit, 12)} | {here} |")
    st.markdown("\n".join(lines))
    known = offered_lessons.lesson_context(at.lesson)
    said = judge_paper(paper, known) if known else "not reproduced here"
    color, icon = VERDICT_STYLES.get(said, ("gray", "help"))
    st.badge(said.capitalize(), icon=f":material/{icon}:", color=color)
