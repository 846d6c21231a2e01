"""A walk through a page by the Tab key alone: where it stops, what each stop is called, and what it never reaches.

In a table of Streamlit, Tab goes cell by cell to the right and leaves it behind the last column; Escape and then Tab
leaves it at once. In a row of choices (segmented buttons, pills, radio buttons) Tab reaches one of them, and the arrow
keys the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import contrast
from playwright.sync_api import Locator, Page

MOST, CELLS = 500, 60  # stops of a page, and cells of a row of a table; no page has more
TOOLS = """
  const written = element => { // without the names of icons, which are letters of their font
    const copy = element?.cloneNode(true);
    copy?.querySelectorAll("[data-testid=stIconMaterial], [aria-hidden=true]").forEach(icon => icon.remove());
    return copy?.textContent.trim() ?? "";
  };
  const spoken = element => { // a table that scrolls is a stop of its own, in a region that names it
    const by = (element.getAttribute("aria-labelledby") ?? "").split(" ").map(id => document.getElementById(id));
    const labels = [...by, ...(element.labels ?? [])].map(written).join(" ").trim();
    const picture = element.querySelector("img, svg[aria-label]");
    return (element.getAttribute("aria-label") || labels || written(element) || element.title || element.alt
      || element.placeholder || picture?.alt || picture?.ariaLabel
      || element.closest("[role=region]")?.ariaLabel || "").trim().slice(0, 60);
  };
  const group = element => element.closest("[role=radiogroup], [role=group], [role=toolbar]");
"""
START = "() => { document.activeElement?.blur(); window.scrollTo(0, 0); window.walked = new Set(); }"
STOP = (
    "() => {"
    + TOOLS
    + """
  let element = document.activeElement;
  while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
  if (!element || element === document.body || element === document.documentElement) return null;
  const [first] = window.walked, again = window.walked.has(element);
  if (again && element === first) return null;
  window.walked.add(element);
  return [element.tagName.toLowerCase(), spoken(element), again];
}"""
)
MISSED = (
    "() => {"
    + TOOLS
    + """
  const roots = [document], missed = [], groups = new Set([...window.walked].map(group).filter(Boolean));
  const named = new Set([...window.walked].filter(one => one.type === "radio").map(one => one.name));
  for (const root of roots)
    for (const element of root.querySelectorAll("*")) {
      if (element.shadowRoot) roots.push(element.shadowRoot);
      if (!element.matches("a[href], button, input, select, textarea, summary, [tabindex]")) continue;
      if (element.tabIndex < 0 || element.disabled || element.type === "hidden" || window.walked.has(element)) continue;
      if (element.closest("[inert], [aria-hidden=true], [aria-disabled=true]")) continue;
      if (!element.checkVisibility({ visibilityProperty: true })) continue;
      if (groups.has(group(element)) || (element.type === "radio" && named.has(element.name))) continue;
      missed.push(`${element.tagName.toLowerCase()} ${spoken(element)}`);
    }
  return missed;
}"""
)


@dataclass(frozen=True)
class Stop:
    """An element that the Tab key has come to, and the contrast of the line that shows it."""

    tag: str
    name: str
    line: float


def walk(page: Page) -> list[Stop]:
    """Press Tab from the top of the page until it is left, or comes round; to meet a trap on the way is an error."""
    page.evaluate(START)
    stops: list[Stop] = []
    stays = 0
    while len(stops) < MOST and stays < CELLS:
        page.keyboard.press("Tab")
        found = page.evaluate(STOP)
        if found is None:
            return stops
        tag, name, again = found
        stays = stays + 1 if again else 0
        if tag == "canvas":
            page.keyboard.press("Escape")
        if not again and tag not in ("td", "iframe"):  # these draw the focus of their parts themselves
            stops.append(Stop(tag, name, _line(page)))
    raise AssertionError(f"Tab does not leave the page; the last stops are {stops[-5:]}")


def _line(page: Page) -> float:
    """The contrast of the line around what is focused; some lines fade in, and a page may be drawn anew meanwhile."""
    for _ in range(3):
        _, line = contrast.focused(page)
        if line >= contrast.FOCUS:
            break
        page.wait_for_timeout(500)
    return line


def reach(page: Page, control: Locator) -> None:
    """Press Tab, over the end of the page to its beginning if need be, until the control is focused."""
    for _ in range(MOST):
        page.keyboard.press("Tab")
        if control.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"No Tab reaches {control}")


def list_missed(page: Page) -> list[str]:
    """After a walk: the visible, enabled controls that it has not reached; of a row of choices, one counts."""
    return list(page.evaluate(MISSED))
