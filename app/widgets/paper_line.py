"""Paper and here: a paper's claim beside our fact, and whether ours has the same direction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import streamlit as st

from app import page_text
from app.reading import samples
from app.reading.papers import paper_facts
from app.session import benchmark_choice
from merging.recipes.papers import claims
from merging.recipes.papers.claims import Claim
from merging.study.paper_facts.accuracy_facts import REPORTING
from merging.study.paper_facts.comparison import COUNTED, Comparison, Verdict, judge
from merging.study.runs.run import Run
from merging.study.sweeps.sweep import Sweep

PAPER, HERE = "◇", "●"  # the marks of published numbers and of ours, as in every table
HELP = (
    "◇ is the paper's number. ● is from merges of all experts of the {}, whichever run the page shows, unless the line "
    "names others."
)
HEAD, BETWEEN = "**Paper and here.**", "\n\n"
ON_PAGE = "here"  # facts that a page has just computed


def claim_lines(view: str, shown: Mapping[str, Comparison] | None = None) -> str:
    """The lines of a view, one for each claim, as Markdown for the page and for the report; empty without a claim.

    ``shown`` are facts that the page has just computed, by their names in claims; they are not stored.
    """
    known = shown or {}
    return _join_lines(
        [
            claim_in_words(one, known[one.fact], ON_PAGE)
            if one.fact in known
            else claim_in_words(one, paper_facts.compare_claim(one))
            for one in claims.claims_of_view(view)
        ]
    )


def compare_claims(pairs: Sequence[tuple[Claim, Comparison | None]], whose: str = "") -> str:
    """The lines of claims with our sides; ``whose`` names our numbers' origin, if it is not the benchmark's library."""
    return _join_lines([claim_in_words(claim, ours, whose) for claim, ours in pairs])


def _join_lines(lines: Sequence[str]) -> str:
    return BETWEEN.join([HEAD, *lines]) if lines else ""


def draw_lines(lines: str, of: Sequence[Run | Sweep] = ()) -> None:
    """Draw the lines of ``claim_lines``; nothing if there are none.

    They are folded if our numbers come from none of the runs and sweeps on the page, ``of``.
    """
    if not lines:
        return
    head, *more = (_on_lines(line) for line in lines.split(BETWEEN))
    words = more[0] if len(more) == 1 else "\n".join(f"- {line}" for line in more)
    merges = [one for one in of if not isinstance(one, Run) or one.kind == "merge"]
    whose = page_text.safe_text(benchmark_choice.library_in_words(), 60)
    if merges and not any(map(paper_facts.may_be_source, merges)):
        with st.expander(f"Paper and here: the {whose}, none of what is shown above", icon=":material/menu_book:"):
            st.markdown(words, help=HELP.format(whose))
        return
    with st.container(border=True):
        gap = " " if len(more) == 1 else BETWEEN
        st.markdown(f":material/menu_book: {head}{gap}{words}", help=HELP.format(whose))


def _on_lines(line: str) -> str:
    """The text with the paper's side and ours on separate lines."""
    return line.replace(f" {PAPER} ", f"  \n{PAPER} ").replace(f" {HERE} ", f"  \n{HERE} ")


def claim_in_words(claim: Claim, ours: Comparison | None, whose: str = "") -> str:
    """The sentence of one claim, in Markdown: the verdict, what is compared, the paper's side and ours.

    ``whose`` names our numbers' origin, by default the benchmark's library.
    """
    judged = judge(claim.direction, ours)
    subject = f"{claim.topic}: {claim.first} against {claim.second}."
    note = f" {claim.note}" if claim.note else ""
    sides = (
        f"{subject} {PAPER} {_paper(claim)} {HERE} "
        f"{_our_side(ours, judged, whose or benchmark_choice.library_in_words())}{note}"
    )
    return f"**{judged.capitalize()}.** {page_text.safe_text(sides, 1000)}"


def _paper(claim: Claim) -> str:
    """The paper's numbers with their printed precision, and their source."""
    source = f"{claim.paper}, {claim.where}{', read off the figure' if claim.read_off else ''}"
    if not claim.printed:
        bare = "" if any(mark.isdigit() for mark in claim.words) else ", without numbers"
        return f"The paper: {claim.words} ({source}{bare})."
    first, second = (f"{value}{_unit(claim.unit)}" for value in claim.printed)
    return f"{first} against {second}, {claim.difference} ({source})."


def _our_side(ours: Comparison | None, judged: Verdict, whose: str) -> str:
    """Our numbers, the interval of the difference, and their origin."""
    if ours is None or judged is Verdict.NOT_MEASURED:
        return f"{Verdict.NOT_MEASURED.capitalize()}."
    unit = _unit(ours.unit)
    first, second = ours.texts or (f"{_number(value, ours.digits)}{unit}" for value in (ours.first, ours.second))
    interval = ours.interval
    if not math.isfinite(ours.low):
        interval = "no interval"
    elif interval != COUNTED:
        interval += (
            f" {page_text.format_signed(ours.low, ours.digits)} to {page_text.format_signed(ours.high, ours.digits)}"
        )
    sample = ours.sample.replace(REPORTING, samples.scored_part())
    whose = whose[0].upper() + whose[1:]
    sides = f"{first} against {second}, {page_text.format_signed(ours.difference, ours.digits)}"
    return f"{whose}: {sides} ({interval}; {sample})."


def _unit(unit: str) -> str:
    return unit if unit in ("", "%") else f" {unit}"


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace("-", page_text.MINUS)
