"""Positions of a network's tensors on a schematic: towers as rows, blocks along the residual line, branches beside it.

Everything follows from a table of tensors as ``describe`` lists them. An attention layer is a branch above the line, an
MLP one below it; norms are thin bars. In a block without attention all layers are above, and a shortcut is below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import pandas as pd

from viz.parts.tensor_columns import BLOCK_PATTERN, short_section

ELSEWHERE = "elsewhere in the network"
ASIDE_WEIGHT, SAME_PLACE = 3.0, 0.05  # of a distance aside of the direction; a shift that is none
ABOVE, BELOW = 1, -1
WEIGHT_WIDTH, NORM_WIDTH, COLUMN_GAP = 1.0, 0.45, 0.12  # in units, of which a row has as many as it needs
SECTION_GAP, ELSEWHERE_WIDTH = 0.7, 1.0
STRIP_PX, STRIP_GAP_PX, BOX_GAP_PX = 6.0, 1.0, 2.0  # px: a bias under its weight, and gaps under tensors and layers
MIN_AREA_PX = 2.0  # height of the smallest box if areas show numbers of scalars
BRANCH_SHIFT = 0.7  # units by which a branch below the line begins after the one above it, which comes before it
ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)
SHORTCUT = re.compile(r"downsampl|shortcut|skip", re.IGNORECASE)
# Layers that take the same input, so that they are drawn one above the other.
PARALLEL = re.compile(r"(?:^|[._])(?:(?P<input>q|k|v|query|key|value)|(?P<gate>gate|up|wi_\d|w1|w3))(?:_proj|_lin)?$")
ENDING = re.compile(r"[._](?:weight|bias)$")
EMBEDDING_ROLES = {"embedding", "vocabulary"}


class Box(NamedTuple):
    """A tensor's rectangle: its ends along the row in units, and its ends above the row's line in px."""

    tensor: str
    x0: float
    x1: float
    y0: float
    y1: float


class Branch(NamedTuple):
    """A layer's path that leaves the residual line and returns to it: its ends, and its height above the line in px."""

    x0: float
    x1: float
    y: float


class Section(NamedTuple):
    """A part of a row with its ends in units: a block, the tensors before the blocks, or those after them."""

    name: str
    label: str
    x0: float
    x1: float


class Row(NamedTuple):
    """A tower: its name (empty if it is the only one), its sections, boxes and branches, and its width in units."""

    name: str
    sections: list[Section]
    boxes: list[Box]
    branches: list[Branch]
    width: float


class PlacedRow(NamedTuple):
    """A row of the map, with the height of its line in px above the bottom, and half the height of its streams."""

    row: Row
    line: float
    lanes: float

    @property
    def top(self) -> float:
        """The height of the upper edge in px."""
        return self.line + max([box.y1 for box in self.row.boxes] + [self.lanes])

    @property
    def bottom(self) -> float:
        """The height of the lower edge in px."""
        return self.line + min([box.y0 for box in self.row.boxes] + [-self.lanes])


class Heights(NamedTuple):
    """Lengths in px: from the line to a branch's boxes, and of the boxes of a branch."""

    gap: float
    branch: float


class Layer(NamedTuple):
    """A module of a block: its name, its kind (norm, attention or other), and its tensors, the largest first."""

    name: str
    kind: str
    tensors: list[str]


class MapTensor(NamedTuple):
    """A tensor of the map: its name, section, role, part and number of scalars."""

    name: str
    section: str
    role: str
    part: str
    numel: int


