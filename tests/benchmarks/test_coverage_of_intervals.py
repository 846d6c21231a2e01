"""How many of 100 intervals contain the true difference, by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from paired_models import similar_models

from merging.images.benchmarks.paired_scores import (
    IN_DOMAIN,
    average_groups,
    compare_all,
    find_interval,
    group_tasks,
    newcombe_interval,
    resample_accuracies,
    tell_from_best,
)


@pytest.mark.parametrize("n", [240, 480])
@pytest.mark.parametrize(
    ("first", "second", "agreement"),
    [(0.5, 0.5, 0.7), (0.6, 0.5, 0.8), (0.6, 0.6, 0.9), (0.9, 0.9, 0.9), (0.9, 0.88, 0.95), (0.6, 0.58, 0.95)],
)
def test_coverage_of_newcombes_interval(first: float, second: float, agreement: float, n: int) -> None:
    """Over 20,000 samples: 95.0 to 95.6 %, and 95.6 to 96.6 % where fewer than one image in ten tells the models."""
    only_first, only_second = (1 - agreement + first - second) / 2, (1 - agreement - first + second) / 2
    shares = [first - only_first, only_first, only_second, 1 - first - only_second]
    low, high = newcombe_interval(*np.random.default_rng(0).multinomial(n, shares, 20_000).T)
    coverage = ((low <= first - second) & (first - second <= high)).mean()
    assert 0.945 < coverage < (0.963 if agreement < 0.95 else 0.97)


def sample_pairs(rng: np.random.Generator, size: int, n: int, agreement: float, accuracies: dict) -> dict:
    """{(sample, side): {task: answers (n,)}} of pairs of models with ``accuracies`` {task: (first, second)}."""
    models: dict[tuple[int, int], dict[str, np.ndarray]] = {(k, side): {} for k in range(size) for side in (0, 1)}
    for task, (first, second) in accuracies.items():
        ends = np.cumsum([(1 - agreement + first - second) / 2, (1 - agreement - first + second) / 2])
        both = first - ends[0]  # the share of images for which both are right
        kinds = rng.random((size, n))
        for k in range(size):
            shared = (kinds[k] >= ends[1]) & (kinds[k] < ends[1] + both)
            models[k, 0][task] = (shared | (kinds[k] < ends[0])) * 1.0
            models[k, 1][task] = (shared | ((kinds[k] >= ends[0]) & (kinds[k] < ends[1]))) * 1.0
    return models


@pytest.mark.full
@pytest.mark.parametrize("agreement", [0.7, 0.85, 0.95])
def test_coverage_of_the_bootstrap(agreement: float) -> None:
    """Of averages over eight and four tasks and of the H-score, over 2,000 samples (standard error 0.5 points)."""
    rng, n, per_batch = np.random.default_rng(0), 240, 50
    inside, outside = "abcdefgh", "ijkl"
    pairs = {task: (0.5 + 0.04 * k, 0.48 + 0.04 * k) for k, task in enumerate(inside)} | {
        task: (0.4 + 0.05 * k, 0.41 + 0.05 * k) for k, task in enumerate(outside)
    }
    groups = group_tasks(pairs, inside)
    truth = average_groups({task: np.array(both) for task, both in pairs.items()}, groups)
    contains: dict[str, list[bool]] = {name: [] for name in truth}
    for _ in range(2000 // per_batch):
        models = sample_pairs(rng, per_batch, n, agreement, pairs)
        draws = resample_accuracies({str(key): right for key, right in models.items()})
        for k in range(per_batch):
            first, second = (average_groups(draws[str((k, side))], groups) for side in (0, 1))
            for name, (ours, theirs) in truth.items():
                low, high = find_interval(first[name] - second[name])
                contains[name].append(bool(low <= ours - theirs <= high))
    coverages = {name: float(np.mean(values)) for name, values in contains.items()}
    print(agreement, coverages)
    assert all(0.94 < coverage < 0.96 for coverage in coverages.values()), coverages


@pytest.mark.full
@pytest.mark.parametrize("is_equal", [True, False])
def test_coverage_of_family_wise_intervals(is_equal: bool) -> None:
    """Of all fifteen pairs of six models at once, over 1,000 samples (standard error 0.7 points)."""
    rng, samples = np.random.default_rng(1), 1000
    accuracies = [0.7] * 6 if is_equal else [0.6, 0.65, 0.68, 0.7, 0.71, 0.8]
    truth = {f"m{k}": accuracy for k, accuracy in enumerate(accuracies)}
    hits, best_hits = 0, 0
    for _ in range(samples):
        found = compare_all(similar_models(rng, accuracies, 240, "abcd"), "abcd", IN_DOMAIN)
        changes = found.pairs["first"].map(truth) - found.pairs["second"].map(truth)
        hits += ((found.pairs["family_low"] <= changes) & (changes <= found.pairs["family_high"])).all()
        best = tell_from_best(found)
        best_hits += best.low <= truth[best.best] - truth[best.second] <= best.high
    print(is_equal, hits / samples, best_hits / samples)
    assert 0.935 < hits / samples < 0.965 and best_hits >= hits
