"""A paper's claims next to our numbers, and whether ours have the same direction.

A claim is a comparison of two values that a paper prints; each belongs to views of the app. ``claims_in_words`` makes
the text of a view's claims, which goes into the report; ``draw_claims`` shows a line of each on the page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import streamlit as st

from app import page_text
from app.reading import samples
from app.reading.papers import paper_facts
from app.reading.papers.published_tables import printed_color
from app.reading.papers.tried_settings import tried_in_words
from app.session import benchmark_choice
from app.widgets import page_parts
from merging.recipes.papers import claims
from merging.recipes.papers.claims import Claim
from merging.study.paper_facts.accuracy_facts import REPORTING
from merging.study.paper_facts.comparison import COUNTED, Comparison, Verdict, judge
from merging.study.runs.run import Run
from merging.study.sweeps.sweep import Sweep
from viz.figure_text import plural

if TYPE_CHECKING:
    import pandas as pd

PAPER_MARK, OWN_MARK = "◇", "●"  # the marks of published numbers and of ours, as in every table
VERDICT_MARKS = dict(zip(Verdict, "✓✗≈○", strict=True))  # always with the verdict in words
MARKS_HELP = (
    "◇ is the paper's difference. ● is ours with its interval, from merges of all experts of the {}, whichever run the "
    "page shows, unless the sentence names others. A click on a line opens the sentence with all numbers."
)
HEADING, PARAGRAPH_BREAK = "**Paper and measurement.**", "\n\n"
PAGE_ORIGIN = "here"  # origin of facts that a page has just computed
DIRECTION_WORDS = {1: "more", 0: "the same", -1: "less"}  # of a claim without printed values


class ClaimLine(NamedTuple):
    """One claim: a line, the sentence that it opens (both Markdown), and ids of the runs that our numbers are from.

    None instead of ids: our numbers are not those of single runs, but of the whole library.
    """

    line: str
    sentence: str
    run_ids: frozenset[str] | None


class ClaimsText(str):
    """The text of several claims with their heading, for the report; ``lines`` are the claims for the page."""

    lines: tuple[ClaimLine, ...]

    def __new__(cls, lines: Sequence[ClaimLine] = ()) -> ClaimsText:
        """The text of the lines; empty without any."""
        sentences = (claim_line.sentence for claim_line in lines)
        text = super().__new__(cls, PARAGRAPH_BREAK.join([HEADING, *sentences]) if lines else "")
        text.lines = tuple(lines)
        return text


def claims_in_words(view: str, shown: Mapping[str, Comparison] | None = None) -> ClaimsText:
    """A heading and a sentence for each claim of a view (its key, such as "masks/saliency"); empty without a claim.

    Our numbers are facts from stored results. ``shown`` are facts that the page has just computed, by their names in
    claims; they replace stored ones.
    """
    facts = shown or {}
    return ClaimsText(
        [
            _make_line(claim, facts[claim.fact], PAGE_ORIGIN) if claim.fact in facts else _make_library_line(claim)
            for claim in claims.claims_of_view(view)
        ]
    )


def compare_claims(pairs: Sequence[tuple[Claim, Comparison | None]], origin: str = "") -> ClaimsText:
    """The text of claims with our numbers; ``origin`` names their source if it is not the benchmark's library."""
    return ClaimsText([_make_line(claim, comparison, origin) for claim, comparison in pairs])


def _make_line(
    claim: Claim, comparison: Comparison | None, origin: str = "", run_ids: frozenset[str] | None = None
) -> ClaimLine:
    return ClaimLine(line_in_words(claim, comparison), claim_in_words(claim, comparison, origin), run_ids)


def _make_library_line(claim: Claim) -> ClaimLine:
    """The line of a claim with the numbers of the library, and with those of the other bundled team of experts."""
    own = _make_line(claim, paper_facts.compare_claim(claim), run_ids=paper_facts.list_claim_runs(claim))
    line, sentence = own.line, own.sentence
    for team, comparison in paper_facts.compare_on_other_teams(claim):
        verdict = judge(claim.direction, comparison)
        if verdict is not Verdict.NOT_MEASURED:
            shown = f"{OWN_MARK} {team}: {verdict}, {own_difference(comparison, verdict)}"
            line += f" · {page_text.safe_text(shown, 200)}"
            side = f"{_our_side(comparison, verdict, team).removesuffix('.')}: {verdict}."
        else:
            side = f"{team.capitalize()}: not measured."
        sentence += f" {OWN_MARK} {page_text.safe_text(side, 600)}"
    return ClaimLine(line, sentence, own.run_ids)


def draw_printed_table(
    table: pd.DataFrame, printed_columns: Sequence[Any], alt: str, columns: Mapping[Any, Any] | None = None
) -> None:
    """Draw a table with the published figures in ``printed_columns`` in their color."""
    styled = table.style.set_properties(subset=list(printed_columns), color=printed_color())
    page_parts.draw_table(styled, alt, columns)


