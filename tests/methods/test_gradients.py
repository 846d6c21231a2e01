"""Per-example gradients against plain backward passes and finite differences, and what they need."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import replace

import common_checks
import numpy as np
import plain_tower
import pytest
import tiny
import torch
from plain_gradients import gather_plain, gradient, logits, make_inputs

import merging
from merging.base.errors import Cancelled, CompatibilityError, MergingError, NeedsError
from merging.engine import run as engine
from merging.images.exemplars import TaskExemplars
from merging.methods import registry
from merging.methods.method import Needs
from merging.methods.slot import Gradients
from merging.recipes.recipe import Recipe

TATR = registry.find_edit("tatr")
FISHER = registry.find_merge("fisher")


# --- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 4, 16])
@pytest.mark.full
def test_absolute_gradients_equal_a_loop_of_backward_passes(family, shown, together, monkeypatch):
    monkeypatch.setattr("merging.engine.gradients.MAX_EXAMPLES", together)
    base, experts = family
    found = gather_plain(base, experts, shown, Gradients.SENSITIVITY)
    for k, task in enumerate(shown.values()):
        single = [gradient(base, *pair, task) for pair in zip(task.images, task.labels, strict=True)]
        for name, rows in found.items():
            expected = torch.stack([one[name].abs() for one in single]).mean(dim=0)
            assert torch.allclose(rows[k], expected, rtol=1e-9, atol=1e-12), name


@pytest.mark.full
def test_squared_gradients_are_of_the_expert_and_of_labels_it_may_predict(family, shown):
    """Of one image: the squared gradient of one of the classes. Other seeds draw other classes."""
    base, experts = family
    one = {n: TaskExemplars(task.images[:1], None, task.head, task.logit_scale) for n, task in shown.items()}
    drawn = set()
    for seed in range(6):
        found = gather_plain(base, experts, one, Gradients.FISHER, seed)
        for k, (name, task) in enumerate(one.items()):
            classes = [gradient(experts[name], task.images[0], torch.tensor(c), task) for c in range(5)]
            fits = [c for c in range(5) if all(torch.allclose(found[n][k], classes[c][n] ** 2, 1e-9) for n in base)]
            assert len(fits) == 1
            drawn.add((name, fits[0]))
    assert len(drawn) > len(one)


@pytest.mark.full
def test_absolute_gradients_equal_finite_differences(family, shown):
    base, experts = family
    name, task = next(iter(shown.items()))
    found = gather_plain(base, {name: experts[name]}, shown, Gradients.SENSITIVITY)

    def losses(state):
        pairs = zip(task.images, task.labels, strict=True)
        return torch.stack([-logits(state, image, task).log_softmax(0)[label] for image, label in pairs])

    step, generator = 1e-5, np.random.default_rng(0)
    for tensor, value in base.items():
        at = int(generator.integers(value.numel()))
        moved = [value.clone() for _ in range(2)]
        moved[0].view(-1)[at] += step
        moved[1].view(-1)[at] -= step
        slopes = (losses(base | {tensor: moved[0]}) - losses(base | {tensor: moved[1]})) / (2 * step)
        assert float(found[tensor].reshape(-1)[at]) == pytest.approx(float(slopes.abs().mean()), rel=1e-5, abs=1e-8)


@pytest.mark.full
def test_the_sampled_estimate_is_unbiased(family, shown):
    """Of one image shown very often: against the sum over all classes, within six standard errors everywhere."""
    base, experts = family
    name, task = next(iter(shown.items()))
    count, image, state = 2000, task.images[0], experts[name]
    often = {name: TaskExemplars(image.expand(count, -1, -1, -1), None, task.head, task.logit_scale)}
    found = gather_plain(base, {name: state}, often, Gradients.FISHER)
    shares = logits(state, image, task).softmax(0)
    assert (shares > 0.01).sum() >= 3  # else there is little to draw
    squares = [gradient(state, image, torch.tensor(c), task) for c in range(5)]
    for tensor, rows in found.items():
        values = torch.stack([one[tensor] ** 2 for one in squares])
        weights = shares.reshape(-1, *[1] * (values.ndim - 1))
        mean = (weights * values).sum(dim=0)
        error = ((weights * (values - mean) ** 2).sum(dim=0) / count).sqrt()
        assert ((rows[0] - mean).abs() <= 6 * error + 1e-12 * mean.max()).all(), tensor
        assert not torch.allclose(rows[0], mean, rtol=1e-4, atol=0.0), tensor


def test_hugging_face_names_give_the_same_gradients(family, shown):
    base, experts = family
    plain = gather_plain(base, experts, shown, Gradients.SENSITIVITY)
    renamed = {n: plain_tower.hugging_face(state) for n, state in experts.items()}
    other = gather_plain(plain_tower.hugging_face(base), renamed, shown, Gradients.SENSITIVITY)
    for k in range(len(experts)):
        expected = plain_tower.hugging_face({n: rows[k] for n, rows in plain.items()})
        assert all(torch.allclose(other[n][k], expected[n]) for n in other)


def test_one_experts_gradients_are_means_over_its_images(family, shown):
    """A short form of the first tests: sizes, squares, and the one class that a sure prediction can draw."""
    base, (name, *_) = family[0], family[1]
    one, task = {name: family[1][name]}, shown[name]
    few = replace(task, images=task.images[:2], labels=task.labels[:2])
    found = gather_plain(base, one, {name: few}, Gradients.SENSITIVITY)
    single = [gradient(base, *pair, few) for pair in zip(few.images, few.labels, strict=True)]
    for tensor in ("visual.proj", "visual.ln_post.bias", "visual.conv1.weight"):
        expected = torch.stack([each[tensor].abs() for each in single]).mean(dim=0)
        assert torch.allclose(found[tensor][0], expected, rtol=1e-9, atol=1e-12), tensor
    image = replace(task, images=task.images[:1], labels=None, logit_scale=300.0)
    squares = gather_plain(base, one, {name: image}, Gradients.FISHER)["visual.proj"][0]
    likely = int(logits(one[name], image.images[0], image).argmax())
    expected = gradient(one[name], image.images[0], torch.tensor(likely), image)["visual.proj"] ** 2
    assert float(logits(one[name], image.images[0], image).softmax(dim=0)[likely]) > 0.999
    assert torch.allclose(squares, expected, rtol=1e-6, atol=1e-15)


def test_every_image_takes_the_label_that_its_own_number_draws(family, shown):
    """The numbers are those of NumPy's generator, seeded with a digest of the seed and the expert's name."""
    base, (name, *_) = family[0], family[1]
    few = replace(shown[name], images=shown[name].images[:4], labels=None)
    state = {name: family[1][name]}
    found = gather_plain(base, state, {name: few}, Gradients.FISHER, seed=2)["visual.proj"][0]
    digest = hashlib.blake2b(json.dumps(["labels", 2, name]).encode(), digest_size=16).digest()
    numbers = np.random.default_rng(int.from_bytes(digest, "little")).random(4)
    squares = []
    for image, number in zip(few.images, numbers, strict=True):
        shares = logits(state[name], image, few).softmax(dim=0).cumsum(dim=0)
        label = next(label for label, share in enumerate(shares.tolist()) if share > number)
        squares.append(gradient(state[name], image, torch.tensor(label), few)["visual.proj"] ** 2)
    assert torch.allclose(found, torch.stack(squares).mean(dim=0), rtol=1e-9, atol=1e-15)


def test_label_draws_depend_on_the_experts_name_and_not_on_its_place(family, shown):
    base, experts = family
    (name, state), task = next(iter(experts.items())), next(iter(shown.values()))
    twins = gather_plain(base, {name: state, "other": state}, {name: task, "other": task}, Gradients.FISHER)[
        "visual.proj"
    ]
    assert not torch.equal(*twins)
    forward = gather_plain(base, experts, shown, Gradients.FISHER)
    backward = gather_plain(base, dict(reversed(experts.items())), shown, Gradients.FISHER)
    assert all(torch.equal(rows, backward[n].flip(0)) for n, rows in forward.items())


def test_the_temporary_file_vanishes(family, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    common_checks.merge(FISHER, *family)
    with pytest.raises(Cancelled):
        common_checks.merge(FISHER, *family, cancel=_after(3))
    assert list(tmp_path.iterdir()) == []


def _after(count):
    calls = iter(range(count))
    return lambda: next(calls, None) is None


def test_gradients_report_progress_and_are_counted_in_it(family, monkeypatch):
    monkeypatch.setattr("merging.engine.gradients.MAX_EXAMPLES", 2)
    seen = []
    common_checks.merge(FISHER, *family, progress=seen.append)
    told = [progress for progress in seen if progress.phase == "Computing gradients"]
    assert [progress.detail for progress in told] == [name for name in family[1] for _ in range(3)]
    assert len({progress.total for progress in seen}) == 1
    assert seen[-1].fraction == 1.0 and 0.0 < told[0].fraction < told[-1].fraction < 1.0


def test_too_little_room_for_gradients_is_said(family, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 1000}))
    with pytest.raises(MergingError, match="TMPDIR"):
        common_checks.merge(FISHER, *family)


def test_weights_that_are_not_finite_are_named(family):
    base, experts = family
    bad = {name: dict(state) for name, state in experts.items()}
    bad["expert 1"]["visual.conv1.weight"] = torch.full_like(base["visual.conv1.weight"], float("nan"))
    with pytest.raises(CompatibilityError, match=r"expert 1.*conv1"):
        common_checks.merge(FISHER, base, bad)


# --- what is asked of exemplars --------------------------------------------------------------------------------------


def test_what_is_missing_is_said(family, shown):
    base, experts = family
    images = {name: task.images for name, task in shown.items()}
    unlabeled = {n: TaskExemplars(task.images, head=task.head) for n, task in shown.items()}
    with pytest.raises(NeedsError, match=r"fisher needs unlabeled exemplars .* Missing: a head for expert 0, expert 1"):
        common_checks.merge(FISHER, base, experts, exemplars=images)
    with pytest.raises(NeedsError, match=r"tatr needs labeled exemplars .* Missing: labels for expert 0"):
        common_checks.merge(TATR, base, experts, exemplars=unlabeled)
    common_checks.merge(FISHER, base, experts, exemplars=unlabeled)
    del unlabeled["expert 1"]
    with pytest.raises(NeedsError, match=r"Missing: images for expert 1\. Pass"):
        common_checks.merge(FISHER, base, experts, exemplars=unlabeled)
    with pytest.raises(NeedsError, match="images for expert 0"):
        common_checks.merge(FISHER, base, experts, exemplars=None, layer_inputs=common_checks.layer_inputs(experts))


@pytest.mark.parametrize(
    "wrong,message",
    [
        ({"images": torch.zeros(3, 16, 16)}, r"images \(n, 3, h, w\); got \(3, 16, 16\)"),
        ({"images": [1]}, "got list"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, r"tensor \(6,\) of whole numbers"),
        ({"labels": torch.zeros(6)}, r"one per image; got \(6,\) of torch.float32"),
        ({"labels": torch.full((6,), 5)}, r"0 … 4"),
        ({"head": torch.zeros(5)}, r"\(classes, embed_dim\)"),
    ],
)
def test_exemplars_of_the_wrong_kind_are_refused(shown, wrong, message):
    good = next(iter(shown.values()))
    with pytest.raises(NeedsError, match=message):
        replace(good, **wrong)


@pytest.mark.parametrize(
    "wrong,message",
    [
        ({"images": torch.zeros(6, 3, 8, 8)}, r"exemplars of 'expert 0' must be a tensor \(n, 3, 16, 16\)"),
        ({"images": torch.full((6, 3, 16, 16), float("nan"))}, "'expert 0' hold NaN"),
        ({"head": torch.zeros(5, 9)}, r"head of 'expert 0' must be a tensor \(classes, 8\)"),
        ({"head": torch.full((5, 8), float("inf"))}, "check its head"),
    ],
)
def test_exemplars_that_do_not_fit_the_tower_are_refused(family, shown, wrong, message):
    with pytest.raises(NeedsError if "check its head" not in message else MergingError, match=message):
        common_checks.merge(TATR, *family, exemplars=shown | {"expert 0": replace(shown["expert 0"], **wrong)})


def test_images_alone_that_are_none_are_refused_with_the_experts_name(family):
    with pytest.raises(NeedsError, match="Exemplars of 'expert 0': Exemplars are a tensor"):
        engine.run_recipe(
            Recipe.build("lot"), tiny.checkpoint(family[0]), make_inputs(*family).experts, exemplars={"expert 0": 7}
        )


def test_methods_without_gradients_take_the_same_exemplars(family, shown):
    base, experts = tiny.checkpoint(family[0]), family[1]
    plain = merging.merge(base, experts, "lot", exemplars={n: task.images for n, task in shown.items()}, device="cpu")
    scored = merging.merge(base, experts, "lot", exemplars=shown, device="cpu")
    assert all(torch.equal(value, scored.state_dict[n]) for n, value in plain.state_dict.items())


def test_needs_follow_the_parameters():
    assert Recipe.build("ties", edits=["tatr"]).needs == {Needs.LABELED_EXEMPLARS}
    assert Recipe.build("fisher", edits=["tatr"]).needs == {Needs.LABELED_EXEMPLARS, Needs.EXEMPLARS}
    assert Recipe.build("ties", edits=["tatr"]).exemplars is not None
    for params in ({"sensitivity": "magnitude"}, {"keep": 1.0}):
        recipe = Recipe.build("ties", edits=[("tatr", params)], exemplars={"per_task": 3})
        assert recipe.needs == frozenset() and recipe.exemplars is None
