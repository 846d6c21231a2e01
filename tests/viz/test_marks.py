"""The numbers that a chart's file has are those of its marks, in their units and order, for every chart."""

from __future__ import annotations

import io
import re
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import viz_tables
from figures import KEYS, cut_to_one_chart, draw_example, run_checks

import viz
from app.saving import csv_files
from viz.figure_text import count, percent, real
from viz.marks import MARK_COLUMN, TEXT_COLUMN, marks

# Without hover texts, without numbers, or with words about other numbers than those of the axes.
WORDLESS = {
    "joint_steps", "lineage", "feature_map", "feature_moves", "kept_share", "drift_objective", "saliency_matrix",
    "guess_cells", "guess_choice", "guess_order", "network_map",
}  # fmt: skip


@cache
def table_of(key: str) -> pd.DataFrame:
    return marks(draw_example(key), cut_to_one_chart(key).picks)


def plain(name: str) -> str:
    return re.sub(r"<[^>]*>", "", name)


def every_explained_mark_is_a_row(key: str) -> None:
    table, figure = table_of(key), draw_example(key)
    names = list(dict.fromkeys(table[MARK_COLUMN]))
    for trace in figure.data:
        if trace.hoverinfo == "skip" or trace.type == "heatmap" or (trace.meta or {}).get("is_control"):
            continue
        same = [other for other in figure.data if other.name == trace.name and other.hoverinfo != "skip"]
        upright = bool((trace.meta or {}).get("upright"))
        shown = sum(1 if upright else int((np.isfinite(one.x) & np.isfinite(one.y)).sum()) for one in same)
        assert (table[MARK_COLUMN] == plain(trace.name)).sum() == shown, trace.name
    order = list(dict.fromkeys(plain(trace.name) for trace in figure.data))
    assert [name for name in order if name in names] == [name for name in names if name in order]


def the_numbers_of_a_row_are_those_that_its_mark_says(key: str) -> None:
    if key in WORDLESS:
        return
    rows = table_of(key).dropna(subset=[TEXT_COLUMN])
    rows = rows[rows[TEXT_COLUMN].str.contains(r"\d") & (rows[TEXT_COLUMN] != "")]
    assert len(rows)
    right = [_says(row) for row in rows.to_dict("records")]
    assert np.mean(right) > 0.95, rows[~np.array(right)].head(3).to_dict("records")


def _says(row: dict[Any, Any]) -> bool:
    """Whether a number of the row stands in the words of the mark, as figures write numbers."""
    words = row[TEXT_COLUMN].replace("−", "-").replace("+", "")
    numbers = [value for value in row.values() if isinstance(value, float) and np.isfinite(value)]
    return any(
        form in words
        for value in numbers
        for form in (
            real(value), percent(value / 100).removesuffix("%"), percent(value / 100, 2), count(value), f"{value:.1f}",
            f"{value:.2f}", f"{value:.3f}",
        )
        if form not in ("0", "0.0")
    ) or any(value == 0 for value in numbers)  # fmt: skip


def the_file_can_be_read_as_csv(key: str) -> None:
    table = table_of(key)
    read = pd.read_csv(io.BytesIO(csv_files.csv_with_source(table, {}, "From here, n = 4")))
    assert (
        list(read.columns) == [*(name for name in table if not name.startswith("(")), csv_files.SOURCE_COLUMN]
        or len(read.columns) == len(table.columns) + 1
    )
    assert len(read) == len(table)
    assert (
        read[csv_files.SOURCE_COLUMN].iloc[0] == "From here, n = 4"
        and read[csv_files.SOURCE_COLUMN].iloc[1:].isna().all()
    )
    numeric = table.select_dtypes("number").to_numpy()
    np.testing.assert_allclose(read[table.select_dtypes("number").columns].to_numpy(), numeric, rtol=1e-9)


@pytest.mark.parametrize("key", KEYS)
def test_every_check_holds(key: str) -> None:
    words = the_numbers_of_a_row_are_those_that_its_mark_says
    run_checks([every_explained_mark_is_a_row, words, the_file_can_be_read_as_csv], key)


def test_what_the_chart_computes_is_in_the_file() -> None:
    """Options change what is drawn, and so the file; what is left out is not in it."""
    table = viz_tables.task_accuracy(3)
    table.loc[table["task"] == table["task"].iloc[0], "expert"] = np.nan
    rows = marks(viz.draw("task_accuracy", table, normalized=True), cut_to_one_chart("task_accuracy").picks)
    kept = table[table["expert"] > 0]
    own = rows.dropna(subset=["task"])
    assert len(own) == len(kept) and set(own["task"]) == set(kept["task"])
    value = next(name for name in rows if "ccuracy" in name and not name.endswith(("low", "high")))
    ratios = kept.set_index(["run", "task"])[["accuracy", "expert"]].apply(
        lambda row: row.iloc[0] / row.iloc[1], axis=1
    )
    shown = own.set_index(["run", "task"])[value]
    np.testing.assert_allclose(shown / shown.iloc[0], (ratios / ratios[shown.index[0]])[shown.index], rtol=1e-5)


def test_maps_on_a_log_scale_give_the_number_itself() -> None:
    table = viz_tables.saliency_matrix(4)
    rows = marks(viz.draw("saliency_matrix", table), cut_to_one_chart("saliency_matrix").picks).dropna(
        subset=["saliency"]
    )
    own = table.set_index(["expert", "tensor"])["saliency"]
    pairs = pd.MultiIndex.from_frame(rows[["expert", "tensor"]])
    np.testing.assert_allclose(rows["saliency"].to_numpy(), own.reindex(pairs).to_numpy(), rtol=1e-5)


def test_experts_are_keys_in_the_file() -> None:
    content = csv_files.csv_with_source(
        pd.DataFrame({"expert": ["Land use", "x"], "value": [1, 2]}), {"Land use": "land"}, "s"
    )
    assert content.decode().splitlines() == ["expert,value,source", "land,1,s", "x,2,"]
