"""A drawing fills its layout as plotly's figure would, and what plotly does not know is an error at the end."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from viz.drawing import Drawing, bar, scatter


def both(fill) -> list[dict]:
    """The layouts of a drawing and of plotly's own figure that are filled alike."""
    drawing, figure = Drawing([scatter(x=[0], y=[1])]), go.Figure([go.Scatter(x=[0], y=[1])])
    fill(drawing), fill(figure)
    return [one.to_plotly_json()["layout"] for one in (drawing.figure(), go.Figure(figure.data, figure.layout))]


def fill_fields_inside_fields(fig) -> None:
    fig.update_layout(legend={"x": 1, "font": {"size": 12}}, yaxis2={"domain": [0, 1]})
    fig.update_layout({"legend": {"font": {"color": "black"}}})
    fig.update_yaxes(title={"text": "Share"}, range=[0, 1])
    fig.update_yaxes(title={"font": {"size": 9}}, range=[0, 2])
    fig.update_xaxes(tickvals=[1, 2])


def fill_texts_and_lines(fig) -> None:
    fig.update_layout(annotations=[{"text": "a", "x": 0, "y": 0, "xref": "paper", "yref": "paper"}])
    fig.add_annotation({"text": "b", "x": 1}, y=1, xref="paper", yref="paper")
    fig.add_shape(type="line", x0=0, x1=1, y0=0, y1=1, xref="x", yref="y")


@pytest.mark.parametrize("fill", [fill_fields_inside_fields, fill_texts_and_lines])
def test_a_layout_is_filled_as_plotly_fills_it(fill) -> None:
    drawn, expected = both(fill)
    del expected["template"]  # the drawing's comes with ``theme.finish_figure``
    drawn.pop("template", None)
    assert drawn == expected


def test_traces_change_by_name_and_what_was_given_does_not() -> None:
    mark_style = {"color": "red"}
    fig = Drawing([scatter(x=[0], name="a", marker=mark_style), bar(x=[0], name="b", marker=mark_style)])
    fig.update_traces("a", marker={"size": 3})
    assert [trace.marker.size for trace in fig.figure().data if trace.type == "scatter"] == [3]
    assert mark_style == {"color": "red"} and fig.data[1]["marker"] == mark_style
    settings = {"font": {"size": 12}}
    fig.update_layout(legend=settings)
    fig.update_layout(legend={"font": {"size": 14}})
    assert settings == {"font": {"size": 12}}


@pytest.mark.parametrize("wrong", [{"xy": 1}, {"mode": "squares"}])
def test_what_plotly_does_not_know_is_an_error(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Drawing([scatter(x=[0], **wrong)]).figure(checked=True)
    fig = Drawing()
    fig.update_layout(colour="red")
    with pytest.raises(ValueError, match="colour"):
        fig.figure(checked=True)
