"""What Model Breadcrumbs keeps, scalar by scalar."""

from __future__ import annotations

import common_checks
import pytest
import torch

import merging


def merged(base, experts, edits):
    return merging.merge(base, experts, "task_arithmetic", {"scaling": 1.0}, edits, device="cpu").state_dict


@pytest.mark.parametrize("density,gamma", [(0.9, 0.01), (0.5, 0.3), (0.4, 0.0), (0.4, 1.0), (0.95, 0.2), (0.03, 0.1)])
def test_breadcrumbs_drops_both_ends_of_every_tensor(density, gamma):
    """Counted scalar by scalar: outliers go first, but never more than the density leaves."""
    base, experts = common_checks.family(experts=1)
    (expert,) = experts.values()
    found = merged(base, experts, [("breadcrumbs", {"density": density, "gamma": gamma})])
    for name, value in base.items():
        vector = expert[name] - value
        ascending = vector.abs().flatten().argsort()
        count = int(len(ascending) * density)
        outliers = min(int(len(ascending) * gamma), len(ascending) - count)
        expected = torch.zeros(len(ascending), dtype=torch.float64)
        middle = ascending[len(ascending) - outliers - count : len(ascending) - outliers]
        expected[middle] = vector.flatten()[middle]
        change_ = (found[name] - value).flatten()
        assert torch.allclose(change_, expected, rtol=0, atol=1e-12), name
        assert int((change_ != 0).sum()) <= count or count == len(ascending)


def test_breadcrumbs_keeps_ties_at_both_limits():
    base = {"visual.proj": torch.zeros(10, dtype=torch.float64)}
    sizes = torch.tensor([1, 2, 2, -2, 3, 4, 5, -5, 5, 9], dtype=torch.float64)
    edits = [("breadcrumbs", {"density": 0.5, "gamma": 0.2})]  # ranks 3 to 7 of 0 to 9
    found = merged(base, {"a": {"visual.proj": sizes}}, edits)["visual.proj"]
    assert found.tolist() == [0, 2, 2, -2, 3, 4, 5, -5, 5, 0]
