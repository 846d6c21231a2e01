"""What axe-core finds on a page, at levels A and AA of WCAG 2.1; what only Streamlit can mend is listed here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from playwright.sync_api import Page

RUN = """async theirs => {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
  const rules = { "heading-order": { enabled: true } };
  const { violations } = await axe.run(document, { runOnly: tags, rules, resultTypes: ["violations"] });
  return violations.flatMap(({ id, help, nodes }) => nodes.map(({ target, html }) => {
    const excused = (theirs[id] ?? []).filter(selector => document.querySelector(target.at(-1))?.matches(selector));
    return [id, help, html.slice(0, 300), excused.map(selector => `${id} ${selector}`)];
  }));
}"""
# {rule: {elements that break it: why we cannot mend it}}
STREAMLIT: Mapping[str, Mapping[str, str]] = {
    "list": {"ul[data-testid=stSidebarNavItems]": "The menu puts a div between its list and its items."},
    "listitem": {"ul[data-testid=stSidebarNavItems] > div li": "The same div: no item is a child of the list."},
}


@dataclass(frozen=True)
class Violation:
    """A rule that an element breaks; ``excused`` are the entries of ``STREAMLIT`` that say why it may."""

    rule: str
    meaning: str
    element: str
    excused: tuple[str, ...] = ()


@cache
def _script() -> str:
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")


def violations(page: Page) -> tuple[list[Violation], set[str]]:
    """Violations that are ours to mend, and the entries of ``STREAMLIT`` that occur on this page."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_script())
    found = page.evaluate(RUN, {rule: list(selectors) for rule, selectors in STREAMLIT.items()})
    all_found = [Violation(rule, meaning, element, tuple(excused)) for rule, meaning, element, excused in found]
    return [one for one in all_found if not one.excused], {entry for one in all_found for entry in one.excused}
