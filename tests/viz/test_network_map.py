"""The map of the network: a box for every tensor of any network, streams as numbers say, keys that reach every box."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import family_files
import numpy as np
import pandas as pd
import pytest
import random_towers
import torch
import viz_tables

import merging
import viz
from viz import theme
from viz.figures.network import update_streams
from viz.figures.network.network_map import find_depth_range, find_next_tensor
from viz.figures.network.quantities import QUANTITIES
from viz.marks import marks
from viz.parts.network_layout import ELSEWHERE, Box, Heights, Row, find_neighbor, lay_out_network

HEIGHTS = Heights(6, 56)
LARGE_TOWER = {"width": 1024, "layers": 24, "patch": 14, "side": 16, "embed": 768}  # L/14
ADAPTED = ("self_attn.q_proj", "self_attn.v_proj")  # parts that LoRA adapters usually change
MAX_BYTES = 150_000


def name_tensors(parts: dict[str, list[tuple[str, str, int]]]) -> pd.DataFrame:
    """A table of tensors from {section: (part, role, numel)}."""
    rows = [
        (f"{section}.{part}.{index}", section, role, part, numel)
        for section, members in parts.items()
        for index, (part, role, numel) in enumerate(members)
    ]
    table = pd.DataFrame(rows, columns=["tensor", "section", "role", "part", "numel"])
    return table.assign(order=range(len(table)))


ATTENTION = [("self_attn.q_proj", "linear", 64), ("self_attn.k_proj", "linear", 64), ("self_attn.v_proj", "linear", 64)]
T5_BLOCK = [("ln_1", "norm_scale", 8), *ATTENTION, ("self_attn.o_proj", "linear", 64), ("ln_2", "norm_scale", 8),
            ("mlp.wi_0", "linear", 256), ("mlp.wi_1", "linear", 256), ("mlp.wo", "linear", 256)]  # fmt: skip
CROSS = [("cross_attn.q", "linear", 64), ("cross_attn.o", "linear", 64)]
T5 = name_tensors({
    "embeddings": [("shared", "vocabulary", 800)],
    "encoder block 0": T5_BLOCK, "encoder block 1": T5_BLOCK, "encoder output": [("final_norm", "norm_scale", 8)],
    "decoder block 0": [*T5_BLOCK, *CROSS], "decoder block 1": [*T5_BLOCK, *CROSS],
})  # fmt: skip
RESNET = name_tensors({
    "embeddings": [("conv1", "conv", 90), ("bn1", "norm_scale", 8), ("bn1", "shift", 8)],
    "block 0": [("conv1", "conv", 90), ("bn1", "norm_scale", 8), ("bn1.running_mean", "statistic", 8)],
    "block 1": [("conv1", "conv", 90), ("downsample.0", "conv", 30), ("bn1", "norm_scale", 8)],
    "output": [("fc", "linear", 100)],
})  # fmt: skip
CLIP, LARGE_CLIP = viz_tables.tensors(12), viz_tables.tensors(24)
NETWORKS = {"CLIP": CLIP, "CLIP with 24 blocks": LARGE_CLIP, "T5": T5, "ResNet": RESNET}


def describe_network(name: str) -> pd.DataFrame:
    """What ``merging.describe`` says of a network, as a table for the map."""
    if name.startswith("CLIP"):
        shapes = random_towers.shapes(**(LARGE_TOWER if name == "CLIP L/14" else random_towers.B32))
        state = {tensor: torch.zeros(()).expand(shape) for tensor, shape in shapes.items()}
    else:
        state = family_files.make_model(name.removesuffix(" with LoRA")).state_dict()
    table = merging.describe(state)
    table = table[table["part"].isin(ADAPTED)] if name.endswith("with LoRA") else table
    return table.assign(order=range(len(table)), numel=[math.prod(shape) for shape in table["shape"]])


def all_boxes(rows: list[Row]) -> list[Box]:
    return [box for row in rows for box in row.boxes]


@pytest.mark.parametrize("by_area", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_tensor_has_one_box_that_overlaps_no_other(name: str, by_area: bool) -> None:
    tensors = NETWORKS[name]
    rows = lay_out_network(tensors, HEIGHTS, by_area)
    assert sorted(box.tensor for box in all_boxes(rows)) == sorted(tensors["tensor"].astype(str))
    for row in rows:
        for index, one in enumerate(row.boxes):
            assert one.x0 >= 0 and one.x1 <= row.width + 1e-9 and one.y1 > one.y0
            for other in row.boxes[index + 1 :]:
                apart = min(one.x1, other.x1) <= max(one.x0, other.x0) + 1e-9
                assert apart or min(one.y1, other.y1) <= max(one.y0, other.y0) + (2.1 if by_area else 1e-9)


DESCRIBED = [  # name, sections of each row
    ("CLIP B/32", {"": 14}),
    *(pytest.param(name, sections, marks=pytest.mark.full) for name, sections in [  # their libraries load for seconds
        ("CLIP L/14", {"": 26}), ("T5", {"encoder": 4, "decoder": 4, ELSEWHERE: 0}), ("Llama", {"": 4}),
        ("Llama with LoRA", {"": 2}),
        ("ResNet", {"": 5}), ("torchvision ResNet", {"": 10}),
        ("BLIP", {"vision_model": 4, "text_encoder": 3, "text_decoder": 4}),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "sections"), DESCRIBED)
def test_a_network_is_drawn_from_what_describe_says_of_it(name: str, sections: dict[str, int]) -> None:
    tensors = describe_network(name)
    rows = lay_out_network(tensors, HEIGHTS)
    assert {row.name: len(row.sections) for row in rows} == sections
    assert sorted(box.tensor for box in all_boxes(rows)) == sorted(tensors["tensor"])
    corners = [(index, box.x0, box.y0) for index, row in enumerate(rows) for box in row.boxes]
    assert len(set(corners)) == len(tensors)
    figure = viz.draw("network_map", tensors.assign(value=1.0), quantity="moved", size="low")
    assert len(figure.data[0].x) == len(figure.data[1].x) == len(tensors)
    assert len(json.dumps(json.loads(figure.to_json()), separators=(",", ":"))) < MAX_BYTES


def test_attention_is_above_the_line_and_the_mlp_below() -> None:
    parts = dict(zip(CLIP["tensor"].astype(str), CLIP["part"].astype(str), strict=True))
    (row,) = lay_out_network(CLIP, HEIGHTS)
    for box in row.boxes:
        if parts[box.tensor].startswith(("attn", "mlp")):
            assert (box.y0 > 0) == parts[box.tensor].startswith("attn")
    assert [section.label for section in row.sections] == ["embeddings", *map(str, range(12)), "output"]
    starts = [section.x0 for section in row.sections]
    assert starts == sorted(starts)


def test_towers_are_rows_and_what_they_share_is_elsewhere() -> None:
    rows = lay_out_network(T5, HEIGHTS)
    assert [row.name for row in rows] == ["encoder", "decoder", ELSEWHERE]
    assert [box.tensor for box in rows[-1].boxes] == ["embeddings.shared.0"]
    inputs = [box for box in rows[0].boxes if box.tensor.startswith("encoder block 0.self_attn") and box.x0 < 1.1]
    assert len(inputs) == 3 and len({box.x0 for box in inputs}) == 1  # q, k and v, one above the other
    resnet = lay_out_network(RESNET, HEIGHTS)[0]
    assert [box.tensor for box in resnet.boxes if box.y0 < 0] == [
        "embeddings.conv1.0", "block 1.downsample.0.1", "output.fc.0",
    ]  # fmt: skip


def test_areas_are_in_proportion_to_scalars() -> None:
    numel = dict(zip(CLIP["tensor"].astype(str), CLIP["numel"], strict=True))
    boxes = [box for box in all_boxes(lay_out_network(CLIP, HEIGHTS, by_area=True)) if box.y1 - box.y0 > 2.01]
    ratios = [(box.x1 - box.x0) * (box.y1 - box.y0) / numel[box.tensor] for box in boxes]
    assert len(boxes) >= 24
    np.testing.assert_allclose(ratios, ratios[0])


@pytest.mark.parametrize("name", NETWORKS)
def test_arrow_keys_reach_every_tensor(name: str) -> None:
    tensors = NETWORKS[name]
    rows = lay_out_network(tensors, HEIGHTS)
    first = find_next_tensor(tensors, "no such tensor", "right")
    reached, waiting = {first}, [first]
    while waiting:
        tensor = waiting.pop()
        for direction in ("left", "right", "up", "down"):
            if (neighbor := find_neighbor(rows, tensor, direction)) not in reached:
                reached.add(neighbor)
                waiting.append(neighbor)
    assert reached == set(tensors["tensor"].astype(str))


def test_streams_are_the_relative_updates_with_their_kept_shares() -> None:
    table = viz_tables.network_map(3, 2)
    expert, sections = str(table["expert"].iloc[0]), ["embeddings", "block 0", "block 1", "no such section"]
    stream = update_streams.sum_updates(table, expert, sections)
    for index, section in enumerate(sections[:3]):
        rows = table[(table["expert"] == expert) & (table["section"] == section)]
        square, kept = rows["square"].to_numpy(), rows["kept"].to_numpy(bool)
        assert stream.update[index] == pytest.approx(np.sqrt(square.sum() / rows["weight_square"].sum()))
        assert stream.kept[index] == pytest.approx(square[kept].sum() / square.sum())
        numel = rows["numel"].to_numpy(float)
        assert stream.opposed[index] == pytest.approx(np.average(rows["opposed"], weights=numel))
    assert stream.update[3] == 0 and stream.kept[3] == 1


def test_a_pruned_stream_is_gray_and_a_full_one_has_no_gray() -> None:
    table = viz_tables.network_map(2, 2)
    first = table["expert"].iloc[0]
    table["kept"] = table["expert"] == first
    shapes = viz.draw("network_map", table).layout.shapes
    fills = [shape.fillcolor for shape in shapes if shape.type == "path" and shape.line.width == 0]
    assert fills.count("#C9CFD6") == 1 and len(fills) == 3  # both in color, and the gray of the second


def test_the_file_has_every_value_that_the_map_shows() -> None:
    table = viz_tables.network_map(3, 2)
    rows = marks(viz.draw("network_map", table), ("tensor", "expert")).set_index("tensor")
    title = QUANTITIES["saliency"].title_with_unit()
    for record in table.to_dict("records"):
        shown = rows.loc[str(record["tensor"]), f"{title}, {record['expert']}"]
        assert shown == pytest.approx(record["value"], rel=1e-3)


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("difference", [False, True])
def test_every_quantity_is_drawn_with_gaps(quantity: str, difference: bool) -> None:
    table = viz_tables.network_map(3, 2)
    table["value"] = np.where(np.arange(len(table)) % 5 == 0, np.nan, np.linspace(0, 1, len(table)).round())
    figure = viz.draw("network_map", table, quantity=quantity, difference=difference, size="low")
    lanes = figure.data[1]
    per_expert = QUANTITIES[quantity].per_expert
    assert 0 < len(lanes.x) <= len(table) // (1 if per_expert else 3)
    assert lanes.marker.colorscale and 0 <= min(lanes.marker.color) <= max(lanes.marker.color) <= lanes.marker.cmax


def test_a_map_of_24_blocks_and_8_experts_is_small() -> None:
    figure = viz.draw("network_map", viz_tables.network_map(8, 24))
    assert len(json.dumps(json.loads(figure.to_json()), separators=(",", ":"))) < MAX_BYTES


def test_blocks_and_layers_take_clicks_and_are_outlined_as_a_whole() -> None:
    table = viz_tables.network_map(2, 3)
    figure = viz.draw("network_map", table, size="low")
    fields = [tuple(row) for row in figure.data[-1].customdata]
    sections, parts = table.groupby("section", sort=False), table[table["section"].str.startswith("block")]["part"]
    assert {names for names in fields if names[2] == "block"} == {
        (str(rows["tensor"].iloc[0]), "", "block") for _, rows in sections
    }
    assert len([row for row in fields if row[2] == "layer"]) == parts.nunique()
    assert "Choice" not in set(marks(figure, ("tensor", "expert"))["mark"])
    tensor = next(str(name) for name in table["tensor"] if "0.mlp.c_fc.weight" in name)
    boxes = dict(zip((row[0] for row in figure.data[0].customdata), zip(figure.data[0].x, strict=True), strict=True))
    for extent, count in (("tensor", 1), ("block", 1), ("layer", 3)):
        drawn = viz.draw("network_map", table, size="low", selected=tensor, extent=extent)
        outlines = [shape for shape in drawn.layout.shapes if shape.name == "selected"]
        assert len(outlines) == count
        inside = {name for name, (x,) in boxes.items() if any(shape.x0 <= x <= shape.x1 for shape in outlines)}
        block = {name for name in boxes if ".resblocks.0." in name}
        assert block <= inside if extent == "block" else tensor in inside


def test_a_small_map_has_room_for_its_ends_and_no_names_of_layers() -> None:
    table = viz_tables.network_map(2, 12)
    figure = viz.draw("network_map", table, size="small")
    assert "layer" not in {row[2] for row in figure.data[-1].customdata}
    texts = {note.text: note.x for note in figure.layout.annotations}
    assert {"input", "output"} <= set(texts) and not [text for text in texts if text.startswith("all ")]
    low, high = figure.layout.xaxis.range
    px = (400 - figure.layout.margin.l - figure.layout.margin.r) / (high - low)  # of a unit, 400 px wide
    assert (texts["input"] - low) * px >= 30 and (high - texts["output"]) * px >= 36  # the words are as wide
    layers = [note for note in viz.draw("network_map", table, size="low").layout.annotations if note.name == "layer"]
    assert len(layers) == table[table["section"] == "block 0"]["part"].nunique()


def test_a_presented_map_names_blocks_in_words_and_no_layers() -> None:
    for blocks, shown in ((6, 6), (24, 8)):
        table = viz_tables.network_map(2, blocks)
        notes = viz.draw("network_map", table, present=True).layout.annotations
        words = [note for note in notes if note.text.startswith("block ")]
        assert len(words) == shown and {note.font.size for note in words} == {theme.FONT_SIZE}
        assert "layer" not in {note.name for note in notes} and not [note for note in notes if note.text.isdecimal()]
        low = viz.draw("network_map", table, present=True, size="low").data[1].marker.colorbar
        assert low.title.text == QUANTITIES["saliency"].title_with_unit()  # the page's picker is not shown


def test_names_of_layers_do_not_touch_on_a_narrow_page() -> None:
    figure = viz.draw("network_map", viz_tables.network_map(8, 6), result="merged")
    layers = [note for note in figure.layout.annotations if note.name == "layer"]
    low, high = figure.layout.xaxis.range
    px = (600 - figure.layout.margin.l - figure.layout.margin.r) / (high - low)  # the map on a page 900 px wide
    for one, other in pairwise(layers):
        half = (theme.text_width(one.text) + theme.text_width(other.text)) / 2
        assert (other.x - one.x) * px > half
    beside = next(note for note in figure.layout.annotations if note.text == "all blocks")
    assert theme.text_width(beside.text) < figure.layout.margin.l


def test_answers_by_depth_are_as_wide_as_a_low_map() -> None:
    low_map = viz.draw("network_map", viz_tables.network_map(2, 6), size="low").layout
    answers = viz.draw("image_lens", viz_tables.image_lens(3), depths=(-0.1, 8.0)).layout
    assert (answers.margin.l, answers.margin.r) == (low_map.margin.l, low_map.margin.r)
    for axis in (answers.xaxis, answers.xaxis2, answers.xaxis3):
        assert axis.domain == (0, 1) and axis.range == (-0.1, 8.0)


@pytest.mark.parametrize("blocks", [2, 12, 24])
def test_the_depth_before_all_blocks_is_in_the_column_of_the_input(blocks: int) -> None:
    tensors = viz_tables.tensors(blocks)
    (row,) = lay_out_network(tensors, HEIGHTS)
    low, high = find_depth_range(tensors)
    start = row.width * 1.02 * (0 - low) / (high - low) - 0.01 * row.width  # units of depth 0
    assert row.sections[0].label == "embeddings" and -0.02 <= start <= row.sections[0].x1


def test_biases_are_strips_under_their_weights() -> None:
    boxes = {box.tensor: box for box in all_boxes(lay_out_network(CLIP, HEIGHTS))}
    weights = [name for name in boxes if name.endswith(".c_fc.weight")]
    assert weights
    for weight in weights:
        large, strip = boxes[weight], boxes[weight.replace("weight", "bias")]
        assert strip.y1 <= large.y0 and strip.y1 - strip.y0 < large.y1 - large.y0
