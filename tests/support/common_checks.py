"""What every edit and every merge must do, as plain functions ``check(method)``; ``test_methods.py`` runs all on all.

A method may be excused from a check only by an entry in EXCUSED with a written reason, and the suite fails when such an
entry is no longer needed.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import tiny
import torch
from contexts import context_of

from merging.base.errors import MergingError, NeedsError, ParameterError
from merging.engine import run as engine
from merging.engine.adapt import adapt
from merging.images.exemplars import TaskExemplars
from merging.images.image_encoder import Encoder
from merging.methods.method import Adapt, Edit, Method, Needs
from merging.methods.params import TABLE, Bound
from merging.models.checkpoint import MappingCheckpoint
from merging.recipes.recipe import Recipe
from merging.tasks.context import Context

State = dict[str, torch.Tensor]
TOLERANCE = 1e-9  # relative to the size of the change, in float64
DEVICE = "cpu"  # on which the checks run; the suite goes through those of the machine

EXCUSED: dict[tuple[str, str], str] = {
    ("scaling_zero_gives_pretrained", "mass"): "its scaling is of the models of the second pass",
    ("one_expert_at_full_strength", "mass"): "the merged model below it is task arithmetic at its default",
    ("one_expert_at_full_strength", "surgery"): "the merged model below it is task arithmetic at its default",
    ("one_expert_at_full_strength", "twin"): "the merged model below it is task arithmetic at its default",
    ("one_expert_at_full_strength", "wemoe"): "the merged model below it is task arithmetic at its default",
    ("one_expert_at_full_strength", "lwptv"): "one task vector never deviates from its mean, so everything is pruned",
    ("one_expert_at_full_strength", "dare"): "drops half of the scalars unless told otherwise",
    ("one_expert_at_full_strength", "della"): "drops half of the scalars unless told otherwise",
    ("one_expert_at_full_strength", "magnitude"): "drops the smaller scalars unless told otherwise",
    ("one_expert_at_full_strength", "trim"): "drops the smaller scalars unless told otherwise",
    ("one_expert_at_full_strength", "breadcrumbs"): "drops the largest scalars unless told otherwise",
    ("one_expert_at_full_strength", "random_mask"): "drops most scalars unless told otherwise",
    ("one_expert_at_full_strength", "wise_ft"): "goes half of the way unless told otherwise",
    ("one_expert_at_full_strength", "lines"): "scales deep blocks up unless told otherwise",
    ("one_expert_at_full_strength", "lot"): "directions that the exemplars do not excite are left pretrained",
    ("one_expert_at_full_strength", "iso_c"): "one expert's spectrum is made flat too",
    ("one_expert_at_full_strength", "iso_cts"): "one expert's spectrum is made flat too",
    ("one_expert_at_full_strength", "wudi"): "what is no linear weight stays pretrained",
    ("one_expert_at_full_strength", "adamerging"): "coefficients move away from where they start",
    ("one_expert_at_full_strength", "localize_and_stitch"): "keeps the few scalars that its exemplars need",
    ("one_expert_at_full_strength", "pcb"): "sizes are clipped at their quantiles, and the smallest never win",
}

# Fewer steps than by default for methods that learn: what is checked of them holds after any number.
SHORT: dict[str, dict[str, Any]] = {
    "adamerging": {"steps": 2}, "localize_and_stitch": {"steps": 2}, "wudi": {"steps": 5}, "surgery": {"steps": 2},
    "wemoe": {"steps": 2}, "twin": {"steps": 2},
}  # fmt: skip


# --- what the checks run on ------------------------------------------------------------------------------------------


def family(dtype: torch.dtype = torch.float64, experts: int = 3) -> tuple[State, dict[str, State]]:
    """The tiny family in double precision, with some exact zeros and negative zeros in it."""
    base, tuned = tiny.family(tuple(f"expert {k}" for k in range(experts)))
    base = {name: value.to(dtype) for name, value in base.items()}
    base["visual.ln_post.bias"][:3] = -0.0
    return base, {name: {n: v.to(dtype) for n, v in state.items()} for name, state in tuned.items()}


def family_of(method: Method, dtype: torch.dtype = torch.float64) -> tuple[State, dict[str, State]]:
    """The tiny family with as many of three experts as the method merges."""
    return family(dtype, min(3, method.max_experts or 3))


def layer_inputs(experts: Mapping[str, State]) -> dict[str, State]:
    """Rows entering every weight: what each expert's tower records on random images of its own."""
    found: dict[str, State] = {}
    for seed, (name, state) in enumerate(sorted(experts.items())):
        images = torch.randn(6, 3, tiny.SIZE, tiny.SIZE, generator=torch.Generator().manual_seed(seed))
        rows: State = {}
        with torch.inference_mode():
            Encoder.from_checkpoint(tiny.checkpoint(state))(
                images, record=lambda n, x, rows=rows: rows.update({n: x.double()})
            )
        found[name] = rows
    return found


