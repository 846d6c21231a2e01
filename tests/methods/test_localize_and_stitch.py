"""Localize-and-Stitch by plain arithmetic: how masks are stitched, how many scalars they keep, how one is learned."""

from __future__ import annotations

import common_checks
import pytest
import tiny
import torch
from blends import open_blend

import merging
from merging.base.errors import NeedsError
from merging.images.image_encoder import Encoder
from merging.methods.merges.localize_and_stitch import LocalizedMasks, localize_and_stitch
from merging.methods.shared.localization import MaskScores
from merging.methods.slot import Slot

ARCHITECTURE = "heads=2,activation=quick_gelu"
KEY = "localize_and_stitch"
PARAMETER = tiny.checkpoint(tiny.pretrained()).parameters[0]


@pytest.fixture(scope="module")
def family():
    return common_checks.family()


def merged(family, tasks=None, edits=(), **params):
    return merging.merge(*family, KEY, params, edits, exemplars=tasks, architecture=ARCHITECTURE, device="cpu")


def vectors(family):
    base, experts = family
    return torch.stack([torch.cat([(s[n] - base[n]).flatten() for n in base]) for s in experts.values()])


def change(family, result):
    base, _ = family
    return torch.cat([(result.state_dict[name] - value).flatten() for name, value in base.items()])


class Given:
    """Masks (K, n) of one flat tensor."""

    def __init__(self, masks):
        self.masks = masks

    def read(self, name, start, stop):
        return self.masks[:, start:stop]


@pytest.mark.parametrize("start", [0, 3])
def test_stitching_takes_the_mean_of_what_masks_keep(start):
    masks = torch.tensor([[1, 1, 0, 1, 0, 1], [0, 1, 0, 1, 1, 0], [0, 0, 0, 1, 0, 0]], dtype=torch.bool)
    rows = torch.arange(1.0, 19.0).reshape(3, 6) ** 2
    slot = Slot(PARAMETER, ("a", "b", "c"), torch.zeros(6 - start), rows[:, start:], start)
    expected = torch.tensor([1.0, (4 + 64) / 2, 0.0, (16 + 100 + 256) / 3, 121.0, 36.0])[start:]
    assert torch.allclose(localize_and_stitch(slot, None, LocalizedMasks(masks=Given(masks))), expected)


@pytest.mark.parametrize("density", [1e-9, 0.001, 0.05, 0.37])
def test_magnitude_keeps_exactly_so_many_of_the_largest(family, density):
    found, plain = merged(family, localize="magnitude", density=density), vectors(family)
    count = int(density * plain.shape[1])
    masks = torch.zeros_like(plain, dtype=torch.bool)
    masks.scatter_(1, plain.abs().topk(count).indices, value=True)
    assert found.tables["localization"].groupby("expert")["kept"].sum().tolist() == [count] * 3
    expected = (plain * masks).sum(dim=0) / masks.sum(dim=0).clamp(min=1)
    assert torch.allclose(change(family, found), expected, atol=1e-12)
    shares = torch.tensor(found.tables["overlap"]["share"].to_numpy()).reshape(3, 3)
    both = (masks[:, None] & masks[None]).sum(dim=2)
    assert torch.allclose(shares, both.double() / max(count, 1))


def test_full_masks_are_the_mean_of_the_task_vectors(family):
    found = merged(family, localize="magnitude", density=1.0)
    assert torch.allclose(change(family, found), vectors(family).mean(dim=0), atol=1e-12)


def test_without_steps_the_mask_is_where_it_began(family):
    tasks = common_checks.labeled_exemplars(family[1])
    for density, count in ((0.0, 1), (1e-9, 1), (0.1, int(0.1 * vectors(family).shape[1]))):
        learned = merged(family, tasks, steps=0, init_density=density)
        assert learned.tables["localization"].groupby("expert")["kept"].sum().tolist() == [count] * 3
        assert not len(learned.tables["learning"])
    given = merged(family, localize="magnitude", density=0.1)
    assert all(torch.equal(learned.state_dict[name], value) for name, value in given.state_dict.items())


