"""The paper's numbers beside ours, with a computed verdict."""

from __future__ import annotations

import streamlit as st

from app.page_text import method_title, safe_text
from app.reading import offered_lessons
from app.views.lessons.learner import LessonPosition
from merging.teaching.paper_verdict import (
    NOT_REPRODUCED,
    describe_change,
    describe_power,
    find_paired_change,
    judge_paper,
)

VERDICT_STYLES = {
    "same direction": ("green", "check_circle"),
    "other direction": ("orange", "swap_horiz"),
    "not reproduced here": ("gray", "help"),
}


def draw_paper(position: LessonPosition) -> None:
    """Draw the rail's table of the paper's numbers beside ours, and the verdict on whether they agree."""
    paper = position.step.paper
    if paper is None:
        return
    our_facts = [offered_lessons.find_fact(position.lesson, spec) for spec in paper.ours]
    lines = [
        f"| | {safe_text(method_title(paper.source), 40)}, {safe_text(paper.where, 40)} | Ours |",
        "|---|---:|---:|",
    ]
    for (name, value), fact in zip(paper.says.items(), our_facts, strict=True):
        our_value = safe_text(fact.missing or fact.long_text, 200)
        lines.append(f"| {safe_text(name, 60)} | {value:g} {safe_text(paper.unit, 12)} | {our_value} |")
    lines += [
        f"| {name} | {safe_text(theirs, 40)} | {safe_text(ours, 200)} |"
        for name, theirs, ours in describe_change(paper, our_facts)
    ]
    st.markdown("\n".join(lines))
    context = offered_lessons.lesson_context(position.lesson)
    verdict = judge_paper(paper, context) if context else NOT_REPRODUCED
    color, icon = VERDICT_STYLES.get(verdict, ("gray", "help"))
    st.badge(verdict.capitalize(), icon=f":material/{icon}:", color=color)
    if (change := find_paired_change(our_facts)) and verdict == NOT_REPRODUCED:
        st.caption(describe_power(change))
