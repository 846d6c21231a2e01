"""Common checks over every chart: what it draws is the table's, readable, bounded in size, and safe to show."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import viz_tables

import viz
from viz import text, theme
from viz.chart import Chart, ChartError
from viz.parts.labels import Box, PlotArea, place_labels

CHARTS = viz.charts()
KEYS = [chart.key for chart in CHARTS]
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<b>bold</b> <a href='javascript:alert(1)'>x</a>",
    "$\\href{javascript:alert(1)}{x}$",
    "%{customdata[0]} %{x}",
    "evil\u202egnp.exe\x00\n",
    "lone \ud800 surrogate",
    "long " * 100,
    "& &amp; &#60;script&#62;",
]
TABLES: dict[str, Callable[..., pd.DataFrame]] = {key: getattr(viz_tables, key) for key in KEYS}


def one_chart(key: str) -> Chart:
    return next(chart for chart in CHARTS if chart.key == key)


@cache
def drawn(key: str, number: int = 4) -> go.Figure:
    """The example figure, drawn once for all tests that only look at it."""
    return viz.draw(key, TABLES[key](number))


@cache
def spec_of(key: str) -> str:
    """That figure as JSON."""
    return str(drawn(key).to_json())


def strings(value: Any) -> Iterator[str]:
    """Every string inside a figure's JSON, customdata left out: it is handed back to the app and never shown."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (s for k, v in value.items() if k not in ("customdata", "bdata", "template") for s in strings(v))
    elif isinstance(value, list):
        yield from (s for item in value for s in strings(item))


def traces(fig: go.Figure, name: str) -> list[Any]:
    return [trace for trace in fig.data if trace.name == name]


def shown_on_axis(fig: go.Figure, axis: str) -> bool:
    return fig.layout[axis].visible is not False


# --- every chart


def test_the_registry_holds_the_charts() -> None:
    assert {"saliency_matrix", "saliency_tensor", "kept_share", "id_ood_scatter", "task_accuracy"} <= set(KEYS)
    for chart in CHARTS:
        assert re.fullmatch(rf"viz\.figures\.\w+\.{chart.key}", chart.render.__module__)
        assert chart.question.endswith("?") and chart.title and chart.empty.endswith(".")
        assert set(chart.rows) <= set(chart.columns)
        assert "present" in chart.options


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("number", [1, 4, 20])
def test_figure_is_complete(key: str, number: int) -> None:
    fig = drawn(key, number)
    assert fig.layout.meta["key"] == key
    assert fig.layout.meta["alt"].endswith(".")
    assert not {"nan", "None", "inf"} & set(fig.layout.meta["alt"].replace(".", " ").split())
    assert fig.layout.height > 100 and fig.layout.width is None
    assert fig.layout.uirevision and fig.layout.clickmode is None
    assert fig.layout.dragmode == ("lasso" if key == "feature_map" else None)  # with any, plotly drops single clicks
    axes = [axis for axis in fig.layout if axis.startswith(("xaxis", "yaxis")) and axis != "yaxis3"]
    assert len(axes) >= 2
    assert all(fig.layout[axis].title.text for axis in axes)
    assert fig.layout.template.layout.plot_bgcolor == "white"
    assert len(fig.data) > 0


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("number", [1, 4, 20])
def test_every_trace_is_named_finite_and_explained(key: str, number: int) -> None:
    for trace in drawn(key, number).data:
        assert trace.name
        assert trace.hovertemplate or trace.hoverinfo == "skip"
        assert "%{x}" not in (trace.hovertemplate or "")
        for axis in ("x", "y", "z"):
            if axis not in trace or trace[axis] is None:
                continue
            values = trace[axis]
            assert isinstance(values, np.ndarray) and values.dtype in (np.float32, np.uint8)
            if trace.name != "Distance" and trace.name not in ("Kept", "Pruned"):  # these two have gaps on purpose
                assert np.isfinite(values).all()


