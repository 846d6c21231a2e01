"""The figures of scores draw the numbers of their tables, and their labels keep off each other."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
import viz_tables

import viz
from viz import theme
from viz.chart import ChartError
from viz.parts.plane import PlotArea, place_labels


def test_id_ood_scatter_draws_every_complete_run_once() -> None:
    table = viz_tables.id_ood_scatter(12)
    table.loc[5, "out_of_domain"] = np.nan
    fig = viz.draw("id_ood_scatter", table)
    marks = [trace for trace in fig.data if trace.mode == "markers"]
    points = {d[0]: (x, y) for t in marks for d, x, y in zip(t.customdata, t.x, t.y, strict=True)}
    complete = table.drop(index=5).set_index("run")
    assert set(points) == set(complete.index)
    for run, point in points.items():
        assert point == pytest.approx(tuple(complete.loc[run, ["in_domain", "out_of_domain"]]), rel=1e-6)
    assert any("Left out" in a.text and "TIES" in a.text for a in fig.layout.annotations)
    x0, x1 = fig.layout.xaxis.range
    assert 0 <= x0 < complete["in_low"].min() and complete["in_high"].max() < x1 <= 1.1


def test_a_change_from_stored_scores_is_not_drawn_like_a_sample() -> None:
    table = viz_tables.preview_change()
    sampled = viz.draw("preview_change", table)
    answered = viz.draw("preview_change", table.assign(kind="stored"))
    stored = viz.draw("preview_change", table.assign(kind="stored", low=np.nan, high=np.nan))
    (hatched,), (plain,) = sampled.data, stored.data
    assert answered.data[0].marker.pattern.shape is None and answered.data[0].error_x.array is not None
    assert hatched.marker.pattern.shape == "/" and hatched.error_x.array is not None
    assert plain.marker.pattern.shape is None and plain.error_x.array is None
    assert ["interval" in fig.layout.xaxis.title.text for fig in (sampled, stored)] == [True, False]
    gained = table["difference"].to_numpy() > 0
    colors = np.array(plain.marker.color)[np.argsort(plain.y)]
    assert set(colors) == {theme.BLUE, theme.VERMILION} and (colors == theme.BLUE).sum() == gained.sum()
    notes = [" ".join(note.text for note in fig.layout.annotations) for fig in (sampled, stored)]
    assert "Preview (sampled)" in notes[0] and "Stored scores" in notes[1]
    assert "Stored scores" in stored.layout.meta["alt"] and "No intervals" in stored.layout.meta["alt"]


def test_id_ood_scatter_keeps_papers_and_test_time_rows_apart() -> None:
    fig = viz.draw("id_ood_scatter", viz_tables.id_ood_scatter(12))
    marks = {trace.name: trace for trace in fig.data if trace.mode == "markers"}
    paper = next(trace for name, trace in marks.items() if "paper" in name)
    assert all(trace.legend != paper.legend and trace.marker.symbol != paper.marker.symbol
               for trace in marks.values() if trace is not paper)  # fmt: skip
    adapted = next(trace for name, trace in marks.items() if "adapts on test data" in name)
    assert len(adapted.x) == 1 and "† adapts on test data" in adapted.text[0]
    assert "source: LwPTV, Table 2" in paper.text[0]


def test_id_ood_scatter_counts_runs_and_references_apart() -> None:
    table = viz_tables.id_ood_scatter(12)
    kinds = ["merge", "pretrained", "individual", "multitask"]
    one = table.drop_duplicates("run").head(4).assign(kind=kinds, in_domain=0.7, out_of_domain=0.6, h_score=0.65)
    assert viz.draw("id_ood_scatter", one).layout.meta["alt"].startswith("1 run, 3 references. Highest H-score of a ")
    more = one.assign(kind=["merge", "per_task", "paper", "pretrained"])
    assert viz.draw("id_ood_scatter", more).layout.meta["alt"].startswith("2 runs, 1 reference, 1 published result. ")
    assert (
        viz.draw("id_ood_scatter", more.assign(h_score=[0.6, 0.6, 0.6, float("nan")]))
        .layout.meta["alt"]
        .endswith(" 1 left out.")
    )


def test_id_ood_scatter_curves_have_the_h_score_they_say() -> None:
    fig = viz.draw("id_ood_scatter", viz_tables.id_ood_scatter(12))
    curves = [trace for trace in fig.data if trace.mode == "lines"]
    assert 3 <= len(curves) <= 8
    for curve in curves:
        level = float(curve.name.removeprefix("H = ").removesuffix("%")) / 100
        np.testing.assert_allclose(2 * curve.x * curve.y / (curve.x + curve.y), level, rtol=1e-4)


def test_id_ood_scatter_arrows_join_runs() -> None:
    table = viz_tables.id_ood_scatter(12)
    pairs = [("r003", "r004"), ("r005", "r006")]
    for arrows in (pairs, pd.DataFrame(pairs, columns=["from", "to"])):
        drawn = [a for a in viz.draw("id_ood_scatter", table, arrows=arrows).layout.annotations if a.name == "arrow"]
        assert [(a.ax, a.x) for a in drawn] == [(0.691, 0.728), (0.729, 0.731)]
    with pytest.raises(ChartError, match="'r999', which is not in the table"):
        viz.draw("id_ood_scatter", table, arrows=[("r003", "r999")])


def test_id_ood_scatter_refuses_an_unknown_kind_and_says_when_nothing_is_complete() -> None:
    table = viz_tables.id_ood_scatter(3)
    with pytest.raises(ChartError, match="the kind 'other'"):
        viz.draw("id_ood_scatter", table.assign(kind="other"))
    fig = viz.draw("id_ood_scatter", table.assign(h_score=np.nan))
    assert len(fig.data) == 0 and "Nothing to draw" in fig.layout.annotations[0].text


def _box(note: dict[str, Any]) -> tuple[float, float, float, float]:
    """Left, right, lower and upper end of a label whose mark is at px."""
    wide, high = theme.text_width(note["text"]), theme.SMALL_SIZE + 3
    x = note["x"] + note.get("xshift", note.get("ax", 0))
    y = note["y"] + note.get("yshift", -note.get("ay", 0))
    left = x - wide * {"left": 0, "center": 0.5, "right": 1}[note["xanchor"]]
    low = y - high * {"bottom": 0, "middle": 0.5, "top": 1}[note["yanchor"]]
    return left, left + wide, low, low + high


def test_labels_keep_off_each_other_and_the_marks() -> None:
    marks = [(100.0 + 3 * i, 100.0 + 2 * i) for i in range(40)]
    placed = place_labels([f"label {i}" for i in range(40)], marks, [PlotArea(marks, (400, 300))])
    assert 0 < len(placed) < 40  # some find no room, and are left out rather than piled up
    boxes = [_box(note) for note in placed]
    for left, right, low, high in boxes:
        assert left >= 0 and right <= 400 and low >= 0 and high <= 300
        assert not any(left < x < right and low < y < high for x, y in marks)
    for one, other in combinations(boxes, 2):
        assert one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]
    alone = place_labels(["a"], [(0.5, 0.5)], [PlotArea([(50, 50)], (100, 100))])
    assert (alone[0]["x"], alone[0]["y"]) == (0.5, 0.5)


@pytest.mark.parametrize("normalized", [False, True])
def test_task_accuracy_draws_the_tables_numbers(normalized: bool) -> None:
    table = viz_tables.task_accuracy(3, 6)
    fig = viz.draw("task_accuracy", table, normalized=normalized)
    rows = table.set_index(["run", "task"])
    seen = 0
    for trace in fig.data:
        if trace.customdata is None:
            continue
        for (run, task), x, above in zip(trace.customdata, trace.x, trace.error_x.array, strict=True):
            row = rows.loc[(run, task)]
            scale = row["expert"] if normalized else 1
            assert x == pytest.approx(row["accuracy"] / scale, rel=1e-6)
            assert x + above == pytest.approx(row["high"] / scale, rel=1e-6)
            seen += 1
    assert seen == (table["expert"].notna().sum() if normalized else len(table))
    notes = [a.text for a in fig.layout.annotations]
    assert any("Left out" in note for note in notes) == normalized
    assert any("Out-of-domain" in note for note in notes) != normalized


def test_task_accuracy_lanes_do_not_collide_and_legends_do_not_repeat() -> None:
    fig = viz.draw("task_accuracy", viz_tables.task_accuracy(5, 6))
    lanes: dict[str, set[float]] = {}
    for trace in fig.data:
        for (_, task), y in zip(() if trace.customdata is None else trace.customdata, trace.y, strict=False):
            assert round(float(y), 4) not in lanes.setdefault(task, set())
            lanes[task].add(round(float(y), 4))
    assert all(max(ys) - min(ys) < 1 for ys in lanes.values())
    entries = [trace.name for trace in fig.data if trace.showlegend]
    assert len(entries) == len(set(entries))


def test_task_accuracy_leaves_room_for_its_legend_beside_long_names_of_tasks() -> None:
    short = viz_tables.task_accuracy(4, 3)
    long = short.assign(title=short["title"].map(lambda title: f"{title} in twenty characters and more"))
    margins = [viz.draw("task_accuracy", table).layout.margin for table in (short, long)]
    assert margins[1].l > margins[0].l and margins[1].t > margins[0].t  # a narrower plot, and more rows above it


def test_runs_have_one_color_in_measured_and_in_imported_scores() -> None:
    table = viz_tables.given_scores(3)
    order = ["another", *dict.fromkeys(table["run"])][::-1]
    mark_styles = theme.mark_styles(order)
    labels = dict(zip(table["label"], table["run"], strict=True))
    drawn = {trace.name: trace.marker.color for trace in viz.draw("given_scores", table, runs=order).data}
    assert drawn == {label: mark_styles[run].color for label, run in labels.items()}
