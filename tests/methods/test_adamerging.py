"""AdaMerging by plain arithmetic: its gradients, what its coefficients do, and what they must not depend on."""

from __future__ import annotations

import common_checks
import pytest
import torch
from blends import blend_by_hand, open_blend, plain_entropy

import merging
from merging.base.numerics.linear_algebra import inner_products, weighted_sum
from merging.images.exemplars import TaskExemplars

ARCHITECTURE = "heads=2,activation=quick_gelu"


@pytest.fixture(scope="module")
def family():
    return common_checks.family()


@pytest.fixture(scope="module")
def tasks(family):
    return common_checks.unlabeled(common_checks.labeled_exemplars(family[1]))


def merged(family, tasks, edits=(), **params):
    base, experts = family
    return merging.merge(
        base, experts, "adamerging", params, edits, test_data=tasks, architecture=ARCHITECTURE, device="cpu"
    )


def final(result):
    table = result.tables["coefficients"]
    return table.pivot(index="expert", columns="tensor", values="coefficient")


@pytest.mark.parametrize("granularity", ["tensor", "task"])
@pytest.mark.parametrize("clamp", ["forward", "project", "none"])
def test_without_steps_it_is_task_arithmetic_bit_for_bit(family, tasks, granularity, clamp):
    state = merged(family, tasks, steps=0, init=0.7, granularity=granularity, clamp=clamp).state_dict
    plain = merging.merge(*family, "task_arithmetic", {"scaling": 0.7}, device="cpu").state_dict
    assert all(torch.equal(state[name], value) for name, value in plain.items())


def test_one_expert_at_one_is_that_expert(family, tasks):
    base, experts = family
    name = next(iter(experts))
    state = merged((base, {name: experts[name]}), tasks, steps=0, init=1.0).state_dict
    common_checks.assert_close(state, experts[name], base)


def slopes(family, tasks, coefficients):
    """The derivative of the summed entropies by every coefficient (K, L), and the entropies."""
    base, experts = family
    found, order = {}, list(base)
    with open_blend(base, experts, tasks) as model:
        model.update_tensors(
            lambda slot, _: weighted_sum(slot.task_vectors, coefficients[:, order.index(slot.name)].tolist())
        )
        losses = model.compute_entropies(0, 32, 0)
        model.update_tensors(
            lambda slot, gradient: found.update({slot.name: inner_products(slot.task_vectors, gradient)})
        )
    return torch.stack([found[name] for name in base], dim=1), losses


def test_contracted_gradients_are_finite_differences(family, tasks):
    base, experts = family
    draw = torch.Generator().manual_seed(0)
    coefficients = 0.6 * torch.rand(len(experts), len(base), dtype=torch.float64, generator=draw)
    found, losses = slopes(family, tasks, coefficients)
    assert losses == pytest.approx(plain_entropy(blend_by_hand(base, experts, coefficients), tasks), rel=1e-10)
    step = 1e-5
    for at in range(0, coefficients.numel(), 7):
        moved = [coefficients.clone() for _ in range(2)]
        moved[0].view(-1)[at] += step
        moved[1].view(-1)[at] -= step
        up, down = (sum(plain_entropy(blend_by_hand(base, experts, c), tasks)) for c in moved)
        assert float(found.view(-1)[at]) == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-8)


def test_one_step_moves_by_the_sign_of_the_gradient(family, tasks):
    """The first step of Adam is as long as the learning rate; per task, the gradient is the sum over tensors."""
    base, experts = family
    found, _ = slopes(family, tasks, torch.full((len(experts), len(base)), 0.3, dtype=torch.float64))
    by_tensor = final(merged(family, tasks, steps=1, lr=0.01)).loc[list(experts), list(base)].to_numpy()
    assert torch.allclose(torch.tensor(by_tensor), 0.3 - 0.01 * found.sign(), atol=1e-6)
    by_task = final(merged(family, tasks, steps=1, lr=0.01, granularity="task")).loc[list(experts), ""].to_numpy()
    assert torch.allclose(torch.tensor(by_task), 0.3 - 0.01 * found.sum(dim=1).sign(), atol=1e-6)


@pytest.mark.parametrize(("init", "way"), [(0.0, 1), (1.0, -1)])
def test_coefficients_at_a_bound_of_the_cut_still_learn(family, tasks, init, way):
    """A number at a bound is used as it is, so that its gradient counts: it may come in."""
    base, experts = family
    found, _ = slopes(family, tasks, torch.full((len(experts), len(base)), init, dtype=torch.float64))
    used = final(merged(family, tasks, steps=1, lr=0.01, init=init, clamp="forward")).loc[list(experts), list(base)]
    expected = (init - 0.01 * found.sign()).clamp(0, 1)
    assert torch.allclose(torch.tensor(used.to_numpy()), expected, atol=1e-6)
    assert (way * (expected - init) > 0).any()


def test_tensors_without_a_task_vector_stay_where_they_are(family, tasks):
    base, experts = family
    same = "visual.ln_pre.bias"
    still = {name: {**state, same: base[same]} for name, state in experts.items()}
    result = merged((base, still), tasks, steps=3, lr=0.05)
    assert torch.equal(result.state_dict[same], base[same])
    coefficients = final(result)
    assert (coefficients[same] == 0.3).all() and (coefficients.drop(columns=same) != 0.3).all(axis=None)


