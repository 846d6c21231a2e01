"""The figures of drift draw the numbers of their tables, and clicks and outlines meet the cells that they name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import viz_tables

import viz
from viz import theme
from viz.chart import ChartError
from viz.chart_registry import find


def _named(fig, name):
    (trace,) = [trace for trace in fig.data if trace.name == name]
    return trace


def test_depth_draws_means_and_bands():
    table = viz_tables.drift_depth(3, 5)
    fig = viz.draw("drift_depth", table.sample(frac=1, random_state=0), runs=["r000", "r001"], band="every")
    for label in ("Merge 0", "Merge 1", "Merge 2"):
        rows = table[table["label"] == label].groupby("position")["cosine"]
        line = _named(fig, label)
        np.testing.assert_allclose(line.x, sorted(table["position"].unique()))
        np.testing.assert_allclose(line.y, rows.mean(), rtol=1e-6)
        if label != "Merge 2":  # the yardstick has no band
            band = _named(fig, f"{label}, all tasks")
            np.testing.assert_allclose(band.y, [*rows.min(), *rows.max()[::-1]], rtol=1e-6)
    assert _named(fig, "Merge 2").line.dash == "dash"
    assert not [trace for trace in fig.data if trace.name == "Merge 2, all tasks"]
    one = viz.draw("drift_depth", table, band="r001")
    assert [trace.name for trace in one.data if "all tasks" in trace.name] == ["Merge 1, all tasks"]
    assert list(fig.layout.xaxis.ticktext) == ["stem", *map(str, range(6)), "embedding"]
    other = viz.draw("drift_depth", table, value="l1")
    np.testing.assert_allclose(_named(other, "Merge 0").y, 2 * _named(fig, "Merge 0").y, rtol=1e-6)
    with pytest.raises(ChartError, match="option value is 'l2'"):
        viz.draw("drift_depth", table, value="l2")


def test_accuracy_draws_every_point_in_its_tasks_color_and_its_runs_symbol():
    table = viz_tables.drift_accuracy(3, 4)
    table.loc[2, "lost"] = np.nan
    fig = viz.draw("drift_accuracy", table, fit=(0.8, 0.01, 0.9, 0.85, 11), runs=["r000", "r001", "r002"])
    points = {tuple(d): (x, y) for t in fig.data if t.customdata is not None
              for d, x, y in zip(t.customdata, t.x, t.y, strict=True)}  # fmt: skip
    complete = table.drop(index=2).set_index(["run", "task"])
    assert set(points) == set(complete.index)
    for key, point in points.items():
        assert point == pytest.approx((complete.loc[key, "cosine"], 100 * complete.loc[key, "lost"]), rel=1e-5)
    shapes = _named(fig, "Merge 1").marker.symbol
    task = _named(fig, "Shapes")
    assert [s for s, d in zip(task.marker.symbol, task.customdata, strict=True) if d[0] == "r001"] == [shapes]
    assert len({_named(fig, title).marker.color for title in ("Shapes", "Digits", "Letters")}) == 3
    line = _named(fig, "Fitted line")
    np.testing.assert_allclose(line.y, 100 * (0.8 * line.x + 0.01), rtol=1e-5)
    said = [annotation.text for annotation in fig.layout.annotations]
    assert any("r = 0.90" in text and "ρ = 0.85" in text and "n = 11" in text for text in said)
    assert any("Left out" in text and "1 point" in text for text in said)
    assert "Nothing to draw" in viz.draw("drift_accuracy", table.assign(lost=np.nan)).layout.meta["alt"]


@pytest.mark.parametrize(
    ("key", "rows", "value"), [("drift_layers", "task", "relative"), ("drift_removed", "expert", "removed")]
)
def test_heat_maps_draw_cells_and_take_clicks_where_they_are(key, rows, value):
    table = getattr(viz_tables, key)(3, 2)
    fig = viz.draw(
        key, table.sample(frac=1, random_state=1).sort_values(rows, key=lambda c: c.map(_place(table, rows)))
    )
    heat, cells = fig.data
    drawn = 10.0**heat.z if key == "drift_layers" else heat.z
    by_name = table.set_index([rows, "tensor"])[value]
    for x, base, (name, tensor), words in zip(cells.x, cells.base, cells.customdata, cells.text, strict=True):
        assert drawn[int(base + 0.5), int(x)] == pytest.approx(by_name[name, tensor], rel=1e-4, abs=1e-7)
        assert tensor in words and find(key).picks == (rows, "tensor")
    assert list(cells.customdata[len(table["tensor"].unique()) - 1])[1] == "visual.proj"  # data meets it last

    def outlined(*selected):
        shapes = viz.draw(key, table, selected=selected).layout.shapes
        return [(s.x0, s.x1, s.y0, s.y1) for s in shapes if s.name == "selected"]

    first, tensor = table[rows].iloc[0], table["tensor"].iloc[7]
    assert outlined(first, tensor) == [(6.5, 7.5, -0.5, 0.5)]
    assert outlined(None, tensor) == [(6.5, 7.5, -0.5, 2.5)]
    assert outlined("nobody", "nothing") == []
    with pytest.raises(ChartError, match="every pair needs one"):
        viz.draw(key, table.iloc[:-1])


def _place(table, rows):
    return {name: place for place, name in enumerate(dict.fromkeys(table[rows]))}


def test_what_cat_removes_goes_by_the_tasks_titles_where_they_are_known():
    table = viz_tables.drift_removed(2, 1)
    named = viz.draw("drift_removed", table.assign(title=table["expert"].map(str.upper)))
    plain = viz.draw("drift_removed", table)
    assert [text.upper() for text in plain.layout.yaxis.ticktext] == list(named.layout.yaxis.ticktext)
    assert plain.layout.yaxis.ticktext != named.layout.yaxis.ticktext


def test_heat_maps_survive_zeros():
    table = viz_tables.drift_layers(3, 2)
    for blank in (table.assign(relative=0.0), table.assign(relative=np.nan)):
        heat = viz.draw("drift_layers", blank).data[0]
        assert heat.zmin < heat.zmax
    heat = viz.draw("drift_layers", table).data[0]
    assert all(label.endswith("%") for label in heat.colorbar.ticktext)


def test_one_layer_draws_every_task_and_run():
    table = viz_tables.drift_tensor(3, 4)
    fig = viz.draw("drift_tensor", table, tensor="visual.proj", selected="t2", runs=["r000", "r001", "r002"])
    for run, rows in table.groupby("label"):
        trace = _named(fig, run)
        np.testing.assert_allclose(trace.x, rows["relative"], rtol=1e-6)
        assert [round(y) for y in trace.y] == [0, 1, 2, 3]
    (box,) = [shape for shape in fig.layout.shapes if shape.name == "selected"]
    assert (box.y0, box.y1) == (1.5, 2.5)


def test_the_objective_is_drawn_as_a_multiple_of_pretrained():
    table = viz_tables.drift_objective(2)
    table.loc[3, ["merged", "mean", "least", "pretrained"]] = 0.0  # no expert moved it
    fig = viz.draw("drift_objective", table, label="LOT", selected="visual.proj")
    rows = table.drop(index=3).sort_values("order")
    for name, column in (("LOT", "merged"), ("Mean of the experts", "mean"), ("LOT's own solution", "least")):
        np.testing.assert_allclose(_named(fig, name).y, rows[column] / rows["pretrained"], rtol=1e-5)
    assert [data[0] for data in _named(fig, "LOT").customdata] == list(rows["tensor"])
    assert len([shape for shape in fig.layout.shapes if shape.name == "selected"]) == 1
    fig = viz.draw("drift_objective", table, label="LOT", run="b", runs=["a", "b"])
    assert _named(fig, "LOT").marker.color == theme.PALETTE[1]  # the run's own, as in the pictures beside it
    assert _named(fig, "Mean of the experts").marker.color == theme.FADED
    nothing = viz.draw("drift_objective", table.assign(pretrained=0.0))
    assert "no expert moved" in nothing.layout.meta["alt"]


def test_the_cases_draw_their_tables():
    weights = viz_tables.drift_case_weights(5)
    fig = viz.draw("drift_case_weights", weights)
    for task, rows in weights.groupby("task"):
        np.testing.assert_allclose(_named(fig, task).y, rows["weight"], rtol=1e-6)
    drift = viz_tables.drift_case_objective(3)
    fig = viz.draw("drift_case_objective", drift)
    for task, rows in drift.groupby("task"):
        np.testing.assert_allclose(_named(fig, task).x, rows["drift"], rtol=1e-6)
    np.testing.assert_allclose(_named(fig, "Sum").x, drift.groupby("merge", sort=False)["drift"].sum(), rtol=1e-6)


def test_exemplars_draw_means_bands_rank_and_references():
    table = viz_tables.drift_exemplars(2)
    rank = pd.DataFrame({"exemplars": [1, 1, 64, 64], "seed": [0, 1, 0, 1], "full": [0.2, 0.3, 0.9, 1.0]})
    fig = viz.draw("drift_exemplars", table, rank=rank, references={"Pretrained": 0.48})
    for method in ("Method 0", "Method 1"):
        rows = table[table["method"] == method].groupby("exemplars")["accuracy"]
        np.testing.assert_allclose(_named(fig, method).x, range(7))
        np.testing.assert_allclose(_named(fig, method).y, rows.mean(), rtol=1e-6)
        np.testing.assert_allclose(_named(fig, f"{method}, all draws").y, [*rows.min(), *rows.max()[::-1]], rtol=1e-6)
    below = _named(fig, "Full rank")
    assert below.yaxis == "y2"
    np.testing.assert_allclose(below.y, [0.25, 0.95], rtol=1e-6)
    assert fig.layout.yaxis2.title.text and fig.layout.yaxis.domain[0] > fig.layout.yaxis2.domain[1]
    assert any("Pretrained 48.0%" in annotation.text for annotation in fig.layout.annotations)


def test_references_that_lie_close_share_a_label():
    found = {"Pretrained": 0.5, "Experts": 0.951, "On all tasks": 0.953, "Best": 0.98}
    fig = viz.draw("drift_exemplars", viz_tables.drift_exemplars(), references=found)
    texts = [note.text for note in fig.layout.annotations]
    assert texts == ["Best 98.0%, On all tasks 95.3%, Experts 95.1%", "Pretrained 50.0%"]
    assert len(fig.layout.shapes) == 4
