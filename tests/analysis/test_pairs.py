"""Experts against experts: sums against plain dense computation, tables and back, order, and figures."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import viz_tables
from figures import HOSTILE, strings

import viz
from merging.base.errors import Cancelled
from merging.engine.run_inputs import RunInputs
from merging.study.measurements import pairs as analysis
from merging.study.measurements.pairs import (
    CONFLICT,
    COSINE,
    OVERLAP,
    PAIR_VALUES,
    PairSums,
    cluster_order,
    compare_experts,
    matrix_table,
    pair_by_depth,
)
from merging.tasks.context import Context


def inputs_of(base: tiny.StateDict, experts: dict[str, tiny.StateDict]) -> RunInputs:
    opened = {name: tiny.checkpoint(state) for name, state in experts.items()}
    return RunInputs(tiny.checkpoint(base), opened, None, torch.device("cpu"))


@pytest.fixture(scope="module")
def family() -> tuple[tiny.StateDict, dict[str, tiny.StateDict]]:
    """Four experts; the last one is the pretrained model, and one tensor of the first is the pretrained one's."""
    base, experts = tiny.family()
    same = "visual.ln_post.bias"
    experts[tiny.EXPERTS[0]] = experts[tiny.EXPERTS[0]] | {same: base[same]}
    return base, experts | {tiny.EXPERTS[-1]: base}


@pytest.fixture(scope="module")
def found(family: tuple[tiny.StateDict, dict[str, tiny.StateDict]]) -> PairSums:
    return compare_experts(inputs_of(*family))


def plain(a: torch.Tensor, b: torch.Tensor, density: float) -> dict[str, float]:
    """The three values of two flat task vectors, with a full sort for the masks."""

    def kept(x: torch.Tensor) -> np.ndarray:
        sizes = np.abs(x.numpy())
        limit = np.sort(sizes)[max(len(sizes) - int(density * len(sizes)) - 1, 0)] if density < 1 else 0.0
        return (sizes >= limit) & (sizes > 0)

    x, y, one, other = a.double().numpy(), b.double().numpy(), kept(a), kept(b)
    both, either = one & other, one | other
    lengths = np.linalg.norm(x) * np.linalg.norm(y)
    return {
        COSINE: x @ y / lengths if lengths else np.nan,
        CONFLICT: (np.sign(x) != np.sign(y))[both].mean() if both.any() else np.nan,
        OVERLAP: both.sum() / either.sum() if either.any() else np.nan,
    }


@pytest.mark.parametrize("density", [1.0, 0.2, 0.05])
def test_every_tensor_and_pair_against_a_dense_computation(family: Any, found: PairSums, density: float) -> None:
    base, experts = family
    for at, tensor in enumerate(found.tensors["tensor"]):
        vectors = [(expert[tensor] - base[tensor]).flatten() for expert in experts.values()]
        for i, j in ((0, 1), (1, 2), (2, 3)):
            expected = plain(vectors[i], vectors[j], density)
            for value in PAIR_VALUES:
                got = found.values(value, density)[at]
                assert got[i, j] == pytest.approx(expected[value], rel=1e-9, nan_ok=True), (tensor, value)
                assert got[j, i] == pytest.approx(got[i, j], nan_ok=True)


def test_the_whole_model_is_one_long_vector(family: Any, found: PairSums) -> None:
    base, experts = family
    first, second = (torch.cat([(experts[name][n] - base[n]).flatten() for n in base]) for name in tiny.EXPERTS[1:3])
    whole = found.sum_rows()
    for value in PAIR_VALUES:  # undivided by tensors, the masks of density 1 are the same
        assert whole.values(value)[0, 1, 2] == pytest.approx(plain(first, second, 1.0)[value], rel=1e-9)
    assert int(whole.tensors["numel"].iloc[0]) == first.numel()


def test_an_expert_that_did_not_move_has_no_direction(found: PairSums) -> None:
    table = matrix_table(found.sum_rows())
    still = (table["first"] == tiny.EXPERTS[-1]) | (table["second"] == tiny.EXPERTS[-1])
    assert table.loc[still, [COSINE, CONFLICT]].isna().all(axis=None)
    assert (table.loc[still, OVERLAP] == 0).all()
    assert table.loc[~still, list(PAIR_VALUES)].notna().all(axis=None)
    assert len(table) == 12 and not (table["first"] == table["second"]).any()


def test_equal_and_opposite_experts() -> None:
    base, experts = tiny.family(("one",))
    one = experts["one"]
    opposite = {name: 2 * base[name].double() - one[name].double() for name in base}
    double = {name: value.double() for name, value in base.items()}
    states = {"one": {n: v.double() for n, v in one.items()}, "opposite": opposite}
    table = matrix_table(compare_experts(inputs_of(double, states)).sum_rows(), 0.2)
    assert table[COSINE].to_numpy() == pytest.approx([-1, -1])
    assert table[CONFLICT].to_numpy() == pytest.approx([1, 1])
    assert table[OVERLAP].to_numpy() == pytest.approx([1, 1], abs=0.02)  # but for rounding of sizes that are equal


def test_chance_is_what_independent_experts_have() -> None:
    draw = torch.Generator().manual_seed(0)
    base = tiny.pretrained()
    states = {name: {n: torch.randn(value.shape, generator=draw) + value for n, value in base.items()} for name in "ab"}
    one = compare_experts(inputs_of(base, states)).sum_rows()
    for value, close in ((COSINE, 0.03), (CONFLICT, 0.06), (OVERLAP, 0.03)):
        assert one.values(value, 0.2)[0, 0, 1] == pytest.approx(one.chance(value, 0.2)[0, 0, 1], abs=close)
    assert one.chance(OVERLAP, 0.2)[0, 0, 1] == pytest.approx(0.2 / 1.8, abs=0.01)


