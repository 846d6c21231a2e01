"""Claims of papers: their numbers against a second transcription, what their reader refuses, and where they stand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from merging.base.errors import RecipeError
from merging.recipes.papers import claims
from merging.recipes.papers.claims import CLAIMS, CLAIMS_FILE, CURVES, Claim, read_claims
from merging.recipes.papers.published_figures import B32, FIGURES, REFERENCES

SECOND = Path(__file__).with_name("printed_claims.txt")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?")
Reading = dict[str, tuple[str, str, str]]  # key -> paper, place, numbers


def second_reading() -> tuple[Reading, Reading]:
    """The claims and the curves that were typed a second time."""
    parts = SECOND.read_text("utf-8").split("\n# Curves")
    readings = []
    for part in parts:
        lines = [line for line in part.split("\n\n", 1)[1].strip().split("\n") if line]
        rows = {key: rest.split(";") for key, _, rest in (line.partition(": ") for line in lines)}
        readings.append({key: (cells[0].strip(), cells[1].strip(), cells[2].strip()) for key, cells in rows.items()})
    return readings[0], readings[1]


def as_typed(claim: Claim) -> tuple[str, str, str]:
    numbers = claim.printed or tuple(NUMBER.findall(claim.words))
    return claim.paper, claim.where, " ".join(numbers)


def test_every_claim_has_the_numbers_that_the_paper_prints() -> None:
    second = second_reading()[0]
    assert {claim.key: as_typed(claim) for claim in CLAIMS} == second
    assert sum(bool(numbers) for _, _, numbers in second.values()) > 25


def test_every_curve_has_the_numbers_that_the_paper_prints() -> None:
    def typed(n: int, value: str, spread: str | None) -> str:
        return f"{n}={value}" + (f"±{spread}" if spread else "")

    for curve in CURVES:
        points = " ".join(typed(n, value, curve.spread.get(n)) for n, value in curve.values.items())
        assert (curve.paper, curve.where, points) == second_reading()[1][curve.key]
    assert len(CURVES) == len(second_reading()[1]) == 8


@pytest.mark.parametrize("place", [0, 1])
def test_a_mistyped_number_is_noticed(place: int) -> None:
    claim = next(claim for claim in CLAIMS if claim.printed)
    printed = list(claim.printed)
    printed[place] = printed[place][:-1] + "0"
    assert as_typed(replace(claim, printed=tuple(printed))) != second_reading()[0][claim.key]


def test_accuracies_are_those_of_the_published_rows() -> None:
    """An accuracy that the table of published figures has is the same here."""
    rows = [figure for figure in (*FIGURES, *REFERENCES["pretrained"]) if figure.model == B32]
    known = {
        (figure.source.split(",")[0], str(value))
        for figure in rows
        for value in (figure.printed.in_domain, figure.printed.out_of_domain)
    }
    claimed = [
        c for c in CLAIMS if (c.printed and c.fact in ("accuracy", "drm", "counts")) or c.key.startswith("lwptv_pr")
    ]
    assert len(claimed) > 12
    assert [c.key for c in claimed for value in c.printed if (c.paper, value) not in known] == []


def test_differences_keep_the_printed_precision() -> None:
    by_key = {claim.key: claim for claim in CLAIMS}
    assert by_key["cat_exemplars"].difference == "−1.00"
    assert by_key["lwptv_without_score"].difference == "+20.9"
    assert by_key["lwptv_overlap"].difference == ""
    assert [by_key[key].direction for key in ("cat_exemplars", "lwptv_overlap", "drm_ranks")] == [-1, 1, 0]


def test_two_rows_of_a_table_make_a_claim() -> None:
    first, second = (next(f for f in FIGURES if f.name == name) for name in ("LOT Merging", "Task Arithmetic"))
    claim = claims.compare_figures(first, second)
    assert (claim.printed, claim.difference, claim.direction) == (("82.7", "69.1"), "+13.6", 1)
    without_table = claims.compare_figures(*[next(f for f in FIGURES if f.source == "FusionBench")] * 2)
    assert (without_table.paper, without_table.where) == ("FusionBench", "ViT-B/32")


ROW = {
    "key": "k", "views": ["scores/runs"], "paper": "LOT", "where": "Table 1", "topic": "t", "first": "a", "second": "b",
    "printed": ["1.0", "2"], "unit": "%", "fact": {"depth": {}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"paper": "LOTS"}, "'LOTS' is not a source. Did you mean 'LOT'?"),
        ({"printed": [1.0, "2"]}, "field printed: 1.0 is not a number in quotation marks"),
        ({"printed": ["1", "2", "3"]}, "two values are needed"),
        ({"printed": ["nan", "2"]}, "is not a number in quotation marks"),
        ({"unit": ""}, "printed values need a unit"),
        ({"says": "more"}, "a claim has either printed values or"),
        ({"printed": None}, "a claim has either printed values or"),
        ({"printed": None, "says": "most", "words": "w"}, "'most' is not one of more, same, less"),
        ({"printed": None, "says": "more"}, "field words: text is needed"),
        ({"views": []}, "field views: a list of views"),
        ({"fact": {}}, "field fact: one fact"),
        ({"figure": 1}, "unknown field 'figure'"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    row = {name: value for name, value in (ROW | changed).items() if value is not None}
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": [row], "curves": []}, sort_keys=False), "utf-8")
    with pytest.raises(RecipeError, match=re.escape(says)) as caught:
        read_claims(path)
    assert "claims.yaml, claims, row 1" in str(caught.value)


def test_a_key_stands_once_and_sections_are_fixed(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": [ROW, ROW], "curves": []}, sort_keys=False), "utf-8")
    with pytest.raises(RecipeError, match="the key 'k' appears twice"):
        read_claims(path)
    path.write_text("claims: [", "utf-8")
    with pytest.raises(RecipeError, match="is not valid YAML"):
        read_claims(path)
    path.write_text("claims: []", "utf-8")
    with pytest.raises(RecipeError, match="exactly the sections claims, curves"):
        read_claims(path)
    assert read_claims(CLAIMS_FILE)[0] == CLAIMS
