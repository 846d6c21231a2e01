"""How many claims of papers have the same direction here, and the table of all of them."""

from __future__ import annotations

from collections import Counter

import streamlit as st

from app import page_text
from app.reading.papers import paper_facts
from app.session import benchmark_choice
from app.widgets import page_parts, paper_line
from merging.recipes.papers.claims import CLAIMS
from merging.study.paper_facts.comparison import Verdict, judge

VERDICTS_IN_WORDS = {
    Verdict.SAME: "the same direction",
    Verdict.NOT_REPRODUCED: "not shown",
    Verdict.OTHER: "the other way",
    Verdict.NOT_MEASURED: "not measured",
}
MAX_TABLE_HEIGHT = 480  # px


def draw_counts() -> None:
    """Draw the counts of the verdicts on all claims, which open a table; nothing if no claim is measured."""
    compared = [(claim, paper_facts.compare_claim(claim)) for claim in CLAIMS]
    verdicts = [judge(claim.direction, comparison) for claim, comparison in compared]
    counts = Counter(verdicts)
    if counts[Verdict.NOT_MEASURED] == len(CLAIMS):
        return
    parts = [f"{counts[verdict]} {words}" for verdict, words in VERDICTS_IN_WORDS.items()]
    library = page_text.safe_text(benchmark_choice.library_in_words(), 60)
    with st.expander(f"Of {len(CLAIMS)} claims, on the {library}: {', '.join(parts)}.", icon=":material/menu_book:"):
        rows = [
            {
                "Here": f"{paper_line.VERDICT_MARKS[verdict]} {VERDICTS_IN_WORDS[verdict]}",
                "What is compared": f"{claim.topic}: {claim.first} against {claim.second}",
                f"{paper_line.PAPER_MARK} Paper": paper_line.paper_difference(claim),
                f"{paper_line.OWN_MARK} Measured": paper_line.own_difference(comparison, verdict),
                "Source": f"{claim.paper}, {claim.where}",
            }
            for (claim, comparison), verdict in zip(compared, verdicts, strict=True)
        ]
        column = st.column_config.TextColumn
        st.dataframe(
            rows, hide_index=True, height=page_parts.table_height(len(rows), MAX_TABLE_HEIGHT), alt="Claims of papers",
            column_config={"Here": column(width=150), "What is compared": column(width=420)},
        )  # fmt: skip
        st.caption(
            "A claim is the difference of two values of a paper. It is not shown here if the interval of our "
            "difference contains zero. Views beside their charts have the sentences."
        )
