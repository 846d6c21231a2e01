"""A config of mergekit as checked data: its method, models and parameters, whose values are not evaluated yet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from merging.base.errors import RecipeError
from merging.base.files.plain_yaml import read_plain_yaml
from merging.base.text import did_you_mean
from merging.recipes.chain_rules import shorten
from merging.recipes.mergekit.merge_methods import MERGE_METHODS, MergeMethod

NOUN = "config of mergekit"
FIELDS = ("merge_method", "base_model", "models", "parameters", "dtype", "out_dtype")
DTYPES = ("float32", "float16", "bfloat16")
REFUSED = {  # field -> why a recipe cannot have it, and what to do
    "slices": "takes layers of models apart; whole models are merged here: list them under models",
    "modules": "merges parts of a model in several ways; whole models are merged here: list them under models",
    "tokenizer_source": "changes the tokenizer, which no merge here does; leave it out",
    "tokenizer": "changes the tokenizer, which no merge here does; leave it out",
    "chat_template": "changes the chat template, which no merge here does; leave it out",
}
REFUSED_TRUE = {  # parameter -> why its value true is refused
    "filter_wise": "Model Stock has one coefficient per tensor here, not per row; leave it out",
}


@dataclass(frozen=True)
class MergekitConfig:
    """A config with known fields, method and parameters; ``base`` is empty without a base model.

    ``models`` are references with the parameters of each model, in order.
    """

    method: str
    base: str
    models: tuple[tuple[str, Mapping[str, Any]], ...]
    parameters: Mapping[str, Any]
    dtype: str = ""

    @property
    def rule(self) -> MergeMethod:
        """What the method takes."""
        return MERGE_METHODS[self.method]

    @property
    def others(self) -> tuple[str, ...]:
        """The models other than the base model."""
        return tuple(reference for reference, _ in self.models if reference != self.base)


def is_config(text: str) -> bool:
    """Whether a text looks like a config of mergekit, not like a recipe."""
    return re.search(r"^merge_method\s*:", text, re.MULTILINE) is not None


def parse_config(text: str) -> MergekitConfig:
    """The config in a YAML document.

    Raises:
        RecipeError: not such a config, or one that no recipe can express; names the field and what to do.
    """
    data = read_plain_yaml(text, NOUN)
    if not isinstance(data, dict):
        raise RecipeError(f"A {NOUN} is a mapping with merge_method and models; got {type(data).__name__}.")
    for field, value in data.items():
        if field in REFUSED and value is not None:
            raise RecipeError(f"The {NOUN} has {field}, which {REFUSED[field]}.")
        if field not in FIELDS and field not in REFUSED:
            hint = did_you_mean(str(field), FIELDS)
            raise RecipeError(f"The {NOUN} has an unknown field {shorten(field)}.{hint} Known: {', '.join(FIELDS)}.")
    method = data.get("merge_method")
    if not isinstance(method, str) or method not in MERGE_METHODS:
        hint = did_you_mean(str(method), MERGE_METHODS)
        raise RecipeError(
            f"The {NOUN} has merge_method {shorten(method)}, which cannot be run here.{hint} "
            f"Known: {', '.join(MERGE_METHODS)}."
        )
    models = _read_models(data.get("models"), MERGE_METHODS[method], method)
    parameters = _read_parameters(data.get("parameters"), method, "parameters", [])
    base = "" if data.get("base_model") is None else _read_reference(data["base_model"], "base_model")
    config = MergekitConfig(method, base, models, parameters, _read_dtype(data))
    _check_models(config)
    return config


def _read_models(entries: Any, rule: MergeMethod, method: str) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """The references under ``models``, with their parameters."""
    if not isinstance(entries, list) or not entries:
        raise RecipeError(
            f"In a {NOUN}, models is a list with entries such as `- model: cars`; got {shorten(entries)}."
        )
    models: list[tuple[str, Mapping[str, Any]]] = []
    for number, entry in enumerate(entries, 1):
        place = f"models, entry {number}"
        if not isinstance(entry, dict) or "model" not in entry or not {"model", "parameters"} >= set(entry):
            raise RecipeError(f"In a {NOUN}, {place} has `model` and `parameters` only; got {shorten(entry)}.")
        reference = _read_reference(entry["model"], place)
        if reference in [known for known, _ in models]:
            raise RecipeError(f"The {NOUN} lists the model {shorten(reference)} twice; list it once.")
        models.append((reference, _read_parameters(entry.get("parameters"), method, place, list(rule.shared))))
    return tuple(models)


def _read_reference(value: Any, place: str) -> str:
    """A reference to a model as text. Raises RecipeError for LoRA that is added with '+'."""
    if not isinstance(value, str) or not value.strip():
        raise RecipeError(f"In a {NOUN}, a model is a path or a name as text; {place} has {shorten(value)}.")
    if "+" in value:
        raise RecipeError(
            f"In a {NOUN}, {place} adds an adapter with '+': {shorten(value)}. Name the adapter's folder alone; it is "
            "applied to the pretrained model."
        )
    return value.strip()


def _read_parameters(entries: Any, method: str, place: str, shared_only: list[str]) -> Mapping[str, Any]:
    """Parameters of a model or of the config; those in ``shared_only`` are refused where they stand under a model."""
    if entries is None:
        return {}
    if not isinstance(entries, dict):
        raise RecipeError(f"In a {NOUN}, parameters is a mapping such as {{weight: 0.5}}; got {shorten(entries)}.")
    rule = MERGE_METHODS[method]
    known = (*rule.by_model, *rule.shared)
    for name, value in entries.items():
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise RecipeError(
                f"In the {NOUN}, {place}: {method} takes {', '.join(known)}, not {shorten(name)}.{hint} Leave it out."
            )
        if name in shared_only:
            raise RecipeError(
                f"In the {NOUN}, {place}: {name} holds for all models; write it under the config's parameters."
            )
        if value is True and name in REFUSED_TRUE:
            raise RecipeError(f"In the {NOUN}, {name} is true: {REFUSED_TRUE[name]}.")
    return entries


def _read_dtype(data: Mapping[str, Any]) -> str:
    """The dtype of the result, empty if none is stated."""
    for field in ("dtype", "out_dtype"):
        if data.get(field) not in (None, *DTYPES):
            raise RecipeError(f"In a {NOUN}, {field} is {', '.join(DTYPES)} or left out; got {shorten(data[field])}.")
    return str(data.get("out_dtype") or data.get("dtype") or "")


def _check_models(config: MergekitConfig) -> None:
    """Raise RecipeError for a number of models, or a base model, that the method of mergekit does not take."""
    method, count = config.method, len(config.others)
    if config.rule.needs_base and not config.base:
        raise RecipeError(f"The {NOUN} has no base_model, and {method} needs one; name the pretrained model there.")
    if method == "slerp" and count != 1:
        raise RecipeError(f"slerp of mergekit takes the base_model and one other model; got {count} others.")
    if method == "nuslerp" and count != 2:
        raise RecipeError(f"nuslerp of mergekit takes two models besides the base_model; got {count}.")
    if method == "model_stock" and count < 2:
        raise RecipeError(f"model_stock of mergekit takes at least two models besides the base_model; got {count}.")
    if not count:
        raise RecipeError(f"The {NOUN} lists no model besides the base_model; add one under models.")
