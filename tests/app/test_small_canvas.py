"""The factors beside a table of rules on Merge, and the way from there to the canvas on Masks and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from page_harness import words


def pictures(at: Any) -> list[Any]:
    """The small pictures of factors."""
    charts = [element.proto for element in at.get("plotly_chart")]
    return [chart for chart in charts if "factors" in chart.id.rpartition("-")[2]]


def links(at: Any, label: str) -> list[Any]:
    """The page links of this label."""
    return [element.proto for element in at.get("page_link") if element.proto.label == label]


def test_rules_are_drawn_and_lead_to_the_canvas_with_the_chain(open_app: Any, library: Path) -> None:
    at = open_app("merge", library, chain="lwptv;manual:b0=0+s.output=0.5,default=0.9;ties:density=0.3")
    assert not at.exception
    (picture,) = pictures(at)
    (cells,) = (trace for trace in json.loads(picture.spec)["data"] if trace["name"] == "Cells")
    assert {0.0, 0.5, 0.9} == set(cells["meta"]["columns"]["Factors"])
    (link,) = links(at, "Paint on Masks")
    assert "painting=true" in link.query_string
    assert "painted_factors=all%3D0.9%2Bb0%3D0" in link.query_string


def test_painting_goes_back_to_the_chain_that_it_came_from(open_app: Any, library: Path) -> None:
    chain = "lwptv;manual:b0=0;ties:density=0.3"
    at = open_app("masks", library, painting="true", painted_factors="b0=0.5", chain=chain)
    assert not at.exception
    assert "Opens Merge with the chain that you started from" in words(at)
    (link,) = links(at, "Make it a run")
    assert "lwptv%3Bmanual%3Ab0%3D0.5%3Bties%3Adensity%3D0.3" in link.query_string


@pytest.mark.parametrize("chain", ["manual:b0=0,when=after;ties", "manual:b9=0;ties"])
def test_factors_of_the_merged_vector_and_rules_that_fit_nothing_are_not_painted(
    open_app: Any, library: Path, chain: str
) -> None:
    at = open_app("merge", library, chain=chain)
    assert not at.exception
    assert len(pictures(at)) == (1 if "after" in chain else 0)
    assert not links(at, "Paint on Masks")