def draw_claims(claims_text: ClaimsText, sources: Sequence[Run | Sweep] = ()) -> None:
    """Draw a line for each claim, which opens its sentence; draws nothing without a claim.

    ``sources`` are the runs and sweeps on the page. Claims whose numbers come from none of these are folded.
    """
    merges = [source for source in sources if not isinstance(source, Run) or source.kind == "merge"]
    shown = [line for line in claims_text.lines if not merges or any(_may_be_of(line, source) for source in merges)]
    folded = [line for line in claims_text.lines if line not in shown]
    library = page_text.safe_text(benchmark_choice.library_in_words(), 60)
    if shown:
        is_own = all(f"{OWN_MARK} {PAGE_ORIGIN.capitalize()}" in line.sentence for line in shown)
        whose = "Measured here." if is_own else f"Numbers of the {library}."
        with st.container(border=True, gap="xxsmall"):
            st.markdown(f":material/menu_book: {HEADING} {whose}", help=MARKS_HELP.format(library))
            _draw_lines(shown)
    if folded:
        with st.expander(f"{plural(len(folded), 'claim')} about the {library}", icon=":material/menu_book:"):
            _draw_lines(folded)


def _may_be_of(line: ClaimLine, source: Run | Sweep) -> bool:
    return paper_facts.may_be_source(source) and (line.run_ids is None or source.id in line.run_ids)


def _draw_lines(lines: Sequence[ClaimLine]) -> None:
    for claim_line in lines:
        with st.expander(claim_line.line, type="compact"):
            # The paper's side and ours are on separate lines.
            st.markdown(re.sub(f" ([{PAPER_MARK}{OWN_MARK}]) ", r"  \n\1 ", claim_line.sentence))


def power_in_words(claim: Claim, comparison: Comparison | None, verdict: Verdict) -> str:
    """What could have been shown, as a sentence, for a difference that is not shown; empty otherwise."""
    if verdict is not Verdict.NOT_REPRODUCED or comparison is None or not math.isfinite(comparison.smallest_visible):
        return ""
    unit = _difference_unit(comparison.unit)
    smallest = f"{comparison.smallest_visible:.{comparison.digits}f}{unit}"
    printed = claim.difference.lstrip(f"+{page_text.MINUS}")
    if printed and _difference_unit(claim.unit) == unit and float(printed) < comparison.smallest_visible:
        shown = f" A true difference of {smallest} would be shown in 80% of samples like this"
        return f"{shown} ({comparison.sample.split(', ')[0]}); the paper's {printed} is smaller."
    return f" A true difference of {smallest} or more would be shown in 80% of samples like this."


def line_in_words(claim: Claim, comparison: Comparison | None) -> str:
    """One claim as a line, in Markdown: the verdict, what is compared, and both differences, ours with its interval."""
    verdict = judge(claim.direction, comparison)
    subject = page_text.safe_text(f"{claim.topic}: {claim.first} against {claim.second}", 300)
    differences = f"{PAPER_MARK} {paper_difference(claim)} {OWN_MARK} {own_difference(comparison, verdict)}"
    smallest = page_text.safe_text(power_in_words(claim, comparison, verdict), 200)
    line = f"{VERDICT_MARKS[verdict]} **{verdict.capitalize()}** · {subject} · {page_text.safe_text(differences, 200)}"
    return f"{line}{' ·' if smallest else ''}{smallest}"


def paper_difference(claim: Claim) -> str:
    """The difference that the paper prints with its unit, or its direction in words."""
    return f"{claim.difference}{_difference_unit(claim.unit)}" if claim.printed else DIRECTION_WORDS[claim.direction]


def own_difference(comparison: Comparison | None, verdict: Verdict) -> str:
    """Our difference with its unit and its interval."""
    if comparison is None or verdict is Verdict.NOT_MEASURED:
        return "—"
    values = (comparison.difference, comparison.low, comparison.high)
    difference, low, high = (page_text.format_signed(value, comparison.digits) for value in values)
    interval = f"{low} to {high}" if math.isfinite(comparison.low) else "no interval"
    interval = COUNTED if comparison.interval == COUNTED else interval
    return f"{difference}{_difference_unit(comparison.unit)} ({interval})"


def claim_in_words(claim: Claim, comparison: Comparison | None, origin: str = "") -> str:
    """The sentence of one claim, in Markdown: the verdict, what is compared, the paper's side and ours.

    ``origin`` names the source of our numbers, by default the benchmark's library.
    """
    verdict = judge(claim.direction, comparison)
    subject = f"{claim.topic}: {claim.first} against {claim.second}."
    note = f" {claim.note}" if claim.note else ""
    sides = (
        f"{subject} {PAPER_MARK} {_paper_side(claim)} {OWN_MARK} "
        f"{_our_side(comparison, verdict, origin or benchmark_choice.library_in_words())}"
        f"{power_in_words(claim, comparison, verdict)}{'' if origin else tried_in_words(claim, verdict)}{note}"
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


def _difference_unit(unit: str) -> str:
    return " points" if unit == "%" else _unit_suffix(unit)


def _format_number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace("-", page_text.MINUS)
