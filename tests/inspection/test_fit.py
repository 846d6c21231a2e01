"""The fit report names everything that does not fit, and merging refuses what cannot be merged."""

from __future__ import annotations

import pytest
import tiny
import torch

import merging
from merging.base.errors import CompatibilityError
from merging.models.checkpoint import MappingCheckpoint
from merging.models.inspection.fit_check import check_fit


def test_the_report_names_everything_that_does_not_fit():
    base, experts = tiny.family(("good", "bad"))
    bad = experts["bad"]
    del bad["visual.conv1.weight"]
    bad["visual.extra"] = torch.zeros(2)
    bad["visual.proj"] = bad["visual.proj"].T.contiguous()
    bad["visual.ln_pre.weight"] = bad["visual.ln_pre.weight"].to(torch.int64)
    bad["visual.ln_pre.bias"] = bad["visual.ln_pre.bias"].half()
    bad["visual.ln_post.bias"][[2, 5]] = torch.tensor([float("nan"), float("inf")])
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    report = check_fit(MappingCheckpoint(base, "pretrained"), opened, values=True)
    found = {(p.tensor, p.problem, p.severity) for p in report.problems}
    assert found == {
        ("visual.conv1.weight", "missing", "error"),
        ("visual.extra", "extra", "warning"),
        ("visual.proj", "shape", "error"),
        ("visual.ln_pre.weight", "type", "error"),
        ("visual.ln_pre.bias", "precision", "warning"),
        ("visual.ln_post.bias", "not finite", "error"),
    }
    assert {p.checkpoint for p in report.problems} == {"bad"}
    assert "2 NaN or infinite, first at 2" in report.text()
    with pytest.raises(CompatibilityError, match=r"visual\.proj \(expected \(16, 8\), found \(8, 16\)\)"):
        merging.merge(base, experts)


def test_a_broadcastable_shape_is_refused():
    base, experts = tiny.family(("a",))
    experts["a"]["visual.proj"] = experts["a"]["visual.proj"][:1]
    with pytest.raises(CompatibilityError, match="shape"):
        merging.merge(base, experts)


@pytest.mark.parametrize("where", ["pretrained", "expert"])
def test_numbers_that_are_not_finite_are_all_named_and_nothing_comes_out(where):
    base, experts = tiny.family(("a", "b"))
    for name in ("visual.ln_post.bias", "visual.class_embedding"):
        (base if where == "pretrained" else experts["b"])[name][1] = float("nan")
    with pytest.raises(CompatibilityError, match="not finite") as caught:
        merging.merge(base, experts, "ties")
    names = {(p.checkpoint, p.tensor) for p in caught.value.report.errors}
    who = "pretrained" if where == "pretrained" else "b"
    assert names == {(who, "visual.ln_post.bias"), (who, "visual.class_embedding")}


def test_one_tensor_is_counted_as_one():
    base = {"layers.0.norm.weight": torch.ones(4), "layers.0.position_ids": torch.arange(3)}
    report = check_fit(base, {"a": base | {"layers.0.norm.weight": torch.full((4,), 1.1)}})
    assert report.notes == (
        "1 tensor with 4 numbers is merged.",
        "1 tensor is copied from the pretrained model: 1 position_ids.",
    )
    alone = {"layers.0.norm.weight": torch.ones(4)}
    assert check_fit(alone, {"a": {"layers.0.norm.weight": torch.full((4,), 1.1)}}).text() == "The one tensor fits."


def test_no_experts_is_an_error():
    with pytest.raises(CompatibilityError, match="at least one expert"):
        merging.merge(tiny.pretrained(), {})
