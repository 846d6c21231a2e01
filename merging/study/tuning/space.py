"""The space of a tuning: ranges and choices of a chain's parameters, of its edits, and of coefficients.

An entry is a name with a text. Names are those of sweeps, such as "ties.density", of any parameter; "edits", the edits
before the merge; and "coefficients", factors of every expert's task vector, or "coefficients.0-3" of those of some
blocks. Texts are ranges as 0.1:0.9, and choices as 0.1|0.2 or none|lwptv|magnitude:prune_ratio=0.2. Without a text, the
range is that of the parameter's slider, and choices are all of the parameter's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from merging.base.errors import MergingError, ParameterError, RecipeError
from merging.base.text import exact_text, printable
from merging.methods.edits.manual import ManualParams
from merging.methods.factor_rules import MAX_FACTOR, SECTIONS
from merging.methods.params import Bound
from merging.recipes.chain_text import parse_step
from merging.recipes.recipe import Recipe
from merging.study.sweeps.sweep_target import EXPERTS, NUMBER_KINDS, find_target, list_targets, vary_recipe

EDITS, COEFFICIENTS, NONE, OR = "edits", "coefficients", "none", "|"
KINDS = (*NUMBER_KINDS, "flag", "choice")  # of parameters
MAX_DIMENSIONS, MAX_CHOICES = 64, 50
COEFFICIENT = Bound(kind="real", default=1.0, label="Coefficient", low=-MAX_FACTOR, high=MAX_FACTOR, slider=(0.0, 2.0),
                    help="Factor of an expert's task vector in some blocks.")  # fmt: skip
Value = float | int | str | bool
Values = Mapping[str, Value]  # {name of a dimension: its value}


@dataclass(frozen=True, slots=True)
class Dimension:
    """One thing that a search varies: a number from ``low`` to ``high``, or one of the ``choices``.

    ``expert`` and ``blocks`` are those of a coefficient; without blocks it is that of the whole task vector.
    """

    name: str
    label: str
    low: float = math.nan
    high: float = math.nan
    is_whole: bool = False
    choices: tuple[Value, ...] = ()
    expert: str = ""
    blocks: str = ""


@dataclass(frozen=True)
class Space:
    """A checked space of a recipe; ``entries`` are pairs of a name and a text.

    Raises:
        ParameterError: it is empty or too large, or an entry is no range or choice within the parameter's bounds.
        RecipeError: the recipe has no such parameter.
    """

    recipe: Recipe
    entries: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        if not self.entries:
            raise ParameterError("The space is empty; name at least one parameter, such as ties.density=0.1:0.9.")
        names = [dimension.name for dimension in self.dimensions]
        if repeated := next((name for name in names if names.count(name) > 1), ""):
            raise ParameterError(f"The space names {repeated!r} twice; keep one of the entries.")
        if len(names) > MAX_DIMENSIONS:
            raise ParameterError(f"A space has at most {MAX_DIMENSIONS} dimensions; this one has {len(names)}.")

    @cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """What the search varies, in the order of the entries; the choice of edits is first."""
        entries = sorted(self.entries, key=lambda entry: entry[0] != EDITS)
        return tuple(dimension for name, text in entries for dimension in self._read_entry(name, text.strip()))

    @cached_property
    def _by_edits(self) -> dict[str, Recipe]:
        """The recipe with each choice of edits, {"" : the recipe} if these are not varied."""
        texts = [text for name, text in self.entries if name == EDITS]
        return {word: _with_edits(self.recipe, word) for word in _split_choices(EDITS, texts[0])} if texts else {
            "": self.recipe
        }  # fmt: skip

    def _read_entry(self, name: str, text: str) -> list[Dimension]:
        if name == EDITS:
            return [Dimension(EDITS, "Edits", choices=tuple(self._by_edits))]
        owner, _, blocks = name.partition(".")
        if owner == COEFFICIENTS:
            _make_rules({expert: 1.0 for expert, _ in self.recipe.experts}, blocks)  # raises for malformed blocks
            where = f", {blocks if blocks in SECTIONS else f'blocks {blocks}'}" if blocks else ""
            return [
                replace(
                    _read_dimension(f"{name} {expert}", f"Coefficient of {expert}{where}", COEFFICIENT, text),
                    expert=expert, blocks=blocks,
                )
                for expert, _ in self.recipe.experts
            ]  # fmt: skip
        if name == EXPERTS:
            raise ParameterError("The number of experts cannot be tuned: its averages are over different tasks.")
        refusals = []
        for recipe in self._by_edits.values():
            try:
                target = find_target([recipe], name, KINDS)
            except RecipeError as refusal:
                refusals.append(refusal)
            else:
                return [_read_dimension(target.name, target.title, target.bound, text)]
        raise refusals[0]

    def choose(self, pick: Callable[[Dimension], Value]) -> dict[str, Value]:
        """The values that ``pick`` gives to the dimensions; parameters of edits that it did not choose have none."""
        values: dict[str, Value] = {}
        known: set[str] = set()
        for dimension in self.dimensions:
            if not known and dimension.name != EDITS:
                recipe = self._by_edits[str(values.get(EDITS, ""))]
                known = {target.name for target in list_targets([recipe], KINDS)}
            if dimension.expert or dimension.name == EDITS or dimension.name in known:
                values[dimension.name] = pick(dimension)
        return values

    def apply(self, values: Values) -> Recipe:
        """The recipe with these values. Raises RecipeError or ParameterError if the chain is invalid with them."""
        recipe = self._by_edits[str(values.get(EDITS, ""))]
        coefficients: dict[str, dict[str, float]] = {}
        for dimension in self.dimensions:
            if dimension.name == EDITS or dimension.name not in values:
                continue
            value = values[dimension.name]
            if dimension.expert:
                coefficients.setdefault(dimension.blocks, {})[dimension.expert] = float(value)
            else:
                recipe = vary_recipe(recipe, dimension.name, value)
        if coefficients:
            rules = [rule for blocks in sorted(coefficients) for rule in _make_rules(coefficients[blocks], blocks)]
            plain = recipe.to_plain()
            recipe = Recipe.from_plain(plain | {"edits": [*plain["edits"], {"manual": {"rules": rules}}]})
        return replace(recipe, title="")


def _with_edits(recipe: Recipe, text: str) -> Recipe:
    """The recipe with the edits in a text such as 'magnitude:prune_ratio=0.2;lwptv', or without edits for 'none'."""
    problems: list[str] = []
    words = [] if text == NONE else text.split(";")
    steps = [{key: values} for key, values in (parse_step("edit", word, problems) for word in words)]
    if problems:
        raise RecipeError(f"{EDITS}={printable(text)[:60]}: {problems[0]}")
    return replace(Recipe.from_plain(recipe.to_plain() | {"edits": steps}), title="")


def _make_rules(factors: Mapping[str, float], blocks: str) -> list[dict[str, Any]]:
    """Rules of the manual edit that multiply experts' task vectors in some blocks, or a section, by their factors."""
    selector = {} if not blocks else {"sections": blocks} if blocks in SECTIONS else {"blocks": blocks}
    rules = [{"experts": expert, **selector, "factor": factor} for expert, factor in factors.items()]
    try:
        ManualParams.build({"rules": rules})
    except MergingError as error:
        raise ParameterError(f"{COEFFICIENTS}.{blocks}: {error}") from None
    return rules


