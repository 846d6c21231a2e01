"""The names under which pages show experts and data sets. Links, files and ids keep the experts' keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.reading import page_data
from merging.base.errors import TaskError
from merging.models.task_checkpoints import NUMBERED, count_experts
from viz.figure_text import clean_text

if TYPE_CHECKING:
    import pandas as pd

EXPERT_COLUMNS = ("expert", "first", "second")  # of the tables that charts draw; they hold experts' keys
EXPERT_OPTIONS = ("expert", "experts", "selected", "order", "pair", "band", "worst")  # of charts, may name experts


def data_set_titles() -> Mapping[str, str]:
    """Title of each data set of this session's benchmark by its key; empty if there is no benchmark."""
    try:
        return page_data.data_set_titles()
    except TaskError:
        return {}


def expert_name(key: str) -> str:
    """The title of the data set whose expert this is; the key itself of any other expert. Untrusted plain text.

    Further checkpoints of one expert have their number behind the title.
    """
    titles, numbered = data_set_titles(), NUMBERED.fullmatch(key)
    if numbered and numbered[1] in titles:
        return f"{titles[numbered[1]]}, checkpoint {key.removeprefix(numbered[1])[1:]}"
    return titles.get(key, key)


def has_expert(task: str) -> bool:
    """Whether there is an expert of this task, of the benchmark or of the user's own."""
    return task not in data_set_titles() or task in page_data.benchmark().experts


def expert_names(keys: Sequence[str]) -> dict[str, str]:
    """The name of each expert by key; the keys themselves if two would have the same name. Untrusted plain text."""
    names = {key: clean_text(expert_name(key), 40) for key in keys}
    return names if len(set(names.values())) == len(names) else {key: key for key in keys}


def list_in_order(names: Sequence[str]) -> list[str]:
    """The experts of the benchmark, then its other tasks, then ``names`` that it lacks; only ``names`` if it has none.

    The position of an expert or a task in this list fixes its color.
    """
    try:
        known = [*page_data.benchmark().experts, *data_set_titles()]
    except TaskError:
        known = []
    return list(dict.fromkeys([*known, *names] if not names or set(known) & set(names) else names))


def experts_in_words(keys: Sequence[str], limit: int = 100) -> str:
    """The experts of a merge, such as '2 experts: Fashion, Flags'; untrusted plain text."""
    return f"{count_experts(keys)}: {clean_text(', '.join(map(expert_name, keys)), limit)}"


def show_names(table: pd.DataFrame, options: Mapping[str, Any]) -> tuple[pd.DataFrame, dict[str, Any], dict[str, str]]:
    """A chart's table and options with experts by name, and {name: key} to translate clicks on the chart."""
    names = _map_names(table)
    columns = {name: _replace_values(table[name], names) for name in EXPERT_COLUMNS if names and name in table}
    new_options = {
        name: _replace_names(value, names) if name in EXPERT_OPTIONS else value for name, value in options.items()
    }
    return (table.assign(**columns) if columns else table), new_options, {name: key for key, name in names.items()}


def keys_of_mark(picked: Mapping[str, str], keys_by_name: Mapping[str, str]) -> dict[str, str]:
    """The fields of a clicked mark with experts' keys; ``keys_by_name`` is {name: key}."""
    return {
        field: keys_by_name.get(value, value) if field in EXPERT_COLUMNS else value for field, value in picked.items()
    }


def restore_keys(table: pd.DataFrame, keys_by_name: Mapping[str, str]) -> pd.DataFrame:
    """A table with experts' keys again; ``keys_by_name`` is {name: key}."""
    columns = {name: _replace_values(table[name], keys_by_name) for name in EXPERT_COLUMNS if name in table}
    return table.assign(**columns)


def _replace_values(column: pd.Series[Any], replacements: Mapping[str, str]) -> pd.Series[Any]:
    """A column with other names for some of its values."""
    return column.map({value: replacements.get(value, value) for value in column.unique()})


def _map_names(table: pd.DataFrame) -> dict[str, str]:
    """The names of the experts in a table by key; empty if two of them would have the same name."""
    experts = dict.fromkeys(key for name in EXPERT_COLUMNS if name in table for key in table[name].unique())
    titles = data_set_titles() if experts else {}
    names = [titles.get(key, key) for key in experts]
    return {key: titles[key] for key in experts if key in titles} if len(set(names)) == len(names) else {}


def _replace_names(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_replace_names(item, names) for item in value)
    return names.get(value, value) if isinstance(value, str) else value