def labeled_exemplars(experts: Mapping[str, State]) -> dict[str, TaskExemplars]:
    """Random images of each expert's own with random labels, and a random head of five classes."""
    found = {}
    for seed, name in enumerate(sorted(experts)):
        draw = torch.Generator().manual_seed(seed)
        images = torch.randn(6, 3, tiny.SIZE, tiny.SIZE, generator=draw)
        head = torch.nn.functional.normalize(torch.randn(5, tiny.EMBED, generator=draw), dim=1)
        found[name] = TaskExemplars(images, torch.randint(5, (6,), generator=draw), head, logit_scale=10.0)
    return found


def unlabeled(tasks: Mapping[str, TaskExemplars]) -> dict[str, TaskExemplars]:
    """The same images and heads without labels."""
    return {name: replace(task, labels=None) for name, task in tasks.items()}


def data(method: Method, experts: Mapping[str, State]) -> dict[str, Any]:
    """The options with whatever data a method needs."""
    if method.needs is Needs.NOTHING:
        return {}
    if isinstance(method, Adapt) and method.needs is Needs.EXEMPLARS:
        return {"exemplars": unlabeled(labeled_exemplars(experts))}
    if method.needs is Needs.TEST_DATA:
        return {"test_data": unlabeled(labeled_exemplars(experts))}
    if not method.reads_layer_inputs:
        return {"exemplars": labeled_exemplars(experts)}
    return {"layer_inputs": layer_inputs(experts)}


def recipe(method: Method, params: Mapping[str, Any] | None = None) -> Recipe:
    """The shortest chain with this method in it."""
    if isinstance(method, Edit):
        return Recipe.build("task_arithmetic", edits=[(method.key, params or {})])
    if isinstance(method, Adapt):
        return Recipe.build("task_arithmetic", adapt=(method.key, SHORT.get(method.key, {}) | dict(params or {})))
    return Recipe.build(method.key, SHORT.get(method.key, {}) | dict(params or {}))


def merge(
    method: Method, base: State, experts: Mapping[str, State], params: Mapping[str, Any] | None = None, **options: Any
) -> engine.MergeResult:
    """Run the shortest chain with this method in it, with whatever data it needs."""
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    context = context_of(options, DEVICE)
    options = {**data(method, experts), "context": context, **options}
    chain, pretrained = recipe(method, params), tiny.checkpoint(base)
    result = engine.run_recipe(chain, pretrained, opened, **options)
    if chain.adapt is None:
        return result
    merged = MappingCheckpoint(result.state_dict, "merged")
    return adapt(chain, pretrained, opened, merged, **options).add_to(result)


@functools.cache
def usual(method: Method, device: str) -> list[State]:
    """The states of ``merge`` on the tiny family with everything at its default, computed once; do not change them."""
    return states(merge(method, *family_of(method), context=Context(device)))


