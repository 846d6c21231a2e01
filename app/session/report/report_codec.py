"""A report as plain data that the store keeps: one mapping for texts and order, and the bytes of each table."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from app.session.report.report_draft import MOST_VIEWS, Kept, ReportDraft
from merging.errors import CheckpointError, StoreError
from merging.files import strict_json
from viz.report.contents import ReportView, Source

if TYPE_CHECKING:
    import pandas as pd

WHOLE = ("title", "introduction", "tables", "recipes")  # fields of the report
TEXTS = ("key", "title", "note", "caption", "place")  # fields of a view
TEXT_DTYPES = ("object", "str", "string")
NUMBERS = re.compile(r"[<|][biuf][1248]")  # little-endian booleans, integers and floating-point numbers
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
    """A table with its index and types, as JSON; numbers are in base64. Raises StoreError for other types."""
    import pandas as pd

    index = table.index
    plain_index: Any = _column(index.to_series(), "index")
    if isinstance(index, pd.RangeIndex):
        plain_index = {"range": [index.start, index.stop, index.step]}
    if strange := [name for name in table.columns if not isinstance(name, str)]:
        raise StoreError(f"A column is called {str(strange[0])[:40]!r}, which cannot be stored; names are texts.")
    columns = [[str(name), _column(table[name], name)] for name in table.columns]
    return json.dumps({"index": plain_index, "columns": columns}, allow_nan=False, ensure_ascii=False).encode()


def _column(column: pd.Series[Any], name: object) -> dict[str, Any]:
    import numpy as np

    dtype = column.dtype
    if isinstance(dtype, np.dtype) and NUMBERS.fullmatch(dtype.str):
        return {"numbers": dtype.str, "base64": base64.b64encode(column.to_numpy().tobytes()).decode("ascii")}
    if str(dtype) in TEXT_DTYPES:
        missing = column.isna().to_numpy()
        cells = [
            {"number": "nan"} if gone and cell is not None else _coded(cell, "", [])
            for cell, gone in zip(column, missing, strict=True)
        ]
        return {"texts": str(dtype), "cells": cells}
    if str(dtype) == "category":
        codes = column.cat.codes.astype("int32")
        return {
            "ordered": bool(column.cat.ordered),
            "categories": _column(column.cat.categories.to_series(), name),
            "codes": _column(codes, name),
        }
    raise StoreError(f"Column {str(name)[:40]!r} is of type {dtype}, which cannot be stored.")


def table_of(raw: bytes) -> pd.DataFrame:
    """The table of ``table_bytes``. Raises StoreError for anything else."""
    import pandas as pd

    try:
        data = strict_json.parse(raw, "The stored report", "a table")
        columns = {_typed(name, str): _values(column) for name, column in _typed(data["columns"], list)}
        if "range" in data["index"]:
            start, stop, step = (_typed(number, int) for number in data["index"]["range"])
            index: pd.Index[Any] = pd.RangeIndex(start, stop, step)
        else:
            index = pd.Index(_values(data["index"]))
        if any(len(values) != len(index) for values in columns.values()):
            raise ValueError("its columns differ in length")
        return pd.DataFrame({name: pd.Series(values, index=index) for name, values in columns.items()}, index=index)
    except (CheckpointError, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise StoreError(MALFORMED.format(f"a table: {type(error).__name__}: {str(error)[:100]}")) from None


def _values(column: Mapping[str, Any]) -> Any:
    """The values of a column, as an array of its type."""
    import numpy as np
    import pandas as pd

    if "numbers" in column:
        if not NUMBERS.fullmatch(column["numbers"]):
            raise ValueError("no type of numbers")
        return np.frombuffer(base64.b64decode(column["base64"], validate=True), column["numbers"]).copy()
    if "texts" in column:
        if column["texts"] not in TEXT_DTYPES:
            raise ValueError("no type of texts")
        cells = [_decoded(cell, _no_table) for cell in _typed(column["cells"], list)]
        return pd.array(cells, dtype=column["texts"]) if column["texts"] != "object" else _objects(cells)
    categories = pd.Index(_values(column["categories"]))
    return pd.Categorical.from_codes(_values(column["codes"]), categories, ordered=_typed(column["ordered"], bool))


def _objects(cells: Sequence[Any]) -> Any:
    import numpy as np

    values = np.empty(len(cells), object)
    for place, cell in enumerate(cells):  # an assignment of the whole list would unfold lists in it
        values[place] = cell
    return values


def _no_table(number: int) -> Any:
    raise ValueError("a table in a table")


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