def test_tables_and_back(found: PairSums) -> None:
    tables = analysis.build_tables(found)
    back = analysis.read_tables(tables)
    assert back.experts == found.experts
    pd.testing.assert_frame_equal(back.tensors, found.tensors)
    for name in ("dot", "both"):
        np.testing.assert_array_equal(getattr(back, name), getattr(found, name))
    off = ~np.eye(len(found.experts), dtype=bool)
    np.testing.assert_array_equal(back.opposed[..., off], found.opposed[..., off])
    assert len(tables["pairs"]) == 6 * len(found.tensors)


def test_by_depth_is_the_tensors_of_the_pair(found: PairSums) -> None:
    names = found.experts[:2]
    table = pair_by_depth(found, names, OVERLAP, 0.2)
    np.testing.assert_array_equal(table["value"], found.values(OVERLAP, 0.2)[:, 0, 1])
    some = table[table["value"].notna()]
    assert ((some["low"] <= some["value"]) & (some["value"] <= some["high"])).all()
    block = (found.tensors["section"] == "block 1").to_numpy()
    assert set(table["whole"][block]) == {matrix_table(found.sum_rows(block), 0.2)[OVERLAP].iloc[0]}


def test_clusters_stand_together_in_any_order() -> None:
    near, far = 0.1, 0.9
    groups = np.array([0, 1, 0, 1, 0])
    distance = np.where(groups[:, None] == groups, near, far) * (1 - np.eye(5))
    order = cluster_order(distance)
    assert sorted(order) == list(range(5)) and order == cluster_order(distance)
    assert np.count_nonzero(np.diff(groups[order])) == 1
    holes = distance.copy()
    holes[0, :] = holes[:, 0] = np.nan
    assert sorted(cluster_order(holes)) == list(range(5))
    assert cluster_order(np.zeros((2, 2))) == [0, 1]


def test_comparing_can_be_cancelled(family: Any) -> None:
    said: list[float] = []
    with pytest.raises(Cancelled):
        compare_experts(
            inputs_of(*family),
            Context(progress=lambda progress: said.append(progress.fraction), cancel=lambda: len(said) > 5),
        )
    assert len(said) == 6


# Figures


@pytest.mark.parametrize("value", ["cosine", "conflict", "overlap"])
def test_the_matrix_draws_its_table(value: str) -> None:
    table = viz_tables.pair_matrix(5)
    order = ["Flags", "Shapes", "Letters", "Digits", "Stripes"]
    heat, numbers, cells = viz.draw("pair_matrix", table, value=value, order=order, selected=("Flags", "Digits")).data
    by_pair = table.set_index(["first", "second"])[value]
    for x, y, z in zip(heat.x, heat.y, heat.z, strict=True):
        assert z == pytest.approx(by_pair[order[int(y)], order[int(x)]], rel=1e-6)
    assert len(heat.z) == len(numbers.text) == len(cells.customdata) == 20  # nothing on the diagonal
    for x, base, (first, second), said in zip(cells.x, cells.base, cells.customdata, cells.text, strict=True):
        assert (order[int(base + 0.5)], order[int(x)]) == (first, second)
        assert first in said and second in said
    lowest = {"cosine": -heat.zmax, "conflict": 0, "overlap": table[value].min()}
    assert heat.zmin == pytest.approx(lowest[value])


def test_the_matrix_outlines_a_pair_both_ways_and_leaves_what_is_undefined_empty() -> None:
    table = viz_tables.pair_matrix(3)
    table.loc[table["first"] == "Shapes", "cosine"] = np.nan
    fig = viz.draw("pair_matrix", table, selected=("Shapes", "Digits"))
    outlined = {(s.x0 + 0.5, s.y0 + 0.5) for s in fig.layout.shapes if s.name == "selected"}
    assert outlined == {(0, 1), (1, 0)}
    assert len(fig.data[0].z) == 4 and "—" in fig.data[1].text
    assert "not defined" in fig.data[2].text[list(table["first"]).index("Shapes")]


@pytest.mark.parametrize("key", ["pair_matrix", "joint_energy"])
def test_hostile_experts_are_escaped(key: str) -> None:
    table = getattr(viz_tables, key)(len(HOSTILE))
    names = dict(zip(viz_tables.names(len(HOSTILE)), HOSTILE, strict=True))
    for column in ("first", "second", "expert"):
        if column in table and not pd.api.types.is_numeric_dtype(table[column]):
            table[column] = pd.Series([names[name] for name in table[column]], dtype=object)
    for shown in strings(json.loads(viz.draw(key, table).to_json())["data"]):
        bare = shown.replace("%{text}<extra></extra>", "").replace("<br>", "").replace("<b>", "").replace("</b>", "")
        assert "<" not in bare and "$" not in bare and "%{" not in bare and "\u202e" not in bare


def test_the_pair_is_drawn_tensor_by_tensor() -> None:
    table = viz_tables.pair_depth(2).sample(frac=1, random_state=0)
    fig = viz.draw("pair_depth", table, pair=("Shapes", "Digits"), selected="visual.proj")
    by_name = table.set_index("tensor")["value"]
    drawn = [(name, y) for t in fig.data if t.customdata is not None for (name,), y in zip(t.customdata, t.y)]  # noqa: B905
    assert len(drawn) == len(table)
    assert all(y == pytest.approx(by_name[name], rel=1e-6) for name, y in drawn)
    assert [s.x0 for s in fig.layout.shapes if s.name == "selected"] == [len(table) - 1.5]
