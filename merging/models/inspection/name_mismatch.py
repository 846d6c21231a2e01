"""Finds a difference that affects all tensor names of two models: the prefix, the letter case, or no common name."""

from __future__ import annotations

from merging.base.text import first_few


def find_mismatch(expected: list[str], found: list[str]) -> tuple[str, str, str] | None:
    """(kind of mismatch, first expected name, first found name); None if some names agree.

    The kind is a key of ``fit_report.FIX_BY_KIND``.
    """
    if prefixes := _find_prefix_difference(expected, found):
        return ("other names", *prefixes)
    found_by_lower = {name.casefold(): name for name in found}
    if not set(expected) <= set(found) and {name.casefold() for name in expected} <= found_by_lower.keys():
        first = next(name for name in expected if name not in found)
        return "letter case", first, found_by_lower[first.casefold()]
    if expected and found and not set(expected) & set(found):
        return "no name in common", first_few(expected, 2), first_few(found, 2)
    return None


def _find_prefix_difference(expected: list[str], found: list[str]) -> tuple[str, str] | None:
    """(expected, found) names of the first tensor, if all names differ by one prefix and by nothing else.

    One model may have up to twice as many names. With more names it is another model that has similar names.
    """
    for short, long in ((expected, found), (found, expected)):
        if 2 * len(short) < len(long):
            continue
        long_name = next((name for name in long if name.endswith("." + short[0])), None)
        if long_name and {long_name.removesuffix(short[0]) + name for name in short} <= set(long):
            return (short[0], long_name) if short is expected else (long_name, short[0])
    return None
