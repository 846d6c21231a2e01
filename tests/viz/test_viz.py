"""Common checks over every chart: what it draws is the table's, readable, bounded in size, and safe to show."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from figures import (
    CHARTS,
    HOSTILE,
    KEYS,
    TABLES,
    axis_texts,
    cut_to_one_chart,
    draw_example,
    run_checks,
    spec_of,
    strings,
)
from loading import list_loaded_modules
from plotly.basedatatypes import BasePlotlyType

import viz
from viz import theme
from viz.chart import NAME_COLUMNS, ChartError

CHECKS: list[Callable[[str], None]] = []


def check(function: Callable[[str], None]) -> Callable[[str], None]:
    """Let every chart pass this check, too."""
    CHECKS.append(function)
    return function


@pytest.mark.parametrize("key", KEYS)
def test_every_check_holds(key: str) -> None:
    run_checks(CHECKS, key)


def test_the_registry_holds_the_charts() -> None:
    assert {"saliency_matrix", "saliency_tensor", "kept_share", "id_ood_scatter", "task_accuracy"} <= set(KEYS)
    for chart in CHARTS:
        assert chart.render.__module__.startswith("viz.figures.")
        assert chart.question.endswith("?") and chart.title and chart.empty.endswith(".")
        assert set(chart.rows) <= set(chart.columns)
        assert "present" in chart.options


@check
def figure_is_complete(key: str) -> None:
    for number in (1, 4, 20):
        check_fields(draw_example(key, number), key)


def check_fields(fig: go.Figure, key: str) -> None:
    assert fig.layout.meta["key"] == key
    assert fig.layout.meta["alt"].endswith(".")
    assert not {"nan", "None", "inf"} & set(fig.layout.meta["alt"].replace(".", " ").split())
    assert fig.layout.height > 100 and fig.layout.width is None
    assert fig.layout.uirevision and fig.layout.clickmode is None
    assert fig.layout.dragmode == (
        "lasso" if key in {"feature_map", "feature_moves"} else None
    )  # with any, plotly drops single clicks
    axes = [axis for axis in fig.layout if axis.startswith(("xaxis", "yaxis")) and axis != "yaxis3"]
    assert len(axes) >= 2
    assert all(fig.layout[axis].title.text for axis in axes)
    assert fig.layout.template.layout.plot_bgcolor == "white"
    assert len(fig.data) > 0


@check
def plotly_knows_every_field_and_changes_none(key: str) -> None:
    """What Python's plotly would convert, such as a name of a color scale, a browser may not know."""
    for fig in (draw_example(key, 1), draw_example(key)):
        for part in (fig.layout, *fig.data):
            read_all(part, part.to_plotly_json())
        unchecked = json.loads(fig.to_json())
        checked = json.loads(go.Figure(unchecked["data"], unchecked["layout"]).to_json())
        assert filled(unchecked["data"]) == filled(checked["data"])
        del unchecked["layout"]["template"], checked["layout"]["template"]
        assert filled(unchecked["layout"]) == filled(checked["layout"])


def read_all(group: BasePlotlyType, fields: dict[str, Any]) -> None:
    """Read every field of a part of a figure as plotly hands it out."""
    for name in fields.keys() - {"template"}:
        if isinstance(group[name], BasePlotlyType):
            read_all(group[name], fields[name])


def filled(fields: Any) -> Any:
    """The fields without empty groups, which plotly adds or leaves out."""
    if isinstance(fields, dict):
        return {name: filled(value) for name, value in fields.items() if value not in (None, {}, [])}
    return [filled(value) for value in fields] if isinstance(fields, list) else fields


@check
def every_trace_is_named_finite_and_explained(key: str) -> None:
    for trace in [trace for number in (1, 4, 20) for trace in draw_example(key, number).data]:
        assert trace.name
        assert trace.hovertemplate or trace.hoverinfo == "skip"
        assert "%{x}" not in (trace.hovertemplate or "")
        for axis in ("x", "y", "z"):
            if axis not in trace or trace[axis] is None:
                continue
            values = trace[axis]
            assert isinstance(values, np.ndarray) and values.dtype in (np.float32, np.uint8, np.int16, np.int32)
            if trace.name not in ("Distance", "Kept", "Pruned", "coefficient", "Moves"):  # these have gaps on purpose
                assert np.isfinite(values).all()


