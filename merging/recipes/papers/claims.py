"""The claims of papers' figures and tables that the app redraws: rows of ``claims.yaml``, whose head describes the
fields. A printed value stays text, so that it has the paper's precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from reprlib import repr as short
from typing import Any

import yaml

from merging.base.errors import RecipeError
from merging.base.text import did_you_mean
from merging.recipes.papers.combinations import LOADER, check_row, read_text
from merging.recipes.papers.published_figures import SOURCES, Figure

CLAIMS_FILE = Path(__file__).with_name("claims.yaml")
SECTIONS = ("claims", "curves")
FIELDS = (
    "key", "views", "paper", "where", "topic", "first", "second", "printed", "unit", "read_off", "says", "words",
    "note", "fact",
)  # fmt: skip
CURVE_FIELDS = ("key", "paper", "where", "method", "along", "values", "spread")
DIRECTIONS = {"more": 1, "same": 0, "less": -1}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Two values of a paper, and the fact that is compared with their difference, the first minus the second.

    ``printed`` is empty if the paper prints no values. ``direction`` is 1, 0 or -1: the first value is larger, equal or
    smaller. ``fact`` is the name of a fact that the app computes, ``arguments`` are its arguments. ``views`` are the
    parts of the app that show the claim, ``topic`` is what the two values measure. ``read_off`` is whether the values
    were read off a figure. ``words`` is what the paper states without values, ``note`` what a reader must know.
    """

    key: str
    views: tuple[str, ...]
    paper: str
    where: str
    topic: str
    first: str
    second: str
    direction: int
    fact: str
    arguments: Mapping[str, Any] = field(hash=False)
    printed: tuple[str, ...] = ()
    unit: str = ""
    read_off: bool = False
    words: str = ""
    note: str = ""

    @property
    def difference(self) -> str:
        """The difference of the printed values, with a sign and their precision; empty if none are printed."""
        return format_signed(Decimal(self.printed[0]) - Decimal(self.printed[1])) if self.printed else ""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A method's printed accuracies in percent (``values``) and their printed ± (``spread``), each {number: value}.

    ``along`` names what the number counts, such as "steps".
    """

    key: str
    paper: str
    where: str
    method: str
    along: str
    values: Mapping[int, str]
    spread: Mapping[int, str]


def format_signed(number: Decimal) -> str:
    """A number with its sign and all its digits; the sign of negative numbers is U+2212."""
    return f"{number:+}".replace("-", "\N{MINUS SIGN}") if number else str(number)


def read_claims(path: Path = CLAIMS_FILE) -> tuple[tuple[Claim, ...], tuple[Curve, ...]]:
    """The claims and the curves of a file, in the file's order.

    Raises:
        RecipeError: not valid YAML, or a field is missing, unknown or malformed; names the file and the row.
    """
    try:
        sections = yaml.load(path.read_text("utf-8"), LOADER)
    except yaml.YAMLError as error:
        raise RecipeError(f"{path.name} is not valid YAML: {error}") from None
    if not isinstance(sections, dict) or tuple(sections) != SECTIONS:
        raise RecipeError(f"{path.name} must have exactly the sections {', '.join(SECTIONS)}.")
    rows: dict[str, list[Any]] = {name: [] for name in SECTIONS}
    for name, parse_row in (("claims", _parse_claim), ("curves", _parse_curve)):
        for number, row in enumerate(sections[name], 1):
            try:
                rows[name].append(parse_row(row))
            except RecipeError as error:
                raise RecipeError(f"{path.name}, {name}, row {number}: {error}") from None
        keys = [row.key for row in rows[name]]
        if duplicates := [key for key in keys if keys.count(key) > 1]:
            raise RecipeError(f"{path.name}, {name}: the key {duplicates[0]!r} appears twice.")
    return tuple(rows["claims"]), tuple(rows["curves"])


def _parse_claim(row: Any) -> Claim:
    check_row(row, FIELDS)
    views, (fact, arguments) = row.get("views"), _parse_fact(row.get("fact"))
    if not isinstance(views, list) or not views or not all(isinstance(view, str) for view in views):
        raise RecipeError(f"field views: a list of views is needed; got {short(views)}.")
    printed = _parse_printed(row.get("printed"))
    if printed and not row.get("unit"):
        raise RecipeError("field unit: printed values need a unit.")
    if bool(printed) == ("says" in row):
        raise RecipeError("field says: a claim has either printed values or a field says: more, same or less.")
    return Claim(
        key=read_text(row, "key"),
        where=read_text(row, "where"),
        topic=read_text(row, "topic"),
        first=read_text(row, "first"),
        second=read_text(row, "second"),
        views=tuple(views),
        paper=_parse_paper(row),
        printed=printed,
        direction=_compare_values(printed) if printed else _parse_direction(row),
        unit=str(row.get("unit", "")),
        read_off=row.get("read_off", False) is True,
        words="" if printed else read_text(row, "words"),
        note=str(row.get("note", "")),
        fact=fact,
        arguments=arguments,
    )


def _parse_curve(row: Any) -> Curve:
    check_row(row, CURVE_FIELDS)
    return Curve(
        key=read_text(row, "key"),
        where=read_text(row, "where"),
        method=read_text(row, "method"),
        along=read_text(row, "along"),
        paper=_parse_paper(row),
        values=_parse_points(row, "values"),
        spread=_parse_points(row, "spread"),
    )


def _parse_points(row: Mapping[str, Any], name: str) -> dict[int, str]:
    points = row.get(name, {})
    if not isinstance(points, dict) or not all(isinstance(position, int) for position in points):
        raise RecipeError(f"field {name}: a mapping of whole numbers to printed values is needed.")
    return dict(zip(points, _check_decimals(list(points.values()), name), strict=True))


def _parse_paper(row: Mapping[str, Any]) -> str:
    if (paper := read_text(row, "paper")) not in SOURCES:
        raise RecipeError(f"field paper: {paper!r} is not a source.{did_you_mean(paper, SOURCES)}")
    return paper


def _parse_fact(entry: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(entry, dict) and len(entry) == 1:
        ((name, arguments),) = entry.items()
        if isinstance(name, str) and isinstance(arguments, dict):
            return name, arguments
    raise RecipeError(f"field fact: one fact with its arguments is needed; got {short(entry)}.")


def _parse_printed(values: Any) -> tuple[str, ...]:
    if values is None:
        return ()
    if not isinstance(values, list) or len(values) != 2:
        raise RecipeError(f"field printed: two values are needed; got {short(values)}.")
    return tuple(_check_decimals(values, "printed"))


def _check_decimals(values: list[Any], name: str) -> list[str]:
    """The values, which must be text, because numbers would lose trailing zeros."""
    for value in values:
        try:
            finite = isinstance(value, str) and Decimal(value).is_finite()
        except InvalidOperation:
            finite = False
        if not finite:
            raise RecipeError(f"field {name}: {short(value)} is not a number in quotation marks.")
    return values


def _compare_values(printed: tuple[str, ...]) -> int:
    first, second = map(Decimal, printed)
    return (first > second) - (first < second)


def _parse_direction(row: Mapping[str, Any]) -> int:
    if (says := row["says"]) not in DIRECTIONS:
        raise RecipeError(f"field says: {short(says)} is not one of {', '.join(DIRECTIONS)}.")
    return DIRECTIONS[says]


def compare_figures(first: Figure, second: Figure) -> Claim:
    """The claim of two rows of a paper's table about accuracy in domain; the caller sets the fact."""
    paper, _, where = first.source.partition(", ")
    printed = (str(first.printed.in_domain), str(second.printed.in_domain))
    return Claim(
        key=f"{first.name} against {second.name}",
        views=(),
        paper=paper,
        where=", ".join(filter(None, (where, first.model))),
        topic="In-domain accuracy",
        first=first.name,
        second=second.name,
        printed=printed,
        direction=_compare_values(printed),
        unit="%",
        fact="",
        arguments={},
    )


CLAIMS, CURVES = read_claims()
BY_EXEMPLARS = tuple(curve for curve in CURVES if curve.along == "exemplars per task")


def claims_of_view(view: str) -> tuple[Claim, ...]:
    """The claims that a view shows, in the file's order; empty if it redraws no figure."""
    return tuple(claim for claim in CLAIMS if view in claim.views)
