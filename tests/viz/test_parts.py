"""What all charts share: colors of experts, interaction, text that is safe, numbers, ticks."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from figures import HOSTILE

from viz import figure_text, theme
from viz.drawing import Drawing, scatter
from viz.parts import legends


def test_every_expert_keeps_one_color_and_symbol() -> None:
    for number in (1, 8, 9, 40):
        names = [f"e{i}" for i in range(number)]
        mark_styles = theme.mark_styles(names)
        assert len(set(mark_styles.values())) == number
        assert mark_styles == theme.mark_styles(names)
        assert all(set(mark_styles[a]).isdisjoint(mark_styles[b]) for a, b in pairwise(names))
    assert len({mark_style.color for mark_style in theme.mark_styles([f"e{i}" for i in range(8)]).values()}) == 8
    assert theme.mark_styles(["e0"])["e1"] == theme.KINDS["merge"]


def test_config_has_no_selection_tools_where_clicks_matter() -> None:
    config = theme.config("Run <1>/a", clicks=True)
    assert {"select2d", "lasso2d"} <= set(config["modeBarButtonsToRemove"])
    assert config["toImageButtonOptions"] == {"format": "svg", "filename": "Run_1_a"}
    assert config["displaylogo"] is False
    assert config["showSendToCloud"] is False
    assert "lasso2d" not in theme.config("mergescope")["modeBarButtonsToRemove"]


@pytest.mark.parametrize("name", HOSTILE)
def test_safe_text(name: str) -> None:
    safe = figure_text.safe_text(name)
    assert not set(safe) & set("<>$\u202e\x00\n\ud800")
    assert len(figure_text.clean_text(name)) <= 80
    json.dumps(figure_text.identifier(name)).encode("utf-8")
    assert figure_text.safe_text("mlp.c_fc 100%") == "mlp.c_fc 100%"


def test_numbers_are_written_one_way() -> None:
    assert [figure_text.percent(0.6234), figure_text.percent(float("nan")), figure_text.count(12345),
        figure_text.real(0.000123456)] == [
        "62.3%", "—", "12,345", "0.000123",
    ]  # fmt: skip
    assert [figure_text.power(v) for v in (0, 1e-4, 2.5e-5, 0.5)] == ["0", "10⁻⁴", "2.5·10⁻⁵", "0.5"]
    assert figure_text.short_name("visual.transformer.resblocks.3.mlp.c_fc.weight", 20) == "visual.tr…_fc.weight"
    assert figure_text.first_few("abcde", 2) == "a, b and 3 more"


def test_ticks_are_round_and_inside() -> None:
    for low, high in ((0, 2.6e-4), (0, 0.9), (0.2, 0.31)):
        values = theme.ticks(low, high)["tickvals"]
        assert 4 <= len(values) <= 8 and low - 1e-9 <= values[0] and values[-1] <= high + 1e-9
    assert theme.ticks(1e-5, 1e-2, log=True)["ticktext"] == ["10⁻⁵", "10⁻⁴", "10⁻³", "0.01"]


def test_a_legend_beside_wide_margins_has_more_rows() -> None:
    names = [f"A run with a name, {number}" for number in range(6)]
    ends = [legends.legend_above(names, margins=margins)[1] for margins in (-300, legends.USUAL_MARGINS, 300)]
    assert ends[0] < ends[1] < ends[2]
    assert legends.legend_above(names)[1] == ends[1] == legends.ROW_HEIGHT * legends.count_legend_rows(names)
    assert legends.count_legend_rows(names, 1) == 1 + len(names)  # even the first does not fit


def test_a_group_in_several_panels_has_one_entry_and_namesakes_have_their_own() -> None:
    line = {"x": [0], "y": [0], "name": "Ties"}
    fig = Drawing(scatter(**line, legendgroup=group) for group in ("run 1", "run 1", "run 2"))
    fig.add_trace(scatter(**line, legendgroup="run 3", hoverinfo="skip", showlegend=False))
    legends.merge_entries(fig)
    assert [trace["showlegend"] for trace in fig.data] == [True, False, True, False]
