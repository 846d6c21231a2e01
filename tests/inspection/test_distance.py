"""Distances of experts from the pretrained model against plain norms over all weights."""

from __future__ import annotations

import math

import pytest
import tiny
import torch

from merging.models.checkpoint import MappingCheckpoint
from merging.models.inspection.fit_check import check_fit


def flat(state: tiny.StateDict) -> torch.Tensor:
    return torch.cat([value.double().flatten() for value in state.values()])


def test_ratio_and_cosine_are_those_of_all_weights() -> None:
    base, experts = tiny.family(("a", "b"))
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    report = check_fit(MappingCheckpoint(base, "pretrained"), opened, values=True)
    before = flat(base)
    for name, state in experts.items():
        after, distance = flat(state), report.distances[name]
        assert distance.ratio == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-9)
        assert distance.cosine == pytest.approx(float(after @ before / after.norm() / before.norm()), rel=1e-9)
        assert 0.01 < distance.ratio < 0.5  # so that its square is another number


def test_a_ratio_needs_weights() -> None:
    base, experts = tiny.family(("a",))
    zeros = {name: torch.zeros_like(value) for name, value in base.items()}
    report = check_fit(MappingCheckpoint(zeros, "pretrained"), {"a": MappingCheckpoint(experts["a"], "a")}, values=True)
    assert math.isnan(report.distances["a"].ratio) and math.isnan(report.distances["a"].cosine)


@pytest.mark.parametrize(("factor", "unrelated"), [(1.4, False), (1.6, True), (0.4, True), (-0.1, True)])
def test_a_large_change_is_unrelated_whatever_its_direction(factor: float, unrelated: bool) -> None:
    """The cosine of the first three is 1; the change of the last is 110 %."""
    base = tiny.pretrained()
    scaled = MappingCheckpoint({name: value * factor for name, value in base.items()}, "a")
    distance = check_fit(MappingCheckpoint(base, "pretrained"), {"a": scaled}, values=True).distances["a"]
    assert distance.unrelated == unrelated
    assert distance.ratio == pytest.approx(abs(factor - 1), rel=1e-5)


def test_changes_that_rounding_loses_are_counted() -> None:
    base, experts = tiny.family(("a",))
    before = {name: value.half() for name, value in base.items()}
    after = {name: (value + 0.02 * (experts["a"][name] - value)).half() for name, value in before.items()}
    opened = {"a": MappingCheckpoint(after, "a")}
    distance = check_fit(MappingCheckpoint(before, "pretrained"), opened, values=True).distances["a"]
    old, change = flat(before), flat(after) - flat(before)
    lost = (change != 0) & ((old + 0.3 * change).half() == old.half())
    assert (distance.changed, distance.lost) == (int((change != 0).sum()), int(lost.sum()))
    assert 0 < distance.lost < distance.changed


def test_changes_that_leave_the_range_together_are_named() -> None:
    base, _ = tiny.family(("a",))
    before = {name: value.half() for name, value in base.items()}
    name = next(name for name, value in before.items() if value.dim() == 2)
    before[name][0, 0] = 0.0
    after = {key: value.clone() for key, value in before.items()}
    after[name][0, 0] = 40_000.0
    opened = {key: MappingCheckpoint(after, key) for key in ("a", "b")}
    distances = check_fit(MappingCheckpoint(before, "pretrained"), opened, values=True).distances
    assert (distances["a"].out_of_range, distances["b"].out_of_range) == ({}, {name: 80_000.0})