def lay_out_network(tensors: pd.DataFrame, heights: Heights, by_area: bool = False) -> list[Row]:
    """The rows of a network. ``tensors`` has tensor, section, role, part and numel, a row each, in forward order.

    Boxes have equal sizes, or areas ``by_area`` in proportion to the scalars of their tensors. Tensors outside all
    towers of a network with several, and sections that are neither before, in nor after the blocks, are in a last row,
    ``ELSEWHERE``.
    """
    texts = [tensors[column].astype(str) for column in ("tensor", "section", "role", "part")]
    map_tensors = [MapTensor(*values) for values in zip(*texts, tensors["numel"].astype(int), strict=True)]
    row_names = _find_rows([tensor.section for tensor in map_tensors])
    tensors_by_row = _group_in_order(zip(row_names, map_tensors, strict=True))
    others = tensors_by_row.pop(ELSEWHERE, [])
    rows = [_lay_out_tower(name, row_tensors, heights) for name, row_tensors in tensors_by_row.items()]
    if others:
        width = max([row.width for row in rows] + [1])
        rows.append(_lay_out_others([tensor.name for tensor in others], width, heights))
    if not by_area:
        return rows
    sizes = {tensor.name: tensor.numel for tensor in map_tensors}
    shrunk = iter(_shrink_to_area([box for row in rows for box in row.boxes], sizes))
    return [row._replace(boxes=list(islice(shrunk, len(row.boxes)))) for row in rows]


def _find_rows(sections: Sequence[str]) -> list[str]:
    """The row of each tensor: its tower, or ``ELSEWHERE``."""
    blocks = [match for section in dict.fromkeys(sections) if (match := BLOCK_PATTERN.fullmatch(section))]
    towers = list(dict.fromkeys(match["tower"] or "" for match in blocks))
    if len(towers) < 2:
        tower = towers[0] if towers else ""
        known = {f"{tower} {name}".strip() for name in ("embeddings", "output")} | {match[0] for match in blocks}
        return [tower if section in known else ELSEWHERE for section in sections]
    return [next((tower for tower in towers if section.startswith(f"{tower} ")), ELSEWHERE) for section in sections]


def _group_in_order(pairs: Iterable[tuple[str, MapTensor]]) -> dict[str, list[MapTensor]]:
    """The tensors with each key, in the order of the keys' first tensors."""
    groups: dict[str, list[MapTensor]] = {}
    for key, tensor in pairs:
        groups.setdefault(key, []).append(tensor)
    return groups


def _lay_out_tower(name: str, tensors: Sequence[MapTensor], heights: Heights) -> Row:
    groups = _group_in_order((tensor.section, tensor) for tensor in tensors)
    order = list(groups)
    plans = [
        (section, _plan_branches(section, groups[section]))
        for section in sorted(order, key=lambda section: _forward_rank(section, order))
    ]
    row = Row(name, [], [], [], 0.0)
    start = 0.0
    for section, branches in plans:
        ends = {ABOVE: start, BELOW: start + BRANCH_SHIFT * sum(side == ABOVE for side, _ in branches)}
        for side, columns in branches:
            first, last = ends[side], ends[side] + _width(columns)
            row.branches.append(Branch(first - COLUMN_GAP, last + COLUMN_GAP, side * _middle(heights)))
            row.boxes.extend(_place_columns(columns, first, side, heights))
            ends[side] = last + 2 * COLUMN_GAP
        end = max(ends.values()) - 2 * COLUMN_GAP
        row.sections.append(Section(section, _label(section, name), start, end))
        start = end + SECTION_GAP
    return row._replace(width=start - SECTION_GAP)


def _forward_rank(section: str, order: Sequence[str]) -> tuple[int, int]:
    """Embeddings first, then the blocks by number, then the output."""
    if match := BLOCK_PATTERN.fullmatch(section):
        return 1, int(match["number"])
    return (0 if section.endswith("embeddings") else 2), order.index(section)


def _label(section: str, tower: str) -> str:
    return short_section(section).removeprefix(f"{tower} ") if tower else short_section(section)


Columns = list[list[Layer]]  # columns of a branch; the layers of a column are one above the other


