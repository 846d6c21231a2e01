"""The figures of masks draw the numbers of their tables, and clicks meet the cells that they name."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
import viz_tables
from figures import cut_to_one_chart, traces

import viz
from viz import figure_text, theme
from viz.chart import ChartError

# --- saliency_matrix


def test_saliency_matrix_draws_the_tables_numbers_in_model_order() -> None:
    table = viz_tables.saliency_matrix(3, 2)
    shuffled = table.sample(frac=1, random_state=0)
    shuffled["expert"] = pd.Categorical(shuffled["expert"])
    fig = viz.draw("saliency_matrix", shuffled)
    experts = list(dict.fromkeys(shuffled["expert"]))
    wide = table.pivot(index="expert", columns="order", values=["saliency", "kept", "final"]).loc[experts]
    saliency, own, final = fig.data[:3]
    np.testing.assert_allclose(10.0**saliency.z, wide["saliency"].astype(float), rtol=1e-5)
    np.testing.assert_array_equal(own.z, wide["kept"].astype(int))
    np.testing.assert_array_equal(final.z, wide["final"].astype(int).iloc[:1])
    assert [trace.yaxis for trace in fig.data[:3]] == ["y", "y2", "y3"]


def test_saliency_matrix_hovers_and_clicks_name_the_cell_they_lie_on() -> None:
    table = viz_tables.saliency_matrix(2, 2)
    for group in ("order", "block", "part"):
        fig = viz.draw("saliency_matrix", table, group=group)
        heat, cells = fig.data[0], fig.data[3]
        by_name = table.set_index(["expert", "tensor"])["saliency"]
        rows = np.asarray(cells.base) + 0.5
        for x, y, (expert, tensor), words in zip(cells.x, rows, cells.customdata, cells.text, strict=True):
            assert 10.0 ** heat.z[int(y), int(x)] == pytest.approx(by_name[expert, tensor], rel=1e-5)
            assert tensor in words and expert in words and figure_text.real(by_name[expert, tensor]) in words


def test_saliency_matrix_covers_every_cell_with_a_bar_that_takes_the_click() -> None:
    fig = viz.draw("saliency_matrix", viz_tables.saliency_matrix(3, 2))
    assert fig.layout.barmode == "overlay"  # stacked, the bars would drift off their rows
    for heat, cells in zip(fig.data[:3], fig.data[3:], strict=True):
        assert (cells.type, cells.width, cells.marker.opacity, cells.yaxis) == ("bar", 1, 0, heat.yaxis)
        covered = {(int(base + 0.5), int(x)) for base, x, y in zip(cells.base, cells.x, cells.y, strict=True) if y == 1}
        assert covered == {(i, j) for i in range(heat.z.shape[0]) for j in range(heat.z.shape[1])}
    shared = [{"customdata": {"0": "", "1": "visual.proj"}}]
    assert cut_to_one_chart("saliency_matrix").read_pick(shared) == {"tensor": "visual.proj"}


@pytest.mark.parametrize(
    ("key", "options"),
    [("saliency_matrix", {}), ("saliency_matrix", {"guides": True}), ("manual_canvas", {"brush": 0.5})],
)
def test_pictures_of_masks_of_twenty_large_experts_stay_small(key: str, options: dict[str, Any]) -> None:
    table = viz_tables.saliency_matrix(20, 24)
    assert len(table) > 20 * 290
    if key == "manual_canvas":
        table = table.assign(factor=table["kept"].astype(float))
    assert len(viz.draw(key, table, **options).to_json()) < 1_500_000


def test_a_large_matrix_names_one_tensor_in_each_column_of_own_masks() -> None:
    table = viz_tables.saliency_matrix(20, 24)
    fig = viz.draw("saliency_matrix", table)
    heat, cells, columns = fig.data[1], fig.data[3], fig.data[4]
    assert len(cells.x) == len(table) and list(columns.x) == list(range(heat.z.shape[1]))
    assert set(columns.y) == {20} and set(columns.base) == {-0.5} and columns.yaxis == heat.yaxis
    assert [row for row, _ in columns.customdata] == [""] * len(columns.x)
    assert all(tensor in words for (_, tensor), words in zip(columns.customdata, columns.text, strict=True))


def test_saliency_matrix_groups_columns() -> None:
    table = viz_tables.saliency_matrix(2, 3)
    part_of = table.set_index("tensor")["part"].to_dict()
    by_part = [name for _, name in viz.draw("saliency_matrix", table, group="part").data[5].customdata]
    inside = [part_of[name] for name in by_part if "resblocks" in name]
    assert len([1 for a, b in pairwise(inside) if a != b]) == len(set(inside)) - 1
    in_order = [name for _, name in viz.draw("saliency_matrix", table).data[5].customdata]
    assert in_order == list(viz_tables.tensors(3)["tensor"])
    with pytest.raises(ChartError, match="option group is 'size'"):
        viz.draw("saliency_matrix", table, group="size")


def test_saliency_matrix_outlines_the_selection() -> None:
    table = viz_tables.saliency_matrix(3, 2)
    tensor = table["tensor"].iloc[7]

    def outlines(*selected: str | None) -> list[Any]:
        fig = viz.draw("saliency_matrix", table, selected=selected)
        return [shape for shape in fig.layout.shapes if shape.name == "selected"]

    assert outlines(None, None) == []
    cell = outlines("Digits", tensor)
    assert [(s.x0, s.x1, s.yref) for s in cell] == [(6.5, 7.5, "y"), (6.5, 7.5, "y2"), (6.5, 7.5, "y3")]
    assert (cell[0].y0, cell[0].y1) == (0.5, 1.5)
    assert len(outlines("Digits", None)) == 2 and len(outlines(None, tensor)) == 3
    assert outlines("Nobody", "nothing") == []


def test_saliency_matrix_survives_zeros() -> None:
    zeros = viz.draw("saliency_matrix", viz_tables.saliency_matrix(3, 2).assign(saliency=0.0)).data[0]
    assert np.isfinite(zeros.z).all() and zeros.zmin < zeros.zmax


def test_saliency_matrix_needs_every_pair_and_says_when_no_mask_is_shared() -> None:
    table = viz_tables.saliency_matrix(2, 2)
    with pytest.raises(ChartError, match="no row of expert 'Digits'"):
        viz.draw("saliency_matrix", table.iloc[:-1])
    captions = [a.text for a in viz.draw("saliency_matrix", table.assign(final=table["kept"])).layout.annotations]
    assert any("no mask is shared" in caption for caption in captions)


# --- the others


def test_saliency_tensor_splits_kept_from_pruned() -> None:
    table = viz_tables.saliency_tensor(8)
    fig = viz.draw("saliency_tensor", table)
    (kept,), (pruned,), (threshold,) = (traces(fig, name) for name in ("Kept", "Pruned", "Threshold"))
    np.testing.assert_allclose(np.where(table["kept"], kept.x, pruned.x), table["saliency"], rtol=1e-6)
    np.testing.assert_array_equal(np.isnan(kept.x), ~table["kept"])
    np.testing.assert_allclose(threshold.x, table["threshold"], rtol=1e-6)


def test_saliency_tensor_keeps_colors_when_experts_are_filtered() -> None:
    table = viz_tables.saliency_tensor(4)
    names = list(table["expert"])
    few = viz.draw("saliency_tensor", table.iloc[2:], experts=names)
    assert traces(few, "Kept")[0].marker.color == (theme.PALETTE[2], theme.PALETTE[3])


@pytest.mark.parametrize("by", ["role", "part"])
def test_kept_share_adds_up(by: str) -> None:
    table = viz_tables.kept_share(3, 4)
    table["kept_numel"] = (table["numel"] * table["kept"] * 0.5).astype(int)
    fig = viz.draw("kept_share", table, by=by)
    bars = [trace for trace in fig.data if trace.type == "bar"]
    np.testing.assert_allclose(np.sum([bar.x for bar in bars], axis=0), 1, rtol=1e-6)
    totals = table.groupby("section", sort=False)[["kept_numel", "numel"]].sum()
    shown = np.sum([bar.x for bar in bars if bar.name != "pruned"], axis=0)
    np.testing.assert_allclose(shown, totals["kept_numel"] / totals["numel"], rtol=1e-5)
    assert by == "part" or "norm scale" in {bar.name for bar in bars}