@check
def no_missing_number_is_shown(key: str) -> None:
    table = TABLES[key](6)
    for column in ("saliency", "norm", "relative", "n_in", "expert", "zero_shot", "low", "high", "out_low"):
        if column in table and pd.api.types.is_float_dtype(table[column]):
            table.loc[table.index[0], column] = np.nan
    words = " ".join(strings(json.loads(viz.draw(key, table).to_json())))
    assert "nan" not in words.lower().replace(";", " ").split()


@check
def hover_texts_belong_to_their_points(key: str) -> None:
    for trace in draw_example(key).data:
        if trace.text is not None:
            assert len(trace.text) == len(trace.y)
        if trace.customdata is not None:
            assert len(trace.customdata) == len(trace.y)
            numbers = len((trace.meta or {}).get("after_picks", ()))
            assert all(len(item) == len(cut_to_one_chart(key).picks) + numbers for item in trace.customdata)


@check
def an_empty_table_gives_a_sentence(key: str) -> None:
    fig = viz.draw(key, TABLES[key](2).iloc[:0])
    assert len(fig.data) == 0
    assert fig.layout.annotations[0].text == cut_to_one_chart(key).empty == fig.layout.meta["alt"]
    assert not axis_texts(fig, "xaxis") and not axis_texts(fig, "yaxis")


@check
def a_missing_column_is_named(key: str) -> None:
    for column in cut_to_one_chart(key).columns:
        with pytest.raises(ChartError, match=rf"{key} needs '{column}'"):
            viz.draw(key, TABLES[key](2).drop(columns=column))


@check
def a_repeated_row_is_refused(key: str) -> None:
    table = TABLES[key](2)
    if not cut_to_one_chart(key).rows:
        return
    with pytest.raises(ChartError, match="repeated"):
        viz.draw(key, pd.concat([table, table.iloc[:1]]))


@check
def an_unknown_option_is_refused(key: str) -> None:
    with pytest.raises(ChartError, match="has no option 'colour'"):
        viz.draw(key, TABLES[key](2), colour="red")


def test_an_unknown_chart_names_the_nearest() -> None:
    with pytest.raises(ChartError, match="did you mean 'saliency_matrix'"):
        viz.draw("saliency_matrx", pd.DataFrame())


@check
def hostile_names_are_escaped(key: str) -> None:
    table = TABLES[key](len(HOSTILE))
    for column in ("expert", "label", "title", "tensor", "section", "part", "source", "task", "run", "role"):
        if column in table and not pd.api.types.is_numeric_dtype(table[column]):
            distinct = list(dict.fromkeys(table[column]))
            names = {name: f"{HOSTILE[i % len(HOSTILE)]}{i // len(HOSTILE) or ''}" for i, name in enumerate(distinct)}
            table[column] = pd.Series([names[name] for name in table[column]], dtype=object, index=table.index)
    spec = json.loads(viz.draw(key, table).to_json())
    alt = spec["layout"]["meta"].pop("alt")
    for shown in strings(spec):
        bare = re.sub(
            r"%\{customdata\[\d+\]:[.\w%]+\}", "", shown.replace("%{text}", "").replace("<extra></extra>", "")
        )
        for tag in ("<br>", "<b>", "</b>"):
            bare = bare.replace(tag, "")
        assert "<" not in bare and "$" not in bare and "%{" not in bare, shown
        assert "\u202e" not in shown and "\x00" not in shown and "\n" not in shown
    assert "\u202e" not in alt and "\x00" not in alt


@check
def clicks_hand_back_raw_names(key: str) -> None:
    chart = cut_to_one_chart(key)
    for trace in draw_example(key).data:
        if trace.customdata is None or trace.name == "Final mask cells":
            continue
        picked = chart.read_pick([{"customdata": {str(i): v for i, v in enumerate(trace.customdata[0])}}])
        assert picked is not None
        rows = TABLES[key](4)
        assert (rows[list(picked)].astype(str) == list(picked.values())).all(axis=1).any()
    assert chart.read_pick([]) is None


