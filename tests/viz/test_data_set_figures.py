"""The figures of answers by depth draw the shares of their tables with their intervals."""

from __future__ import annotations

import numpy as np
import pytest
import viz_tables

import viz
from viz.chart import ChartError
from viz.chart_registry import find


def test_lines_have_the_shares_and_their_intervals():
    table = viz_tables.data_set_depths(3)
    fig = viz.draw("data_set_depths", table.sample(frac=1, random_state=0), value="parts", over="in domain")
    for trace in fig.data:
        rows = table[table["label"] == trace.name].sort_values("depth")
        np.testing.assert_allclose(trace.y, rows["share"], rtol=1e-6)
        np.testing.assert_allclose(trace.y + trace.error_y.array, rows["high"], atol=1e-6)
        np.testing.assert_allclose(trace.y - trace.error_y.arrayminus, rows["low"], atol=1e-6)
        np.testing.assert_array_equal(np.round(trace.x), rows["depth"])
    assert [trace.line.dash for trace in fig.data] == ["solid", "solid", "dash"]
    assert list(fig.layout.xaxis.ticktext) == list(map(str, range(7)))  # as on every axis of depth, and in words
    assert "depth 0<" in fig.data[0].text[0] and "highest at depth" in fig.layout.meta["alt"]
    assert len({float(trace.x[0]) for trace in fig.data}) == 3  # intervals do not cover each other
    assert "in domain" in fig.layout.meta["alt"]
    with pytest.raises(ChartError, match="option value is 'turn'"):
        viz.draw("data_set_depths", table, value="turn")


def test_every_kind_of_tokens_has_a_panel():
    table = viz_tables.data_set_mended(2)
    fig = viz.draw("data_set_mended", table)
    panels = {"x": "class", "x2": "patches", "x3": "all"}
    assert len(fig.data) == 6 and sum(bool(trace.showlegend) for trace in fig.data) == 2
    for trace in fig.data:
        rows = table[(table["label"] == trace.name) & (table["tokens"] == panels[trace.xaxis])].sort_values("depth")
        np.testing.assert_allclose(trace.y, rows["share"], rtol=1e-6)
        assert "before block 0" in trace.text[0] and "before the output" in trace.text[-1]
    assert list(fig.layout.xaxis3.ticktext) == ["0", "1", "2", "3", "4", "5", "out"]
    nothing = viz.draw("data_set_mended", table.assign(share=np.nan, n=0))
    assert "no image is right with the reference only" in nothing.layout.meta["alt"]


def test_cells_are_where_their_data_set_and_depth_are():
    table = viz_tables.data_set_tasks(3)
    table.loc[4, "share"] = np.nan
    fig = viz.draw("data_set_tasks", table, value="mended")
    heat, cells = fig.data[0], fig.data[-1]
    by_name = table.set_index(["task", "depth"])["share"]
    assert find("data_set_tasks").picks == ("task", "depth") and len(cells.x) == len(table) - 1
    drawn = {(float(y), float(x)): z for x, y, z in zip(heat.x, heat.y, heat.z, strict=True)}
    for x, base, (task, depth), words in zip(cells.x, cells.base, cells.customdata, cells.text, strict=True):
        assert drawn[float(base) + 0.5, float(x)] == pytest.approx(by_name[task, int(depth)], abs=1e-6)
        assert f"before block {depth}" in words or depth == "6"
    assert "nan" not in " ".join(cells.text)
