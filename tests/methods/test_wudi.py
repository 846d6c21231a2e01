"""WUDI against Adam on the loss that it states, and what must hold of it whatever the numbers."""

from __future__ import annotations

import pytest
import torch
from naive_merges import assert_same, draw, interference, low_rank, naive_wudi, orthogonal, run

from merging.methods.merges.wudi import normal_equations
from merging.models.families import Role


@pytest.mark.parametrize("lr", [1e-5, 1e-2])
def test_wudi_is_adam_on_the_loss(lr):
    for deltas in (draw(3, 6, 9), draw(2, 9, 4), low_rank(2, 4, 6, 6)):
        assert_same(run("wudi", deltas, steps=40, lr=lr, scaling=0.8), 0.8 * naive_wudi(deltas, 40, lr))


def test_wudi_has_the_gradient_of_the_loss():
    deltas, at = draw(3, 6, 9), draw(6, 9, seed=3).requires_grad_()
    interference(at, deltas).backward()
    total, target = normal_equations(deltas)
    assert_same(2 * (at.detach() @ total - target), at.grad, 1e-13)


def test_wudi_without_steps_or_rivals():
    deltas = draw(3, 17, 23)
    assert torch.equal(run("wudi", deltas, steps=0), deltas.sum(dim=0))
    deltas = deltas.float()  # in which Adam would amplify what rounding leaves of the gradient
    assert torch.equal(run("wudi", deltas[:1]), deltas[0])
    deltas[::2] = 0
    assert torch.equal(run("wudi", deltas), deltas[1])
    assert not run("wudi", torch.zeros_like(deltas)).any()


def test_wudi_leaves_a_zero_expert_out():
    deltas = draw(3, 6, 9)
    deltas[1] = 0
    assert_same(run("wudi", deltas, lr=1e-3), run("wudi", deltas[::2], lr=1e-3), 1e-12)


def test_wudi_reduces_interference():
    deltas = draw(1, 6, 9).expand(3, -1, -1)
    distances = [float((run("wudi", deltas, lr=1e-3, steps=n) - deltas[0]).norm()) for n in (0, 100, 300)]
    assert distances == sorted(distances, reverse=True)
    deltas = draw(4, 6, 9)
    losses = [float(interference(run("wudi", deltas, lr=1e-3, steps=n), deltas)) for n in (0, 30, 300)]
    assert losses == sorted(losses, reverse=True)


def test_wudi_hardly_moves_orthogonal_experts():
    right = orthogonal(9)
    deltas = torch.stack([draw(6, 3, seed=at) @ right[at : at + 3] for at in (0, 3, 6)])
    assert float((run("wudi", deltas, lr=1e-4) - deltas.sum(dim=0)).abs().max()) <= 2e-4


def test_wudi_permutes_and_flips_with_its_experts():
    deltas = draw(3, 6, 9)
    rows, columns = [3, 0, 5, 1, 4, 2], [8, 2, 4, 0, 6, 1, 7, 3, 5]
    plain = run("wudi", deltas, lr=1e-3)
    assert_same(run("wudi", deltas[:, rows][:, :, columns], lr=1e-3), plain[rows][:, columns])
    assert_same(run("wudi", -deltas, lr=1e-3), -plain, 1e-12)


def test_wudi_treats_linear_weights_only():
    deltas = draw(3, 6, 4)
    for name, role in (("proj", Role.PROJECTION), ("positional_embedding", Role.EMBEDDING), ("x.bias", Role.SHIFT)):
        assert not run("wudi", deltas, name, role).any()
        assert_same(run("wudi", deltas, name, role, others="mean", scaling=0.5), 0.5 * deltas.mean(dim=0))
