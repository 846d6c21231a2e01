"""Checks of a recipe, which refuse meaningless chains and malformed fields."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from merging.base.errors import CheckpointError, RecipeError
from merging.base.text import plural
from merging.methods.method import Adapt, Edit, Merge, Method
from merging.methods.params import Params
from merging.models.families import ACTIVATIONS, FAMILY_KEYS
from merging.models.stated_architecture import StatedArchitecture
from merging.models.team.vocabulary_choices import VOCABULARIES

UNUSED_SETTINGS = {  # a setting -> the sentence for recipes whose steps do not use it
    "exemplars": "No step of this chain needs exemplars, so exemplars is not used.",
    "test_data": "No step of this chain learns from test data, so test_data is not used.",
    "layer_inputs": "No step of this chain reads layer inputs, so layer_inputs is not used.",
    "gradients": "No step of this chain reads gradients, so gradients is not used.",
}
STEP_EXAMPLES = {
    "merge": ("ties", "{density: 0.2}"),
    "adapt": ("surgery", "{rank: 16}"),
}  # field -> a key and parameters


def check_architecture(architecture: Any, activation: str) -> str:
    """The text of an architecture, checked. Raises RecipeError if it is malformed, or names another activation."""
    if not isinstance(architecture, str):
        raise RecipeError(f"In a recipe, architecture is a text such as heads=12; got {shorten(architecture)}.")
    try:
        stated = StatedArchitecture.parse(architecture)
    except CheckpointError as error:
        raise RecipeError(f"In a recipe: {error}") from None
    if stated.activation and activation not in ("", stated.activation):
        raise RecipeError(
            f"The activation is {activation}, but the architecture states {stated.activation}; name only one of them."
        )
    return stated.text()


def checked_family(family: Any) -> str:
    """The checked family of a recipe. Raises RecipeError if it is unknown."""
    if family not in ("", *FAMILY_KEYS):
        raise RecipeError(f"In a recipe, family is {' or '.join(FAMILY_KEYS)}, or left out; got {shorten(family)}.")
    return str(family)


def refuse_meaningless(stages: Sequence[tuple[Method, Params]]) -> None:
    """Raise RecipeError for a chain, methods with their parameters, whose result would be misleading."""
    for i, (method, params) in enumerate(stages):
        if reason := method.refuses(params, [(before.key, values) for before, values in stages[:i]]):
            raise RecipeError(reason)
    # Numbers of the edits that change the merged task vector, after the merge.
    late = [i for i, (method, params) in enumerate(stages) if isinstance(method, Edit) and method.after_merge(params)]
    if len(late) > 1:
        raise RecipeError("Two edits of this chain work on the merged task vector; at most one can. Join their rules.")
    if late and not isinstance(stages[late[0] + 1][0], Merge):
        key = stages[late[0]][0].key
        raise RecipeError(f"{key} works on the merged task vector here, so it is the last edit; move it to the end.")
    adapts = [method.title for method, _ in stages if isinstance(method, Adapt)]
    per_task = [method.title for method, _ in stages if isinstance(method, Merge) and method.per_task]
    if adapts and per_task:
        raise RecipeError(
            f"{per_task[0]} already gives every task a model of its own, so {adapts[0]} has nothing to adapt; choose a "
            "merge that gives one model."
        )


def refuse_too_many(methods: Iterable[Method], experts: int) -> None:
    """Raise RecipeError if a chain with these methods cannot merge so many experts."""
    for method in methods:
        if method.max_experts is not None and experts > method.max_experts:
            raise RecipeError(
                f"{method.title} merges at most {plural(method.max_experts, 'expert')}, and {experts} are given. "
                f"Choose {method.max_experts} of them, or a merge for any number, such as weight_averaging or karcher."
            )


def list_doubts(stages: Sequence[tuple[Method, Params]]) -> list[str]:
    """Sentences on methods of a chain, with their parameters, whose learning may have little effect."""
    learning = [method for method, params in stages if isinstance(method, Merge) and method.learns(params)]
    random = [method.key for method, params in stages if isinstance(method, Edit) and "seed" in params.bounds()]
    # Adapts that build on the pretrained MLPs and on the edited task vectors, not on those "as they came".
    mixing = [method for method, _ in stages
              if isinstance(method, Adapt) and method.mixes_on_pretrained and not method.as_they_came]  # fmt: skip
    return [
        *(f"{merge.key} learns for one random mask of {key}; another seed needs learning again."
          for merge in learning for key in random),
        *(f"{adapt.title} adds mixtures to the pretrained MLPs, so the MLPs that {merge.title} learns are not used."
          for merge in learning for adapt in mixing),
    ]  # fmt: skip


def refuse_several_adapts(adapt: Any) -> None:
    """Raise RecipeError for more than one adapt, in a list or as a mapping with several keys."""
    # A pair (key, parameters) is one adapt.
    is_pair = isinstance(adapt, list | tuple) and len(adapt) == 2 and not isinstance(adapt[1], str | list | tuple)
    if isinstance(adapt, Mapping | list | tuple) and len(adapt) > 1 and not (is_pair and isinstance(adapt[0], str)):
        raise RecipeError(f"A recipe has at most one adapt, on top of its merge; got {len(adapt)}: {shorten(adapt)}.")


def describe_unused(settings: Mapping[str, Any], used: Mapping[str, Any]) -> tuple[str, ...]:
    """A sentence for each of a recipe's ``settings`` that is not empty, and false or missing in ``used``."""
    return tuple(sentence for name, sentence in UNUSED_SETTINGS.items() if settings.get(name) and not used.get(name))


def check_settings(count_dead_params: Any, activation: Any, vocabulary: Any) -> None:
    """Raise RecipeError if one of these fields has a value that a recipe does not admit."""
    if not isinstance(count_dead_params, bool):
        raise RecipeError(f"In a recipe, count_dead_params is true or false; got {shorten(count_dead_params)}.")
    if activation not in ("", *ACTIVATIONS):
        raise RecipeError(f"In a recipe, activation is {' or '.join(ACTIVATIONS)}; got {shorten(activation)}.")
    if vocabulary not in VOCABULARIES:
        raise RecipeError(f"In a recipe, vocabulary is {' or '.join(VOCABULARIES)}; got {shorten(vocabulary)}.")


def shorten(value: Any) -> str:
    """A value for an error text, shortened to one line."""
    return reprlib.repr(value)


def parse_step_entry(entry: Any, field: str) -> tuple[str, dict[str, Any]]:
    """('ties', {...}) from 'ties' or {'ties': {...}}. Raises RecipeError for anything else."""
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, dict) and len(entry) == 1:
        ((key, params),) = entry.items()
        if isinstance(key, str) and (params is None or isinstance(params, dict)):
            return key, params or {}
    key, values = STEP_EXAMPLES.get(field, STEP_EXAMPLES["merge"])
    raise RecipeError(f"In a recipe, {field} is written as `{key}` or as `{key}: {values}`; got {shorten(entry)}.")


def canonical_json(data: Any) -> str:
    """Plain data as JSON; equal data give the same text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
