"""The style of a window that one chart fills: a projector's, or a frame's on another page."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from app.session import address

FOLDER = Path(__file__).parent
# Lengths are in lines, a fraction of the window's height: here those of a frame's window, of a row of controls, and of
# the margins at the sides. In a frame of 540 px small type is 14 px high, so a frame has fewer lines than a projector.
# Type is never smaller than 14 px, so a line is at least MIN_LINE_PX px.
BARE_LINES, MIN_LINE_PX = 463, 14 / 12
CONTROL_LINES, BARE_CONTROL_LINES = 52, 60
SIDE_LINES = 20
# A chart's question; type, spacing and gap between paragraphs of the text of a lesson's step.
QUESTION_LINES, TEXT_LINES, LINE_SPACING, PARAGRAPH_GAP_LINES = 28, 13, 1.3, 6
FORMULA_LINES = 10  # lines by which formulas make a paragraph higher
CHARACTER_ASPECT = 0.45  # width of a character over its height
MAX_TEXT_LINES = 216  # most lines of that text; longer texts scroll
# Keys of pickers that differ from the address.
PICKER_KEYS = {address.RUN: "picker", address.RUNS: "compare", address.SWEEP: "sweep_picker"}
MAX_KEY_NUMBER = 40  # a picker's key gets the next number whenever something else changes its value
FRAME_CSS = """
[data-testid="stHeader"], [data-testid="stSidebar"], [data-testid="stToolbar"], [data-testid="stDecoration"],
[data-testid="stExpandSidebarButton"], [data-testid="stStatusWidget"] { display: none !important; }
[data-testid="stApp"] * { visibility: hidden; }
[data-testid="stMain"] { overflow: hidden !important; }
.st-key-absent { position: fixed !important; inset: 1rem; }
.st-key-absent, .st-key-absent * { visibility: visible !important; }
"""
CLEAR_CSS = """
html, body, #root, [data-testid="stApp"], [data-testid="stAppViewContainer"], [data-testid="stMain"],
.st-key-presented { background: transparent !important; color-scheme: light !important; }
.st-key-presented [data-testid="stCaptionContainer"], .st-key-presented [data-testid="stCaptionContainer"] * {
  color: #3F4A57 !important;
}
"""  # the background behind the frame is unknown, and mostly white, whatever theme the machine prefers


def window_lines(bare: bool) -> int:
    """The height of a window in lines."""
    from viz.theme import PRESENTED_LINES  # loads plotly, which Home does not need

    return BARE_LINES if bare else PRESENTED_LINES


def words_height(plain: str, width: float) -> float:
    """The height of a step's words in a window that is ``width`` lines wide, in lines.

    Each paragraph begins a new row.
    """
    paragraphs = [paragraph for paragraph in plain.split("\n") if paragraph.strip()]
    characters = (width - 2 * SIDE_LINES) / (TEXT_LINES * CHARACTER_ASPECT)  # characters in a row
    rows = sum(math.ceil(len(paragraph) / max(characters, 1)) for paragraph in paragraphs)
    formulas = sum("$" in paragraph for paragraph in paragraphs)
    return min(
        rows * TEXT_LINES * LINE_SPACING + len(paragraphs) * PARAGRAPH_GAP_LINES + formulas * FORMULA_LINES,
        MAX_TEXT_LINES,
    )


def window_css(bare: bool, clear: bool, controls: Sequence[str]) -> str:
    """CSS of the window with the ``controls``, which are keys of the address."""
    line_css = f"max({MIN_LINE_PX}px, 100vh / {BARE_LINES})" if bare else f"100vh / {window_lines(bare)}"
    top, side, control = (2, 4, BARE_CONTROL_LINES) if bare else (12, SIDE_LINES, CONTROL_LINES)
    replacements = {
        "CONTROLS": ", ".join(name for key in controls for name in control_classes(key)) or ".st-key-none",
        "ABOVE": str(top + (control if controls else 0)),
        "TOP": str(top),
        "ASIDE": str(side),
        "CONTROL": str(control),
        "COUNT": str(max(len(controls), 1)),
    }
    css = (FOLDER / "window.css").read_text("utf-8")
    css = re.sub(rf"\b({'|'.join(replacements)})\b", lambda match: replacements[match[1]], css)
    for number, key in enumerate(controls):
        left_css = f"calc({side} * var(--line) + {number} * (100vw - {2 * side} * var(--line)) / {len(controls)})"
        css += f"\n:is({', '.join(control_classes(key))}) {{ left: {left_css}; }}"
    return f":root {{ --line: calc({line_css}); }}\n{css}{FRAME_CSS if bare else ''}{CLEAR_CSS if clear else ''}"


def control_classes(key: str) -> list[str]:
    """The possible CSS classes of the control for a key of the address."""
    name = PICKER_KEYS.get(key, key)
    return [f".st-key-{name}", *(f".st-key-{name}_{number}" for number in range(MAX_KEY_NUMBER))]
