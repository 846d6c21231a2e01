"""Reading and writing the text form of chains, in links and step by step on the command line.

A link is 'lwptv;ties:density=0.1;surgery:rank=8'. Before it come 'count_dead_params;', 'activation:gelu;',
'architecture:heads=4;', 'exemplars:per_task=9;' and 'test_data:split=reporting;' if a recipe sets them. An adapt is the
last part of a link, without a sign before it, because URLs decode "+" as a space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from merging.base.errors import ParameterError, RecipeError, UnknownMethodError
from merging.methods import registry
from merging.methods.factor_rules import EVERYTHING
from merging.methods.method import Method
from merging.methods.params import TABLE, Bound, Params, describe_unknown_parameter
from merging.models.families import ACTIVATIONS
from merging.models.stated_architecture import StatedArchitecture
from merging.recipes.recipe import Exemplars
from merging.recipes.unlabeled_images import TestData

EXEMPLARS_KEY, TEST_DATA_KEY = "exemplars", "test_data"  # keys of the settings of exemplars and of test data
# Dead, or unused, are the text tensors in the file of an image encoder, which never computes with them.
COUNT_DEAD_KEY = "count_dead_params"
MAX_PROBLEMS = 5  # problems of a chain in one message
ACTIVATION_PREFIX, ARCHITECTURE_PREFIX = "activation:", "architecture:"


@dataclass(frozen=True)
class WrittenChain:
    """The parsed text of a chain: steps as (key, values), and settings of the whole chain."""

    edits: Sequence[tuple[str, Mapping[str, Any]]]
    merge: tuple[str, Mapping[str, Any]]
    exemplars: Mapping[str, Any] = field(default_factory=dict)
    count_dead_params: bool = False
    activation: str = ""
    architecture: str = ""
    adapt: tuple[str, Mapping[str, Any]] | None = None
    test_data: Mapping[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """The chain in one line, without default values."""
        settings = [COUNT_DEAD_KEY] if self.count_dead_params else []
        settings += [ACTIVATION_PREFIX + self.activation] if self.activation else []
        settings += [ARCHITECTURE_PREFIX + self.architecture] if self.architecture else []
        exemplars = exemplars_text(self.exemplars)
        settings += [exemplars] if exemplars != EXEMPLARS_KEY else []
        test_data = _format_part(TEST_DATA_KEY, TestData, self.test_data)
        settings += [test_data] if test_data != TEST_DATA_KEY else []
        steps = [*(step_text(registry.find_edit(key), values) for key, values in self.edits),
                 step_text(registry.find_merge(self.merge[0]), self.merge[1])]  # fmt: skip
        steps += [step_text(registry.find_adapt(self.adapt[0]), self.adapt[1])] if self.adapt else []
        return ";".join([*settings, *steps])


def step_text(method: Method, values: Mapping[str, Any]) -> str:
    """A step without default values: 'ties:density=0.2,scaling=0.3'."""
    return _format_part(method.key, method.params, values)


def exemplars_text(values: Mapping[str, Any]) -> str:
    """The settings of exemplars: 'exemplars:per_task=9', or 'exemplars' if all values are defaults."""
    return _format_part(EXEMPLARS_KEY, Exemplars, values)


def _format_part(key: str, kind: type[Params], values: Mapping[str, Any]) -> str:
    bounds = kind.bounds()
    pairs = [_format_value(n, bounds[n], v) for n, v in values.items() if n in bounds and v != bounds[n].default]
    return key + (":" + ",".join(pairs) if pairs else "")


def _format_value(name: str, bound: Bound, value: Any) -> str:
    """'density=0.2', with all digits of the value, because a rounded value would identify another run.

    A table (a parameter whose value is a list of rules) is written without the parameter's name: 'b0-1=0'.
    """
    return bound.to_text(value) if bound.kind == TABLE else f"{name}={bound.to_text(value)}"


def parse_chain(text: str) -> WrittenChain:
    """The chain in a text that ``WrittenChain.text`` wrote; every step has all its values.

    Raises:
        MergingError: an unknown method or parameter, or a value outside its bounds.
    """
    problems: list[str] = []
    counts_dead, activation, architecture, parts = _split_settings(text)
    exemplars = parse_values(Exemplars, _take_values(EXEMPLARS_KEY, parts))
    test_data = parse_values(TestData, _take_values(TEST_DATA_KEY, parts))
    adapt = parse_step("adapt", parts.pop(), problems) if parts and _is_adapt(parts[-1]) else None
    if not parts:
        raise RecipeError("The chain has no merge.")
    if adapt and _is_adapt(parts[-1]):
        raise RecipeError(f"A recipe has at most one adapt; got {parts[-1].partition(':')[0].strip()} and {adapt[0]}.")
    edits = [parse_step("edit", edit, problems) for edit in parts[:-1]]
    merge, params = parse_step("merge", parts[-1], problems)
    if problems:
        remaining_count = len(problems) - MAX_PROBLEMS
        raise RecipeError(
            " ".join(problems[:MAX_PROBLEMS])
            + (f" And {remaining_count} more problems." if remaining_count > 0 else "")
        )
    return WrittenChain(
        [(key, registry.find_edit(key).params.build(values).values()) for key, values in edits],
        (merge, registry.find_merge(merge).params.build(params).values()),
        exemplars,
        counts_dead,
        activation,
        architecture,
        adapt and (adapt[0], registry.find_adapt(adapt[0]).params.build(adapt[1]).values()),
        test_data,
    )


def _take_values(key: str, parts: list[str]) -> str:
    """The text of the values in the first part if its key is ``key``; the part is then removed. Otherwise empty."""
    if not parts or parts[0].partition(":")[0] != key:
        return ""
    return parts.pop(0).partition(":")[2]


def _is_adapt(step: str) -> bool:
    key = step.partition(":")[0].strip()
    return any(method.role == "adapt" and method.key == key for method in registry.list_methods())


def _split_settings(text: str) -> tuple[bool, str, str, list[str]]:
    """Whether the chain counts unused tensors, its activation, its architecture, and its remaining parts."""
    counts_dead, activation, architecture = text.startswith(f"{COUNT_DEAD_KEY};"), "", ""
    text = text.removeprefix(f"{COUNT_DEAD_KEY};")
    if text.startswith(ACTIVATION_PREFIX):
        activation, _, text = text.removeprefix(ACTIVATION_PREFIX).partition(";")
        if activation not in ACTIVATIONS:
            raise RecipeError(f"An activation is {' or '.join(ACTIVATIONS)}; got {activation[:20]!r}.")
    if text.startswith(ARCHITECTURE_PREFIX):
        stated, _, text = text.removeprefix(ARCHITECTURE_PREFIX).partition(";")
        architecture = StatedArchitecture.parse(stated).text()
    return counts_dead, activation, architecture, text.split(";")


def parse_values(kind: type[Params], text: str) -> dict[str, Any]:
    """The checked values of 'name=value,name=value', and the defaults of all other parameters."""
    bounds = kind.bounds()
    values: dict[str, Any] = {}
    for name, _, word in (pair.partition("=") for pair in text.split(",") if pair):
        try:
            values[name] = bounds[name].parse(word) if name in bounds else word
        except ValueError:
            values[name] = word  # ``build`` below raises the error
    return kind.build(values).values()


def parse_step(role: str, text: str, problems: list[str]) -> tuple[str, dict[str, Any]]:
    """('ties', {'density': 0.1}) from 'ties:density=0.1'; descriptions of errors are added to ``problems``."""
    key, _, values = text.partition(":")
    key = key.strip()
    try:
        method = registry.find_method(role, key)
    except UnknownMethodError as error:
        problems.append(str(error))
        return key, {}
    params = {}
    for part in filter(None, (part.strip() for part in values.split(","))):
        name, equals, value = _split_parameter(part, method.params.bounds())
        if problem := _find_problem(method, name, equals, value):
            problems.append(problem)
        elif name in params and method.params.bounds()[name].kind == TABLE:
            problems.append(f"{method.key}.{name} appears twice; join its rules by '+', as in b0=0+b1=0.")
        else:
            params[name] = method.params.bounds()[name].parse(value)
    return key, params


def parse_test_data(text: str, problems: list[str]) -> dict[str, Any]:
    """Settings of test data from 'reporting:per_task=128' or 'per_task=128'; errors are added to ``problems``."""
    split, colon, values = text.strip().partition(":")
    if not colon and "=" in split:
        split, values = "", split
    try:
        settings = parse_values(TestData, values)
        return TestData.build({**settings, **({"split": split.strip()} if split else {})}).values()
    except ParameterError as error:
        problems.append(str(error))
        return {}


def _split_parameter(part: str, bounds: Mapping[str, Bound]) -> tuple[str, str, str]:
    """The name, '=' and value of one parameter; a table of rules may come without its name, as 'b0-1=0'.

    What stands before the first '=' of such a table has a digit or a dot in it, or is ``all``; a word of letters is a
    parameter's name.
    """
    name, equals, value = (piece.strip() for piece in part.partition("="))
    table = next((parameter for parameter, bound in bounds.items() if bound.kind == TABLE), "")
    unnamed = name == EVERYTHING or not name.replace("_", "").isalpha()
    return (table, "=", part) if table and equals and unnamed else (name, equals, value)


def _find_problem(method: Method, name: str, equals: str, value: str) -> str:
    """The error in one 'name=value'; empty if there is none."""
    bounds = method.params.bounds()
    if not equals:
        return f"{method.key}: write parameters as name=value; got {name!r}."
    if name not in bounds:
        return describe_unknown_parameter(method.key, name, bounds)
    try:
        accepted = bounds[name].accepts(bounds[name].parse(value))
    except ValueError:
        accepted = False
    return "" if accepted else f"{method.key}.{name} {bounds[name].refusal(value)}"
