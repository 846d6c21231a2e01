"""What a method comes to at both ends of every fraction, written as data: a method without an entry fails."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from drawn_families import (
    METHODS,
    SHAPES,
    Family,
    Params,
    State,
    add_states,
    assert_same,
    changes,
    families_of,
    few_examples,
    flatten,
    is_linear,
    scale_state,
    scale_tensors,
    unflatten,
)
from hypothesis import given
from hypothesis import strategies as st

from merging.methods import registry

every_method = pytest.mark.parametrize("key", METHODS)  # by key: a method does not print well


PLAIN, PRETRAINED = "what the chain gives without it", "the pretrained model"


def elected(found: Family) -> State:
    """The sum of the scalars that have the sign of their sum, nothing trimmed."""
    vectors = torch.stack([flatten(vector) for vector in found.vectors.values()])
    sign = vectors.sum(dim=0).sign()
    return unflatten((vectors * (vectors * sign > 0)).sum(dim=0))


# (key, parameter, its value) -> other parameters, and what it comes to: a word, a merge with its parameters, a rule.
LIMITS: dict[tuple[str, str, float], tuple[Params, Any]] = {
    ("lwptv", "prune_ratio", 0.0): ({}, PLAIN),
    ("lwptv", "prune_ratio", 1.0): ({}, PRETRAINED),
    ("magnitude", "prune_ratio", 0.0): ({}, PLAIN),
    ("magnitude", "prune_ratio", 1.0): ({}, PRETRAINED),
    ("random_mask", "prune_ratio", 0.0): ({}, PLAIN),
    ("random_mask", "prune_ratio", 1.0): ({}, PRETRAINED),
    ("trim", "density", 1.0): ({"elect": False}, PLAIN),
    ("breadcrumbs", "density", 1.0): ({"gamma": 0.3}, PLAIN),
    ("dare", "drop_rate", 0.0): ({}, PLAIN),
    ("dare", "drop_rate", 1.0): ({}, PRETRAINED),
    ("della", "density", 1.0): ({}, PLAIN),
    ("slerp", "t", 0.0): ({}, lambda found: next(iter(found.vectors.values()))),
    ("slerp", "t", 1.0): ({"between": "task_vectors"}, lambda found: list(found.vectors.values())[1]),
    ("nuslerp", "t", 0.0): ({"vectors": "rows"}, lambda found: next(iter(found.vectors.values()))),
    ("nuslerp", "t", 1.0): ({"between": "task_vectors"}, lambda found: list(found.vectors.values())[1]),
    ("wise_ft", "alpha", 0.0): ({}, PRETRAINED),
    ("wise_ft", "alpha", 1.0): ({}, PLAIN),
    ("lines", "base", 1.0): ({"slope": 0.0}, PLAIN),
    ("lines", "base", 0.0): ({"slope": 0.0}, PRETRAINED),
    ("awd", "steps", 0): ({}, PLAIN),
    ("awd", "lr", 0.0): ({}, PLAIN),
    ("ties", "density", 1.0): ({"scaling": 1.0}, elected),
    ("consensus", "min_tasks", 0): ({"scaling": 0.4}, ("task_arithmetic", {"scaling": 0.4})),
    ("consensus", "mask_scale", 0.0): ({"scaling": 0.4, "min_tasks": 1}, ("task_arithmetic", {"scaling": 0.4})),
    ("drm", "density", 1.0): ({"elect": False, "disjoint": False, "rank_tol": 0.0}, ("weight_averaging", {})),
    ("iso_cts", "common_fraction", 1.0): ({}, ("iso_c", {})),
    ("wudi", "steps", 0): (
        {"others": "mean"},
        lambda found: scale_tensors(elsewhere(found), is_linear, len(found.vectors), 1.0),
    ),
    ("regmean", "alpha", 1.0): ({}, lambda found: by_layer(found, diagonal=False)),
    ("regmean", "alpha", 0.0): ({}, lambda found: by_layer(found, diagonal=True)),
}
NO_LIMIT = {
    ("knots", "density", 1.0): "signs are still elected, in the tasks' joint directions",
    ("core_space", "density", 1.0): "signs are still elected, in the joint bases",
    ("pcb", "density", 1.0): "scores still weigh scalars, and the lowest one counts for nothing",
    ("sce", "density", 1.0): "what all experts change is still weighed by expert, and minority signs are dropped",
    ("tsv_m", "rank_fraction", 1.0): "task vectors of full rank are still made orthogonal to each other",
    ("iso_cts", "common_fraction", 0.0): "nothing simpler comes out when all directions are the tasks' own",
    ("breadcrumbs", "gamma", 0.0): "the density still drops the smallest: test_breadcrumbs.py",
    ("breadcrumbs", "gamma", 1.0): "the density still keeps the smallest: test_breadcrumbs.py",
    ("drm", "rank_tol", 0.0): "a tolerance",
    ("drm", "rank_tol", 1.0): "a tolerance",
    ("lot", "rtol", 0.0): "a tolerance",
    ("lot", "rtol", 1.0): "a tolerance",
    ("wudi", "lr", 1.0): "a step, not a share",
}


def elsewhere(found: Family) -> State:
    """The mean task vector."""
    return scale_state(1 / len(found.vectors), add_states(*found.vectors.values()))


def by_layer(found: Family, diagonal: bool) -> State:
    """Least squares per linear weight from the rows that enter it, the mean elsewhere."""
    merged = elsewhere(found)
    for name in filter(is_linear, SHAPES):
        grams = [rows[name].T @ rows[name] for rows in found.rows.values()]
        grams = [torch.diag(gram.diagonal()) if diagonal else gram for gram in grams]
        sums = [gram @ vector[name].T for gram, vector in zip(grams, found.vectors.values(), strict=True)]
        merged[name] = torch.linalg.solve(sum(grams), sum(sums)).T
    return merged


@pytest.mark.parametrize("at", LIMITS, ids=str)
@few_examples
@given(data=st.data())
def test_limits(at, data):
    key, name, value = at
    params, comes_to = LIMITS[at]
    method = METHODS[key]
    found = data.draw(families_of(method, 2, 4, ("unrelated", "related")))
    merge = data.draw(st.sampled_from(["task_arithmetic", "ties"]))
    (state,) = changes(method, found, params | {name: value}, merge).values()
    if comes_to == PLAIN:
        (expected,) = changes(registry.find_merge(merge), found, {"scaling": 1.0}).values()
    elif comes_to == PRETRAINED:
        expected = scale_state(0.0, state)
        assert all(not v.any() for v in state.values())
    elif callable(comes_to):
        expected = comes_to(found)
    else:
        other, its = comes_to
        (expected,) = changes(registry.find_merge(other), found, its).values()
    assert_same(state, expected, found)


@every_method
def test_both_ends_of_every_fraction_are_told(key):
    for name, bound in METHODS[key].params.bounds().items():
        if bound.kind == "real" and bound.low == 0.0 and bound.high == 1.0:
            for end in (0.0, 1.0) if not bound.open_low else (1.0,):
                assert ((key, name, end) in LIMITS) != ((key, name, end) in NO_LIMIT), (name, end)
