"""Paper and here: what a paper's figure states beside our fact, and whether ours has the same direction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import streamlit as st

from app import text
from app.reading import samples
from app.reading.papers import paper_facts
from app.session import benchmark
from merging.recipes.papers import claims
from merging.recipes.papers.claims import Claim
from merging.study.paper_facts.accuracies import REPORTING
from merging.study.paper_facts.comparison import COUNTED, Comparison, Verdict, verdict
from merging.study.runs.run import Run
from merging.study.sweeps.sweep import Sweep

PAPER, HERE = "◇", "●"  # the marks of published numbers and of ours, as in every table
HELP = (
    "◇ is what the paper prints. ● is from merges of all experts of the {}, whichever run the page shows, unless the "
    "line names others."
)
HEAD, BETWEEN = "**Paper and here.**", "\n\n"
ON_PAGE = "here"  # what a page has just computed


def of(view: str, shown: Mapping[str, Comparison] | None = None) -> str:
    """The lines of a view, one for each claim, as Markdown for the page and for the report; empty without a claim.

    ``shown`` are facts that the page has just computed, by their names in claims; they are stored nowhere.
    """
    known = shown or {}
    return _joined(
        [
            in_words(one, known[one.fact], ON_PAGE) if one.fact in known else in_words(one, paper_facts.of_claim(one))
            for one in claims.of_view(view)
        ]
    )


def of_claims(pairs: Sequence[tuple[Claim, Comparison | None]], whose: str = "") -> str:
    """The same for claims with our sides of them; ``whose`` they are, if not of the benchmark's library."""
    return _joined([in_words(claim, ours, whose) for claim, ours in pairs])


def _joined(lines: Sequence[str]) -> str:
    return BETWEEN.join([HEAD, *lines]) if lines else ""


def show(lines: str, of: Sequence[Run | Sweep] = ()) -> None:
    """Draw the lines of ``of``; nothing if there are none.

    They are folded where none of the runs or sweeps on the page, ``of``, is among those that our numbers are from.
    """
    if not lines:
        return
    head, *rest = (_on_lines(line) for line in lines.split(BETWEEN))
    words = rest[0] if len(rest) == 1 else "\n".join(f"- {line}" for line in rest)
    merges = [one for one in of if not isinstance(one, Run) or one.kind == "merge"]
    whose = text.safe_text(benchmark.library(), 60)
    if merges and not any(map(paper_facts.is_source, merges)):
        with st.expander(f"Paper and here: the {whose}, none of what is shown above", icon=":material/menu_book:"):
            st.markdown(words, help=HELP.format(whose))
        return
    with st.container(border=True):
        gap = " " if len(rest) == 1 else BETWEEN
        st.markdown(f":material/menu_book: {head}{gap}{words}", help=HELP.format(whose))


def _on_lines(line: str) -> str:
    """The paper's side and ours each on a line of their own."""
    return line.replace(f" {PAPER} ", f"  \n{PAPER} ").replace(f" {HERE} ", f"  \n{HERE} ")


def in_words(claim: Claim, ours: Comparison | None, whose: str = "") -> str:
    """The sentence of one claim, in Markdown: the verdict, what is compared, the paper's side and ours.

    ``whose`` our numbers are: by default those of the benchmark's library.
    """
    judged = verdict(claim.direction, ours)
    what = f"{claim.topic}: {claim.first} against {claim.second}."
    note = f" {claim.note}" if claim.note else ""
    sides = f"{what} {PAPER} {_paper(claim)} {HERE} {_here(ours, judged, whose or benchmark.library())}{note}"
    return f"**{judged.capitalize()}.** {text.safe_text(sides, 1000)}"


def _paper(claim: Claim) -> str:
    """The paper's numbers with the precision that they are printed in, and their source."""
    source = f"{claim.paper}, {claim.where}{', read off the figure' if claim.read_off else ''}"
    if not claim.printed:
        bare = "" if any(mark.isdigit() for mark in claim.words) else ", without numbers"
        return f"The paper: {claim.words} ({source}{bare})."
    first, second = (f"{value}{_unit(claim.unit)}" for value in claim.printed)
    return f"{first} against {second}, {claim.difference} ({source})."


def _here(ours: Comparison | None, judged: Verdict, whose: str) -> str:
    """Our numbers, the interval of the difference, and what they are from."""
    if ours is None or judged is Verdict.NOT_MEASURED:
        return f"{Verdict.NOT_MEASURED.capitalize()}."
    unit = _unit(ours.unit)
    first, second = ours.texts or (f"{_number(value, ours.digits)}{unit}" for value in (ours.first, ours.second))
    interval = ours.interval
    if not math.isfinite(ours.low):
        interval = "no interval"
    elif interval != COUNTED:
        interval += f" {text.signed(ours.low, ours.digits)} to {text.signed(ours.high, ours.digits)}"
    sample = ours.sample.replace(REPORTING, samples.part())
    whose = whose[0].upper() + whose[1:]
    sides = f"{first} against {second}, {text.signed(ours.difference, ours.digits)}"
    return f"{whose}: {sides} ({interval}; {sample})."


def _unit(unit: str) -> str:
    return unit if unit in ("", "%") else f" {unit}"


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace("-", text.MINUS)
