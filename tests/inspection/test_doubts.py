"""Doubts: warnings after which a merge can run, but something is probably wrong."""

from __future__ import annotations

import tiny
import torch
from torch import Tensor

from merging.models.checkpoint import MappingCheckpoint
from merging.models.inspection.fit_check import check_fit
from merging.models.inspection.fit_report import DOUBT_TEMPLATES, FIX_BY_KIND, FitReport


def report(base: dict[str, Tensor], experts: dict[str, dict[str, Tensor]]) -> FitReport:
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    return check_fit(MappingCheckpoint(base, "pretrained"), opened)


def test_every_doubt_is_a_kind_of_problem() -> None:
    assert DOUBT_TEMPLATES.keys() <= FIX_BY_KIND.keys()


def test_doubts_are_sentences_that_name_the_expert() -> None:
    base, tuned = tiny.family(("good",))
    experts = {**tuned, "copy": tuned["good"], "same": base, "other": tiny.pretrained(seed=7)}
    result = report(base, experts)
    assert result.ok and {(p.checkpoint, p.problem) for p in result.doubts} == {
        ("copy", "same file twice"),
        ("same", "not changed"),
        ("other", "unrelated"),
    }
    texts = dict(text.split(" ", 1) for text in result.doubt_texts)
    assert texts["copy"] == "holds the same numbers as good; is one of them the wrong file?"
    assert texts["same"] == "holds the pretrained model's numbers; is it the right file?"
    assert texts["other"].startswith("does not look fine-tuned from this pretrained model (a change of ")


def test_what_has_nothing_to_do_is_no_doubt() -> None:
    base, tuned = tiny.family(("a",))
    tuned["a"]["visual.extra"] = torch.zeros(2)
    tuned["a"]["visual.ln_pre.bias"] = tuned["a"]["visual.ln_pre.bias"].half()
    result = report(base, tuned)
    assert {p.problem for p in result.warnings} == {"extra", "precision"}
    assert not result.doubts and not result.doubt_texts


def test_a_doubt_is_one_sentence_per_checkpoint_and_kind() -> None:
    base, tuned = tiny.family(("a",))
    for name in ("visual.proj", "visual.conv1.weight"):
        tuned["a"][name] = torch.full_like(tuned["a"][name], 3e19)
    texts = [text for text in report(base, tuned).doubt_texts if "never that large" in text]
    assert texts == ["a holds numbers up to 3e+19 (visual.proj, visual.conv1.weight); weights are never that large."]
