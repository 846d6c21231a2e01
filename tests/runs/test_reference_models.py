"""The models that merges are compared with."""

from __future__ import annotations

import tiny

from merging.runs.reference_models import accuracy_of_experts, references
from merging.tasks.context import Context


def test_references(store, tiny_benchmark):
    assert references(store, tiny_benchmark, compute=False) == {}
    found = references(store, tiny_benchmark, context=Context(device="cpu"))
    assert list(found) == ["pretrained", *tiny.EXPERTS, "multitask"]
    assert [run.kind for run in found.values()] == ["pretrained", *["expert"] * 4, "multitask"]
    assert found["digits"].experts == ("digits",)
    assert found["multitask"].experts == tiny.EXPERTS
    assert found["pretrained"].experts == ()
    assert found["digits"].recipe is None
    own = accuracy_of_experts(found)
    before = found["pretrained"].scores.query("split == 'reporting'").set_index("task")["accuracy"]
    assert set(own) == set(tiny.EXPERTS)
    assert all(own[task] >= before[task] for task in own)
    again = references(store, tiny_benchmark, compute=False)
    assert {name: run.created for name, run in again.items()} == {name: run.created for name, run in found.items()}
