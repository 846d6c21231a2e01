"""What must hold of every registered method whatever the numbers: Hypothesis draws families, parameters and orders.

What a method promises is written as data: a method without an entry where one is needed fails, so that a new one says
what it does with one expert and with equal experts; both ends of every fraction are in test_limits.py. Exceptions carry
their reason and are checked to be needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from drawn_families import (
    METHODS,
    PARAMETERS,
    Params,
    State,
    add_states,
    assert_same,
    changes,
    families_of,
    family,
    few_examples,
    flatten,
    is_linear,
    is_matrix,
    parameters,
    scale_state,
    scale_tensors,
    unflatten,
)
from hypothesis import given
from hypothesis import strategies as st

every_method = pytest.mark.parametrize("key", METHODS)  # by key: a method does not print well


# --- any order of experts ---------------------------------------------------------------------------------------------


FROM_ONE_TO_THE_OTHER = {"slerp": {"t": 0.5}, "nuslerp": {"t": 0.5}}  # at any other place the order matters by design


@every_method
@few_examples
@given(data=st.data())
def test_the_order_of_experts_does_not_matter(key, data):
    method = METHODS[key]
    found, params = data.draw(families_of(method)), data.draw(parameters(method)) | FROM_ONE_TO_THE_OTHER.get(key, {})
    merge = data.draw(st.sampled_from(["task_arithmetic", "ties"]))
    order = data.draw(st.permutations(list(found.vectors)))
    one, other = changes(method, found, params, merge), changes(method, found.only(*order), params, merge)
    for task, state in one.items():
        assert_same(other[task], state, found)


# --- longer task vectors ---------------------------------------------------------------------------------------------


NOT_PROPORTIONAL = {
    "awd": "steps have a fixed length, and the penalty weighs a length against an angle",
    "wudi": "steps have a fixed length",
    "pcb": "scores are the tanh of a product of task vectors",
    "slerp": "arcs of weights start at the pretrained weights' distance from zero",
    "nuslerp": "arcs of weights start at the pretrained weights' distance from zero",
    "karcher": "arcs of weights start at the pretrained weights' distance from zero",
}


@every_method
@few_examples
@given(data=st.data())
def test_longer_task_vectors_change_the_model_as_much_more(key, data):
    if key in NOT_PROPORTIONAL:
        return
    method = METHODS[key]
    found, params = data.draw(families_of(method)), data.draw(parameters(method))
    merge = data.draw(st.sampled_from(["task_arithmetic", "ties"]))
    factor = data.draw(st.sampled_from([0.25, 8.0] if found.on_a_grid else [0.25, 8.0, 1.7]))  # ties stay ties
    one, more = changes(method, found, params, merge), changes(method, found, params, merge, factor)
    for task, state in one.items():
        assert_same(more[task], scale_state(factor, state), found)


@pytest.mark.parametrize("key", sorted(NOT_PROPORTIONAL))
def test_exceptions_are_needed(key):
    method, found = METHODS[key], family(0, METHODS[key].max_experts or 3, "related")
    with pytest.raises(AssertionError, match="differs"):
        assert_same(
            changes(method, found, {}, factor=8.0)["merged"],
            scale_state(8.0, changes(method, found, {})["merged"]),
            found,
        )


# --- one expert ------------------------------------------------------------------------------------------------------


def trimmed(state: State, params: Params) -> State:
    values = flatten(state)
    limit = values.abs().sort().values[len(values) - int(len(values) * params["density"]) - 1]
    return unflatten(values * (values.abs() >= limit))


def largest(state: State, params: Params) -> State:
    values = flatten(state)
    limit = values.abs().sort().values[math.ceil(len(values) * params["prune_ratio"]) - 1]
    return unflatten(values * (values.abs() >= limit))


def middling(state: State, params: Params) -> State:
    """Breadcrumbs: the largest and the smallest of each tensor dropped, no two of one size."""

    def middle(values: torch.Tensor) -> torch.Tensor:
        n = values.numel()
        ordered = values.abs().flatten().sort().values
        high = ordered[n - int(n * params["gamma"]) - 1]
        low = ordered[n - int(n * params["gamma"]) - int(n * params["density"])]
        return values * ((values.abs() >= low) & (values.abs() <= high))

    return {n: middle(v) for n, v in state.items()}


def winners(state: State, params: Params) -> State:
    """PCB with one competitor: clipped, and only what lies above the density's limit."""
    values = flatten(state)
    ordered = values.abs().sort().values
    low, high = ordered[int(len(values) * params["clip"])], ordered[int(len(values) * (1 - params["clip"]) - 1)]
    above = values.abs() > ordered[int(len(values) * (1 - params["density"]))]
    return unflatten(values.sign() * values.abs().clamp(low, high) * above)


