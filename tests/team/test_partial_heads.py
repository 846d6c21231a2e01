"""A head of the pretraining that only some of the experts have: who is named, and what is said of it."""

from __future__ import annotations

import other_kinds
import pytest
import torch

import merging
from merging.base.errors import CompatibilityError
from merging.models.inspection.fit_check import check_fit

FIX = "Merge experts that all have this head, or that all lack it; leave out the pretrained model itself."


def base():
    """A BERT with two tensors of a head of its pretraining."""
    draw = torch.Generator().manual_seed(7)
    head = {
        "cls.predictions.bias": torch.randn(20, generator=draw),
        "cls.predictions.transform.dense.weight": torch.randn(16, 16, generator=draw),
    }
    return {n: v for n, v in other_kinds.pretrained("BERT").items() if n.startswith("bert.")} | head


def tuned(seed, head=False):
    """An expert of it, with the head or with that of a task."""
    state = other_kinds.expert(base(), seed)
    if head:
        return state
    kept = {name: value for name, value in state.items() if not name.startswith("cls.")}
    return kept | {"classifier.weight": torch.ones(2, 16), "classifier.bias": torch.ones(2)}


def said(experts):
    """What a merge of these experts is refused with."""
    with pytest.raises(CompatibilityError) as refused:
        merging.merge(base(), experts, "weight_averaging", device="cpu")
    return str(refused.value)


def test_an_expert_that_is_the_pretrained_model_is_named():
    experts = {"rte": tuned(1), "cb": tuned(2), "full": base()}
    head = "the pretrained model's head cls (2 tensors)"
    assert said(experts) == f"full has {head}, unchanged, which rte, cb lack. {FIX}"
    assert {problem.checkpoint for problem in check_fit(base(), experts).errors} == {"full"}


def test_the_smaller_side_is_named():
    assert said({"rte": tuned(1), "mlm": tuned(2, head=True)}) == (
        f"mlm has the pretrained model's head cls (2 tensors), which rte lacks. {FIX}"
    )
    assert said({"rte": tuned(1), "a": tuned(2, head=True), "b": tuned(3, head=True)}) == (
        f"rte lacks the pretrained model's head cls (2 tensors), which a, b have. {FIX}"
    )


def test_a_part_of_a_head_is_missing_as_any_tensor_is():
    half = tuned(1, head=True)
    del half["cls.predictions.bias"]
    assert said({"half": half, "mlm": tuned(2, head=True)}).startswith("half: missing: cls.predictions.bias (")


def test_an_encoder_that_lacks_the_decoder_is_no_other_head():
    whole = other_kinds.pretrained("T5")
    encoder = {name: value for name, value in other_kinds.expert(whole, 1).items() if not name.startswith("decoder.")}
    report = check_fit(whole, {"a": encoder, "b": other_kinds.expert(whole, 2)})
    assert {(problem.checkpoint, problem.problem) for problem in report.errors} == {("a", "missing")}
