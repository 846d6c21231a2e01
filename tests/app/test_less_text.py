"""Long captions fold, and a line under a chart's title says what is seen, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from page_harness import press, words

from app.page_text import split_sentences
from app.widgets.chart_view import find_takeaway


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        ("One.", ["One."]),
        ("As LOT (Eq. 4) has it. n = 240 images.", ["As LOT (Eq. 4) has it.", "n = 240 images."]),
        ("See Figs. 3 and 4. 95 % as in 0.3. Done", ["See Figs. 3 and 4.", "95 % as in 0.3.", "Done"]),
        ("**Same. Both.** Then one.", ["**Same. Both.** Then one."]),
        ("It is (so.) Really? λ is 1.", ["It is (so.)", "Really?", "λ is 1."]),
        ("Files as a.b, e.g. these.", ["Files as a.b, e.g. these."]),
    ],
)  # fmt: skip
def test_text_is_split_into_sentences(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@pytest.mark.parametrize(
    ("alt", "text", "line"),
    [
        ("6 runs. Highest H-score: TIES, 74.4%.", "", "Highest H-score: TIES, 74.4%."),
        ("The merge keeps 69.9%: most in block 5 (99.7%).", "", "The merge keeps 69.9%: most in block 5 (99.7%)."),
        ("Maps of 1,451 images: Pretrained.", "", ""),  # says what is drawn, not what is seen
        ("80 tensors. It keeps 35 of 80, 69.9%.", "At ratio 0.7, 35 of 80 tensors, 69.9%.", ""),  # the page says it
        ("80 tensors. It keeps 35 of 80, 69.9%.", "There are 80.", "It keeps 35 of 80, 69.9%."),
        ("80 tensors. The ranks agree.", "", ""),
        (f"80 tensors. It is {'very ' * 60}1.", "", ""),
        ("", "", ""),
    ],
)
def test_the_line_says_what_is_seen_unless_the_page_does(alt: str, text: str, line: str) -> None:
    assert find_takeaway(alt, text) == line


def test_a_long_caption_folds_after_two_sentences_and_is_whole_in_the_report(look: Any, compared: Path) -> None:
    at = look("drift", compared)
    assert not at.exception
    folded = next(one for one in at.expander if one.label == "More about this chart")
    (other,) = folded.caption
    assert (
        "images per task of the choosing half" in words(at).replace("\\", "") and "Curves are means" not in other.value
    )
    first = next(one.value for one in at.caption if one.value.startswith("Curves are means"))
    assert len(split_sentences(first)) == 2 and len(first) > 200
    shown = words(at)
    assert shown.count("Drift and accuracy lost correlate with Pearson") == 1


@pytest.mark.full
def test_the_report_has_the_whole_caption(open_app: Any, compared: Path) -> None:
    at = press(open_app("drift", compared), "Add to report")
    (kept,) = at.session_state["_report_keeper"].read_draft().views
    assert "Curves are means" in kept.view.caption and "never the reporting half" in kept.view.caption
