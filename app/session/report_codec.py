"""A report as plain data for the store: JSON for texts, order and options, and Arrow for each table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from app.session.report_draft import MAX_VIEWS, ReportDraft, StoredView
from merging.base.errors import StoreError
from viz.report.report_contents import ReportView, Source

if TYPE_CHECKING:
    import pandas as pd

REPORT_FIELDS = ("title", "introduction", "tables", "recipes")  # fields of the report
VIEW_FIELDS = ("key", "title", "note", "caption", "place")  # fields of a view
MALFORMED = "The stored report cannot be read ({}: {:.100}). Start a new one."


def encode(draft: ReportDraft) -> dict[str, Any]:
    """Everything but the tables, as data for strict JSON. Raises StoreError for an option of an unknown type."""
    views = [
        {name: getattr(stored.view, name) for name in VIEW_FIELDS}
        | {"number": stored.number, "part": stored.part, "size": stored.size, "sources": stored.view.sources}
        | {"options": _encode_options(stored.view.options, [])}
        for stored in draft.views
    ]
    sources = [asdict(source) for source in draft.sources.values()]
    fields = {name: getattr(draft, name) for name in REPORT_FIELDS}
    return fields | {"views": views, "sources": sources, "allowed": sorted(draft.allowed)}


def make_table_writers(draft: ReportDraft) -> dict[str, Callable[[], bytes]]:
    """A function for each table, by name, that makes its bytes."""
    tables: dict[str, Callable[[], bytes]] = {}
    for stored in draft.views:
        option_tables: list[Any] = []
        _encode_options(stored.view.options, option_tables)
        for number, table in enumerate([stored.view.table, *option_tables]):
            tables[_table_name(stored.part, number)] = lambda table=table: write_table(table)
    return tables


def decode(
    data: Mapping[str, Any], read_part: Callable[[str], bytes], cached_views: Sequence[StoredView] = ()
) -> ReportDraft:
    """The report from the data of ``encode``; ``read_part`` reads a table's bytes, unless it is in ``cached_views``.

    Charts that this version does not have are left out.

    Raises:
        StoreError: the data are not from ``encode``, or a table cannot be read.
    """
    known_views = {stored.part: stored.view for stored in cached_views}
    draft = ReportDraft()
    try:
        for name in REPORT_FIELDS:
            setattr(draft, name, _check_type(data[name], type(getattr(draft, name))))
        entries = [entry for entry in _check_type(data["views"], list)[:MAX_VIEWS] if _has_known_chart(entry)]
        draft.views = [_decode_view(entry, read_part, known_views) for entry in entries]
        sources = [
            Source(**{name: _convert_source_value(value) for name, value in entry.items()}) for entry in data["sources"]
        ]
        draft.sources = {_check_type(source.id, str): source for source in sources}
        draft.allowed = {_check_type(word, str) for word in data["allowed"]}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StoreError(MALFORMED.format(type(error).__name__, str(error))) from None
    return draft


def write_table(table: pd.DataFrame) -> bytes:
    """A table with its index and types, as a stream of Arrow. Raises StoreError for a column that Arrow cannot hold."""
    import pyarrow as pa

    stream = pa.BufferOutputStream()
    try:
        arrow = pa.Table.from_pandas(table)
    except pa.ArrowException as error:
        raise StoreError(f"A column of this view's table cannot be stored: {str(error)[:100]}") from None
    with pa.ipc.new_stream(stream, arrow.schema) as writer:
        writer.write_table(arrow)
    return bytes(stream.getvalue())


def read_table(raw: bytes) -> pd.DataFrame:
    """The table of ``write_table``. Raises StoreError for anything else."""
    import pyarrow as pa

    try:
        arrow = pa.ipc.open_stream(raw).read_all()
        arrow.validate(full=True)
        return arrow.to_pandas()
    except Exception as error:  # wrong bytes in the index and its types can raise any exception
        raise StoreError(MALFORMED.format(f"a table: {type(error).__name__}", str(error))) from None


def _has_known_chart(entry: Mapping[str, Any]) -> bool:
    """Whether this version has the chart of a view, with all of its options."""
    from viz.chart_registry import charts

    option_names = set(_decode_options(entry["options"], lambda _: None))
    return any(chart.key == entry["key"] and option_names <= set(chart.options) for chart in charts())


def _decode_view(
    entry: Mapping[str, Any], read_part: Callable[[str], bytes], known_views: Mapping[str, ReportView]
) -> StoredView:
    """A view from plain data. Table and options of a view in ``known_views`` are not read again: they never change."""
    name = _check_type(entry["part"], str)
    texts = {field: _check_type(entry[field], str) for field in VIEW_FIELDS}
    sources = tuple(_check_type(source, str) for source in entry["sources"])
    if name in known_views:
        view = replace(known_views[name], **texts, sources=sources)
    else:

        def read_option_table(number: int) -> pd.DataFrame:
            return read_table(read_part(_table_name(name, number)))

        options = _decode_options(entry["options"], read_option_table)
        view = ReportView(table=read_option_table(0), options=options, sources=sources, **texts)
    return StoredView(_check_type(entry["number"], int), name, view, _check_type(entry["size"], int))


def _table_name(part: str, number: int) -> str:
    """The name of a view's table: 0 is its own, the others are in its options."""
    return f"{part[:30]}{number:02x}"


def _encode_options(options: Mapping[str, Any], tables: list[Any]) -> str:
    """Options as JSON with NaN; types that JSON lacks become a mapping with one key. ``tables`` collects tables."""

    def encode(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {"mapping": [[str(key), encode(item)] for key, item in value.items()]}
        if isinstance(value, list | tuple):
            items = [encode(item) for item in value]
            return items if isinstance(value, list) else {"tuple": items}
        if hasattr(value, "columns"):
            tables.append(value)
            return {"table": len(tables)}
        return value.item() if type(value).__module__ == "numpy" else value

    try:
        return json.dumps(encode(options))
    except (TypeError, ValueError) as error:
        raise StoreError(f"This view has an option that cannot be stored: {str(error)[:100]}") from None


def _decode_options(text: str, read_option_table: Callable[[int], Any]) -> dict[str, Any]:
    """The options from the text of ``_encode_options``. Raises ValueError, TypeError or KeyError for anything else."""
    kinds: dict[str, Callable[[Any], Any]] = {"mapping": dict, "tuple": tuple, "table": read_option_table}

    def decode(entry: dict[str, Any]) -> Any:
        ((kind, inner),) = entry.items()
        return kinds[kind](inner)

    return _check_type(json.loads(text, object_hook=decode), dict)


def _check_type(value: Any, kind: type) -> Any:
    """The value, if its type is exactly ``kind``. Raises TypeError."""
    if type(value) is not kind:
        raise TypeError(f"a {kind.__name__} is expected, not a {type(value).__name__}")
    return value


def _convert_source_value(value: Any) -> Any:
    """A source's text, or its pairs of texts as tuples."""
    if type(value) is str:
        return value
    return tuple((_check_type(first, str), _check_type(second, str)) for first, second in value)
