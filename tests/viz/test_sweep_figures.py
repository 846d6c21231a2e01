"""The figures of sweeps: what fails a requirement is shaded and marked, at the required value."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import viz_tables

import viz


def judged(table: pd.DataFrame, column: str, at_least: float) -> pd.DataFrame:
    return table.assign(required=table[column], meets=table[column] >= at_least, certainty=0.81)


def white(fig: go.Figure) -> list[go.Scatter]:
    return [trace for trace in fig.data if trace.type == "scatter" and trace.marker.color == "white"]


def test_lines_are_shaded_below_the_bound_in_its_panel_and_failing_points_are_white() -> None:
    table = judged(viz_tables.sweep_lines(11, 2), "out_of_domain", 0.55)
    plain = viz.draw("sweep_lines", table.drop(columns=["required", "meets", "certainty"]))
    fig = viz.draw("sweep_lines", table, required=("out_of_domain", 0.55))
    assert not white(plain) and not plain.layout.shapes
    area, edge = fig.layout.shapes
    assert (area.type, area.yref, area.xref, area.y1) == ("rect", "y2", "x domain", 0.55)
    assert edge.y0 == edge.y1 == 0.55
    low, high = fig.layout.yaxis2.range
    assert area.y0 == low < table["out_low"].min() and high > table["out_high"].max()
    marks = white(fig)
    assert len(marks) == 2 * 3  # every recipe in every panel
    failing = table[~table["meets"]]
    of_first = failing[failing["line"] == "0"].sort_values("x")
    assert marks[0].x.tolist() == of_first["x"].astype(np.float32).tolist()
    assert [point for (point,) in marks[0].customdata] == of_first["point"].tolist()  # they take clicks, too
    assert "does not meet the requirement, which 81% of the draws do" in marks[0].text[0]


def test_of_a_bound_on_a_task_its_panel_is_shaded() -> None:
    table = viz_tables.sweep_tasks(8, 5)
    meets = table[table["task"] == "t5"].set_index(["line", "x"])["accuracy"] >= 0.7
    places = pd.MultiIndex.from_frame(table[["line", "x"]])
    table = table.assign(meets=meets.reindex(places).to_numpy(), certainty=0.5)
    fig = viz.draw("sweep_tasks", table, required=("t5", 0.7))
    titles = [note for note in fig.layout.annotations if note.xref]
    panel = next(note for note in titles if str(table[table["task"] == "t5"]["title"].iloc[0]) in note.text)
    area = fig.layout.shapes[0]
    assert area.xref == panel.xref and area.y1 == 0.7
    assert sum(len(trace.x) for trace in white(fig)) == int((~table["meets"]).sum())
    assert not viz.draw("sweep_tasks", table, required=("out_of_domain", 0.7)).layout.shapes


def test_a_map_is_veiled_where_the_required_score_is_too_small() -> None:
    table = judged(viz_tables.sweep_contour(5), "out_of_domain", 0.45)
    fig = viz.draw("sweep_contour", table, required=("out_of_domain", 0.45))
    (veil,) = [trace for trace in fig.data if trace.type == "contour" and trace.contours.type == "constraint"]
    assert (veil.contours.operation, veil.contours.value) == (">", 0.45)  # plotly fills the rest
    assert veil.z[0][0] == np.float32(table["out_of_domain"].iloc[0])
    (crosses,) = [trace for trace in fig.data if trace.type == "scatter" and trace.marker.symbol == "x-thin"]
    assert len(crosses.x) == int((~table["meets"]).sum())
    row = table[table["y"] == table["y"].iloc[0]]
    fig = viz.draw("sweep_contour", row, required=("out_of_domain", 0.45))
    assert all(trace.type != "contour" for trace in fig.data)  # of one row the crosses alone say it


def test_points_of_a_program_are_open_diamonds_on_a_scale_for_each_metric() -> None:
    table = viz_tables.sweep_given(3, 5)
    fig = viz.draw("sweep_given", table, title="Scaling", values=[0.0, 2.0])
    assert {trace.marker.symbol for trace in fig.data} == {"diamond-open"} and len(fig.data) == 3 + 1 + 1
    assert (fig.layout.yaxis.title.text, fig.layout.yaxis2.title.text) == (
        "accuracy (%)<br>higher is better", "perplexity<br>lower is better",
    )  # fmt: skip
    (mean,) = [trace for trace in fig.data if trace.line.dash == "dash"]
    of_tasks = table[(table["metric"] == "accuracy") & ~table["mean"]].groupby("x")["value"].mean()
    assert np.allclose(mean.y, of_tasks) and not np.any(mean.error_y.array)
    assert fig.layout.xaxis.range[1] > 2  # also where nothing is measured yet
    assert "from my" in fig.data[0].text[0]


def test_points_that_cannot_be_told_from_the_best_have_rings_and_one_entry_in_the_legend() -> None:
    for name, made in (("sweep_lines", viz_tables.sweep_lines(11, 2)), ("sweep_contour", viz_tables.sweep_contour(5))):
        table = made.assign(
            lead=0.012, lead_low=-0.005, lead_high=0.03, is_tie=[True, False] + [None] * (len(made) - 2)
        )
        table.loc[2:, ["lead", "lead_low", "lead_high"]] = np.nan
        fig = viz.draw(name, table)
        rings = [trace for trace in fig.data if trace.name == "Cannot be distinguished from the best"]
        assert len(rings) == (3 if name == "sweep_lines" else 1)
        assert all(ring.x.tolist() == [np.float32(table["x"].iloc[0])] for ring in rings)
        assert [ring.showlegend for ring in rings].count(True) == 1
        texts = [text for trace in fig.data for text in (() if trace.text is None else trace.text)]
        assert any("+1.2 points to the best (-0.5 to +3.0), cannot be distinguished from it" in text for text in texts)
        assert any(", can be distinguished from it" in text for text in texts)
        assert not any("nan" in text for text in texts)
        assert "Cannot be distinguished from the best" not in [trace.name for trace in viz.draw(name, made).data]
