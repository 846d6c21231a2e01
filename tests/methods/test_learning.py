"""What methods that learn share: the order of images, Adam, and losses without labels, by plain means."""

from __future__ import annotations

import math
from zlib import crc32

import numpy as np
import pytest
import torch

from merging.base.errors import MergingError
from merging.methods.learning import Adam, batch_order, entropies, require_finite


@pytest.mark.parametrize("n,batch", [(10, 4), (7, 6), (5, 1), (240, 32)])
def test_batches_are_cut_from_a_stream_of_permutations(n: int, batch: int) -> None:
    passes = [np.random.default_rng([3, crc32(b"flags"), p]).permutation(n) for p in range(2 + 12 * batch // n)]
    stream = np.concatenate(passes)
    for step in (0, 1, 5, 11):
        expected = stream[step * batch : (step + 1) * batch]
        assert batch_order(3, "flags", n, batch, step).tolist() == expected.tolist()


@pytest.mark.parametrize("batch", [10, 11, 32])
def test_a_batch_of_everything_is_in_stored_order(batch: int) -> None:
    assert batch_order(0, "flags", 10, batch, 7).tolist() == list(range(10))


def test_other_seeds_and_tasks_see_other_orders() -> None:
    orders = [batch_order(seed, task, 50, 40, 0).tolist() for seed in (0, 1) for task in ("flags", "digits")]
    assert all(one != other for i, one in enumerate(orders) for other in orders[:i])


def test_adam_is_torchs() -> None:
    draw = torch.Generator().manual_seed(0)
    values = {name: torch.randn(4, dtype=torch.float64, generator=draw) for name in "ab"}
    theirs = {name: value.clone().requires_grad_() for name, value in values.items()}
    optimizer, ours = torch.optim.Adam(theirs.values(), lr=0.02), Adam(values, 0.02)
    for _ in range(30):
        gradients = {name: torch.randn(4, dtype=torch.float64, generator=draw) for name in "ab"}
        for name, value in theirs.items():
            value.grad = gradients[name].clone()
        optimizer.step()
        ours.step(gradients)
    assert all(torch.allclose(values[name], theirs[name], rtol=1e-12, atol=1e-14) for name in "ab")


def test_adam_goes_on_from_its_state() -> None:
    draw = torch.Generator().manual_seed(1)
    gradients = [torch.randn(3, dtype=torch.float64, generator=draw) for _ in range(6)]
    whole, first, second = ({"x": torch.zeros(3, dtype=torch.float64)} for _ in range(3))
    adam, before, after = Adam(whole, 0.1), Adam(first, 0.1), Adam(second, 0.1)
    for gradient in gradients:
        adam.step({"x": gradient})
    for gradient in gradients[:2]:
        before.step({"x": gradient})
    after.restore({name: value.clone() for name, value in before.state().items()})
    for gradient in gradients[2:]:
        after.step({"x": gradient})
    assert torch.equal(whole["x"], second["x"]) and after.steps == 6


@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0, 1e6])
def test_entropy_lies_between_zero_and_that_of_equal_shares(scale: float) -> None:
    draw = torch.Generator().manual_seed(0)
    head = torch.nn.functional.normalize(torch.randn(5, 8, generator=draw), dim=1)
    features = torch.randn(50, 8, generator=draw).requires_grad_()
    differentiated = entropies(features, head, scale)
    differentiated.sum().backward()
    found = differentiated.detach()
    assert float(found.min()) >= 0 and float(found.max()) <= math.log(5) + 1e-6
    assert torch.isfinite(features.grad).all()
    shares = (scale * torch.nn.functional.normalize(features, dim=1) @ head.T).softmax(dim=1).detach().double()
    plain = torch.distributions.Categorical(probs=shares).entropy()
    assert torch.allclose(found.double(), plain, atol=1e-4)


def test_a_loss_that_is_not_finite_is_told_with_step_and_task() -> None:
    learned = {"x": torch.tensor([0.5, -0.75]), "empty": torch.zeros(0)}
    require_finite([0.1, 0.2], 4, ["flags", "digits"], "entropy", learned.values)
    with pytest.raises(MergingError, match=r"step 5: the entropy of 'digits' is nan, .* at most 0.75 in size"):
        require_finite([0.1, math.nan], 4, ["flags", "digits"], "entropy", learned.values)
