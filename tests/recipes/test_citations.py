"""Every paper is cited once, and CITATION.md lists what is registered."""

from __future__ import annotations

from pathlib import Path

import pytest

from merging.methods import registry
from merging.methods.method import Citation, Method
from merging.methods.shared import citations

PAGE = Path(__file__).resolve().parents[2] / "CITATION.md"
METHODS = registry.list_methods()


def test_the_page_is_the_one_that_make_citation_writes() -> None:
    assert PAGE.read_text("utf-8") == citations.citation_page(METHODS)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.role}-{method.key}")
def test_the_page_names_every_method_beside_its_paper(method: Method) -> None:
    (row,) = [line for line in PAGE.read_text("utf-8").splitlines() if f"`{method.key}`" in line]
    names, paper = row.strip("| ").split(" | ")
    assert f"`{method.key}`" in names.split(", ")
    assert f"*{method.cite.title}.*" in paper and str(method.cite.year) in paper and method.cite.arxiv in paper


def test_the_page_names_what_else_comes_from_papers() -> None:
    page = PAGE.read_text("utf-8")
    for name in ("task vectors", "CLIP", "eight-task protocol, test-time merging"):
        assert f"| {name}" in page
    assert "to come" not in page


def test_a_citation_that_methods_share_is_one_object() -> None:
    known: dict[str, Citation] = {}
    for citation in (*(method.cite for method in METHODS), *(cited for _, cited in citations.BACKGROUND)):
        assert known.setdefault(citation.key, citation) is citation, citation.key
    assert len({citation.title for citation in known.values()}) == len(known)
