"""Whether two models fail to fit by their names alone: another prefix, small and capital letters, no name in common."""

from __future__ import annotations

from merging.text import first_few


def other_names(wanted: list[str], found: list[str]) -> tuple[str, str, str] | None:
    """What is wrong with the names as a whole, and the first that was expected and found; None if nothing is.

    What is wrong is a key of the fit report's FIXES.
    """
    if prefixes := _prefix(wanted, found):
        return ("other names", *prefixes)
    cased = {name.casefold(): name for name in found}
    if not set(wanted) <= set(found) and {name.casefold() for name in wanted} <= cased.keys():
        first = next(name for name in wanted if name not in found)
        return "letter case", first, cased[first.casefold()]
    if wanted and found and not set(wanted) & set(found):
        return "no name in common", first_few(wanted, 2), first_few(found, 2)
    return None


def _prefix(wanted: list[str], found: list[str]) -> tuple[str, str] | None:
    """(expected, found) names of the first tensor, if all names differ by one prefix and by nothing else.

    A few more may be on one side, but not so many that it is another model, some of whose names end in the same way.
    """
    for short, long in ((wanted, found), (found, wanted)):
        if 2 * len(short) < len(long):
            continue
        longer = next((name for name in long if name.endswith("." + short[0])), None)
        if longer and {longer.removesuffix(short[0]) + name for name in short} <= set(long):
            return (short[0], longer) if short is wanted else (longer, short[0])
    return None
