"""The map of the network above the views: what it offers for a run, what a click chooses, and what it cannot show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared_runs import LWPTV, TIES
from page_harness import chart_keys, click, go, runs, words

from app.reading import measurements, page_data
from app.reading.runs import network_values
from merging.base.errors import CheckpointError
from viz.figures.network import network_map
from viz.figures.network.quantities import QUANTITIES

BLOCKS = "visual.transformer.resblocks"
TENSOR = f"{BLOCKS}.0.mlp.c_fc.weight"
NOT_MEASURED = "This quantity has not been measured for"


def read_spec(at: Any) -> dict[str, Any]:
    chart = next(chart for chart in at.get("plotly_chart") if chart.proto.id.endswith("chart_network_map"))
    spec: dict[str, Any] = json.loads(chart.proto.spec)
    return spec


def outlined(at: Any) -> int:
    return [shape.get("name") for shape in read_spec(at)["layout"]["shapes"]].count("selected")


def scope_picker(at: Any) -> Any:
    """The picker of what is put back: its key is a new one after a click on the map."""
    return next(box for box in at.get("button_group") if (box.key or "").startswith("action_scope"))


def test_every_quantity_has_a_source() -> None:
    assert list(network_values.SOURCES) == list(QUANTITIES)


@pytest.mark.full
def test_a_click_on_the_map_chooses_the_tensor_for_all_pages(open_app: Any, compared: Path) -> None:
    at = open_app("masks", compared)
    assert outlined(at) == 0
    at = click(at, "network_map", TENSOR, "")
    assert not at.exception and at.query_params["tensor"] == TENSOR and outlined(at) == 1
    for page in ("conflicts", "drift"):
        at.switch_page(f"screens/{page}.py").run()
        assert not at.exception and outlined(at) == 1


@pytest.mark.full
def test_a_click_on_a_block_or_a_layer_chooses_all_of_it_on_every_page(open_app: Any, compared: Path) -> None:
    at = open_app("masks", compared)
    (targets,) = (trace for trace in read_spec(at)["data"] if trace["name"] == "Choice")
    fields = next(row for row in targets["customdata"] if row[0].startswith(f"{BLOCKS}.1.") and row[2] == "block")
    at = click(at, "network_map", *fields)
    assert not at.exception and at.query_params["tensor"] == fields[0] and outlined(at) == 1
    assert scope_picker(at).value == "its block" == at.query_params["action_scope"]
    assert "block 1 (12 tensors)" in words(at).replace("\\", "")
    fields = next(row for row in targets["customdata"] if "c_fc" in row[0] and row[2] == "layer")
    at = click(at, "network_map", *fields)
    assert outlined(at) == 2  # in both blocks
    assert scope_picker(at).value == "this layer in all blocks"
    assert "all mlp.c_fc layers (4 tensors)" in words(at).replace("\\", "")
    go(at, "drift", drift_view="layer by layer")
    assert outlined(at) == 2 and at.session_state["tensor_kind"] == "weight matrices"
    at = click(at, "network_map", f"{BLOCKS}.1.ln_2.bias", "")
    assert (
        outlined(at) == 1 and "action_scope" not in at.query_params and at.session_state["tensor_kind"] == "biases"
    )  # the other filter would hide it
    go(at, "image", image_view="where it looks")
    assert at.selectbox(key="image_block").value == "1"


@pytest.mark.full
def test_the_map_follows_the_picker_of_what_is_put_back(open_app: Any, compared: Path) -> None:
    at = open_app("masks", compared, tensor=TENSOR)
    assert outlined(at) == 1 and scope_picker(at).value == "this tensor"
    scope_picker(at).set_value("this layer in all blocks").run()
    assert not at.exception and outlined(at) == 2 and "all" in at.query_params["action_scope"]
    scope_picker(at).set_value("this tensor").run()
    assert not at.exception and outlined(at) == 1 and "action_scope" not in at.query_params


@pytest.mark.full
def test_the_map_follows_the_prune_ratio_and_the_painting(open_app: Any, compared: Path) -> None:
    def lanes(at: Any) -> list[Any]:
        return [trace["marker"]["color"] for trace in read_spec(at)["data"] if trace["name"] == "Lane"]

    at = open_app("masks", compared, run=runs(compared)[LWPTV].id)
    before = lanes(at)
    at.slider(key="ratio").set_value(0.95).run()
    assert not at.exception and lanes(at) != before
    at.slider(key="ratio").set_value(1.0).run()
    frames = next(trace for trace in read_spec(at)["data"] if trace["name"] == "Tensor")
    assert {value for row in frames["customdata"] for value in row[2:]} == {0}  # nothing is kept
    at.toggle(key="painting").set_value(True).run()
    assert not at.exception and "Factor" in read_spec(at)["layout"]["meta"]["alt"]
    for color in (1, 0):  # factors as painted: 1, then 0 for every expert in one tensor
        frames = next(trace for trace in read_spec(at)["data"] if trace["name"] == "Tensor")
        assert {value for row in frames["customdata"] if row[0] == TENSOR for value in row[2:]} == {color}
        at = click(at, "manual_canvas", "", TENSOR, "", "")
    at = click(at, "network_map", TENSOR, "")
    assert not at.exception and outlined(at) == 1


@pytest.mark.full
def test_a_run_that_pruned_nothing_has_the_masks_of_the_ratio(open_app: Any, compared: Path) -> None:
    title = QUANTITIES["own_mask"].title
    at = open_app("masks", compared, run=runs(compared)[TIES].id, network_quantity=title)
    assert not at.exception and at.selectbox(key="network_quantity").value == title


def test_answers_by_depth_stand_under_the_blocks_of_the_map(open_app: Any, compared: Path) -> None:
    at = open_app("image", compared)
    map_axis = read_spec(at)["layout"]["xaxis"]["range"]
    low, high = network_map.find_depth_range(page_data.run_table(runs(compared)[TIES].id, "tensors"))
    labels = [note for note in read_spec(at)["layout"]["annotations"] if note["text"].isdecimal()]
    assert len(labels) == 2
    for note in labels:  # the number of a block, in the middle of its column
        share = (note["x"] - map_axis[0]) / (map_axis[1] - map_axis[0])
        assert low + share * (high - low) == pytest.approx(int(note["text"]) + 1, abs=0.02)


def test_a_click_on_a_stream_chooses_the_expert(open_app: Any, compared: Path) -> None:
    at = click(open_app("masks", compared), "network_map", "", "digits")
    assert at.query_params["expert"] == "digits" and "tensor" not in at.query_params


@pytest.mark.full
def test_a_quantity_that_is_not_measured_is_offered_with_empty_boxes(open_app: Any, compared: Path) -> None:
    at = open_app("masks", compared, run=runs(compared)[LWPTV].id, network_quantity=QUANTITIES["first_order_out"].title)
    assert not at.exception and NOT_MEASURED in words(at)
    assert any(button.key.startswith("measure_first_order_map") for button in at.button)
    at = open_app("masks", compared, run=runs(compared)[LWPTV].id, network_quantity=QUANTITIES["cosine"].title)
    assert not at.exception and NOT_MEASURED not in words(at)


@pytest.mark.full
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
    assert network_map.find_next_tensor(table, TENSOR, "right") == TENSOR.replace("c_fc", "c_proj")
    assert network_map.find_next_tensor(table, TENSOR, "down") == TENSOR.replace("weight", "bias")


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


@pytest.mark.full
def test_a_page_begins_with_its_own_quantity_unless_the_link_names_one(open_app: Any, compared: Path) -> None:
    at = open_app("masks", compared, run=runs(compared)[LWPTV].id)
    first = at.selectbox(key="network_quantity").value
    assert first == "Kept by the final mask"
    assert go(at, "drift").selectbox(key="network_quantity").value == "Layer drift"
    linked = open_app("drift", compared, runs=runs(compared)[LWPTV].id, network_quantity=first)
    assert linked.selectbox(key="network_quantity").value == first