@pytest.mark.parametrize("key", KEYS)
def test_no_missing_number_is_shown(key: str) -> None:
    table = TABLES[key](6)
    for column in ("saliency", "norm", "relative", "n_in", "expert", "zero_shot", "low", "high", "out_low"):
        if column in table and pd.api.types.is_float_dtype(table[column]):
            table.loc[table.index[0], column] = np.nan
    words = " ".join(strings(json.loads(viz.draw(key, table).to_json())))
    assert "nan" not in words.lower().replace(";", " ").split()


@pytest.mark.parametrize("key", KEYS)
def test_hover_texts_belong_to_their_points(key: str) -> None:
    for trace in drawn(key).data:
        if trace.text is not None:
            assert len(trace.text) == len(trace.y)
        if trace.customdata is not None:
            assert len(trace.customdata) == len(trace.y)
            assert all(len(item) == len(one_chart(key).picks) for item in trace.customdata)


@pytest.mark.parametrize("key", KEYS)
def test_an_empty_table_gives_a_sentence(key: str) -> None:
    fig = viz.draw(key, TABLES[key](2).iloc[:0])
    assert len(fig.data) == 0
    assert fig.layout.annotations[0].text == one_chart(key).empty == fig.layout.meta["alt"]
    assert not shown_on_axis(fig, "xaxis") and not shown_on_axis(fig, "yaxis")


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_column_is_named(key: str) -> None:
    for column in one_chart(key).columns:
        with pytest.raises(ChartError, match=rf"{key} needs '{column}'"):
            viz.draw(key, TABLES[key](2).drop(columns=column))


@pytest.mark.parametrize("key", [chart.key for chart in CHARTS if chart.rows])
def test_a_repeated_row_is_refused(key: str) -> None:
    table = TABLES[key](2)
    with pytest.raises(ChartError, match="repeated"):
        viz.draw(key, pd.concat([table, table.iloc[:1]]))


@pytest.mark.parametrize("key", KEYS)
def test_an_unknown_option_is_refused(key: str) -> None:
    with pytest.raises(ChartError, match="has no option 'colour'"):
        viz.draw(key, TABLES[key](2), colour="red")


def test_an_unknown_chart_names_the_nearest() -> None:
    with pytest.raises(ChartError, match="did you mean 'saliency_matrix'"):
        viz.draw("saliency_matrx", pd.DataFrame())


@pytest.mark.parametrize("key", KEYS)
def test_hostile_names_are_escaped(key: str) -> None:
    table = TABLES[key](len(HOSTILE))
    for column in ("expert", "label", "title", "tensor", "section", "part", "source", "task", "run", "role"):
        if column in table and not pd.api.types.is_numeric_dtype(table[column]):
            distinct = list(dict.fromkeys(table[column]))
            names = {name: f"{HOSTILE[i % len(HOSTILE)]}{i // len(HOSTILE) or ''}" for i, name in enumerate(distinct)}
            table[column] = pd.Series([names[name] for name in table[column]], dtype=object, index=table.index)
    spec = json.loads(viz.draw(key, table).to_json())
    alt = spec["layout"]["meta"].pop("alt")
    for shown in strings(spec):
        bare = shown.replace("%{text}<extra></extra>", "")
        for tag in ("<br>", "<b>", "</b>"):
            bare = bare.replace(tag, "")
        assert "<" not in bare and "$" not in bare and "%{" not in bare, shown
        assert "\u202e" not in shown and "\x00" not in shown and "\n" not in shown
    assert "\u202e" not in alt and "\x00" not in alt


@pytest.mark.parametrize("key", KEYS)
def test_clicks_hand_back_raw_names(key: str) -> None:
    chart = one_chart(key)
    for trace in drawn(key).data:
        if trace.customdata is None or trace.name == "Final mask cells":
            continue
        picked = chart.picked([{"customdata": {str(i): v for i, v in enumerate(trace.customdata[0])}}])
        assert picked is not None
        rows = TABLES[key](4)
        assert (rows[list(picked)].astype(str) == list(picked.values())).all(axis=1).any()
    assert chart.picked([]) is None


