"""What every edit, merge and adapt must do, as functions ``check(method, device)`` whose first line is the sentence."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from merging.base.errors import Cancelled, NeedsError, ParameterError
from merging.engine import run_inputs
from merging.methods.method import Method, Needs
from merging.methods.params import TABLE, Bound
from merging.study.method_checks.trial_merges import (
    CheckFailedError,
    family_of,
    make_family,
    merge_alone,
    require,
    require_close,
    states_of,
    try_merge,
    usual_states,
)
from merging.tasks.context import Context

Check = Callable[[Method, str], None]
SMALL_PIECE, SMALL_BLOCK = 29, 131  # scalars, of which no tensor's number is a multiple
SINGLE_TOLERANCE = 1e-4


def equals_pretrained_when_experts_do(method: Method, device: str = "cpu") -> None:
    """Experts that equal the pretrained model give the pretrained model."""
    base, experts = family_of(method)
    for state in states_of(try_merge(method, base, dict.fromkeys(experts, base), context=Context(device))):
        require_close(state, base, base)


def order_of_experts_does_not_matter(method: Method, device: str = "cpu") -> None:
    """The order of the experts does not matter."""
    base, experts = family_of(method)
    backward = try_merge(method, base, dict(reversed(experts.items())), context=Context(device))
    own = backward.task_state_dicts
    found = [own[name] for name in experts] if own else states_of(backward)
    for one, other in zip(found, usual_states(method, device), strict=True):
        require_close(one, other, base)


def inputs_are_untouched(method: Method, device: str = "cpu") -> None:
    """The models that come in are not changed in place."""
    base, experts = family_of(method)
    before = copy.deepcopy((base, experts))
    try_merge(method, base, experts, context=Context(device))
    for now, then in zip((base, *experts.values()), (before[0], *before[1].values()), strict=True):
        changed = [name for name in then if not torch.equal(now[name], then[name])]
        require(not changed, f"{len(changed)} tensors were changed, such as {''.join(changed[:1])}.")


def names_shapes_dtypes_and_order_are_pretraineds(method: Method, device: str = "cpu") -> None:
    """The result has the pretrained model's names, shapes, dtypes and order, in float32, float16 and bfloat16."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        base, experts = family_of(method, dtype)
        shuffled = dict(sorted(base.items(), reverse=True))
        for state in states_of(try_merge(method, shuffled, experts, context=Context(device))):
            require(list(state) == list(shuffled), "names differ, or come in another order.")
            for name, value in state.items():
                require(value.dtype == dtype and value.shape == base[name].shape,
                        f"{name} is {value.dtype} {tuple(value.shape)}.")  # fmt: skip


def result_is_finite_and_deterministic(method: Method, device: str = "cpu") -> None:
    """The result is finite, and the same bits every time."""
    again = states_of(try_merge(method, *family_of(method), context=Context(device)))
    for first, second in zip(usual_states(method, device), again, strict=True):
        _require_finite(first)
        require(all(torch.equal(value, second[name]) for name, value in first.items()), "two merges differ.")


