"""The models that merges are compared with."""

from __future__ import annotations

import tiny

from merging.study.runs.reference_models import find_references
from merging.tasks.context import Context


def test_references(store, tiny_benchmark):
    assert find_references(store, tiny_benchmark, compute=False) == {}
    found = find_references(store, tiny_benchmark, context=Context(device="cpu"))
    assert list(found) == ["pretrained", *tiny.EXPERTS, "multitask"]
    assert [run.kind for run in found.values()] == ["pretrained", *["expert"] * 4, "multitask"]
    assert found["digits"].experts == ("digits",)
    assert found["multitask"].experts == tiny.EXPERTS
    assert found["pretrained"].experts == ()
    assert found["digits"].recipe is None
    accuracies = {
        name: run.scores.query("split == 'reporting'").set_index("task")["accuracy"] for name, run in found.items()
    }
    assert all(accuracies[task][task] >= accuracies["pretrained"][task] for task in tiny.EXPERTS)
    again = find_references(store, tiny_benchmark, compute=False)
    assert {name: run.created for name, run in again.items()} == {name: run.created for name, run in found.items()}
