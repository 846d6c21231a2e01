"""The text form of chains, read and written: in links, and step by step on the command line.

A link is 'lwptv;ties:density=0.1;surgery:rank=8', after 'count_dead_params;', 'activation:gelu;',
'architecture:heads=4;', 'exemplars:per_task=9;' and 'test_data:split=reporting;' where a recipe sets them. An adapt is
the last part of a link and has no sign before it, because "+" does not survive in addresses.
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

EXEMPLARS, TEST_DATA = "exemplars", "test_data"  # the keys of what says how exemplars and test data are drawn
COUNT_DEAD = "count_dead_params"
MOST_PROBLEMS = 5  # of a chain that are said at once
ACTIVATION, ARCHITECTURE = "activation:", "architecture:"


@dataclass(frozen=True)
class WrittenChain:
    """What the text of a chain says: steps as (key, values), and what goes for all of them."""

    edits: Sequence[tuple[str, Mapping[str, Any]]]
    merge: tuple[str, Mapping[str, Any]]
    exemplars: Mapping[str, Any] = field(default_factory=dict)
    count_dead_params: bool = False
    activation: str = ""
    architecture: str = ""
    adapt: tuple[str, Mapping[str, Any]] | None = None
    test_data: Mapping[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """The chain in one line, without values that are defaults."""
        settings = [COUNT_DEAD] if self.count_dead_params else []
        settings += [ACTIVATION + self.activation] if self.activation else []
        settings += [ARCHITECTURE + self.architecture] if self.architecture else []
        exemplars = exemplars_text(self.exemplars)
        settings += [exemplars] if exemplars != EXEMPLARS else []
        test_data = _with_values(TEST_DATA, TestData, self.test_data)
        settings += [test_data] if test_data != TEST_DATA else []
        steps = [*(step_text(registry.find_edit(key), values) for key, values in self.edits),
                 step_text(registry.find_merge(self.merge[0]), self.merge[1])]  # fmt: skip
        steps += [step_text(registry.find_adapt(self.adapt[0]), self.adapt[1])] if self.adapt else []
        return ";".join([*settings, *steps])


def step_text(method: Method, values: Mapping[str, Any]) -> str:
    """A step without values that are defaults: 'ties:density=0.2,scaling=0.3'."""
    return _with_values(method.key, method.params, values)


def exemplars_text(values: Mapping[str, Any]) -> str:
    """How exemplars are drawn: 'exemplars:per_task=9', or 'exemplars' if all values are defaults."""
    return _with_values(EXEMPLARS, Exemplars, values)


def _with_values(key: str, kind: type[Params], values: Mapping[str, Any]) -> str:
    bounds = kind.bounds()
    pairs = [_pair(n, bounds[n], v) for n, v in values.items() if n in bounds and v != bounds[n].default]
    return key + (":" + ",".join(pairs) if pairs else "")


def _pair(name: str, bound: Bound, value: Any) -> str:
    """'density=0.2', with the value as it reads back exactly: another number would be another run.

    A table stands for itself: 'b0-1=0'.
    """
    return bound.to_text(value) if bound.kind == TABLE else f"{name}={bound.to_text(value)}"


def parse_chain(text: str) -> WrittenChain:
    """The chain of a text as ``WrittenChain.text`` writes it; every step has all its values.

    Raises:
        MergingError: an unknown method or parameter, or a value outside its bounds.
    """
    problems: list[str] = []
    dead, activation, architecture, rest = _settings(text)
    exemplars = parse_values(Exemplars, _take_piece(EXEMPLARS, rest))
    test_data = parse_values(TestData, _take_piece(TEST_DATA, rest))
    top = parse_step("adapt", rest.pop(), problems) if rest and _is_adapt(rest[-1]) else None
    if not rest:
        raise RecipeError("The chain has no merge.")
    if top and _is_adapt(rest[-1]):
        raise RecipeError(f"A recipe has at most one adapt; got {rest[-1].partition(':')[0].strip()} and {top[0]}.")
    edits = [parse_step("edit", edit, problems) for edit in rest[:-1]]
    merge, given = parse_step("merge", rest[-1], problems)
    if problems:
        more = len(problems) - MOST_PROBLEMS
        raise RecipeError(" ".join(problems[:MOST_PROBLEMS]) + (f" And {more} more problems." if more > 0 else ""))
    return WrittenChain(
        [(key, registry.find_edit(key).params.build(values).values()) for key, values in edits],
        (merge, registry.find_merge(merge).params.build(given).values()),
        exemplars,
        dead,
        activation,
        architecture,
        top and (top[0], registry.find_adapt(top[0]).params.build(top[1]).values()),
        test_data,
    )


def _take_piece(key: str, pieces: list[str]) -> str:
    """What the first piece says of ``key``, which is taken away; empty if it is of something else."""
    if not pieces or pieces[0].partition(":")[0] != key:
        return ""
    return pieces.pop(0).partition(":")[2]


def _is_adapt(step: str) -> bool:
    key = step.partition(":")[0].strip()
    return any(method.role == "adapt" and method.key == key for method in registry.list_methods())


def _settings(text: str) -> tuple[bool, str, str, list[str]]:
    """Whether the chain counts unused tensors, the activation and architecture that it names, and the rest of it."""
    dead, activation, architecture = text.startswith(f"{COUNT_DEAD};"), "", ""
    text = text.removeprefix(f"{COUNT_DEAD};")
    if text.startswith(ACTIVATION):
        activation, _, text = text.removeprefix(ACTIVATION).partition(";")
        if activation not in ACTIVATIONS:
            raise RecipeError(f"An activation is {' or '.join(ACTIVATIONS)}; got {activation[:20]!r}.")
    if text.startswith(ARCHITECTURE):
        written, _, text = text.removeprefix(ARCHITECTURE).partition(";")
        architecture = StatedArchitecture.parse(written).text()
    return dead, activation, architecture, text.split(";")


def parse_values(kind: type[Params], text: str) -> dict[str, Any]:
    """The checked values in 'name=value,name=value', with the defaults of the others."""
    bounds = kind.bounds()
    values: dict[str, Any] = {}
    for name, _, word in (pair.partition("=") for pair in text.split(",") if pair):
        try:
            values[name] = bounds[name].parse(word) if name in bounds else word
        except ValueError:
            values[name] = word  # the check below says what is wrong
    return kind.build(values).values()


def parse_step(role: str, text: str, problems: list[str]) -> tuple[str, dict[str, Any]]:
    """('ties', {'density': 0.1}) from 'ties:density=0.1'; what is wrong is added to ``problems``."""
    key, _, rest = text.partition(":")
    key = key.strip()
    try:
        method = registry.find_method(role, key)
    except UnknownMethodError as error:
        problems.append(str(error))
        return key, {}
    params = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        name, equals, value = _named(part, method.params.bounds())
        if problem := _problem(method, name, equals, value):
            problems.append(problem)
        elif name in params and method.params.bounds()[name].kind == TABLE:
            problems.append(f"{method.key}.{name} is given twice; join its rules by '+', as in b0=0+b1=0.")
        else:
            params[name] = method.params.bounds()[name].parse(value)
    return key, params


def parse_test_data(text: str, problems: list[str]) -> dict[str, Any]:
    """Settings of test data from 'reporting:per_task=128' or 'per_task=128'; what is wrong is added to ``problems``."""
    split, colon, values = text.strip().partition(":")
    if not colon and "=" in split:
        split, values = "", split
    try:
        settings = parse_values(TestData, values)
        return TestData.build({**settings, **({"split": split.strip()} if split else {})}).values()
    except ParameterError as error:
        problems.append(str(error))
        return {}


def _named(part: str, bounds: Mapping[str, Bound]) -> tuple[str, str, str]:
    """The name, '=' and value of one parameter; a table of rules may stand without its name.

    Its first selector has a digit or a dot in it, or is ``all``; a word of letters is a parameter's name.
    """
    name, equals, value = (piece.strip() for piece in part.partition("="))
    table = next((own for own, bound in bounds.items() if bound.kind == TABLE), "")
    unnamed = name == EVERYTHING or not name.replace("_", "").isalpha()
    return (table, "=", part) if table and equals and unnamed else (name, equals, value)


def _problem(method: Method, name: str, equals: str, value: str) -> str:
    """What is wrong with one 'name=value'; empty if nothing is."""
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
