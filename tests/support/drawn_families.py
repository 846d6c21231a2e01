"""Families of checkpoints and parameters of methods, drawn by Hypothesis, and how changes of them are compared."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import merging
from merging.methods import registry
from merging.methods.method import Edit, Merge, Method, Needs
from merging.models.families import Role, classify_parameters

State = dict[str, torch.Tensor]
Params = dict[str, Any]
TOLERANCE = 1e-9
FED = ("lot", "regmean")  # methods on layer inputs, which can be drawn as well
ALL = (m for m in merging.list_methods() if isinstance(m, Edit | Merge))
METHODS = {m.key: m for m in ALL if m.needs is Needs.NOTHING or m.key in FED}
AT = "visual.transformer.resblocks."
SHAPES = {
    "visual.conv1.weight": (8, 3, 2, 2),
    "visual.positional_embedding": (5, 8),
    f"{AT}0.ln_1.weight": (8,),
    f"{AT}0.attn.in_proj_weight": (24, 8),
    f"{AT}0.attn.in_proj_bias": (24,),
    f"{AT}1.mlp.c_fc.weight": (32, 8),
    f"{AT}1.mlp.c_proj.weight": (8, 32),
    f"{AT}1.mlp.c_proj.bias": (8,),
    "visual.proj": (8, 6),
}
PARAMETERS = {p.name: p for p in classify_parameters(SHAPES)}
FEEDS = {n: s[1] for n, s in SHAPES.items() if PARAMETERS[n].role == Role.LINEAR} | {f"{AT}0.ln_1.weight": 8}
KINDS = ("unrelated", "related", "on a grid", "one idle")


@dataclass(frozen=True, repr=False)
class Family:
    """A pretrained model, the task vectors of its experts, and rows entering every layer of each."""

    title: str
    on_a_grid: bool
    base: State
    vectors: dict[str, State]
    rows: dict[str, State]

    def __repr__(self) -> str:
        return self.title

    def experts(self, factor: float = 1.0) -> dict[str, State]:
        return {e: {n: v + factor * vector[n] for n, v in self.base.items()} for e, vector in self.vectors.items()}

    def only(self, *names: str) -> Family:
        return Family(
            self.title, self.on_a_grid, self.base, {n: self.vectors[n] for n in names}, {n: self.rows[n] for n in names}
        )


@functools.lru_cache(maxsize=256)
def family(seed: int, count: int, kind: str, equal: bool = False) -> Family:
    """Experts of one kind; on a grid, sums are exact and ties and cancellations common."""
    draw = torch.Generator().manual_seed(seed)

    def normal(shape: tuple[int, ...]) -> torch.Tensor:
        values = torch.randn(shape, generator=draw, dtype=torch.float64)
        return (values * 4).round() / 64 if kind == "on a grid" else values * 0.05

    base = {n: torch.randn(s, generator=draw).double() for n, s in SHAPES.items()}
    shared = {n: normal(s) for n, s in SHAPES.items()}
    names = [f"expert {k}" for k in range(count)]
    vectors = {name: {n: normal(s) for n, s in SHAPES.items()} for name in names}
    if kind == "related":
        vectors = {e: {n: v + shared[n] for n, v in vector.items()} for e, vector in vectors.items()}
    if kind == "one idle" and count > 1:
        vectors[names[1]] = {n: torch.zeros_like(v) for n, v in base.items()}
    if equal:
        vectors = dict.fromkeys(names, vectors[names[0]])
    rows = {e: {n: torch.randn(40, d, generator=draw, dtype=torch.float64) for n, d in FEEDS.items()} for e in names}
    return Family(f"{count} experts, {kind}, seed {seed}", kind == "on a grid", base, vectors, rows)


def families(low: int = 2, high: int = 4, kinds: tuple[str, ...] = KINDS, **options: bool) -> st.SearchStrategy[Family]:
    drawn = st.tuples(st.integers(0, 50), st.integers(low, high), st.sampled_from(kinds))
    return drawn.map(lambda numbers: family(*numbers, **options))


def families_of(
    method: Method, low: int = 2, high: int = 4, kinds: tuple[str, ...] = KINDS, **options: bool
) -> st.SearchStrategy[Family]:
    """Families of no more experts than the method merges."""
    return families(low, min(high, method.max_experts or high), kinds, **options)


def parameters(method: Method) -> st.SearchStrategy[Params]:
    """Any admitted parameters, few steps and seeds: what controls offer, its ends included."""

    def values(bound: Any) -> st.SearchStrategy[Any]:
        if bound.kind == "flag":
            return st.booleans()
        if bound.kind == "choice":
            return st.sampled_from(bound.choices)
        if bound.kind == "integer":
            return st.integers(0, 6).filter(bound.accepts)
        if bound.kind == "table":
            return st.sampled_from(["", "b0=0", "r.linear=0.5+b1=2", "s.output=-1"])
        low, high = bound.slider or (bound.low, bound.high)
        offered = [bound.default, low, high, low + 0.3 * (high - low)]
        return st.sampled_from([value for value in offered if bound.accepts(value)])

    return st.fixed_dictionaries({name: values(bound) for name, bound in method.params.bounds().items()})


def changes(
    method: Method, found: Family, params: Params, merge: str = "task_arithmetic", factor: float = 1.0
) -> dict[str, State]:
    """What a chain with this method adds to the pretrained weights: one state, or one per task."""
    chain = ([(method.key, params)], merge, {"scaling": 1.0}) if isinstance(method, Edit) else ([], method.key, params)
    edits, last, end = chain
    if "scaling" not in registry.find_merge(last).params.bounds():
        end = {k: v for k, v in end.items() if k != "scaling"}
    inputs = found.rows if method.key in FED else None
    result = merging.merge(found.base, found.experts(factor), last, end, edits, layer_inputs=inputs, device="cpu")
    states = result.task_state_dicts or {"merged": result.state_dict}
    return {task: {n: state[n] - v for n, v in found.base.items()} for task, state in states.items()}


def assert_same(found: State, expected: State, unit: Family) -> None:
    """Equal to 1e-9 of the change, or of the task vectors where those are longer."""

    def norm(state: State) -> float:
        return math.sqrt(sum(float(v.square().sum()) for v in state.values()))

    size = max(norm(expected), *(norm(vector) for vector in unit.vectors.values()))
    error = norm({n: found[n] - expected[n] for n in expected})
    assert error <= TOLERANCE * size, f"differs by {error / size:.1e}"


def scale_state(factor: float, state: State) -> State:
    return {n: factor * v for n, v in state.items()}


def add_states(*states: State) -> State:
    return {n: sum(state[n] for state in states) for n in states[0]}


def scale_tensors(state: State, which: Callable[[str], bool], factor: float = 1.0, rest: float = 0.0) -> State:
    """The tensors that ``which`` names times ``factor``, the others times ``rest``."""
    return {n: v * (factor if which(n) else rest) for n, v in state.items()}


def is_matrix(name: str) -> bool:
    return len(SHAPES[name]) == 2


def is_linear(name: str) -> bool:
    return PARAMETERS[name].role == Role.LINEAR


def flatten(state: State) -> torch.Tensor:
    return torch.cat([v.flatten() for v in state.values()])


def unflatten(values: torch.Tensor) -> State:
    parts = values.split([math.prod(s) for s in SHAPES.values()])
    return {n: part.reshape(s) for (n, s), part in zip(SHAPES.items(), parts, strict=True)}


few_examples = settings(
    max_examples=3, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