def _plan_branches(section: str, tensors: Sequence[MapTensor]) -> list[tuple[int, Columns]]:
    """The branches of a section with their sides, in the order in which data passes them."""
    layers = _find_layers(tensors)
    if not BLOCK_PATTERN.fullmatch(section):
        return _plan_ends(layers, tensors)
    norms = [layer for layer in layers if layer.kind == "norm"]
    owners = dict.fromkeys(_owner(layer) for layer in layers if layer.kind == "attention")
    if not owners:
        shortcut = [layer for layer in layers if SHORTCUT.search(layer.name)]
        main = [layer for layer in layers if layer not in shortcut]
        plans = [(ABOVE, [[layer] for layer in main]), (BELOW, [[layer] for layer in shortcut])]
        return [(side, columns) for side, columns in plans if columns]
    members = [[layer for layer in layers if layer.kind == "attention" and _owner(layer) == owner] for owner in owners]
    members.append([layer for layer in layers if layer.kind == "other"])
    plans = [(ABOVE if index < len(owners) else BELOW, _stack_parallel(m)) for index, m in enumerate(members) if m]
    for index, norm in enumerate(norms):  # norms come before their branch, further ones after the last
        columns = plans[min(index, len(plans) - 1)][1]
        columns.insert(0 if index < len(plans) else len(columns), [norm])
    return plans


def _plan_ends(layers: Sequence[Layer], tensors: Sequence[MapTensor]) -> list[tuple[int, Columns]]:
    """The branches before the first block or after the last: tables of embeddings above, other layers below."""
    roles = {tensor.name: tensor.role for tensor in tensors}
    norms = [[layer] for layer in layers if layer.kind == "norm"]
    tables = [layer for layer in layers if layer.kind != "norm" and roles[layer.tensors[0]] in EMBEDDING_ROLES]
    others = [[layer] for layer in layers if layer.kind != "norm" and layer not in tables]
    above = [tables[start : start + 3] for start in range(0, len(tables), 3)]
    return [(side, columns) for side, columns in ((ABOVE, [*norms, *above]), (BELOW, others)) if columns]


def _find_layers(tensors: Sequence[MapTensor]) -> list[Layer]:
    """The modules of a section in the order of their first tensors."""
    parts = [ENDING.sub("", tensor.part) for tensor in tensors]
    stems = sorted(set(parts), key=len)
    modules = [next(stem for stem in stems if part == stem or part.startswith(f"{stem}.")) for part in parts]
    layers = []
    for name, members in _group_in_order(zip(modules, tensors, strict=True)).items():
        roles = {tensor.role for tensor in members}
        is_norm = "norm_scale" in roles and not roles & {"linear", "conv", "projection", "stack"}
        kind = "norm" if is_norm else "attention" if ATTENTION.search(name) else "other"
        ordered = sorted(members, key=lambda tensor: -tensor.numel)
        layers.append(Layer(name, kind, [tensor.name for tensor in ordered]))
    return layers


def _owner(layer: Layer) -> str:
    """The attention layer to which a module belongs: its name up to the component that says attention."""
    components = layer.name.split(".")
    return ".".join(components[: next(i for i, word in enumerate(components) if ATTENTION.search(word)) + 1])


def _stack_parallel(layers: Iterable[Layer]) -> Columns:
    """One column for each layer, and one for all layers with the same input."""
    columns: dict[str, list[Layer]] = {}
    for layer in layers:
        match = PARALLEL.search(layer.name)
        key = layer.name if match is None else "inputs" if match["input"] else "gates"
        columns.setdefault(key, []).append(layer)
    return [columns[key] for key in sorted(columns, key=lambda key: key != "inputs")]


def _width(columns: Columns) -> float:
    return sum(_column_width(column) for column in columns) + COLUMN_GAP * (len(columns) - 1)


def _column_width(column: Sequence[Layer]) -> float:
    return NORM_WIDTH if all(layer.kind == "norm" for layer in column) else WEIGHT_WIDTH


def _middle(heights: Heights) -> float:
    return heights.gap + heights.branch / 2


