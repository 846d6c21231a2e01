"""Charts: a question, the columns that answer it, and a function that draws.

A chart is a decorated function in a file of ``viz/figures/``, with its key as its name. The registry walks that folder.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chosen_names import mark_chosen
from viz.dark_ground import to_dark_ground
from viz.drawing import Picture
from viz.figure_text import clean_text, identifier

# Columns: the tensor of a row, and its position in the model.
TENSOR_COLUMNS = ("tensor", "order", "section", "role", "part")

Names = list[str] | None  # the full ordered list that fixes colors; if None, the table's names
# Columns of names, which may be numbers.
NAME_COLUMNS = {
    "run",
    "task",
    "expert",
    "tensor",
    "model",
    "group",
    "option",
    "metric",
    "point",
    "method",
    "merge",
    "pair",
}


class ChartError(ValueError):
    """A chart cannot be drawn; the text says which column, row or option is at fault."""


class NothingToDraw(Exception):  # noqa: N818 - no error: the sentence replaces the picture
    """A table from which no mark can be drawn; the text is a sentence with the reason, escaped."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Draws one kind of figure when called with a table.

    ``columns`` must be in the table, ``optional`` may be; ``rows`` names the columns that identify a row.
    ``picks`` names the fields of a clicked mark's customdata, in order.

    A column means the same in every chart: run (its id) and label; task (key), its title, in_domain (bool), n (images),
    correct (of these); accuracy, difference and similar numbers, with low and high (ends of the 95% interval, NaN where
    there is none), as fractions; n_in, n_out (images) and tasks_in, tasks_out; kind (of a row, see ``theme.KINDS``);
    tensor (name), order (in the model), section (of the network), role, part (kind of layer), numel (scalars) and kept
    (bool); step (updates of learning so far). A row of a histogram is a bin from low to high, with count and share (of
    the images). Of one image: model and against (its reference), by title; depth (0: before block 0, b: after b
    blocks), block, head (from 0), token (0: the class token), row and column (of a patch).

    An option also means the same in every chart: ``runs``, ``tasks`` and ``experts`` are the full ordered lists that
    fix colors; ``labels`` are the names of runs A and B; ``expert`` and ``tensor`` name the expert and the tensor of
    the table; ``at`` is the marked step and ``selected`` the marked item; ``value`` names the plotted column;
    ``limits`` are the ends of the color range, in its units; ``sentence`` begins the alt text of an image's chart; with
    ``present`` the figure is for a projector; ``chosen`` are names to mark, by "expert", "class" or "image".
    """

    key: str
    title: str
    question: str
    columns: tuple[str, ...]
    optional: tuple[str, ...]
    rows: tuple[str, ...]
    picks: tuple[str, ...]
    empty: str
    render: Callable[..., Picture]

    @property
    def options(self) -> dict[str, Any]:
        """Name and default of every option."""
        parameters = list(inspect.signature(self.render).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters} | {"present": False, "chosen": {}}

    def __call__(self, table: pd.DataFrame, ground: str = "light", **options: object) -> go.Figure:
        """The figure; see ``viz.draw``."""
        if check_option("ground", ground, ("light", "dark")) == "dark":
            return to_dark_ground(self(table, "light", **options))
        if unknown := [name for name in options if name not in self.options]:
            raise ChartError(f"{self.key} has no option {unknown[0]!r}; it has {quote_names(self.options)}")
        if missing := [name for name in self.columns if name not in table.columns]:
            raise ChartError(
                f"{self.key} needs {quote_names(missing)}, which the table lacks; it has {quote_names(table)}"
            )
        present = bool(options.get("present", False))
        if table.empty:
            return theme.draw_notice(self.key, self.empty, present)
        used_columns = [name for name in (*self.columns, *self.optional) if name in table]
        table = table.reset_index(drop=True)  # charts find rows by their position
        names = NAME_COLUMNS & {*self.rows, *self.picks, "group"}
        table = table.assign(**{name: _normalize_column(table[name], name in names) for name in used_columns})
        repeated = table.duplicated(list(self.rows)) if self.rows else pd.Series(dtype=bool)
        if repeated.any():
            values = table.loc[repeated, list(self.rows)].iloc[0].tolist()
            raise ChartError(
                f"{self.key} takes one row for each {' and '.join(self.rows)}; repeated: {quote_names(values)}"
            )
        chosen: Any = options.get("chosen") or {}
        own_options = inspect.signature(self.render).parameters
        options = {name: value for name, value in options.items() if name in own_options}
        try:
            picture = self.render(table, **options)
        except NothingToDraw as nothing:
            return theme.draw_notice(self.key, str(nothing), present)
        mark_chosen(picture.drawing, chosen)
        return theme.finish_figure(picture.drawing, self.key, picture.alt, picture.height, present, picture.zoom_key)

    def read_pick(self, points: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
        """The fields of the clicked mark, without those that the mark lacks (a shared mask has no expert).

        None for the empty selection that follows every redraw.
        """
        for point in points:
            data = point.get("customdata")
            if data is None:
                continue
            # the app's front end returns lists as dicts with the index as key
            values = list(data.values()) if isinstance(data, Mapping) else [data] if isinstance(data, str) else data
            return {pick: str(value) for pick, value in zip(self.picks, values, strict=False) if value != ""}
        return None


def chart(
    *,
    title: str,
    question: str,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    rows: Sequence[str] = (),
    picks: Sequence[str] = (),
    empty: str = "Nothing to show: the table is empty.",
) -> Callable[[Callable[..., Picture]], Chart]:
    """Turn a drawing function into a chart whose key is the function's name."""

    def register(render: Callable[..., Picture]) -> Chart:
        return Chart(
            render.__name__, title, question, tuple(columns), tuple(optional), tuple(rows), tuple(picks), empty, render
        )

    return register


def check_option(option: str, value: str, choices: Sequence[str]) -> str:
    """``value``, if it is one of the choices. Raises ChartError."""
    if value not in choices:
        raise ChartError(f"option {option} is {clean_text(value)!r}; it takes {quote_names(choices)}")
    return value


def sort_forward(table: pd.DataFrame) -> pd.DataFrame:
    """Rows in the order in which data passes the tensors. The model's ``order`` puts the output projection first."""
    if "order" in table:
        table = table.sort_values("order", kind="stable")
    return table.sort_values("section", key=lambda section: section.astype(str) == "output", kind="stable")


def distinct_names(values: Iterable[object]) -> list[str]:
    """The distinct names in the order of their first occurrence."""
    return list(dict.fromkeys(str(value) for value in values))


def _normalize_column(column: pd.Series[Any], as_names: bool) -> pd.Series[Any]:
    """The column as numbers, as flags (a missing one is False), or as names that every later step can encode."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb" and not as_names:
        return column
    kinds = set(map(type, column.dropna().tolist()))
    if kinds and not as_names and kinds <= {bool, np.bool_}:
        return column.eq(True).fillna(False).astype(bool)
    if kinds and not as_names and all(issubclass(kind, int | float | np.number | np.bool_) for kind in kinds):
        return pd.to_numeric(column.astype(object).where(column.notna(), np.nan))
    codes, texts = pd.factorize(column.astype(object))  # each distinct value once; the code of a missing one is -1
    names = [identifier(text) if isinstance(text, str) or as_names else text for text in texts]
    return pd.Series(np.array([*names, np.nan], dtype=object)[codes], index=column.index, dtype=object)


def quote_names(names: Iterable[object]) -> str:
    """Names in quotes, separated by commas; 'nothing' if there are none."""
    return ", ".join(repr(clean_text(name)) for name in names) or "nothing"