@pytest.mark.parametrize("key", KEYS)
def test_presenting_enlarges_without_touching_the_numbers(key: str) -> None:
    plain, large = drawn(key), viz.draw(key, TABLES[key](4), present=True)
    assert large.layout.height == round(plain.layout.height * theme.PRESENT)
    assert large.layout.template.layout.font.size == pytest.approx(theme.FONT * theme.PRESENT)
    for small, big in zip(plain.data, large.data, strict=True):
        for axis in ("x", "y", "z"):
            if axis in small and small[axis] is not None:
                np.testing.assert_array_equal(small[axis], big[axis])


@pytest.mark.parametrize("key", KEYS)
def test_text_is_twelve_pixels_or_more(key: str) -> None:
    def sizes(value: Any, parent: str = "") -> Iterator[float]:
        if isinstance(value, dict):
            for name, item in value.items():
                if name == "size" and "font" in parent:
                    yield item
                yield from sizes(item, name)
        elif isinstance(value, list):
            for item in value:
                yield from sizes(item, parent)

    assert min(sizes(json.loads(spec_of(key)))) >= 12


@pytest.mark.parametrize("key", KEYS)
def test_the_table_is_left_alone(key: str) -> None:
    table = TABLES[key](3)
    before = table.copy(deep=True)
    viz.draw(key, table)
    pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize(
    ("key", "table"),
    [
        ("saliency_matrix", viz_tables.saliency_matrix(20, 6)),
        ("saliency_matrix", viz_tables.saliency_matrix(8, 24)),
        ("task_accuracy", viz_tables.task_accuracy(20, 20)),
        ("id_ood_scatter", viz_tables.id_ood_scatter(60)),
        ("kept_share", viz_tables.kept_share(8, 24)),
    ],
)
def test_figures_stay_small(key: str, table: pd.DataFrame) -> None:
    assert len(viz.draw(key, table).to_json()) < 2_000_000


