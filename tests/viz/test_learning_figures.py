"""What the charts of learning and of modules draw, by the numbers of their tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import viz_tables
from figures import traces

import viz
from viz import theme
from viz.chart_registry import find


def test_pruned_tensors_are_gray_and_have_no_number() -> None:
    table = viz_tables.coefficient_map(3)
    fig = viz.draw("coefficient_map", table)
    assert fig.layout.plot_bgcolor == theme.PRUNED
    assert np.isnan(fig.data[0].z).sum() == table["pruned"].sum() > 0
    hover = [text for text in traces(fig, "Cells")[0].text if "no coefficient" in text]
    assert len(hover) == table["pruned"].sum()
    assert viz.draw("coefficient_map", table.assign(pruned=False)).layout.plot_bgcolor is None


def test_one_color_scale_holds_for_all_steps() -> None:
    heat = viz.draw("coefficient_map", viz_tables.coefficient_map(3), limits=(-0.25, 0.75)).data[0]
    assert (heat.zmin, heat.zmax) == (-0.25, 0.75)


def test_the_loss_of_a_router_is_drawn_though_it_is_no_experts() -> None:
    table = pd.DataFrame({"step": [0, 1], "expert": ["router", "router"], "loss": [2.5, 1.25]})
    fig = viz.draw("learning_loss", table, experts=["Digits", "Letters"])
    (line,) = fig.data
    assert list(line.y) == [2.5, 1.25]
    assert "of all tasks together" in fig.layout.meta["alt"] and "from 2.5 to 1.25" in fig.layout.meta["alt"]


def test_running_means_stand_before_the_losses_of_each_step_and_the_mean_of_all_tasks_is_gray() -> None:
    losses = {"Digits": (4, 2, 3, 1), "Letters": (1, 3, 2, 4), "all": (2, 2, 2, 2)}
    rows = [(step, task, loss) for task, values in losses.items() for step, loss in enumerate(values)]
    table = pd.DataFrame(rows, columns=["step", "expert", "loss"])
    fig = viz.draw("learning_loss", table, experts=["Digits", "Letters"], window=2, overall="all")
    faint, line = traces(fig, "Digits")
    assert list(faint.y) == [4, 2, 3, 1] and faint.opacity < 0.5 and not faint.showlegend
    assert list(line.y) == [4, 3, 2.5, 2]
    assert traces(fig, "all")[1].line.color == theme.FADED and line.line.color == theme.PALETTE[0]
    assert fig.layout.xaxis.dtick == 1, "no tick between two steps"
    alt = fig.layout.meta["alt"]
    assert "of 2 tasks" in alt and "falls on 1 of them; it ends highest on Letters, 3." in alt
    assert len(viz.draw("learning_loss", table).data) == 3


def test_only_the_chosen_expert_has_a_band() -> None:
    table = viz_tables.coefficient_steps(3)
    assert not [trace for trace in viz.draw("coefficient_steps", table).data if trace.fill]
    (band,) = (trace for trace in viz.draw("coefficient_steps", table, band="Digits").data if trace.fill)
    own = table[table["expert"] == "Digits"]
    np.testing.assert_allclose(band.y[: len(own)], own["low"], rtol=1e-6)


def test_the_alternative_text_names_the_tasks_that_entropy_misleads() -> None:
    alt = viz.draw("entropy_loss", viz_tables.entropy_loss(4)).layout.meta["alt"]
    assert "rises on 2 of them: Shapes, Stripes" in alt
    steady = viz_tables.entropy_loss(4).assign(loss=lambda table: table["entropy"])
    assert "On no task" in viz.draw("entropy_loss", steady).layout.meta["alt"]


def test_an_arrow_needs_both_ends_and_learning_on_the_scored_images_is_marked() -> None:
    table = viz_tables.learning_arrows(6)

    def arrows(rows: pd.DataFrame) -> int:
        return sum(one.name == "arrow" for one in viz.draw("learning_arrows", rows).layout.annotations)

    starts = int((table["start"] != "").sum())
    assert arrows(table) == starts > 0
    learned = table.index[table["start"] != ""][0]
    assert arrows(table.assign(h_score=table["h_score"].mask(table.index == learned))) == starts - 1
    assert any("†" in (trace.name or "") for trace in viz.draw("learning_arrows", table).data)


def test_the_start_of_an_arrow_says_so_beside_its_mark_and_on_it() -> None:
    table = viz_tables.learning_arrows(6)
    starts = table[table["run"].isin(table["start"])]
    fig = viz.draw("learning_arrows", table)
    beside = {str(one.text) for one in fig.layout.annotations if one.name == "label"}
    hover = {text.partition("<br>")[0] for trace in fig.data if trace.customdata is not None for text in trace.text}
    for label in starts["label"]:
        assert any(text.startswith(f"Start: {label[:20]}") for text in beside)
        assert any(text.startswith(f"<b>Start: {label[:20]}") for text in hover)
    assert sum(text.startswith("<b>Start: ") for text in hover) == len(starts)


def test_no_mask_is_compared_with_itself() -> None:
    fig = viz.draw("localization_overlap", viz_tables.localization_overlap(4))
    cells = traces(fig, "Cells")[0].customdata
    assert len(cells) == 12 and all(row != column for row, column in cells)


def test_parts_of_storage_stand_one_after_the_other() -> None:
    table = viz_tables.storage_parts(4)
    fig = viz.draw("storage_parts", table)
    ends: dict[str, float] = {}
    for bar in fig.data:
        for run, base, length in zip(np.ravel(bar.customdata), bar.base, bar.x, strict=True):
            np.testing.assert_allclose(base, ends.get(run, 0.0), rtol=1e-6)
            ends[run] = base + length
    sums = table.groupby("run")["bytes"].sum() / 2**20
    np.testing.assert_allclose([ends[run] for run in sums.index], sums, rtol=1e-6)


def test_a_data_set_without_shares_keeps_its_row() -> None:
    table = viz_tables.router_confusion(3, 2)
    rows = list(viz.draw("router_confusion", table).layout.yaxis.ticktext)
    without = table.assign(share=table["share"].where(table["task"] != table["task"].iloc[0]))
    assert list(viz.draw("router_confusion", without).layout.yaxis.ticktext) == rows


def test_unseen_data_sets_stand_below_a_line() -> None:
    table = viz_tables.router_confusion(3, 2).iloc[::-1]
    fig = viz.draw("router_confusion", table)
    assert all("Unseen" in label for label in fig.layout.yaxis.ticktext[3:])
    assert fig.layout.shapes[0].y0 == 2.5


def test_a_router_for_the_whole_model_has_one_column() -> None:
    for block in (np.nan, -1):
        fig = viz.draw("routing_image", viz_tables.routing_image(4, 1).assign(block=block))
        assert list(fig.layout.xaxis.ticktext) == ["Whole model"]
        assert "before the network" in fig.layout.xaxis.title.text


def test_what_routes_once_is_not_said_to_have_blocks() -> None:
    for key in ("routing_map", "routing_own", "routing_image"):
        table = getattr(viz_tables, key)(3, 2)
        assert " in 2 blocks." in viz.draw(key, table).layout.meta["alt"]
        once = viz.draw(key, table[table["block"] == table["block"].iloc[0]].assign(block=-1))
        assert "once for the whole model" in once.layout.meta["alt"] and "block" not in once.layout.meta["alt"]
        assert "block" not in find(key).question