def _place_columns(columns: Columns, start: float, side: int, heights: Heights) -> Iterable[Box]:
    """The boxes of a branch that begins at ``start``."""
    bottom = heights.gap if side == ABOVE else -heights.gap - heights.branch
    for column in columns:
        width = _column_width(column)
        height = (heights.branch - BOX_GAP_PX * (len(column) - 1)) / len(column)
        for index, layer in enumerate(column):  # the first one on top
            top = bottom + heights.branch - index * (height + BOX_GAP_PX)
            yield from _place_layer(layer, (start, start + width), (top - height, top))
        start += width + COLUMN_GAP


def _place_layer(layer: Layer, across: tuple[float, float], down: tuple[float, float]) -> Iterable[Box]:
    """The boxes of a layer, one above the other: in a norm all are equal, else strips are under the largest tensor."""
    low, high = down
    count = len(layer.tensors)
    equal = (high - low - STRIP_GAP_PX * (count - 1)) / count
    strip = equal if layer.kind == "norm" else min(STRIP_PX, equal)
    for index, tensor in enumerate(layer.tensors):
        bottom = low + (count - 1 - index) * (strip + STRIP_GAP_PX)
        yield Box(tensor, *across, bottom, high if index == 0 else bottom + strip)


def _shrink_to_area(boxes: Sequence[Box], sizes: Mapping[str, int]) -> list[Box]:
    """The same boxes with areas in proportion to their tensors' scalars, but at least ``MIN_AREA_PX`` high."""
    needed = [sizes[box.tensor] / (box.x1 - box.x0) for box in boxes]  # heights in units that the scale turns into px
    scale = min(((box.y1 - box.y0) / height for box, height in zip(boxes, needed, strict=True) if height), default=0.0)
    shrunk = []
    for box, height in zip(boxes, needed, strict=True):
        middle, half = (box.y0 + box.y1) / 2, max(height * scale, MIN_AREA_PX) / 2
        shrunk.append(box._replace(y0=middle - half, y1=middle + half))
    return shrunk


def _lay_out_others(tensors: Sequence[str], width: float, heights: Heights) -> Row:
    """A row of boxes that no branch connects, in as many lines as they need."""
    per_line = max(int(width / (ELSEWHERE_WIDTH + COLUMN_GAP)), 1)
    lines = -(-len(tensors) // per_line)
    height = min(heights.branch / lines, heights.branch / 2)
    boxes = []
    for index, tensor in enumerate(tensors):
        x0, top = (index % per_line) * (ELSEWHERE_WIDTH + COLUMN_GAP), -(index // per_line) * height
        boxes.append(Box(tensor, x0, x0 + ELSEWHERE_WIDTH, top - height + BOX_GAP_PX, top))
    return Row(ELSEWHERE, [], boxes, [], width)


def find_neighbor(rows: Sequence[Row], tensor: str, direction: str) -> str:
    """The tensor that is next to ``tensor`` in a direction: left, right, up or down; itself at the end of the network.

    The first tensor if ``tensor`` is not in the rows.
    """
    centers = _find_centers(rows)
    if tensor not in centers:
        return next(iter(centers), "")
    x, y = centers[tensor]
    across, sign = direction in ("left", "right"), 1 if direction in ("right", "up") else -1

    def distance(name: str) -> float:
        ahead, aside = centers[name][0] - x, centers[name][1] - y
        if not across:
            ahead, aside = aside, ahead
        return ahead * sign + ASIDE_WEIGHT * abs(aside) if ahead * sign > SAME_PLACE else float("inf")

    nearest = min(centers, key=distance)
    return nearest if distance(nearest) < float("inf") else tensor


def _find_centers(rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """The center of each tensor: across in units, and up in heights of a branch, rows from the bottom up."""
    tallest = max((abs(end) for row in rows for box in row.boxes for end in (box.y0, box.y1)), default=1.0) or 1.0
    return {
        box.tensor: ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2 / tallest + 3 * (len(rows) - index))
        for index, row in enumerate(rows)
        for box in row.boxes
    }