@pytest.mark.parametrize("granularity", ["tensor", "task"])
def test_the_loss_falls_on_a_fixed_batch(family, tasks, granularity):
    losses = merged(family, tasks, steps=6, lr=0.01, granularity=granularity).tables["learning"]
    sums = losses.groupby("step")["loss"].sum()
    assert sums.is_monotonic_decreasing and sums.iloc[-1] < sums.iloc[0] - 0.001


def test_the_order_of_tasks_permutes_the_coefficients(family, tasks):
    base, experts = family
    one, other = (merged((base, dict(pairs)), tasks, steps=4, lr=0.05, batch=4)
                  for pairs in (experts.items(), reversed(experts.items())))  # fmt: skip
    assert torch.allclose(*(torch.tensor(final(r).sort_index().to_numpy()) for r in (one, other)), atol=1e-9)
    common_checks.assert_close(other.state_dict, one.state_dict, base)


def test_coefficients_beyond_a_bound_stay_there_unless_they_are_put_back(family, tasks):
    """With long steps: forward leaves dead what has left [0, 1], project lets it return, none goes where it likes."""
    used = {}
    for clamp in ("forward", "project", "none"):
        table = merged(family, tasks, steps=12, lr=0.3, clamp=clamp).tables["coefficients"]
        used[clamp] = table["coefficient"]
    assert ((used["forward"] == 0) | (used["forward"] == 1)).any()
    assert all(used[clamp].between(0, 1).all() for clamp in ("forward", "project"))
    assert not used["none"].between(0, 1).all() and not used["forward"].equals(used["project"])


def test_every_step_is_summed_up(family, tasks):
    tables = merged(family, tasks, steps=12, lr=0.3, clamp="forward").tables
    rows = tables["learning"].set_index(["step", "expert"])
    assert len(rows) == 12 * 3
    for place, values in tables["coefficient_steps"].query("step < 12").groupby(["step", "expert"])["coefficient"]:
        found = rows.loc[place, ["coefficient_mean", "coefficient_min", "coefficient_max", "at_zero"]].tolist()
        assert found == pytest.approx([values.mean(), values.min(), values.max(), (values == 0).mean()])
    assert rows.loc[10, "at_zero"].max() > 0


def test_shrinking_comes_after_the_last_step(family, tasks):
    whole, shrunk = (merged(family, tasks, steps=3, lr=0.05, shrink=factor) for factor in (1.0, 0.5))
    assert torch.allclose(*(torch.tensor(final(r).to_numpy()) * f for r, f in ((whole, 0.5), (shrunk, 1.0))))
    half = {name: value + 0.5 * (whole.state_dict[name] - value) for name, value in family[0].items()}
    common_checks.assert_close(shrunk.state_dict, half, family[0])
    assert whole.tables["coefficient_steps"].equals(shrunk.tables["coefficient_steps"])
    assert whole.tables["learning"].equals(shrunk.tables["learning"])
    (warning,) = (w for w in merged(family, tasks, steps=0, granularity="task", shrink=0.5).warnings if "shrink" in w)
    assert "whole tasks" in warning


def test_everything_pruned_is_the_pretrained_model(family, tasks):
    for granularity in ("tensor", "task"):
        result = merged(family, tasks, [("lwptv", {"prune_ratio": 1.0})], steps=3, granularity=granularity)
        assert all(torch.equal(result.state_dict[name], value) for name, value in family[0].items())


def test_labels_are_never_read(family, tasks):
    """Labels among the exemplars, which another method might need, raise an error when anything is done with them."""

    class Raising(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            raise AssertionError(f"labels were read by {function}")

    shown = common_checks.labeled_exemplars(family[1])
    for task in shown.values():
        object.__setattr__(task, "labels", task.labels.as_subclass(Raising))
        with pytest.raises(AssertionError, match="labels were read"):
            task.labels + 1
    plain = merged(family, tasks, steps=2)
    base, experts = family
    result = merging.merge(
        base, experts, "adamerging", {"steps": 2}, exemplars=shown, test_data=tasks, architecture=ARCHITECTURE,
        device="cpu",
    )  # fmt: skip
    assert all(torch.equal(result.state_dict[name], value) for name, value in plain.state_dict.items())


def test_images_of_others_change_nothing(family, tasks):
    more = {**tasks, "stranger": next(iter(tasks.values()))}
    one, other = merged(family, tasks, steps=2), merged(family, more, steps=2)
    assert all(torch.equal(one.state_dict[name], value) for name, value in other.state_dict.items())


def test_few_images_are_told(family, tasks):
    assert any("fewer than 32 images" in text for text in merged(family, tasks, steps=1).warnings)
    many = {n: TaskExemplars(t.images.repeat(6, 1, 1, 1), None, t.head, t.logit_scale) for n, t in tasks.items()}
    assert not any("fewer" in text for text in merged(family, many, steps=1).warnings)
    drawn = merged(family, many, [("dare", {"drop_rate": 0.5})], steps=1)
    assert any("one random mask of dare" in text for text in drawn.warnings)
