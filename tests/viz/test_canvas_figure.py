"""The canvas of factors draws its table, in the columns of the maps above it, and clicks mean what they lie on."""

from __future__ import annotations

import numpy as np
import pytest
import viz_tables
from figures import traces

import viz
from viz.chart import ChartError
from viz.parts import tensor_columns


def test_the_map_shows_factors_from_0_to_1_and_whether_experts_agree() -> None:
    table = viz_tables.manual_canvas(3, 3)
    fig = viz.draw("manual_canvas", table.sample(frac=1, random_state=0))
    shuffled = list(dict.fromkeys(table.sample(frac=1, random_state=0)["expert"]))
    wide = table.pivot(index="expert", columns="order", values="factor").loc[shuffled].to_numpy()
    drawn = fig.data[0].z
    plain = (wide >= 0) & (wide <= 1)
    np.testing.assert_allclose(drawn[:-1][plain], wide[plain], rtol=1e-6)
    same = (wide == wide[0]).all(axis=0)
    assert (drawn[-1][~same] < 0).all() and not same.all()
    np.testing.assert_allclose(drawn[-1][same & plain.all(axis=0)], wide[0][same & plain.all(axis=0)])


def test_factors_beyond_are_bars_with_their_number_or_hatched() -> None:
    table = viz_tables.manual_canvas(2, 3)
    fig = viz.draw("manual_canvas", table)
    (above,), (below,) = traces(fig, "above 1"), traces(fig, "below 0")
    assert set(above.text) == {"1.5"} and above.width[0] == 12 and len(above.y) == 3  # a block, two experts and all
    assert below.marker.pattern.shape == "/" and below.width[0] == 5
    middle = table[table["section"] == "block 1"]["order"].mean()
    assert above.x[0] == middle
    table.loc[5, "factor"] = 2.25  # one cell: its number stands upright
    flat, upright = traces(viz.draw("manual_canvas", table), "above 1")
    assert (flat.textangle, upright.textangle) == (0, -90) and list(upright.text) == ["2.25"]
    assert [flat.showlegend, upright.showlegend] == [True, False]


@pytest.mark.parametrize("group", tensor_columns.GROUP_WORDS)
def test_marks_name_the_cells_that_they_lie_on(group: str) -> None:
    table = viz_tables.manual_canvas(2, 3)
    fig = viz.draw("manual_canvas", table, group=group, brush=0.5)
    names = list(dict.fromkeys(table["expert"]))
    factor = table.set_index(["expert", "tensor"])["factor"]
    (cells,), (rows,), (groups,) = (traces(fig, name) for name in ("Cells", "Names of rows", "Names of groups"))
    for x, base, (expert, tensor, *rest), words in zip(cells.x, cells.base, cells.customdata, cells.text, strict=True):
        assert rest == ["", ""] and "a click paints 0.5" in words and tensor in words
        assert expert == ([*names, ""])[int(base + 0.5)]
        if expert and 0 <= factor[expert, tensor] <= 1:
            assert fig.data[0].z[int(base + 0.5), int(x)] == pytest.approx(factor[expert, tensor])
    assert [mark[0] for mark in rows.customdata] == [*names, ""] and rows.xaxis == "x2"
    at = {tensor: x for (_, tensor, *_), x in zip(cells.customdata, cells.x, strict=True)}
    facts = table.drop_duplicates("tensor")
    for x, width, (_, _, section, part) in zip(groups.x, groups.width, groups.customdata, strict=True):
        inside = facts[facts["section"] == section] if section else facts[facts["part"] == part]
        columns = sorted(at[name] for name in inside["tensor"])
        assert columns == list(range(round(x - width / 2 + 0.4), round(x + width / 2 - 0.4) + 1))


@pytest.mark.parametrize("group", tensor_columns.GROUP_WORDS)
def test_the_canvas_has_the_columns_of_the_maps_above_it(group: str) -> None:
    guides = viz.draw("saliency_matrix", viz_tables.saliency_matrix(3, 3), group=group, guides=True)
    canvas = viz.draw("manual_canvas", viz_tables.manual_canvas(3, 3), group=group)
    (cells,), (above,) = traces(canvas, "Cells"), traces(guides, "Saliency cells")
    assert [mark[1] for mark in cells.customdata[: len(cells.x) // 4]] == [
        mark[1] for mark in above.customdata[: len(above.x) // 3]
    ]
    assert guides.layout.xaxis.domain == canvas.layout.xaxis.domain
    assert guides.layout.xaxis.range == canvas.layout.xaxis.range
    assert (guides.layout.margin.l, guides.layout.margin.r) == (canvas.layout.margin.l, canvas.layout.margin.r)
    assert not traces(guides, "Final mask") and "yaxis3" not in guides.to_dict()["layout"]


def test_a_changed_brush_forgets_the_last_click() -> None:
    table = viz_tables.manual_canvas(2, 2)
    first, second = (viz.draw("manual_canvas", table, brush=brush) for brush in (0.0, 1.0))
    assert first.to_json() != second.to_json()  # an equal figure would keep it, and drop a click on the same cell


def test_a_missing_cell_is_refused() -> None:
    with pytest.raises(ChartError, match="every pair needs one"):
        viz.draw("manual_canvas", viz_tables.manual_canvas(2, 2).iloc[1:])