def flattened(state: State, params: Params) -> State:
    """The same directions, all singular values at their mean."""

    def flat_spectrum(matrix: torch.Tensor) -> torch.Tensor:
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        return values.mean() * left @ right

    return {n: flat_spectrum(v) if is_matrix(n) else v for n, v in state.items()}


def by_depth(state: State, params: Params) -> State:
    return {n: v * (params["base"] + params["slope"] * (PARAMETERS[n].block or 0)) for n, v in state.items()}


def painted(state: State, params: Params) -> State:
    return {n: v * (0.5 if PARAMETERS[n].block == 0 else params["default"]) for n, v in state.items()}


def unchanged(state: State, params: Params) -> State:
    return state


def nothing(state: State, params: Params) -> State:
    return scale_state(0.0, state)


def drawn(factor: float) -> Callable[[State, Params, State], State]:
    """Each scalar as it is, times a factor, or dropped."""
    return lambda state, params, found: {n: factor * v * (found[n] != 0) for n, v in state.items()}


# key -> parameters, and the change that one expert's task vector becomes with them at scaling 1.
ONE: dict[str, tuple[Params, Callable[..., State]]] = {
    "weight_averaging": ({}, unchanged),
    "task_arithmetic": ({}, unchanged),
    "ties": ({"density": 0.3}, trimmed),
    "consensus": ({"mask_scale": 0.7, "min_tasks": 3}, unchanged),
    "pcb": ({"density": 0.2, "clip": 0.05}, winners),
    "model_stock": ({}, unchanged),
    "emr": ({}, unchanged),
    "sce": ({"density": 0.3}, unchanged),
    "slerp": ({"t": 0.7}, unchanged),
    "nuslerp": ({"vectors": "rows"}, unchanged),
    "karcher": ({"between": "task_vectors"}, unchanged),
    "knots": ({"density": 1.0}, unchanged),
    "core_space": ({"density": 1.0}, unchanged),
    "drm": ({"density": 1.0, "rank_tol": 0.0}, unchanged),
    "tsv_m": ({}, unchanged),
    "iso_c": ({}, flattened),
    "iso_cts": ({"common_fraction": 0.4}, flattened),
    "wudi": ({"steps": 3}, lambda state, params: scale_tensors(state, is_linear)),
    "lot": ({}, unchanged),
    "regmean": ({}, unchanged),
    "lwptv": ({}, nothing),
    "magnitude": ({"prune_ratio": 0.4}, largest),
    "trim": ({"density": 0.3}, trimmed),
    "breadcrumbs": ({"density": 0.6, "gamma": 0.2}, middling),
    "manual": ({"rules": "b0=0.5", "default": 2.0}, painted),
    "dare": ({"drop_rate": 0.8}, drawn(1 / (1 - 0.8))),
    "della": ({"density": 0.2, "epsilon": 0.0}, drawn(1 / 0.2)),
    "random_mask": ({"prune_ratio": 0.4}, drawn(1.0)),
    "awd": ({}, unchanged),
    "wise_ft": ({"alpha": 0.3}, lambda state, params: scale_state(0.3, state)),
    "lines": ({"base": 0.4, "slope": 0.9}, by_depth),
}


@every_method
@few_examples
@given(data=st.data())
def test_one_expert(key, data):
    assert key in ONE, "say in ONE what this method makes of a single expert"
    method, (params, rule) = METHODS[key], ONE[key]
    # The strict limits of pcb make much of ties.
    found = data.draw(families_of(method, 1, 1, ("unrelated",) if key == "pcb" else ("unrelated", "on a grid")))
    full = {"scaling": 1.0} if "scaling" in method.params.bounds() else {}
    (state,) = changes(method, found, params | full).values()
    (vector,) = found.vectors.values()
    expected = rule(vector, params, state) if key in {"dare", "della", "random_mask"} else rule(vector, params)
    assert_same(state, expected, found)