def states(result: engine.MergeResult) -> list[State]:
    """The state dicts of a result, one or one per task."""
    return list((result.task_state_dicts or {"merged": result.state_dict}).values())


def assert_close(found: State, expected: State, base: State, tolerance: float = TOLERANCE) -> None:
    """Equal up to rounding, measured against the size of the change."""
    error = sum(float(((found[n] - expected[n]).double() ** 2).sum()) for n in expected) ** 0.5
    size = sum(float(((expected[n] - base[n]).double() ** 2).sum()) for n in expected) ** 0.5
    assert error <= tolerance * max(size, 1.0), f"differs by {error:.2e} where the change is {size:.2e}"


# --- the checks ------------------------------------------------------------------------------------------------------


def equals_pretrained_when_experts_do(method: Method) -> None:
    base, experts = family_of(method)
    for state in states(merge(method, base, dict.fromkeys(experts, base))):
        assert_close(state, base, base)


def order_of_experts_does_not_matter(method: Method) -> None:
    base, experts = family_of(method)
    backward = merge(method, base, dict(reversed(experts.items())))
    own = backward.task_state_dicts
    for one, other in zip([own[n] for n in experts] if own else states(backward), usual(method, DEVICE), strict=True):
        assert_close(one, other, base)


def inputs_are_untouched(method: Method) -> None:
    base, experts = family_of(method)
    before = copy.deepcopy((base, experts))
    merge(method, base, experts)
    for now, then in zip((base, *experts.values()), (before[0], *before[1].values()), strict=True):
        assert all(torch.equal(now[n], then[n]) for n in then)


def names_shapes_dtypes_and_order_are_pretraineds(method: Method) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        base, experts = family_of(method, dtype)
        shuffled = dict(sorted(base.items(), reverse=True))
        for state in states(merge(method, shuffled, experts)):
            assert list(state) == list(shuffled)
            assert all(state[n].dtype == dtype and state[n].shape == base[n].shape for n in base)


def result_is_finite_and_deterministic(method: Method) -> None:
    for first, second in zip(usual(method, DEVICE), states(merge(method, *family_of(method))), strict=True):
        assert all(torch.isfinite(value).all() and torch.equal(value, second[n]) for n, value in first.items())


def a_zero_expert_stays_finite(method: Method) -> None:
    base, experts = family_of(method)
    experts["expert 1"] = base
    for state in states(merge(method, base, experts)):
        assert all(torch.isfinite(value).all() for value in state.values())


def scaling_zero_gives_pretrained(method: Method) -> None:
    if "scaling" not in method.params.bounds():
        return
    base, experts = family_of(method)
    needed = dict([when] if (when := method.params.bounds()["scaling"].when) else [])
    for state in states(merge(method, base, experts, {**needed, "scaling": 0.0})):
        assert all(torch.equal(state[n], base[n]) for n in base)


def one_expert_at_full_strength(method: Method) -> None:
    """With one expert, everything kept and scaling 1, that expert comes out (an edit must keep its task vector)."""
    base, experts = family(experts=1)
    (expert,) = experts.values()
    full = {name: 1.0 for name in ("scaling", "density") if name in method.params.bounds()}
    chain = Recipe.build("task_arithmetic", {"scaling": 1.0}, edits=[method.key]) if isinstance(method, Edit) else None
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    chain = chain or recipe(method, full)
    found = engine.run_recipe(chain, tiny.checkpoint(base), opened, context=Context(DEVICE), **data(method, experts))
    for state in states(found):
        assert_close(state, expert, base)


