"""What a visitor has chosen is marked in every chart that draws it, and pinned runs have their colors."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest
import viz_tables

import viz
from viz import theme
from viz.chart_registry import find
from viz.chosen_names import FAINT

CHOSEN = {"expert": ("key", "Expert 1"), "class": ("frog",)}


def draw(key: str, table: pd.DataFrame, **options: Any) -> go.Figure:
    return viz.draw(key, table, chosen=CHOSEN, **options)


def first_renamed(table: pd.DataFrame, column: str, name: str) -> pd.DataFrame:
    """The table with another name for the first one in a column."""
    return table.assign(**{column: table[column].astype(object).replace(table[column].iloc[0], name)})


def clear_lines(fig: go.Figure) -> set[str]:
    """The groups of the lines that are not faint."""
    return {trace.legendgroup for trace in fig.data if trace.legendgroup and trace.opacity != FAINT}


@pytest.mark.parametrize(
    "key,column", [("coefficient_steps", "expert"), ("learning_loss", "expert"), ("routing_own", "task"),
                   ("entropy_loss", "task")],
)  # fmt: skip
def test_the_lines_of_other_experts_are_faint(key: str, column: str) -> None:
    table = getattr(viz_tables, key)()
    name = {"expert": "Expert 1", "task": "key"}[column]  # tasks have keys
    assert clear_lines(draw(key, first_renamed(table, column, name))) == {f"{column} {name}"}
    assert len(clear_lines(draw(key, table))) == table[column].nunique()  # the chosen one is not among them


@pytest.mark.parametrize(
    "key,axis", [("routing_map", "yaxis"), ("routing_image", "yaxis"), ("router_confusion", "xaxis"),
                 ("joint_steps", "xaxis"), ("compare_tensor", "yaxis")],
)  # fmt: skip
def test_a_chosen_expert_stands_out_on_its_axis(key: str, axis: str) -> None:
    table = first_renamed(getattr(viz_tables, key)(), "expert", "Expert 1")
    texts = draw(key, table).layout[axis].ticktext
    assert [text for text in texts if "▸" in text] == ["<b>▸ Expert 1</b>"]
    assert not any("▸" in text for text in viz.draw(key, table).layout[axis].ticktext)


@pytest.mark.parametrize("key", ["feature_map", "feature_moves"])
def test_a_chosen_class_is_clear_on_maps_whose_colors_are_classes(key: str) -> None:
    fig = draw(key, first_renamed(getattr(viz_tables, key)(), "group", "frog"))
    assert clear_lines(fig) - {"Selected"} == {"class frog"}
    named_alike = viz.draw(
        key, first_renamed(getattr(viz_tables, key)(), "group", "frog"), chosen={"expert": ("frog",)}
    )
    assert len(clear_lines(named_alike)) > 2  # an expert of that name is no class


def test_data_sets_on_a_map_are_tasks_and_no_classes() -> None:
    table = first_renamed(viz_tables.feature_map(), "title", "flags").assign(group=lambda rows: rows["title"])
    drawn = [viz.draw("feature_map", table, chosen={kind: ("flags",)}) for kind in ("expert", "class")]
    assert "task flags" in clear_lines(drawn[0]) and len(clear_lines(drawn[0])) < len(clear_lines(drawn[1]))


def test_a_chosen_class_is_clear_among_the_answers_and_a_click_returns_it() -> None:
    table = viz_tables.image_lens()
    name = str(table[table["line"].astype(bool)]["class"].iloc[0])
    table = table.assign(**{"class": table["class"].replace(name, "frog")})
    fig = draw("image_lens", table)
    lines = [trace for trace in fig.data if str(trace.legendgroup).startswith("class ")]
    assert {trace.legendgroup for trace in lines if trace.opacity != FAINT} == {"class frog"} and len(lines) > 1
    own = next(trace for trace in lines if trace.legendgroup == "class frog")
    assert find("image_lens").read_pick([{"customdata": own.customdata[0]}]) == {"class": "frog"}


def test_a_chosen_image_and_class_stand_out_among_neighbors() -> None:
    table = first_renamed(viz_tables.image_neighbors(), "class", "frog")
    image = str(table["image"].iloc[0])
    fig = viz.draw("image_neighbors", table, chosen=CHOSEN | {"image": (image,)})
    thick = [shape for shape in fig.layout.shapes if shape.line.width == 5]
    assert len(thick) == int((table["image"] == image).sum()) and thick[0].line.color == theme.ACCENT
    named = [note.text for note in fig.layout.annotations if "▸" in note.text]
    assert len(named) == int((table["class"] == "frog").sum()) and named[0].startswith("<b>▸ frog</b><br>")
    alike = viz.draw("image_neighbors", table, chosen={"expert": ("frog",)})
    assert not any("▸" in note.text for note in alike.layout.annotations)  # an expert of that name is no class


def test_a_chosen_expert_stands_out_at_its_stream_and_no_word_of_the_map_does() -> None:
    table = first_renamed(viz_tables.network_map(3, 2), "expert", "input")
    notes = viz.draw("network_map", table, chosen={"expert": ("input",)}).layout.annotations
    assert [note.name for note in notes if "▸" in note.text] == ["expert"]
    assert not any(
        "▸" in note.text for note in viz.draw("network_map", table, chosen={"class": ("input",)}).layout.annotations
    )


# Pinned runs


def pinned_marks(fig: go.Figure, slot: int) -> list[Any]:
    """The marks over those of the run in a slot."""
    style = theme.mark_styles([str(place) for place in range(6)])[str(slot)]
    return [
        trace for trace in fig.data
        if trace.type == "scatter" and trace.hoverinfo == "skip" and trace.marker.size == 13
        and (trace.marker.color, trace.marker.symbol) == style
    ]  # fmt: skip


@pytest.mark.parametrize("key,x,y", [("sweep_lines", "x", "h_score"), ("sweep_contour", "x", "y")])
def test_a_pinned_run_has_its_color_along_a_sweep(key: str, x: str, y: str) -> None:
    table = getattr(viz_tables, key)().assign(run=lambda rows: [f"r{place}" for place in range(len(rows))])
    marks = pinned_marks(viz.draw(key, table, pinned=["gone", "", "r3"]), 2)
    row = table.iloc[3]
    assert any((trace.x[0], trace.y[0]) == pytest.approx((row[x], row[y])) for trace in marks)
    assert not pinned_marks(viz.draw(key, table), 2)


def test_a_pinned_run_has_its_color_at_the_end_of_an_arrow_and_others_are_gray() -> None:
    table = viz_tables.plugin_arrows()
    row = table[table["kind"] == "plugged"].iloc[0]
    fig = viz.draw("plugin_arrows", table, pinned=["", row["run"]])
    (mark,) = pinned_marks(fig, 1)
    assert (mark.x[0], mark.y[0]) == pytest.approx((row["in_domain"], row["out_of_domain"]))
    ends = [trace for trace in fig.data if str(trace.name).startswith("With it")]
    assert {trace.marker.color for trace in ends} == {theme.REFERENCE}
    plain = viz.draw("plugin_arrows", table)
    assert theme.REFERENCE not in {t.marker.color for t in plain.data if str(t.name).startswith("With it")}


@pytest.mark.parametrize("key", ["compare_scores", "compare_tensor", "compare_spectrum", "compare_distance"])
def test_the_two_runs_have_the_colors_that_the_page_gives(key: str) -> None:
    colors = (theme.GREEN, theme.SKY)
    drawn = str(viz.draw(key, getattr(viz_tables, key)(), colors=colors).to_dict())
    assert all(color in drawn for color in colors) and theme.RUN_A not in drawn and theme.RUN_B not in drawn


def test_where_only_one_run_is_right_the_cell_has_a_tint_of_its_color() -> None:
    table = viz_tables.compare_agreement()
    fills = [shape.fillcolor for shape in viz.draw("compare_agreement", table).layout.shapes]
    own = [
        shape.fillcolor for shape in viz.draw("compare_agreement", table, colors=(theme.GREEN, theme.SKY)).layout.shapes
    ]
    assert [new for old, new in zip(fills, own, strict=True) if old != new] == [
        theme.tint(theme.GREEN, 0.3), theme.tint(theme.SKY, 0.3),
    ]  # fmt: skip
