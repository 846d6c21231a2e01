"""Values of mergekit's parameters: numbers, lists over the layers, and filters by a tensor's name.

A list is spread over the network's blocks and interpolated; tensors outside the blocks take its first number. Of
filters, the first whose text is in the tensor's name decides; an entry without a filter fits every tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from merging.base.errors import ParameterError, RecipeError
from merging.base.text import printable
from merging.methods.factor_rules import FactorRule, read_rules
from merging.models.families import UNMERGED, Parameter
from merging.recipes.chain_rules import shorten
from merging.recipes.mergekit.config import NOUN, MergekitConfig
from merging.recipes.mergekit.merge_methods import FLAGS, REQUIRED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]  # (K, L), or (K, 1) if no value depends on the tensor


@dataclass(frozen=True)
class NetworkTensor:
    """A tensor that is merged, and its names in the model's file: three if query, key and value are separate there."""

    parameter: Parameter
    stored: tuple[str, ...]


def is_plain(setting: Any) -> bool:
    """Whether a setting has one value for all tensors."""
    return isinstance(setting, bool | int | float | str)


class ConfigValues:
    """The values of a config's parameters by tensor; ``tensors`` are those that are merged, the columns of values."""

    def __init__(self, config: MergekitConfig, tensors: Sequence[NetworkTensor]) -> None:
        self._config = config
        self.tensors = tuple(tensor for tensor in tensors if tensor.parameter.role not in UNMERGED)

    def flag(self, name: str) -> bool:
        """A parameter that is true or false. Raises RecipeError for anything else, also for one that varies."""
        value = self._config.parameters.get(name, self._config.rule.default(name))
        if not isinstance(value, bool):
            raise RecipeError(f"In a {NOUN}, {name} is true or false for the whole model here; got {shorten(value)}.")
        return value

    def number(self, name: str, values: Values | None = None) -> float:
        """A shared parameter, or these values of one, as one number. Raises RecipeError if it varies."""
        import numpy as np

        values = self.read_common(name) if values is None else values
        if np.ptp(values) > 0:
            raise RecipeError(
                f"In the {NOUN}, {name} varies by model, layer or tensor, and the method has one number for all here; "
                "write one number."
            )
        return float(values.flat[0])

    def read_common(self, name: str) -> Values:
        """A parameter for all models, (1, L) or (1, 1)."""
        return self._evaluate(name, [("", [self._config.parameters])])

    def by_model(self, name: str, references: Sequence[str]) -> Values:
        """A parameter of every model, (K, L) or (K, 1)."""
        stated = dict(self._config.models)
        return self._evaluate(name, [(ref, [stated.get(ref, {}), self._config.parameters]) for ref in references])

    def _evaluate(self, name: str, rows: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> Values:
        """The values of a parameter for rows of (model, its mappings of settings, the first that fits counts)."""
        import numpy as np

        varies = any(name in scope and not is_plain(scope[name]) for _, scopes in rows for scope in scopes)
        columns: Sequence[NetworkTensor | None] = self.tensors if varies else [None]
        last = max((t.parameter.block for t in columns if t and t.parameter.block is not None), default=-1)
        found = [[self._value_of(name, model, scopes, tensor, last) for tensor in columns] for model, scopes in rows]
        return np.array(found, dtype=np.float64).reshape(len(rows), len(columns))

    def _value_of(
        self, name: str, model: str, scopes: Sequence[Mapping[str, Any]], tensor: NetworkTensor | None, last: int
    ) -> float:
        """The value for one tensor; None stands for every tensor."""
        names = tensor.stored if tensor else ("",)
        values = {self._value_of_name(name, model, scopes, stored, _depth(tensor, last)) for stored in names}
        if len(values) > 1:
            raise RecipeError(
                f"In the {NOUN}, a filter of {name} divides {printable(', '.join(names))}, which is one tensor here; "
                "use a filter that fits query, key and value alike."
            )
        return values.pop()

    def _value_of_name(
        self, name: str, model: str, scopes: Sequence[Mapping[str, Any]], stored: str, depth: float
    ) -> float:
        for scope in scopes:
            value = evaluate(name, scope[name], stored, depth) if name in scope else None
            if value is not None:
                return value
        default = self._config.rule.default(name)
        if default is REQUIRED:
            owner = f" of the model {shorten(model)}" if model else ""
            place = f" for the tensor {printable(stored)}" if stored else ""
            raise RecipeError(f"The {NOUN} has no {name}{owner}{place}, and {self._config.method} needs it; add it.")
        return float(default)


def _depth(tensor: NetworkTensor | None, last: int) -> float:
    """The position of a tensor's block in [0, 1]; 0 outside the blocks, 1 in a network of one block."""
    block = tensor.parameter.block if tensor else None
    if block is None:
        return 0.0
    return block / last if last > 0 else 1.0


def evaluate(name: str, setting: Any, stored: str, depth: float) -> float | None:
    """The value of a setting for the tensor of this name and depth; None if no filter fits.

    Raises:
        RecipeError: the setting is no number, list of numbers, or list of filters.
    """
    if is_plain(setting):
        return _number(name, setting)
    entries = [setting] if isinstance(setting, dict) else setting
    if isinstance(entries, list) and entries and all(map(is_plain, entries)):
        values = [_number(name, entry) for entry in entries]
        position = depth * (len(values) - 1)
        low = int(position)
        high = min(len(values) - 1, low + 1)
        return (1 - (position - low)) * values[low] + (position - low) * values[high]
    if not isinstance(entries, list) or not entries:
        raise RecipeError(
            f"In the {NOUN}, {name} is a number, a list of numbers or of filters; got {shorten(setting)}."
        )
    for entry in entries:
        if not isinstance(entry, dict) or "value" not in entry or not {"filter", "value"} >= set(entry):
            raise RecipeError(
                f"In the {NOUN}, an entry of {name} has `value` and perhaps `filter`; got {shorten(entry)}."
            )
        if isinstance(entry["value"], dict) or (
            isinstance(entry["value"], list) and not all(map(is_plain, entry["value"]))
        ):
            raise RecipeError(f"In the {NOUN}, the value of a filter of {name} is a number or a list of numbers.")
        word = entry.get("filter")
        if word is None or word == "*" or (stored and str(word) in stored):
            return evaluate(name, entry["value"], stored, depth)
    return None


def _number(name: str, value: Any) -> float:
    """A value of a parameter as a number; texts such as 1e-5 are numbers, too."""
    try:
        number = float(value) if not isinstance(value, bool) or name in FLAGS else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise RecipeError(f"In the {NOUN}, {name} is a number; got {shorten(value)}.")
    return number


def write_rules(
    name: str, values: Values, experts: Sequence[str], tensors: Sequence[NetworkTensor]
) -> list[dict[str, Any]]:
    """Values (K, L) or (K, 1) as rules of factors, plain data; none where every value is 1.

    With no ``experts``, the one row of values holds for all.

    Raises:
        RecipeError: a value is too large for a factor, or there are too many rules.
    """
    import numpy as np

    from merging.methods.simplify_factors import simplify

    try:
        if np.ptp(values, axis=1).max() == 0:
            rules = _rules_by_expert(values[:, 0].tolist(), experts)
        else:
            rules = list(simplify(values, experts or ["all"], [tensor.parameter for tensor in tensors]))
        return [rule.to_plain() for rule in read_rules(rules)]
    except ParameterError as error:
        raise RecipeError(f"In the {NOUN}, the values of {name} cannot be written as factors: {error}.") from None


def _rules_by_expert(values: Sequence[float], experts: Sequence[str]) -> list[FactorRule]:
    """Rules for one value per expert."""
    if len(set(values)) == 1:
        return [FactorRule(factor=values[0])] if values[0] != 1.0 else []
    groups: dict[float, list[str]] = {}
    for value, expert in zip(values, experts, strict=True):
        groups.setdefault(value, []).append(expert)
    return [FactorRule(factor=value, experts=tuple(names)) for value, names in groups.items() if value != 1.0]
