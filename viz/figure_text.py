"""Untrusted text made safe to show, and the wording of numbers in all figures."""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Iterable, Sequence

LONGEST = 80
ROLES = {"shift": "bias"}  # roles whose key in tables and recipes is not the word that readers use
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # control, bidi and zero-width, surrogates, unassigned, separators


def clean_text(text: object, limit: int = LONGEST) -> str:
    """Plain text of at most ``limit`` characters in which every invisible character is written as its code."""
    plain = str(text)[: limit + 1]
    if not plain.isprintable():  # most texts are, and thousands of them are in a figure
        plain = "".join(_show_character(c) for c in plain)
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def safe_text(text: object, limit: int = LONGEST) -> str:
    """``clean_text`` escaped for plotly, which reads a subset of HTML, ``$…$`` as math and ``%{…}`` as a template."""
    escaped = html.escape(clean_text(text, limit), quote=False)
    return escaped.replace("$", "&#36;").replace("%{", "&#37;{")


def identifier(text: object) -> str:
    """The unchanged name, for a click to return; never shown. Lone surrogates, which JSON lacks, become their codes."""
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")


def short_name(name: object, limit: int = LONGEST) -> str:
    """Escaped name, cut in the middle when it is too long: tensors differ at the end, models at the start."""
    plain = clean_text(name, 10 * LONGEST)
    if len(plain) > limit:
        tail = limit // 2
        plain = plain[: limit - tail - 1] + "…" + plain[-tail:]
    return safe_text(plain, limit)


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
    """0.0003 as "3·10⁻⁴", to two digits, for axes; numbers near one as they are."""
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
    return ROLES.get(str(role), str(role)).replace("_", " ")


def first_few(names: Iterable[object], most: int = 3) -> str:
    """Escaped names with commas, and the number of those after the first ``most``: "a, b, c and 4 more"."""
    escaped: Sequence[str] = [short_name(name) for name in names]
    more = len(escaped) - most
    return ", ".join(escaped) if more <= 0 else f"{', '.join(escaped[:most])} and {more} more"


def _show_character(character: str) -> str:
    if unicodedata.category(character) in _HIDDEN:
        return f"\\u{ord(character):04x}"
    return character