@pytest.mark.slow
def test_importing_viz_loads_neither_plotly_nor_streamlit() -> None:
    code = (
        "import sys, viz; assert 'plotly' not in sys.modules; viz.charts();"
        "assert 'plotly' in sys.modules; assert not {'streamlit', 'torch', 'merging'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- saliency_matrix


def test_saliency_matrix_draws_the_tables_numbers_in_model_order() -> None:
    table = viz_tables.saliency_matrix(3, 2)
    shuffled = table.sample(frac=1, random_state=0)
    shuffled["expert"] = pd.Categorical(shuffled["expert"])
    fig = viz.draw("saliency_matrix", shuffled, log=False)
    experts = list(dict.fromkeys(shuffled["expert"]))
    wide = table.pivot(index="expert", columns="order", values=["saliency", "kept", "final"]).loc[experts]
    saliency, own, final = fig.data[:3]
    np.testing.assert_allclose(saliency.z, wide["saliency"].astype(float), rtol=1e-6)
    np.testing.assert_array_equal(own.z, wide["kept"].astype(int))
    np.testing.assert_array_equal(final.z, wide["final"].astype(int).iloc[:1])
    assert [trace.yaxis for trace in fig.data[:3]] == ["y", "y2", "y3"]
    logged = viz.draw("saliency_matrix", shuffled, log=True).data[0]
    np.testing.assert_allclose(10.0**logged.z, wide["saliency"].astype(float), rtol=1e-5)


def test_saliency_matrix_hovers_and_clicks_name_the_cell_they_lie_on() -> None:
    table = viz_tables.saliency_matrix(2, 2)
    for group in ("order", "block", "part"):
        fig = viz.draw("saliency_matrix", table, group=group, log=False)
        heat, cells = fig.data[0], fig.data[3]
        by_name = table.set_index(["expert", "tensor"])["saliency"]
        for x, y, (expert, tensor), words in zip(cells.x, cells.base + 0.5, cells.customdata, cells.text, strict=True):
            assert heat.z[int(y), int(x)] == pytest.approx(by_name[expert, tensor], rel=1e-6)
            assert tensor in words and expert in words and text.real(by_name[expert, tensor]) in words


def test_saliency_matrix_covers_every_cell_with_a_bar_that_takes_the_click() -> None:
    fig = viz.draw("saliency_matrix", viz_tables.saliency_matrix(3, 2))
    assert fig.layout.barmode == "overlay"  # stacked, the bars would drift off their rows
    for heat, cells in zip(fig.data[:3], fig.data[3:], strict=True):
        assert (cells.type, cells.width, cells.marker.opacity, cells.yaxis) == ("bar", 1, 0, heat.yaxis)
        covered = {(int(base + 0.5), int(x)) for base, x, y in zip(cells.base, cells.x, cells.y, strict=True) if y == 1}
        assert covered == {(i, j) for i in range(heat.z.shape[0]) for j in range(heat.z.shape[1])}
    shared = [{"customdata": {"0": "", "1": "visual.proj"}}]
    assert one_chart("saliency_matrix").picked(shared) == {"tensor": "visual.proj"}


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


def test_saliency_matrix_normalizes_rows_and_survives_zeros() -> None:
    table = viz_tables.saliency_matrix(3, 2)
    table.loc[table["expert"] == "Digits", "saliency"] = 0.0
    z = viz.draw("saliency_matrix", table, normalize=True, log=False).data[0].z
    np.testing.assert_allclose(z.max(axis=1), [1, 0, 1])
    for log in (True, False):
        zeros = viz.draw("saliency_matrix", table.assign(saliency=0.0), log=log).data[0]
        assert np.isfinite(zeros.z).all() and zeros.zmin < zeros.zmax


def test_saliency_matrix_needs_every_pair_and_says_when_no_mask_is_shared() -> None:
    table = viz_tables.saliency_matrix(2, 2)
    with pytest.raises(ChartError, match="lacks the row of expert 'Digits'"):
        viz.draw("saliency_matrix", table.iloc[:-1])
    captions = [a.text for a in viz.draw("saliency_matrix", table.assign(final=table["kept"])).layout.annotations]
    assert any("no mask is shared" in caption for caption in captions)


def test_saliency_matrix_locks_the_color_range() -> None:
    heat = viz.draw("saliency_matrix", viz_tables.saliency_matrix(2, 2), limits=(1e-6, 1e-2)).data[0]
    assert (heat.zmin, heat.zmax) == pytest.approx((-6, -2))


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


def test_id_ood_scatter_keeps_papers_and_test_time_rows_apart() -> None:
    fig = viz.draw("id_ood_scatter", viz_tables.id_ood_scatter(12))
    marks = {trace.name: trace for trace in fig.data if trace.mode == "markers"}
    paper = next(trace for name, trace in marks.items() if "paper" in name)
    assert all(trace.legend != paper.legend and trace.marker.symbol != paper.marker.symbol
               for trace in marks.values() if trace is not paper)  # fmt: skip
    adapted = next(trace for name, trace in marks.items() if "adapts on test data" in name)
    assert len(adapted.x) == 1 and "† adapts on test data" in adapted.text[0]
    assert "source: LwPTV, Table 2" in paper.text[0]


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


def test_labels_keep_off_each_other_and_the_marks() -> None:
    marks = [(100.0 + 3 * i, 100.0 + 2 * i) for i in range(40)]
    placed = place_labels([f"label {i}" for i in range(40)], marks, [PlotArea(marks, (400, 300))])
    assert 0 < len(placed) < 40  # some find no room, and are left out rather than piled up
    assert Box(0, 0, 10, 10).overlap(Box(4, 0, 10, 10)) == pytest.approx(60)
    assert Box(0, 0, 10, 10).overlap(Box(10, 0, 10, 10)) == 0
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
        for (_, task), y in zip(trace.customdata or (), trace.y, strict=False):
            assert round(float(y), 4) not in lanes.setdefault(task, set())
            lanes[task].add(round(float(y), 4))
    assert all(max(ys) - min(ys) < 1 for ys in lanes.values())
    entries = [trace.name for trace in fig.data if trace.showlegend]
    assert len(entries) == len(set(entries))


def test_task_vector_norms_draws_either_value() -> None:
    table = viz_tables.task_vector_norms(3, 2)
    for value in ("norm", "relative"):
        wide = table.pivot(index="expert", columns="section", values=value)
        wide = wide.loc[list(dict.fromkeys(table["expert"])), list(dict.fromkeys(table["section"]))]
        np.testing.assert_allclose(viz.draw("task_vector_norms", table, value=value).data[0].z, wide, rtol=1e-6)


# --- theme and text


def test_every_expert_keeps_one_color_and_symbol() -> None:
    for number in (1, 8, 9, 40):
        names = [f"e{i}" for i in range(number)]
        looks = theme.looks(names)
        assert len(set(looks.values())) == number
        assert looks == theme.looks(names)
        assert all(set(looks[a]).isdisjoint(looks[b]) for a, b in pairwise(names))
    assert len({look.color for look in theme.looks([f"e{i}" for i in range(8)]).values()}) == 8
    grouped = theme.looks([f"e{i}" for i in range(10)], {f"e{i}": "digits" if i < 4 else "scenes" for i in range(10)})
    assert len({grouped[f"e{i}"].color for i in range(4)}) == 1
    assert len(set(grouped.values())) == 10


def test_config_has_no_selection_tools_where_clicks_matter() -> None:
    config = theme.config("Run <1>/a", clicks=True)
    assert {"select2d", "lasso2d"} <= set(config["modeBarButtonsToRemove"])
    assert config["toImageButtonOptions"] == {"format": "svg", "filename": "Run_1_a"}
    assert config["displaylogo"] is False
    assert "lasso2d" not in theme.CONFIG["modeBarButtonsToRemove"]


@pytest.mark.parametrize("name", HOSTILE)
def test_safe_text(name: str) -> None:
    safe = text.safe_text(name)
    assert not set(safe) & set("<>$\u202e\x00\n\ud800")
    assert len(text.clean_text(name)) <= 80
    json.dumps(text.identifier(name)).encode("utf-8")
    assert text.safe_text("mlp.c_fc 100%") == "mlp.c_fc 100%"


def test_numbers_are_written_one_way() -> None:
    assert [text.percent(0.6234), text.percent(float("nan")), text.count(12345), text.real(0.000123456)] == [
        "62.3%", "—", "12,345", "0.000123",
    ]  # fmt: skip
    assert [text.power(v) for v in (0, 1e-4, 2.5e-5, 0.5)] == ["0", "10⁻⁴", "2.5·10⁻⁵", "0.5"]
    assert text.short_name("visual.transformer.resblocks.3.mlp.c_fc.weight", 20) == "visual.tr…_fc.weight"
    assert text.first_few("abcde", 2) == "a, b and 3 more"


def test_ticks_are_round_and_inside() -> None:
    for low, high in ((0, 2.6e-4), (0, 0.9), (0.2, 0.31)):
        values = theme.ticks(low, high)["tickvals"]
        assert 4 <= len(values) <= 8 and low - 1e-9 <= values[0] and values[-1] <= high + 1e-9
    assert theme.ticks(1e-5, 1e-2, log=True)["ticktext"] == ["10⁻⁵", "10⁻⁴", "10⁻³", "0.01"]
