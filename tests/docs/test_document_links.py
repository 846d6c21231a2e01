"""Every link of the documents leads to a file and a heading that are there; every path that they name exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from page_runner import FENCE

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = {"node_modules", "site", "build", "peers"}
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in ROOT.rglob("*.md")
    if not any(part in HIDDEN or part.startswith(".") for part in path.relative_to(ROOT).parts[:-1])
)
NOW = [name for name in DOCUMENTS if name not in {"CHANGELOG.md", "DECISIONS.md"}]  # the others tell of what was, too
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
NAMED = re.compile(r"`((?:app|docs|merging|sample_data|tests|viz)/[\w/.-]*\w/?)`")
ABSENT = {  # what a reader writes
    "merging/methods/merges/trimmed_mean.py",
}


@cache
def text_of(path: Path) -> str:
    """A document without its code blocks."""
    return FENCE.sub("", path.read_text("utf-8"))


@cache
def anchors_in(path: Path) -> frozenset[str]:
    """The anchors of a document's headings, as sites of repositories make them."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(text_of(path)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = found[anchor] = found.get(anchor, -1) + 1
        if number:
            found[f"{anchor}-{number}"] = 0
    return frozenset(found)


@cache
def written_pages() -> frozenset[str]:
    """The pages that `make docs` writes from data: those of the site that are no files. It checks links to them."""
    pages = re.findall(r": ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    return frozenset(f"docs/{page}" for page in pages if not (ROOT / "docs" / page).is_file())


def broken(name: str) -> list[str]:
    """What is wrong with the links of a document."""
    source, wrong = ROOT / name, []
    for link in LINK.findall(text_of(source)):
        if re.match(r"https?://[\w.-]+\.\w+(/|$)", link):
            continue  # not looked up: the tests have no network
        target, _, anchor = link.partition("#")
        path = (source.parent / target).resolve() if target else source
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).as_posix() in written_pages():
            continue
        if not path.is_relative_to(ROOT) or not path.exists():
            wrong.append(f"{link}: no such file")
        elif anchor and anchor not in anchors_in(path):
            wrong.append(f"{link}: no such heading")
    return wrong


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links(name: str) -> None:
    assert broken(name) == []


@pytest.mark.parametrize("name", NOW)
def test_paths_that_are_named(name: str) -> None:
    named = set(NAMED.findall((ROOT / name).read_text("utf-8"))) - ABSENT
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_broken_links_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    monkeypatch.setitem(globals(), "written_pages", lambda: frozenset({"b.md"}))
    (tmp_path / "a.md").write_text("# Here, now\n\n## A `b` c\n\n## A b c\n")
    for link, fine in {
        "a.md": True, "a.md#here-now": True, "#a-b-c-1": True, "b.md#any": True, "https://example.org": True,
        "c.md": False, "a.md#there": False, "#a-b-c-2": False, "https:/example.org": False, "../x.md": False,
    }.items():  # fmt: skip
        (tmp_path / "page.md").write_text(f"# A b c\n\n## A b c\n\n[link]({link})\n")
        text_of.cache_clear(), anchors_in.cache_clear()
        assert (broken("page.md") == []) is fine, link


def test_documents_are_found() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/tutorial.md", "sample_data/README.md"} <= set(DOCUMENTS)
    assert "docs/methods.md" in written_pages() and "docs/tutorial.md" not in written_pages()
