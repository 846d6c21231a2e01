"""How many claims of papers have the same direction here, and the table of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import streamlit as st

from app import page_text
from app.reading.papers import paper_facts
from app.session import benchmark_choice
from app.session.click_errors import guarded_fragment
from app.widgets import paper_line
from merging.recipes.papers.claims import CLAIMS, Claim
from merging.study.paper_facts.comparison import Comparison, Verdict, judge

KEY = "claims_table"  # of the box that opens
VERDICTS_IN_WORDS = {
    Verdict.SAME: "the same direction",
    Verdict.NOT_REPRODUCED: "not shown",
    Verdict.OTHER: "the other way",
    Verdict.NOT_MEASURED: "not measured",
}


@guarded_fragment
def draw_counts() -> None:
    """Draw the counts of the verdicts on all claims, which open a table; nothing if no claim is measured."""
    compared = [(claim, paper_facts.compare_claim(claim)) for claim in CLAIMS]
    verdicts = [judge(claim.direction, comparison) for claim, comparison in compared]
    if set(verdicts) == {Verdict.NOT_MEASURED}:
        return
    library = page_text.safe_text(benchmark_choice.library_in_words(), 60)
    label = f"Of {len(CLAIMS)} claims of papers, on the {library}: {_count_in_words(verdicts)}."
    # comparing the claims on the other team takes seconds the first time
    with st.expander(label, icon=":material/menu_book:", key=KEY, on_change="rerun") as opened:
        if opened.open:
            with st.spinner("Comparing on the other teams …"):
                others = [paper_facts.compare_on_other_teams(claim) for claim in CLAIMS]
            _draw_table(compared, verdicts, others)


def _draw_table(
    compared: Sequence[tuple[Claim, Comparison | None]],
    verdicts: Sequence[Verdict],
    others: Sequence[Sequence[tuple[str, Comparison | None]]],
) -> None:
    """Draw a row for each claim, those with the same verdict together, and the counts on other teams of experts."""
    rows = [
        [
            f"{paper_line.VERDICT_MARKS[verdict]} {VERDICTS_IN_WORDS[verdict]}",
            f"{claim.topic}: {claim.first} against {claim.second}",
            paper_line.paper_difference(claim),
            paper_line.own_difference(comparison, verdict),
            *(_verdict_and_difference(claim, on_team) for _, on_team in sides),
            f"{claim.paper}, {claim.where}",
        ]
        for one_verdict in VERDICTS_IN_WORDS
        for (claim, comparison), verdict, sides in zip(compared, verdicts, others, strict=True)
        if verdict == one_verdict
    ]
    teams = [name.capitalize() for name, _ in others[0]]
    heads = ("Here", "What is compared", "◇ Paper", "● Measured", *(f"● {name}" for name in teams), "Source")
    columns = ([page_text.safe_text(cell, 300) for cell in column] for column in zip(*rows, strict=True))
    table = dict(zip(heads, columns, strict=True))
    st.table(table, border="horizontal", hide_index=True, alt="Claims of papers, and what is measured here")
    st.caption(
        "A claim is the difference of two values of a paper. “Not shown” means that the interval of our difference "
        "contains zero. Views have the sentences beside their charts."
    )
    for name, sides in zip(teams, zip(*others, strict=True), strict=True):
        on_team = [judge(claim.direction, side[1]) for claim, side in zip(CLAIMS, sides, strict=True)]
        st.caption(page_text.safe_text(f"{name}: {_count_in_words(on_team)}.", 200))


def _count_in_words(verdicts: Sequence[Verdict]) -> str:
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {words}" for verdict, words in VERDICTS_IN_WORDS.items())


def _verdict_and_difference(claim: Claim, comparison: Comparison | None) -> str:
    """The verdict on another team of experts as its mark, with the difference there."""
    verdict = judge(claim.direction, comparison)
    return f"{paper_line.VERDICT_MARKS[verdict]} {paper_line.own_difference(comparison, verdict)}"
