"""Untrusted text made safe to show, and the wording of numbers in all figures."""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Iterable, Sequence

MAX_CHARACTERS = 80
ROLE_WORDS = {"shift": "bias"}  # words for roles whose key in tables and recipes is not common
# Control, bidi and zero-width, surrogates, unassigned, separators.
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def clean_text(text: object, limit: int = MAX_CHARACTERS) -> str:
    """Plain text of at most ``limit`` characters in which every invisible character is written as its code."""
    shown = str(text)[: limit + 1]
    if not shown.isprintable():  # most texts are, and thousands of them are in a figure
        shown = "".join(_show_character(character) for character in shown)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def safe_text(text: object, limit: int = MAX_CHARACTERS) -> str:
    """``clean_text`` escaped for plotly, which reads a subset of HTML, ``$…$`` as math and ``%{…}`` as a template."""
    escaped = html.escape(clean_text(text, limit), quote=False)
    return escaped.replace("$", "&#36;").replace("%{", "&#37;{")


def identifier(text: object) -> str:
    """The unchanged name, for a click to return; never shown. Lone surrogates, which JSON lacks, become their codes."""
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")


def short_name(name: object, limit: int = MAX_CHARACTERS) -> str:
    """Escaped name, cut in the middle when it is too long: tensors differ at the end, models at the start."""
    shown = clean_text(name, 10 * MAX_CHARACTERS)
    if len(shown) > limit:
        tail = limit // 2
        shown = shown[: limit - tail - 1] + "…" + shown[-tail:]
    return safe_text(shown, limit)


def percent(share: float, digits: int = 1) -> str:
    """0.623 as "62.3%"; "—" where there is no number."""
    return f"{100 * share:.{digits}f}%" if math.isfinite(share) else "—"


def count(number: float) -> str:
    """1234 as "1,234"; "—" where there is no number."""
    return f"{number:,.0f}" if math.isfinite(number) else "—"


def span(numbers: Iterable[float]) -> str:
    """[240, 240] as "240", [240, 1200] as "240 to 1,200"; "—" where there are no numbers."""
    finite = sorted(number for number in numbers if math.isfinite(number))
    return " to ".join(dict.fromkeys(map(count, (finite[0], finite[-1])))) if finite else "—"


def real(number: float) -> str:
    """Three significant digits; "—" where there is no number."""
    return f"{number:.3g}" if math.isfinite(number) else "—"


def power(number: float) -> str:
    """0.0003 as "3·10⁻⁴", to two digits, for axes; numbers near one stay decimal."""
    if number == 0 or 0.01 <= abs(number) < 1000:
        return f"{number:g}"
    digits, exponent = f"{number:.1e}".replace(".0e", "e").split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if digits == "1" else f"{digits}·10{raised}"


def plural(number: int, noun: str) -> str:
    """1 as "1 task", 2 as "2 tasks"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def role_name(role: object) -> str:
    """The role of a tensor in words: "norm_scale" as "norm scale", "shift" as "bias". Untrusted."""
    return ROLE_WORDS.get(str(role), str(role)).replace("_", " ")


def first_few(names: Iterable[object], max_names: int = 3) -> str:
    """Escaped names separated by commas, at most ``max_names``, and the number of the others: "a, b, c and 4 more"."""
    escaped: Sequence[str] = [short_name(name) for name in names]
    remaining = len(escaped) - max_names
    return ", ".join(escaped) if remaining <= 0 else f"{', '.join(escaped[:max_names])} and {remaining} more"


def _show_character(character: str) -> str:
    if unicodedata.category(character) in _HIDDEN_CATEGORIES:
        return f"\\u{ord(character):04x}"
    return character
