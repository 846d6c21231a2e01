"""A report as plain data that the store keeps: one mapping for texts and order, and the bytes of each table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from app.session.report.report_draft import MOST_VIEWS, Kept, ReportDraft
from merging.errors import StoreError
from viz.report.contents import ReportView, Source

if TYPE_CHECKING:
    import pandas as pd

WHOLE = ("title", "introduction", "tables", "recipes")  # fields of the report
TEXTS = ("key", "title", "note", "caption", "place")  # fields of a view
MALFORMED = "The stored report cannot be read ({}). Start a new one."


def plain(draft: ReportDraft) -> dict[str, Any]:
    """Everything but the tables, as strict JSON can hold it. Raises StoreError for an option of an unknown type."""
    views = [
        {name: getattr(kept.view, name) for name in TEXTS}
        | {"number": kept.number, "part": kept.part, "size": kept.size, "sources": list(kept.view.sources)}
        | {"options": _coded(dict(kept.view.options), kept.part, [])}
        for kept in draft.kept
    ]
    sources = [_listed(asdict(source)) for source in draft.sources.values()]
    whole = {name: getattr(draft, name) for name in WHOLE}
    return whole | {"views": views, "sources": sources, "allowed": sorted(draft.allowed)}


def parts(draft: ReportDraft) -> dict[str, Callable[[], bytes]]:
    """The bytes of each table by its name, made when they are asked for."""
    tables: dict[str, Callable[[], bytes]] = {}
    for kept in draft.kept:
        within: list[Any] = []
        _coded(dict(kept.view.options), kept.part, within)
        for number, table in enumerate([kept.view.table, *within]):
            tables[_name(kept.part, number)] = lambda table=table: table_bytes(table)  # type: ignore[misc]
    return tables


def restored(data: Mapping[str, Any], part: Callable[[str], bytes], known: Sequence[Kept] = ()) -> ReportDraft:
    """The report of plain data; ``part`` gives the bytes of a table, which views that are ``known`` need not read.

    Charts that this version does not have are left out.

    Raises:
        StoreError: the data are not what ``plain`` gives, or a table cannot be read.
    """
    ready = {kept.part: kept.view for kept in known}
    draft = ReportDraft()
    try:
        for name in WHOLE:
            setattr(draft, name, _typed(data[name], type(getattr(draft, name))))
        entries = [entry for entry in _typed(data["views"], list)[:MOST_VIEWS] if _is_known(entry)]
        draft.kept = [_kept(entry, part, ready) for entry in entries]
        sources = [Source(**_tupled(entry)) for entry in _typed(data["sources"], list)]
        draft.sources = {_typed(source.id, str): source for source in sources}
        draft.allowed = {_typed(word, str) for word in data["allowed"]}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise StoreError(MALFORMED.format(f"{type(error).__name__}: {str(error)[:100]}")) from None
    return draft


def _is_known(entry: Mapping[str, Any]) -> bool:
    """Whether this version has the chart of a view, with all of its options."""
    from viz.registry import charts

    named = {_typed(pair[0], str) for pair in _typed(entry["options"], dict)["mapping"]}
    return any(chart.key == entry["key"] and named <= set(chart.options) for chart in charts())


def _kept(entry: Mapping[str, Any], part: Callable[[str], bytes], ready: Mapping[str, ReportView]) -> Kept:
    """A view of plain data; table and options of one that is ready are not read again, because they never change."""
    name = _typed(entry["part"], str)
    words = {field: _typed(entry[field], str) for field in TEXTS}
    sources = tuple(_typed(source, str) for source in entry["sources"])
    if name in ready:
        view = replace(ready[name], **words, sources=sources)
    else:
        options = _decoded(entry["options"], lambda number: table_of(part(_name(name, number))))
        view = ReportView(table=table_of(part(_name(name, 0))), options=_typed(options, dict), sources=sources, **words)
    return Kept(_typed(entry["number"], int), name, view, _typed(entry["size"], int))


def _name(part: str, number: int) -> str:
    """The name of a view's table: 0 is its own, the others are in its options."""
    return f"{part[:30]}{number:02x}"


def _coded(value: Any, part: str, tables: list[Any]) -> Any:
    """A value of an option as JSON; what JSON lacks is a mapping with one key. ``tables`` collects tables in it."""
    value = value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") and not value.shape else value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": str(value)}
    if isinstance(value, Mapping):
        return {"mapping": [[str(key), _coded(item, part, tables)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        items = [_coded(item, part, tables) for item in value]
        return items if isinstance(value, list) else {"tuple": items}
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):
        tables.append(value)
        return {"table": len(tables)}
    raise StoreError(f"This view has an option of type {type(value).__name__}, which cannot be stored.")


def _decoded(coded: Any, table: Callable[[int], pd.DataFrame]) -> Any:
    """The value of ``_coded``. Raises ValueError and its like for anything else."""
    if isinstance(coded, list):
        return [_decoded(item, table) for item in coded]
    if not isinstance(coded, dict):
        return coded
    ((kind, inner),) = coded.items()
    if kind == "number":
        return float(inner)
    if kind == "tuple":
        return tuple(_decoded(item, table) for item in inner)
    if kind == "table":
        return table(_typed(inner, int))
    if kind == "mapping":
        return {_typed(key, str): _decoded(item, table) for key, item in inner}
    raise ValueError(f"{kind!r} is no kind of value")


def table_bytes(table: pd.DataFrame) -> bytes:
    """A table with its index and types, as an Arrow stream. Raises StoreError for what such streams do not hold."""
    import pyarrow as pa

    if strange := [name for name in table.columns if not isinstance(name, str)]:
        raise StoreError(f"A column is called {str(strange[0])[:40]!r}, which cannot be stored; names are texts.")
    try:
        stored = pa.Table.from_pandas(table)
    except pa.ArrowException as error:
        raise StoreError(f"A table of this view cannot be stored: {str(error)[:100]}.") from None
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, stored.schema) as writer:
        writer.write_table(stored)
    return bytes(stream.getvalue().to_pybytes())


def table_of(raw: bytes) -> pd.DataFrame:
    """The table of ``table_bytes``. Raises StoreError for anything else."""
    import pyarrow as pa

    try:
        stored = pa.ipc.open_stream(raw).read_all()
        stored.validate(full=True)
        frame: pd.DataFrame = stored.to_pandas()
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StoreError(MALFORMED.format(f"a table: {type(error).__name__}: {str(error)[:100]}")) from None
    return frame


def _typed(value: Any, kind: type) -> Any:
    """The value, if it is of exactly that type."""
    if type(value) is not kind:
        raise TypeError(f"a {kind.__name__} is expected, not a {type(value).__name__}")
    return value


def _listed(value: Any) -> Any:
    """Tuples as lists, all the way down."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def _tupled(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a source, with pairs of texts as tuples."""
    fields = {}
    for name, value in entry.items():
        fields[name] = (
            tuple((_typed(one, str), _typed(two, str)) for one, two in value)
            if type(value) is list
            else (_typed(value, str))
        )
    return fields