def test_every_step_tells_the_share_that_the_mask_keeps(family):
    tasks = common_checks.labeled_exemplars(family[1])
    learning = merged(family, tasks, steps=2, lr=1e-9, l1=0.0, init_density=1.0).tables["learning"]
    assert len(learning) == 2 * 3 and (learning["density"] == 1.0).all()


def test_equal_experts_give_the_grafted_expert(family):
    """Equal masks of equal task vectors: what one expert alone gives."""
    base, experts = family
    (name, state), task = next(iter(experts.items())), next(iter(common_checks.labeled_exemplars(experts).values()))
    params = {"steps": 3, "lr": 1e4, "bias": 2.0, "init_density": 0.1}
    alone = merged((base, {name: state}), {name: task}, **params)
    same = merged((base, {"a": state, "b": state, "c": state}), dict.fromkeys("abc", task), **params)
    common_checks.assert_close(same.state_dict, alone.state_dict, base)
    kept = alone.tables["localization"]["kept"].sum() / alone.tables["localization"]["numel"].sum()
    assert 0.01 < kept < 0.99
    assert (same.tables["overlap"]["share"] == 1).all()


@pytest.mark.parametrize("regularizer", ["l1", "released"])
def test_a_step_is_that_of_the_formula(family, regularizer):
    """Scores and losses against autograd through θ0 + σ(S) τ."""
    base, experts = family
    (name, state), task = next(iter(experts.items())), next(iter(common_checks.labeled_exemplars(experts).values()))
    scores = MaskScores(limit=0.05, bias=1.5, lr=3e3, l1=0.5, regularizer=regularizer)
    with open_blend(base, {name: state}, {name: task}) as model:
        model.update_tensors(scores.initialize, name)
        begin = {tensor: value.clone() for tensor, value in scores.values.items()}
        loss = model.compute_cross_entropy(name)
        model.update_tensors(scores.descend, name)
    free = {tensor: value.clone().requires_grad_() for tensor, value in begin.items()}
    soft = {tensor: base[tensor] + s.sigmoid() * (state[tensor] - base[tensor]) for tensor, s in free.items()}
    expected = cross_entropy(soft, task)
    expected.backward()
    assert loss == pytest.approx(float(expected.detach()), rel=1e-12)
    for tensor, s in free.items():
        slope = s.sigmoid().detach() * (1 - s.sigmoid().detach())
        push = 0.5 if regularizer == "l1" else -0.5 * s.detach().sign()
        assert torch.allclose(scores.values[tensor], s.detach() - 3e3 * s.grad - push * slope, atol=1e-9), tensor


def cross_entropy(state, task):
    weights = {name.removeprefix("visual."): value for name, value in state.items()}
    like = {name: value.detach() for name, value in state.items()}
    encoder = Encoder(Encoder.from_checkpoint(tiny.checkpoint(like)).architecture, weights)
    features = torch.nn.functional.normalize(encoder(task.images.double()), dim=1)
    return torch.nn.functional.cross_entropy(task.logit_scale * features @ task.head.double().T, task.labels)


def test_after_edits_masks_are_of_edited_task_vectors(family):
    """Another way of reading the task vectors, from a file, gives the same as experts that were edited before."""
    base, experts = family
    tasks = common_checks.labeled_exemplars(experts)
    params = {"steps": 3, "lr": 1e4, "bias": 2.0, "init_density": 0.1}
    half = {name: {n: base[n] + 0.5 * (v - base[n]) for n, v in state.items()} for name, state in experts.items()}
    edited = merged(family, tasks, [("wise_ft", {"alpha": 0.5})], **params)
    common_checks.assert_close(edited.state_dict, merged((base, half), tasks, **params).state_dict, base)


def test_masks_that_are_empty_or_full_are_told(family):
    tasks = common_checks.labeled_exemplars(family[1])
    full = merged(family, tasks, steps=2, lr=1e-9, l1=0.0, init_density=1.0)
    assert any("empty or full" in text and "100.0%" in text for text in full.warnings)
    some = merged(family, tasks, steps=2, lr=1e-9, l1=0.0, init_density=0.5)
    assert not any("empty or full" in text for text in some.warnings)


def test_by_magnitude_no_images_are_needed(family):
    assert merged(family, localize="magnitude").state_dict
    with pytest.raises(NeedsError, match=f"{KEY} needs labeled exemplars"):
        merged(family)
