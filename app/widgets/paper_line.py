"""A paper's claims next to our numbers, and whether ours have the same direction.

A claim is a comparison of two values that a paper prints; each belongs to views of the app. ``claims_in_words`` makes
the text of a view's claims, which also goes into the report; ``draw_claims`` shows it on the page.
"""

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

PAPER_MARK, OWN_MARK = "◇", "●"  # the marks of published numbers and of ours, as in every table
MARKS_HELP = (
    "◇ is the paper's number. ● is from merges of all experts of the {}, whichever run the page shows, unless the line "
    "names others."
)
HEADING, PARAGRAPH_BREAK = "**Paper and measurement.**", "\n\n"
PAGE_ORIGIN = "here"  # origin of facts that a page has just computed


def claims_in_words(view: str, shown: Mapping[str, Comparison] | None = None) -> str:
    """A heading and a line for each claim of a view (its key, such as "masks/saliency"); empty without a claim.

    Our numbers are facts from stored results. ``shown`` are facts that the page has just computed, by their names in
    claims; they replace stored ones.
    """
    facts = shown or {}
    return _join_lines(
        [
            claim_in_words(claim, facts[claim.fact], PAGE_ORIGIN)
            if claim.fact in facts
            else claim_in_words(claim, paper_facts.compare_claim(claim))
            for claim in claims.claims_of_view(view)
        ]
    )


def compare_claims(pairs: Sequence[tuple[Claim, Comparison | None]], origin: str = "") -> str:
    """The lines of claims with our numbers; ``origin`` names their source if it is not the benchmark's library."""
    return _join_lines([claim_in_words(claim, comparison, origin) for claim, comparison in pairs])


def _join_lines(lines: Sequence[str]) -> str:
    return PARAGRAPH_BREAK.join([HEADING, *lines]) if lines else ""


def draw_claims(claims_text: str, sources: Sequence[Run | Sweep] = ()) -> None:
    """Draw the text of ``claims_in_words``; nothing if it is empty.

    ``sources`` are the runs and sweeps on the page. If our numbers come from none of these, the lines are folded.
    """
    if not claims_text:
        return
    head, *lines_of_claims = (_break_sides(line) for line in claims_text.split(PARAGRAPH_BREAK))
    words = lines_of_claims[0] if len(lines_of_claims) == 1 else "\n".join(f"- {line}" for line in lines_of_claims)
    merges = [source for source in sources if not isinstance(source, Run) or source.kind == "merge"]
    library = page_text.safe_text(benchmark_choice.library_in_words(), 60)
    if merges and not any(map(paper_facts.may_be_source, merges)):
        label = f"Paper and measurement: the {library}, none of what is shown above"
        with st.expander(label, icon=":material/menu_book:"):
            st.markdown(words, help=MARKS_HELP.format(library))
        return
    with st.container(border=True):
        gap = " " if len(lines_of_claims) == 1 else PARAGRAPH_BREAK
        st.markdown(f":material/menu_book: {head}{gap}{words}", help=MARKS_HELP.format(library))


def _break_sides(line: str) -> str:
    """The text with the paper's side and ours on separate lines."""
    return line.replace(f" {PAPER_MARK} ", f"  \n{PAPER_MARK} ").replace(f" {OWN_MARK} ", f"  \n{OWN_MARK} ")


def claim_in_words(claim: Claim, comparison: Comparison | None, origin: str = "") -> str:
    """The sentence of one claim, in Markdown: the verdict, what is compared, the paper's side and ours.

    ``origin`` names the source of our numbers, by default the benchmark's library.
    """
    verdict = judge(claim.direction, comparison)
    subject = f"{claim.topic}: {claim.first} against {claim.second}."
    note = f" {claim.note}" if claim.note else ""
    sides = (
        f"{subject} {PAPER_MARK} {_paper_side(claim)} {OWN_MARK} "
        f"{_our_side(comparison, verdict, origin or benchmark_choice.library_in_words())}{note}"
    )
    return f"**{verdict.capitalize()}.** {page_text.safe_text(sides, 1000)}"


def _paper_side(claim: Claim) -> str:
    """The paper's numbers with their printed precision, and their source."""
    source = f"{claim.paper}, {claim.where}{', read off the figure' if claim.read_off else ''}"
    if not claim.printed:
        number_note = "" if any(mark.isdigit() for mark in claim.words) else ", without numbers"
        return f"The paper: {claim.words} ({source}{number_note})."
    first, second = (f"{value}{_unit_suffix(claim.unit)}" for value in claim.printed)
    return f"{first} against {second}, {claim.difference} ({source})."


def _our_side(comparison: Comparison | None, verdict: Verdict, origin: str) -> str:
    """Our numbers, the interval of the difference, and their origin."""
    if comparison is None or verdict is Verdict.NOT_MEASURED:
        return f"{Verdict.NOT_MEASURED.capitalize()}."
    unit = _unit_suffix(comparison.unit)
    first, second = comparison.texts or (
        f"{_format_number(value, comparison.digits)}{unit}" for value in (comparison.first, comparison.second)
    )
    interval = comparison.interval
    if not math.isfinite(comparison.low):
        interval = "no interval"
    elif interval != COUNTED:
        low, high = (page_text.format_signed(limit, comparison.digits) for limit in (comparison.low, comparison.high))
        interval += f" {low} to {high}"
    sample = comparison.sample.replace(REPORTING, samples.scored_part())
    origin = origin[0].upper() + origin[1:]
    sides = f"{first} against {second}, {page_text.format_signed(comparison.difference, comparison.digits)}"
    return f"{origin}: {sides} ({interval}; {sample})."


def _unit_suffix(unit: str) -> str:
    return unit if unit in ("", "%") else f" {unit}"


def _format_number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace("-", page_text.MINUS)