@check
def presenting_fits_the_window_without_touching_the_numbers(key: str) -> None:
    plain, large = draw_example(key), viz.draw(key, TABLES[key](4), present=True)
    assert large.layout.height == theme.PRESENTED_HEIGHT > 0.7 * theme.PRESENTED_LINES
    large = theme.enlarge_figure(large, 2.0)
    assert large.layout.height == 2 * theme.PRESENTED_HEIGHT
    assert large.layout.template.layout.font.size == 2 * theme.FONT_SIZE
    for small, big in zip(plain.data, large.data, strict=True):
        for axis in () if (small.meta or {}).get("is_control") else ("x", "y", "z"):
            if axis in small and small[axis] is not None:
                np.testing.assert_array_equal(small[axis], big[axis])


@check
def text_is_twelve_pixels_or_more(key: str) -> None:
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


@check
def the_table_is_left_alone(key: str) -> None:
    table = TABLES[key](3)
    before = table.copy(deep=True)
    viz.draw(key, table)
    pd.testing.assert_frame_equal(table, before)


@check
def names_may_be_numbers(key: str) -> None:
    table, chart = TABLES[key](3), cut_to_one_chart(key)
    names = NAME_COLUMNS & {*chart.rows, *chart.picks, *({"group"} if "group" in chart.columns else ())}
    numbers = table.assign(**{name: pd.factorize(table[name])[0] for name in names})
    assert viz.draw(key, numbers).to_json() == viz.draw(key, numbers.astype(dict.fromkeys(names, str))).to_json()


@check
def the_index_of_a_table_does_not_matter(key: str) -> None:
    """Tables that were put together have the same number of a row twice."""
    table = TABLES[key](4)
    assert viz.draw(key, table.set_axis([0] * len(table))).to_json() == spec_of(key)


@check
def a_missing_flag_is_false(key: str) -> None:
    table, chart = TABLES[key](4), cut_to_one_chart(key)
    for name in (*chart.columns, *chart.optional):
        if name in table and pd.api.types.is_bool_dtype(table[name]):
            first = table.assign(**{name: [False, *table[name].tolist()[1:]]})
            missing = table.assign(**{name: pd.array([None, *table[name].tolist()[1:]], "boolean")})
            assert outcome(key, missing) == outcome(key, first)


@pytest.mark.full
@pytest.mark.parametrize("key", KEYS)
def test_a_missing_number_may_be_none(key: str) -> None:
    table, chart = TABLES[key](4), cut_to_one_chart(key)
    for name in (*chart.columns, *chart.optional):
        if name in table and pd.api.types.is_float_dtype(table[name]):
            missing = table.assign(**{name: [np.nan, *table[name].tolist()[1:]]})
            none = missing.assign(**{name: pd.array([None, *table[name].tolist()[1:]], object)})
            assert outcome(key, none) == outcome(key, missing)


def outcome(key: str, table: pd.DataFrame) -> str:
    """The figure as JSON, or the error that says why there is none."""
    try:
        return str(viz.draw(key, table).to_json())
    except ChartError as error:
        return str(error)


@pytest.mark.parametrize(
    ("key", "sizes"),
    [
        ("saliency_matrix", (20, 6)), ("saliency_matrix", (8, 24)), ("task_accuracy", (20, 20)),
        ("id_ood_scatter", (60,)), ("kept_share", (8, 24)), ("drift_layers", (20, 24)), ("drift_removed", (8, 24)),
        ("drift_depth", (12, 20, 24)), ("drift_accuracy", (12, 20)),
    ],
)  # fmt: skip
def test_figures_stay_small(key: str, sizes: tuple[int, ...]) -> None:
    assert len(viz.draw(key, TABLES[key](*sizes)).to_json()) < 2_000_000


def test_importing_viz_loads_neither_plotly_nor_streamlit() -> None:
    never = {"streamlit", "torch", "merging"}
    assert not (never | {"plotly"}) & list_loaded_modules("import viz")
    loaded = list_loaded_modules("import viz; viz.charts()")
    assert "plotly" in loaded and not never & loaded


HALF_IMPORTED = """
import threading, time
from importlib.abc import MetaPathFinder

class Slow(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "pandas.core.api":
            begun.set()
            time.sleep(1)

begun = threading.Event()
sys.meta_path.insert(0, Slow())
threading.Thread(target=__import__, args=("pandas",)).start()
begun.wait()
import viz.theme
"""


@pytest.mark.full
def test_another_thread_may_import_pandas_at_the_same_time() -> None:
    assert "viz.theme" in list_loaded_modules(HALF_IMPORTED)