def pieces_equal_whole_tensors(method: Method) -> None:
    """Streaming in cache-sized pieces changes nothing, for methods that say they allow it."""
    base, experts = family_of(method)
    whole = usual(method, DEVICE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("merging.engine.run_inputs.PIECE_CPU", 29)
        patch.setattr("merging.engine.run_inputs.BLOCK_CPU", 131)
        pieces = states(merge(method, base, experts))
    for one, other in zip(whole, pieces, strict=True):
        assert_close(other, one, base)


def float32_equals_float64(method: Method) -> None:
    base, experts = family_of(method)
    single = {name: {n: v.float() for n, v in state.items()} for name, state in experts.items()}
    exact = states(
        merge(
            method,
            {n: v.float().double() for n, v in base.items()},
            {name: {n: v.double() for n, v in state.items()} for name, state in single.items()},
        )
    )
    for one, other in zip(exact, states(merge(method, {n: v.float() for n, v in base.items()}, single)), strict=True):
        assert_close({n: v.double() for n, v in other.items()}, one, base, 1e-4)


def buffers_are_copied(method: Method) -> None:
    base, experts = family_of(method)
    base["logit_scale"] = torch.tensor(4.6, dtype=torch.float64)
    for state in experts.values():
        state["logit_scale"] = torch.tensor(9.9, dtype=torch.float64)
    for state in states(merge(method, base, experts)):
        assert torch.equal(state["logit_scale"], base["logit_scale"])


def bad_values(bound: Bound) -> tuple[Any, ...]:
    """Values that must be refused."""
    if bound.kind == "flag":
        return ("yes", 1, None)
    if bound.kind == "choice":
        return ("no such choice", 1, None)
    if bound.kind == TABLE:
        rows = ({"blocks": "0"}, {"factor": math.nan}, {"factor": 11}, {"factor": 0, "roles": "conv1"})
        return ("a word", 1, None, {"factor": 0}, *([row] for row in rows), [{"factor": 0}] * 201)
    bad: list[Any] = ["a word", math.nan, math.inf, True]
    if bound.kind == "integer":
        bad.append(1.5)
    if math.isfinite(bound.low):
        bad.append(bound.low if bound.open_low else bound.low - 1)
    if math.isfinite(bound.high):
        bad.append(bound.high + 1)
    return tuple(bad) if bound.optional else (*bad, None)


def bad_parameters_are_refused(method: Method) -> None:
    for name, bound in method.params.bounds().items():
        assert bound.label and bound.help, f"{name} has no label or help"
        for value in bad_values(bound):
            with pytest.raises(ParameterError, match=rf"{method.key}\.{name} must be "):
                method.params.build({name: value})
    with pytest.raises(ParameterError, match="no parameter 'sclaing'"):
        method.params.build({"sclaing": 1.0})


def missing_data_is_named(method: Method) -> None:
    if method.needs is Needs.NOTHING:
        return
    base, experts = family_of(method)
    with pytest.raises(NeedsError, match=f"{method.key} needs {method.needs}"):
        merge(method, base, experts, layer_inputs=None, exemplars=None, test_data=None)


def cancel_stops_it(method: Method) -> None:
    base, experts = family_of(method)
    calls = []

    def second_time() -> bool:
        calls.append(1)
        return len(calls) > 1

    with pytest.raises(MergingError, match="Cancelled"):
        merge(method, base, experts, cancel=second_time)


def the_card_is_complete(method: Method) -> None:
    assert method.title and method.summary.endswith(".") and method.formula and method.variant.endswith(".")
    assert method.cite.authors and method.cite.title and method.cite.year


CHECKS = (
    equals_pretrained_when_experts_do,
    order_of_experts_does_not_matter,
    inputs_are_untouched,
    names_shapes_dtypes_and_order_are_pretraineds,
    result_is_finite_and_deterministic,
    a_zero_expert_stays_finite,
    scaling_zero_gives_pretrained,
    one_expert_at_full_strength,
    pieces_equal_whole_tensors,
    float32_equals_float64,
    buffers_are_copied,
    bad_parameters_are_refused,
    missing_data_is_named,
    cancel_stops_it,
    the_card_is_complete,
)