def _read_dimension(name: str, label: str, bound: Bound, text: str) -> Dimension:
    """The dimension in the text of an entry. Raises ParameterError if the text is none within the bound."""
    if bound.kind not in NUMBER_KINDS or OR in text:
        words = _split_choices(name, text) if text else [bound.to_text(v) for v in bound.choices or (False, True)]
        return Dimension(name, label, choices=tuple(_read_value(name, word, bound) for word in words))
    is_whole = bound.kind == "integer"
    if text:
        parts = text.split(":")
        if len(parts) != 2:
            raise ParameterError(f"{name}: write a range as 0.1:0.9 or choices as 0.1|0.2; got {text[:40]!r}.")
        low, high = (_read_value(name, part, bound) for part in parts)
    else:
        low, high = bound.slider or (bound.low, bound.high)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ParameterError(f"{name} has no range of its own; write one, as in {name}=0.1:0.9.")
        low = low + (high - low) / 100 if bound.open_low and low == bound.low and not is_whole else low
    if not float(low) < float(high):
        raise ParameterError(f"{name}: the range {text[:40]} is empty; its first number is smaller than its last.")
    return Dimension(name, label, float(low), float(high), is_whole)


def _split_choices(name: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(OR)]
    if len(set(words)) < max(len(words), 2) or "" in words or len(words) > MAX_CHOICES:
        raise ParameterError(
            f"{name}: write 2 to {MAX_CHOICES} different choices as in {name}=a{OR}b; got {text[:40]!r}."
        )
    return words


def _read_value(name: str, word: str, bound: Bound) -> Any:
    """The value in a word. Raises ParameterError if it is none of the bound."""
    try:
        value = bound.parse(word)
    except ValueError:
        value = word
    if value is None or not bound.accepts(value):
        raise ParameterError(f"{name} {bound.refusal(word)}")
    return value


def parse_entries(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Entries from texts such as 'ties.density=0.1:0.9' or 'ties.density'."""
    parts = [text.partition("=") for text in texts]
    return tuple((name.strip(), values.strip()) for name, _, values in parts)


def write_values(values: Values) -> str:
    """Values in words: 'ties.density 0.31, edits none'."""
    return ", ".join(f"{name} {exact_text(round(v, 4)) if isinstance(v, float) else v}" for name, v in values.items())
