"""The toolbar of charts lies in a strip of its own: over no title, no color bar, no entry of a legend."""

from __future__ import annotations

import json

import pytest
from figures import KEYS, TABLES
from playwright.sync_api import BrowserContext

import viz
from viz import theme

pytestmark = pytest.mark.browser
# Every chart with its toolbar shown, as when the pointer is on it.
PAGE = """<style>.modebar { opacity: 1 !important; }</style><body style="margin: 0"></body>"""
DRAW = """async ([charts, width]) => {
  for (const [key, figure, config] of charts) {
    const plot = document.body.appendChild(document.createElement('div'));
    plot.style.width = `${width}px`; plot.dataset.key = key;
    await Plotly.newPlot(plot, figure.data, figure.layout, {...config, displayModeBar: true, responsive: false});
  }
}"""
UNDER = """() => Object.fromEntries([...document.querySelectorAll('[data-key]')].map(plot => {
  const boxes = [...plot.querySelectorAll('.modebar-group')].map(group => group.getBoundingClientRect());
  const bar = {left: Math.min(...boxes.map(box => box.left)), bottom: Math.max(...boxes.map(box => box.bottom))};
  const kinds = ['text', '.colorbar', '.bglayer .bg', 'image'].map(kind => `svg.main-svg ${kind}`);
  const drawn = [...plot.querySelectorAll(kinds.join(','))];
  const under = drawn.filter(part => {
    const box = part.getBoundingClientRect();
    return box.width && box.right > bar.left && box.top < bar.bottom - 0.5;
  });
  return [plot.dataset.key, under.map(part => part.textContent || part.getAttribute('class') || part.tagName)];
}).filter(([, under]) => under.length))"""


@pytest.mark.full
@pytest.mark.parametrize(("width", "rows"), [(520, 4), (1040, 4), (520, 20)])  # as on a page of 1440 and of 900 px
def test_the_toolbar_lies_over_nothing(context: BrowserContext, width: int, rows: int) -> None:
    from plotly.offline import get_plotlyjs

    page = context.new_page()
    page.set_content(PAGE)
    page.add_script_tag(content=get_plotlyjs())
    shown = [(key, theme.add_toolbar_strip(viz.draw(key, TABLES[key](rows)))) for key in KEYS]
    page.evaluate(DRAW, [[(key, json.loads(figure.to_json()), theme.config(key)) for key, figure in shown], width])
    assert page.evaluate("document.querySelectorAll('.modebar-group').length") >= len(KEYS)
    assert page.evaluate(UNDER) == {}
