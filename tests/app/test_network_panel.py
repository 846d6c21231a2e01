"""The map of the network above the views: what it offers for a run, what a click chooses, and what it cannot show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared_runs import LWPTV, TIES
from page_harness import chart_keys, click, runs, words

from app.reading import measurements, page_data
from app.reading.runs import network_values
from merging.base.errors import CheckpointError
from viz.figures.network.network_map import find_next_tensor
from viz.figures.network.quantities import QUANTITIES

TENSOR = "visual.transformer.resblocks.0.mlp.c_fc.weight"
NOT_MEASURED = "This quantity has not been measured for"


def read_spec(at: Any) -> dict[str, Any]:
    chart = next(chart for chart in at.get("plotly_chart") if chart.proto.id.endswith("chart_network_map"))
    spec: dict[str, Any] = json.loads(chart.proto.spec)
    return spec


def outlined(at: Any) -> int:
    return [shape.get("name") for shape in read_spec(at)["layout"]["shapes"]].count("selected")


def test_every_quantity_has_a_source() -> None:
    assert list(network_values.SOURCES) == list(QUANTITIES)


def test_a_click_on_the_map_chooses_the_tensor_for_all_pages(open_app: Any, compared: Path) -> None:
    at = open_app("masks", compared)
    assert outlined(at) == 0
    at = click(at, "network_map", TENSOR, "")
    assert not at.exception and at.query_params["tensor"] == TENSOR and outlined(at) == 1
    for page in ("conflicts", "drift"):
        at.switch_page(f"screens/{page}.py").run()
        assert not at.exception and outlined(at) == 1


def test_a_click_on_a_stream_chooses_the_expert(open_app: Any, compared: Path) -> None:
    at = click(open_app("masks", compared), "network_map", "", "digits")
    assert at.query_params["expert"] == "digits" and "tensor" not in at.query_params


def test_a_quantity_that_is_not_measured_is_offered_with_empty_boxes(open_app: Any, compared: Path) -> None:
    at = open_app("masks", compared, run=runs(compared)[LWPTV].id, network_quantity=QUANTITIES["first_order_out"].title)
    assert not at.exception and NOT_MEASURED in words(at)
    assert any(button.key.startswith("measure_first_order_map") for button in at.button)
    at = open_app("masks", compared, run=runs(compared)[LWPTV].id, network_quantity=QUANTITIES["cosine"].title)
    assert not at.exception and NOT_MEASURED not in words(at)


def test_the_numbers_are_those_of_the_tables(open_app: Any, compared: Path) -> None:
    open_app("masks", compared)
    known = runs(compared)
    run, other = known[LWPTV], known[TIES]
    tensors = page_data.run_table(run.id, "tensors").set_index("tensor")
    moved = network_values.read_map(run, "moved").drop_duplicates("tensor").set_index("tensor")["value"]
    np.testing.assert_allclose(moved, (tensors["change_norm"] / tensors["pretrained_norm"])[moved.index])
    others = page_data.run_table(other.id, "tensors").set_index("tensor")
    difference = network_values.read_difference(run, other, "moved").drop_duplicates("tensor").set_index("tensor")
    expected = others["change_norm"] / others["pretrained_norm"] - tensors["change_norm"] / tensors["pretrained_norm"]
    np.testing.assert_allclose(difference["value"], expected[difference.index], atol=1e-12)
    masks = network_values.read_map(run, "final_mask")
    stored = page_data.run_table(run.id, "saliency").set_index(["tensor", "expert"])["final"]
    assert (masks["value"] == stored[list(zip(masks["tensor"], masks["expert"], strict=True))].to_numpy()).all()
    assert (masks["kept"] == masks["value"].astype(bool)).all()


def test_opposed_signs_are_counted_over_all_pairs_of_an_expert(open_app: Any, compared: Path) -> None:
    open_app("masks", compared)
    run = runs(compared)[LWPTV]
    stored = measurements.find_measurement(measurements.EXPERT_PAIRS, run.id)
    assert stored is not None
    order = stored.table("tensors").set_index("tensor")["order"][TENSOR]
    rows = [row for row in stored.table("pairs").itertuples() if row.order == order]
    table = network_values.read_map(run, "moved").set_index(["tensor", "expert"])["opposed"]
    for expert in run.experts:
        own = [row for row in rows if expert in (row.first, row.second)]
        expected = sum(row.opposed_1 for row in own) / sum(row.both_1 for row in own)
        assert table[TENSOR, expert] == pytest.approx(expected)


def test_keys_move_from_tensor_to_tensor(open_app: Any, compared: Path) -> None:
    open_app("masks", compared)
    table = network_values.read_map(runs(compared)[LWPTV], "moved")
    assert find_next_tensor(table, TENSOR, "right") == TENSOR.replace("c_fc", "c_proj")
    assert find_next_tensor(table, TENSOR, "down") == TENSOR.replace("weight", "bias")


@pytest.mark.parametrize("query", [{"network_quantity": "no such"}, {"network_quantity": "Learned coefficient"}])
def test_a_quantity_that_the_run_lacks_falls_back(open_app: Any, compared: Path, query: dict[str, str]) -> None:
    at = open_app("masks", compared, run=runs(compared)[TIES].id, **query)
    assert not at.exception and at.selectbox(key="network_quantity").value == QUANTITIES["final_mask"].title


def test_a_map_that_cannot_be_read_leaves_the_page_and_says_why(
    open_app: Any, compared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CheckpointError("flags.safetensors: not found.")

    monkeypatch.setattr(network_values, "read_map", refuse)
    at = open_app("masks", compared, run=runs(compared)[LWPTV].id)
    assert not at.exception and "Not shown: flags" in words(at) and "saliency_matrix" in chart_keys(at)
