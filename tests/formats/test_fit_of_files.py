"""The fit report on models of other libraries: related or not, other sizes, other precision, odd files."""

from __future__ import annotations

import pytest
import torch
from real_models import add_prefix, open_state, save, visual

import merging
from merging.base.errors import CompatibilityError, FamilyError
from merging.models.formats.model_sources import open_checkpoint
from merging.models.inspection.fit_check import check_fit


def shifted(state, size):
    draw = torch.Generator().manual_seed(3)
    return {n: v + size * torch.randn(v.shape, generator=draw) for n, v in state.items()}


def problems(report):
    return {(p.severity, p.problem) for p in report.problems}


def test_a_related_expert_is_fine_and_an_unrelated_one_is_not(clip):
    base = visual(clip)
    other = {n: torch.randn_like(v) * v.std() if v.ndim > 1 else v for n, v in base.items()}
    for options in ({"values": True}, {"sample": True}):
        report = check_fit(
            open_state(base), {"near": open_state(shifted(base, 1e-3)), "far": open_state(other)}, **options
        )
        assert {(p.checkpoint, p.problem) for p in report.problems} == {("far", "unrelated")} and report.ok
        assert report.distances["near"].ratio < 0.1 and report.distances["near"].cosine > 0.99
        assert "cosine of" in report.text()


def test_another_resolution_has_its_own_sentence(clip):
    base = visual(clip)
    wide = shifted(base, 1e-3) | {"visual.positional_embedding": torch.zeros(37, 24)}
    report = check_fit(open_state(base), {"a": open_state(wide)})
    assert problems(report) == {("error", "resolution")}
    assert "4 × 4 patches, found images of 6 × 6 patches" in report.text()
    with pytest.raises(CompatibilityError, match="image size"):
        merging.merge(base, {"a": wide})


def test_text_tensors_are_counted_and_compared(clip):
    base = dict(clip.state_dict())
    tuned = shifted(base, 1e-3)
    report = check_fit(open_state(base), {"a": open_state(tuned)}, values=True)
    assert ("warning", "other text") in problems(report) and report.ok
    assert "31 tensors" not in report.notes[0] and report.notes[0].startswith(f"{len(visual(clip))} tensors")
    assert report.notes[1].startswith(f"{len(base) - len(visual(clip))} tensors are copied")


def test_numbers_that_do_not_survive_are_told(clip):
    base = visual(clip)
    brain = {n: v.bfloat16() for n, v in base.items()}
    report = check_fit(
        open_state(brain), {"a": open_state(shifted({n: v.float() for n, v in brain.items()}, 1e-5))}, values=True
    )
    assert ("warning", "rounding") in problems(report)
    half = {n: v.half() for n, v in base.items()} | {"visual.ln_post.bias": torch.full((24,), 6e4).half()}
    report = check_fit(
        open_state(half), {"a": open_state(half | {"visual.ln_post.bias": torch.full((24,), 4e4).half()})}, values=True
    )
    assert ("warning", "range") in problems(report)
    huge = base | {"visual.ln_post.bias": torch.full((24,), 3e38)}
    report = check_fit(open_state(huge), {"a": open_state(huge)}, values=True)
    assert problems(report) == {("warning", "huge numbers"), ("warning", "not changed")}


def test_what_was_odd_about_a_file_is_in_the_report(clip, tmp_path):
    save(add_prefix(shifted(visual(clip), 1e-3), "module."), tmp_path / "a.pt")
    report = check_fit(open_state(visual(clip)), {"a": open_checkpoint(tmp_path / "a.pt")})
    assert problems(report) == {("warning", "opened")} and report.ok
    assert report.text() == "a: The names begin with 'module.', which was removed."


def test_models_of_no_family_are_compared_but_not_merged():
    base = {"conv.kernel": torch.ones(4, 3, 2, 2), "bn.running_mean": torch.ones(4), "fc.weight": torch.ones(2, 4)}
    base |= {"bn.num_batches_tracked": torch.tensor(3), "mask": torch.tensor([True])}
    tuned = {n: v * 1.01 if v.is_floating_point() else v for n, v in base.items()}
    report = check_fit(open_state(base), {"a": open_state(tuned)}, values=True)
    assert report.ok and not report.warnings and not report.mergeable and "no known model family" in report.text()
    report = check_fit(open_state(base), {"a": open_state({n: v for n, v in tuned.items() if n != "fc.weight"})})
    assert problems(report) == {("error", "missing")}
    with pytest.raises(FamilyError):
        merging.merge(base, {"a": tuned}, device="cpu")