def a_zero_expert_stays_finite(method: Method, device: str = "cpu") -> None:
    """An expert that equals the pretrained model, among others, leaves the result finite."""
    base, experts = family_of(method)
    experts[list(experts)[len(experts) // 2]] = base
    for state in states_of(try_merge(method, base, experts, context=Context(device))):
        _require_finite(state)


def scaling_zero_gives_pretrained(method: Method, device: str = "cpu") -> None:
    """With the parameter scaling at 0, if there is one, the pretrained model comes out, bit for bit."""
    if "scaling" not in method.params.bounds():
        return
    base, experts = family_of(method)
    needed = dict([when] if (when := method.params.bounds()["scaling"].when) else [])
    params = {**needed, "scaling": 0.0}
    for state in states_of(try_merge(method, base, experts, params, context=Context(device))):
        require(all(torch.equal(state[name], base[name]) for name in base), "it does not.")


def one_expert_at_full_strength(method: Method, device: str = "cpu") -> None:
    """One expert alone, with scaling and density at 1 if there are such parameters, comes out."""
    base, experts = make_family(experts=1)
    (expert,) = experts.values()
    for state in merge_alone(method, base, experts, device):
        require_close(state, expert, base)


def pieces_equal_whole_tensors(method: Method, device: str = "cpu") -> None:
    """A method that says that it works scalar by scalar gives the same in small pieces of tensors."""
    base, experts = family_of(method)
    whole = usual_states(method, device)
    with _small_pieces():
        pieces = states_of(try_merge(method, base, experts, context=Context(device)))
    for one, other in zip(whole, pieces, strict=True):
        require_close(other, one, base)


def float32_equals_float64(method: Method, device: str = "cpu") -> None:
    """Single precision gives what double precision gives, up to rounding."""
    base, experts = family_of(method, torch.float32)
    double = {name: {n: v.double() for n, v in state.items()} for name, state in experts.items()}
    exact = states_of(try_merge(method, {n: v.double() for n, v in base.items()}, double, context=Context(device)))
    single = states_of(try_merge(method, base, experts, context=Context(device)))
    for one, other in zip(exact, single, strict=True):
        require_close({n: v.double() for n, v in other.items()}, one, base, SINGLE_TOLERANCE)


def buffers_are_copied(method: Method, device: str = "cpu") -> None:
    """The logit scale stays that of the pretrained model."""
    base, experts = family_of(method)
    base["logit_scale"] = torch.tensor(4.6, dtype=torch.float64)
    for state in experts.values():
        state["logit_scale"] = torch.tensor(9.9, dtype=torch.float64)
    for state in states_of(try_merge(method, base, experts, context=Context(device))):
        require(torch.equal(state["logit_scale"], base["logit_scale"]), f"it is {float(state['logit_scale'])}.")


def bad_parameters_are_refused(method: Method, device: str = "cpu") -> None:
    """Every parameter has a label and a help, and refuses values outside its bounds."""
    for name, bound in method.params.bounds().items():
        require(bound.label and bound.help, f"{name} has no label or help.")
        for value in bad_values(bound):
            _require_refusal(
                ParameterError, rf"{method.key}\.{name} must be ", partial(method.params.build, {name: value})
            )
    _require_refusal(ParameterError, "no parameter 'sclaing'", lambda: method.params.build({"sclaing": 1.0}))


def missing_data_is_named(method: Method, device: str = "cpu") -> None:
    """Without the data that it needs, it is refused by name."""
    if method.needs is Needs.NOTHING:
        return
    base, experts = family_of(method)
    none: dict[str, Any] = {"layer_inputs": None, "exemplars": None, "test_data": None}
    _require_refusal(
        NeedsError, f"{method.key} needs {method.needs}",
        lambda: try_merge(method, base, experts, context=Context(device), **none),
    )  # fmt: skip


def cancel_stops_it(method: Method, device: str = "cpu") -> None:
    """A merge that is cancelled stops."""
    base, experts = family_of(method)
    calls: list[int] = []

    def is_second_call() -> bool:
        calls.append(1)
        return len(calls) > 1

    context = Context(device, cancel=is_second_call)
    _require_refusal(Cancelled, "Cancelled", lambda: try_merge(method, base, experts, context=context))


def the_card_is_complete(method: Method, device: str = "cpu") -> None:
    """Title, formula and citation are there; summary and variant are sentences with a full stop."""
    for name in ("title", "summary", "formula", "variant"):
        require(getattr(method, name), f"{name} is empty.")
    for name in ("summary", "variant"):
        require(getattr(method, name).endswith("."), f"{name} does not end with a full stop.")
    require(method.cite.authors and method.cite.title and method.cite.year, "cite lacks authors, title or year.")


CHECKS: tuple[Check, ...] = (
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


def bad_values(bound: Bound) -> tuple[Any, ...]:
    """Values that a parameter must refuse."""
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


def _require_finite(state: dict[str, torch.Tensor]) -> None:
    bad = [name for name, value in state.items() if not torch.isfinite(value).all()]
    require(not bad, f"{len(bad)} tensors have infinities or no numbers, such as {''.join(bad[:1])}.")


def _require_refusal(kind: type[Exception], words: str, attempt: Callable[[], object]) -> None:
    """Raise CheckFailedError unless a call raises an error of this kind whose text has the words (a pattern)."""
    try:
        attempt()
    except kind as error:
        require(re.search(words, str(error)), f"the error should say “{words}”; it says “{error}”")
    else:
        raise CheckFailedError(f"nothing is refused where “{words}” is expected.")


@contextmanager
def _small_pieces() -> Iterator[None]:
    """Merge in pieces of a few scalars meanwhile."""
    before = run_inputs.PIECE_CPU, run_inputs.BLOCK_CPU
    run_inputs.PIECE_CPU, run_inputs.BLOCK_CPU = SMALL_PIECE, SMALL_BLOCK
    try:
        yield
    finally:
        run_inputs.PIECE_CPU, run_inputs.BLOCK_CPU = before
