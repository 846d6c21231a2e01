"""Contrast of everything that is written on a page, and of the mark of the keyboard's focus, as WCAG 2 counts it."""

from __future__ import annotations

from playwright.sync_api import Page

TEXT, FOCUS = 4.5, 3.0  # least ratios
LOOKS, BETWEEN_LOOKS = 8, 500  # further looks at a page with faint texts, and ms between them
TOOLS = """
  const parse = color => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d");
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return a ? [r, g, b, a / 255] : [0, 0, 0, 0];
  };
  const over = ([r, g, b, a], [x, y, z]) => [a * r + (1 - a) * x, a * g + (1 - a) * y, a * b + (1 - a) * z, 1];
  const light = color => {
    const [r, g, b] = color.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [high, low] = [light(a), light(b)].sort((p, q) => q - p);
    return (high + 0.05) / (low + 0.05);
  };
  const parent = element => element.assignedSlot ?? element.parentElement ?? element.getRootNode().host ?? null;
  const behind = (element, box = element.getBoundingClientRect()) => {
    const layers = [], [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    for (let one = element; one; one = parent(one)) {
      const { left, right, top, bottom } = one.getBoundingClientRect(); // a slider's value stands outside of its knob
      if ((left <= x && x <= right && top <= y && y <= bottom) || one === document.body)
        layers.push(parse(getComputedStyle(one).backgroundColor));
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
"""
FAINT = (
    "least => {"
    + TOOLS
    + """
  const roots = [document], faint = {};
  for (const root of roots)
    for (const element of root.querySelectorAll("*")) if (element.shadowRoot) roots.push(element.shadowRoot);
  for (const root of roots) {
    const walker = document.createTreeWalker(root === document ? document.body : root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode, element = node.parentElement;
      if (!node.data.trim() || !element || ["STYLE", "SCRIPT", "NOSCRIPT"].includes(element.tagName)) continue;
      if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
      if (element.closest("[disabled], [aria-disabled=true], [aria-hidden=true], .katex-mathml")) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      const box = range.getBoundingClientRect();
      if (box.width < 2 || box.height < 2) continue;
      const style = getComputedStyle(element);
      let color = parse(element instanceof SVGElement ? style.fill : style.color);
      for (let one = element; one; one = parent(one)) color[3] *= getComputedStyle(one).opacity;
      const back = behind(element, box), contrast = ratio(over(color, back), back);
      const name = `${node.data.trim().slice(0, 50)} (${element.tagName})`;
      if (contrast < least - 0.005) faint[name] = Math.round(contrast * 100) / 100;
    }
  }
  return faint;
}"""
)
FOCUSED = (
    "() => {"
    + TOOLS
    + """
  let element = document.activeElement;
  while (element.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
  const chain = [];
  for (let one = element; one && chain.length < 4; one = parent(one)) chain.push(one);
  const lines = () => chain.map(one => {
    const style = getComputedStyle(one);
    return {
      outline: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1 ? style.outlineColor : "",
      border: parseFloat(style.borderTopWidth) >= 1 ? style.borderTopColor : "",
    };
  });
  const focused = lines();
  element.blur();
  const plain = lines();
  element.focus();
  let best = 0;
  chain.forEach((one, place) => {
    const box = one.getBoundingClientRect(), back = behind(parent(one) ?? one, box);
    if (box.width < 8 || box.height < 8) return; // an input that only readers of the screen see
    for (const line of ["outline", "border"]) {
      const color = focused[place][line];
      if (color && color !== plain[place][line]) best = Math.max(best, ratio(over(parse(color), back), back));
    }
  });
  const name = element.getAttribute("aria-label") || element.textContent.trim().slice(0, 40) || element.tagName;
  return [name, best];
}"""
)


def faint_texts(page: Page) -> dict[str, float]:
    """{text: contrast with what is behind it} of the visible texts below ``TEXT``; disabled controls are left out.

    Streamlit fades what it draws anew, so a text counts only if it is faint each time, while the page may settle.
    """
    faint = dict(page.evaluate(FAINT, TEXT))
    for _ in range(LOOKS):
        if not faint:
            break
        page.wait_for_timeout(BETWEEN_LOOKS)
        again = page.evaluate(FAINT, TEXT)
        faint = {text: again[text] for text in faint if text in again}
    return faint


def focused(page: Page) -> tuple[str, float]:
    """The name of the focused element, and the contrast of the line that focus draws around it."""
    name, contrast = page.evaluate(FOCUSED)
    return str(name), float(contrast)