# --- equal experts ---------------------------------------------------------------------------------------------------


Alone = Callable[..., list[State]]  # the change that each expert gives alone, with the same or other parameters


def first(alone: Alone) -> State:
    return alone()[0]


def summed(alone: Alone) -> State:
    return add_states(*alone())


def summed_matrices(alone: Alone) -> State:
    states = alone()
    return scale_tensors(states[0], is_matrix, len(states), 1.0)


# key -> pairs of parameters and what K equal experts give with them, told by what each of them gives alone.
EQUAL: dict[str, list[tuple[Params, Callable[[Alone], State]]]] = {
    "weight_averaging": [({}, first)],
    "task_arithmetic": [({}, summed)],
    "ties": [({"aggregation": "sum"}, summed), ({"aggregation": "mean"}, first), ({"scope": "tensor"}, summed)],
    "consensus": [
        ({"mask_scale": 0.3}, summed),
        ({"mask_scale": 1.0}, lambda alone: scale_state(0.0, first(alone))),  # at least 1 / (K - 1)
    ],
    "pcb": [({"density": 0.2}, first)],
    "model_stock": [({}, first)],
    "emr": [({}, first)],
    "sce": [({}, first), ({"density": 0.4}, lambda alone: scale_state(0.0, first(alone)))],  # nothing varies
    "slerp": [({"t": 0.7}, first), ({"between": "task_vectors"}, first)],
    "nuslerp": [({"vectors": "columns"}, first), ({"t": 0.1, "between": "task_vectors"}, first)],
    "karcher": [({}, first), ({"between": "task_vectors"}, first)],
    "knots": [({"density": 0.25}, first), ({"density": 0.25, "aggregation": "sum"}, summed)],
    "core_space": [({"density": 0.25}, first), ({"rule": "plain", "aggregation": "sum"}, summed)],
    "drm": [({"density": 0.25}, first), ({"density": 0.25, "direction": "vertical"}, first)],
    "tsv_m": [({}, lambda alone: alone(rank_fraction=1 / len(alone()))[0])],
    "iso_c": [({}, summed_matrices)],
    "iso_cts": [({"common_fraction": 1.0}, summed_matrices)],
    "wudi": [({"steps": 0}, summed)],
    "lot": [({}, first)],
    "regmean": [({}, first)],
    "lwptv": [({}, lambda alone: scale_state(0.0, first(alone))), ({"score": "mean_abs"}, summed)],
    "magnitude": [({"prune_ratio": 0.4}, summed)],
    "trim": [({"density": 0.4}, summed), ({"density": 0.4, "elect": False}, summed)],
    "breadcrumbs": [({"density": 0.6, "gamma": 0.2}, summed)],
    "manual": [({"rules": "b0=0.5+r.projection=-1"}, summed), ({"rules": "b0=0.5", "when": "after"}, summed)],
    "dare": [({}, summed)],
    "della": [({}, summed), ({"rescale_by": "l1"}, summed)],
    "random_mask": [({}, summed)],
    "awd": [({"lr": 0.5, "steps": 50}, summed)],
    "wise_ft": [({}, summed)],
    "lines": [({"base": 0.4}, summed)],
}


@every_method
@few_examples
@given(data=st.data())
def test_equal_experts(key, data):
    assert key in EQUAL, "say in EQUAL what this method makes of equal experts"
    method, found = METHODS[key], data.draw(families_of(METHODS[key], 2, 4, ("unrelated",), equal=True))
    for params, rule in EQUAL[key]:

        def alone(params=params, **changed):
            states = [changes(method, found.only(name), params | changed) for name in found.vectors]
            return [next(iter(state.values())) for state in states]

        for state in changes(method, found, params).values():
            assert_same(state, rule(alone), found)


def test_no_entry_is_of_a_method_that_is_gone():
    """Tests run over the registered methods; one that loses its registration would take its tests along."""
    assert set(ONE) == set(EQUAL) == set(METHODS)
