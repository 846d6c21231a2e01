"""The style of a window that one chart fills: a projector's, or a frame's on another page."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from app.session import address

HERE = Path(__file__).parent
# The unit is a line. Lines of a window, and of them: above the chart, at its sides, and for a row of controls. In a
# frame of 540 px small type is 14 px high, so it has fewer lines; type is never smaller than 14 px, so a line has at
# least LEAST px.
BARE_LINES, LEAST = 463, 14 / 12
CONTROL, BARE_CONTROL = 52, 60
SIDE = 20
QUESTION, WORD, LEADING, GAP = 28, 13, 1.3, 6  # lines: of a chart's question; of a step's words, between paragraphs
FORMULA = 10  # lines by which formulas make a paragraph higher
CHARACTER = 0.45  # width of a character over its height
MOST_WORDS = 216  # most lines of a step's words; longer texts scroll
PICKER_KEYS = {address.RUN: "picker", address.RUNS: "compare", address.SWEEP: "sweep_picker"}  # whose key differs
COPIES = 40  # most versions of a picker's key: it gets the next number whenever something else changes its value
FRAME = """
[data-testid="stHeader"], [data-testid="stSidebar"], [data-testid="stToolbar"], [data-testid="stDecoration"],
[data-testid="stExpandSidebarButton"], [data-testid="stStatusWidget"] { display: none !important; }
[data-testid="stApp"] * { visibility: hidden; }
[data-testid="stMain"] { overflow: hidden !important; }
.st-key-absent { position: fixed !important; inset: 1rem; }
.st-key-absent, .st-key-absent * { visibility: visible !important; }
"""
CLEAR = """
html, body, #root, [data-testid="stApp"], [data-testid="stAppViewContainer"], [data-testid="stMain"],
.st-key-presented { background: transparent !important; color-scheme: light !important; }
.st-key-presented [data-testid="stCaptionContainer"], .st-key-presented [data-testid="stCaptionContainer"] * {
  color: #3F4A57 !important;
}
"""  # the ground behind it is unknown, and mostly white, whatever the machine prefers


def window_lines(bare: bool) -> int:
    """The height of a window in lines."""
    from viz.theme import PRESENTED_LINES  # loads plotly, which Home does not need

    return BARE_LINES if bare else PRESENTED_LINES


def words_height(plain: str, wide: float) -> float:
    """The height of a step's words in a window that is ``wide`` lines wide, in lines.

    Each paragraph begins a new row.
    """
    paragraphs = [part for part in plain.split("\n") if part.strip()]
    row = (wide - 2 * SIDE) / (WORD * CHARACTER)  # characters in a row
    rows = sum(math.ceil(len(part) / max(row, 1)) for part in paragraphs)
    formulas = sum("$" in part for part in paragraphs)
    return min(rows * WORD * LEADING + len(paragraphs) * GAP + formulas * FORMULA, MOST_WORDS)


def window_css(bare: bool, clear: bool, controls: Sequence[str]) -> str:
    """CSS of the window with the ``controls``, which are keys of the address."""
    least = f"max({LEAST}px, 100vh / {BARE_LINES})" if bare else f"100vh / {window_lines(bare)}"
    above, side, control = (2, 4, BARE_CONTROL) if bare else (12, SIDE, CONTROL)
    words = {
        "CONTROLS": ", ".join(name for key in controls for name in control_classes(key)) or ".st-key-none",
        "ABOVE": str(above + (control if controls else 0)),
        "TOP": str(above),
        "ASIDE": str(side),
        "CONTROL": str(control),
        "COUNT": str(max(len(controls), 1)),
    }
    sheet = (HERE / "window.css").read_text("utf-8")
    sheet = re.sub(rf"\b({'|'.join(words)})\b", lambda found: words[found[1]], sheet)
    for number, key in enumerate(controls):
        left = f"calc({side} * var(--line) + {number} * (100vw - {2 * side} * var(--line)) / {len(controls)})"
        sheet += f"\n:is({', '.join(control_classes(key))}) {{ left: {left}; }}"
    return f":root {{ --line: calc({least}); }}\n{sheet}{FRAME if bare else ''}{CLEAR if clear else ''}"


def control_classes(key: str) -> list[str]:
    """The possible CSS classes of the control for a key of the address."""
    name = PICKER_KEYS.get(key, key)
    return [f".st-key-{name}", *(f".st-key-{name}_{number}" for number in range(COPIES))]
