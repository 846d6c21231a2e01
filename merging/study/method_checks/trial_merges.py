"""The models, the data and the merges of checks: the shortest chain with a method in it, on a tiny team."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from merging.engine import run as engine
from merging.engine.adapt import adapt
from merging.images.exemplars import TaskExemplars
from merging.images.image_encoder import Encoder
from merging.methods.method import Adapt, Edit, Method, Needs
from merging.models.checkpoint import MappingCheckpoint
from merging.recipes.recipe import DEFAULT_MERGE, Recipe
from merging.study.method_checks.tiny_team import State, TinyTower
from merging.tasks.context import Context

TOWER = TinyTower()
TOLERANCE = 1e-9  # relative to the size of the change, in float64
EXPERTS, IMAGES, CLASSES = 3, 6, 5
STEPS = "steps"  # the parameter of methods that learn
FEW_STEPS = 2  # what is checked of them holds after any number
FULL_STRENGTH = ("scaling", "density")  # parameters that are 1 where nothing is scaled down or left out


class CheckFailedError(AssertionError):
    """A check does not hold; the text says what came instead."""


def require(holds: object, text: str) -> None:
    """Raise CheckFailedError unless something holds."""
    if not holds:
        raise CheckFailedError(text)


def make_family(dtype: torch.dtype = torch.float64, experts: int = EXPERTS) -> tuple[State, dict[str, State]]:
    """The tiny team in double precision, with some negative zeros in it."""
    base, tuned = TOWER.make_team([f"expert {k}" for k in range(experts)])
    base = {name: value.to(dtype) for name, value in base.items()}
    base["visual.ln_post.bias"][:3] = -0.0
    return base, {name: {n: v.to(dtype) for n, v in state.items()} for name, state in tuned.items()}


def family_of(method: Method, dtype: torch.dtype = torch.float64) -> tuple[State, dict[str, State]]:
    """The tiny team with three experts, or with fewer if the method merges fewer."""
    return make_family(dtype, min(EXPERTS, method.max_experts or EXPERTS))


def capture_inputs(experts: Mapping[str, State]) -> dict[str, State]:
    """Rows entering every weight: what each expert's tower records on random images of its own."""
    found: dict[str, State] = {}
    for seed, (name, state) in enumerate(sorted(experts.items())):
        images = torch.randn(IMAGES, 3, TOWER.size, TOWER.size, generator=torch.Generator().manual_seed(seed))
        rows = found[name] = {}

        def record(tensor: str, entering: torch.Tensor, rows: State = rows) -> None:
            rows[tensor] = entering.double()

        with torch.inference_mode():
            Encoder.from_checkpoint(TOWER.open(state))(images, record=record)
    return found


def draw_exemplars(experts: Mapping[str, State]) -> dict[str, TaskExemplars]:
    """Random images of each expert's own with random labels, and a random head of five classes."""
    found = {}
    for seed, name in enumerate(sorted(experts)):
        draw = torch.Generator().manual_seed(seed)
        images = torch.randn(IMAGES, 3, TOWER.size, TOWER.size, generator=draw)
        head = torch.nn.functional.normalize(torch.randn(CLASSES, TOWER.embed, generator=draw), dim=1)
        found[name] = TaskExemplars(images, torch.randint(CLASSES, (IMAGES,), generator=draw), head, logit_scale=10.0)
    return found


def without_labels(tasks: Mapping[str, TaskExemplars]) -> dict[str, TaskExemplars]:
    """The same images and heads without labels."""
    return {name: replace(task, labels=None) for name, task in tasks.items()}


def data_for(method: Method, experts: Mapping[str, State]) -> dict[str, Any]:
    """The options with whatever data a method needs."""
    if method.needs is Needs.NOTHING:
        return {}
    if isinstance(method, Adapt) and method.needs is Needs.EXEMPLARS:
        return {"exemplars": without_labels(draw_exemplars(experts))}
    if method.needs is Needs.TEST_DATA:
        return {"test_data": without_labels(draw_exemplars(experts))}
    if not method.reads_layer_inputs:
        return {"exemplars": draw_exemplars(experts)}
    return {"layer_inputs": capture_inputs(experts)}


def short_params(method: Method) -> dict[str, Any]:
    """Few steps for a method that takes steps; otherwise nothing."""
    bound = method.params.bounds().get(STEPS)
    is_long = bound is not None and bound.kind == "integer" and (bound.default or 0) > FEW_STEPS
    return {STEPS: FEW_STEPS} if bound is not None and is_long and bound.accepts(FEW_STEPS) else {}


def shortest_recipe(method: Method, params: Mapping[str, Any] | None = None) -> Recipe:
    """The shortest chain with this method in it."""
    values = short_params(method) | dict(params or {})
    if isinstance(method, Edit):
        return Recipe.build(DEFAULT_MERGE, edits=[(method.key, values)])
    if isinstance(method, Adapt):
        return Recipe.build(DEFAULT_MERGE, adapt=(method.key, values))
    return Recipe.build(method.key, values)


def try_merge(
    method: Method, base: State, experts: Mapping[str, State], params: Mapping[str, Any] | None = None, *,
    context: Context, **options: Any,
) -> engine.MergeResult:  # fmt: skip
    """The result of the shortest chain with this method in it, with whatever data it needs, unless ``options`` have."""
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    options = {**data_for(method, experts), "context": context, **options}
    chain, pretrained = shortest_recipe(method, params), TOWER.open(base)
    result = engine.run_recipe(chain, pretrained, opened, **options)
    if chain.adapt is None:
        return result
    merged = MappingCheckpoint(result.state_dict, "merged")
    return adapt(chain, pretrained, opened, merged, **options).add_to(result)


def merge_alone(method: Method, base: State, experts: Mapping[str, State], device: str) -> list[State]:
    """The states of a merge of one expert at full strength; an adapt is left out, as it changes no weights."""
    full = {name: 1.0 for name in FULL_STRENGTH if name in method.params.bounds()}
    chain = shortest_recipe(method, full)
    if isinstance(method, Edit):
        chain = Recipe.build(DEFAULT_MERGE, {"scaling": 1.0}, edits=[method.key])
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    data = data_for(method, experts)
    return states_of(engine.run_recipe(chain, TOWER.open(base), opened, context=Context(device), **data))


@functools.lru_cache(maxsize=8)
def usual_states(method: Method, device: str) -> list[State]:
    """The states of ``try_merge`` with everything at its default, computed once; do not change them."""
    return states_of(try_merge(method, *family_of(method), context=Context(device)))


def states_of(result: engine.MergeResult) -> list[State]:
    """The state dicts of a result, one or one per task."""
    return list((result.task_state_dicts or {"merged": result.state_dict}).values())


def require_close(found: State, expected: State, base: State, tolerance: float = TOLERANCE) -> None:
    """Raise CheckFailedError unless two states are equal up to rounding, measured against the size of the change."""
    error = sum(float(((found[n] - expected[n]).double() ** 2).sum()) for n in expected) ** 0.5
    size = sum(float(((expected[n] - base[n]).double() ** 2).sum()) for n in expected) ** 0.5
    require(error <= tolerance * max(size, 1.0), f"differs by {error:.2e} where the change is {size:.2e}.")
