"""Typed, bounded parameters: one source for validation, error text, slider, card and documentation.

A method declares a frozen dataclass whose fields are made by ``real``, ``integer``, ``choice``, ``flag`` or ``rules``.
All code that shows, reads or checks a parameter uses its ``Bound``, so every range is written once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from merging.base.errors import ParameterError
from merging.base.text import did_you_mean, exact_text
from merging.methods import factor_rules

BOUND = "bound"  # the key of a field's metadata
TABLE = "table"  # the kind of a parameter that holds factor rules: factors for selected tensors
# Names of parameters in papers and other programs, in lower case, and the names that methods here use for the same.
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("lambda", "lamda", "lam", "alpha", "coef", "coefficient", "scale", "scaling_coef",
                     "scaling_coefficient", "scaling_factor", "weight"), ("scaling",)),
    **dict.fromkeys(("k", "topk", "top_k", "keep", "keep_ratio", "trim", "retain", "rho"), ("density", "keep")),
    **dict.fromkeys(("eta", "sparsity", "prune", "prune_rate", "mask_rate"), ("prune_ratio",)),
    **dict.fromkeys(("p", "drop", "dropout", "drop_ratio", "mask_rate"), ("drop_rate",)),
    **dict.fromkeys(("rank", "rank_ratio"), ("rank_fraction", "components")),
    **dict.fromkeys(("learning_rate", "step_size"), ("lr",)),
    **dict.fromkeys(("epochs", "iterations", "iters"), ("steps",)),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The values that a parameter may have, and its texts.

    Values from ``low`` to ``high`` are valid (an open end excludes the limit itself); ``slider`` is the sensible range
    that controls offer. ``optional`` admits None, meaning "unset"; ``unset`` describes the effect of that. ``when``
    names another parameter, declared earlier, and a value: this parameter has an effect only with that value.
    ``later`` marks a parameter that was added after recipes and runs existed: plain data omit it at its default, so
    that their digests and ids stay the same.
    """

    kind: str  # real | integer | choice | flag | table
    default: Any
    label: str
    help: str
    symbol: str = ""  # in formulas, LaTeX
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    slider: tuple[float, float] | None = None
    step: float | None = None  # of the slider
    choices: tuple[str, ...] = ()
    optional: bool = False
    unset: str = ""
    when: tuple[str, Any] | None = None
    later: bool = False

    def describe(self) -> str:
        """The admitted values in words: 'a number in (0, 1]'."""
        if self.kind == "flag":
            text = "true or false"
        elif self.kind == "choice":
            text = "one of " + ", ".join(repr(c) for c in self.choices)
        elif self.kind == TABLE:
            text = f'a list of at most {factor_rules.MAX_RULES} rules such as {{blocks: "0-1", factor: 0}}'
        else:
            noun = "a number" if self.kind == "real" else "a whole number"
            text = f"{noun}{self._describe_range()}"
        return f"{text}, or unset" if self.optional else text

    def _describe_range(self) -> str:
        """The limits in words, to follow 'a number': ' in (0, 1]'; empty without limits."""
        has_low, has_high = math.isfinite(self.low), math.isfinite(self.high)
        if has_low and has_high:
            return (
                f" in {'(' if self.open_low else '['}{self._format_limit(self.low)}, {self._format_limit(self.high)}]"
            )
        if has_low:
            return f" {'above' if self.open_low else 'of at least'} {self._format_limit(self.low)}"
        return f" of at most {self._format_limit(self.high)}" if has_high else ""

    def _format_limit(self, value: float) -> str:
        return str(int(value)) if self.kind == "integer" else f"{value:g}"

    def accepts(self, value: Any) -> bool:
        """Whether ``value`` is admitted without conversion."""
        if value is None:
            return self.optional
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind == "choice":
            return isinstance(value, str) and value in self.choices
        if self.kind == TABLE:
            return not self._find_rule_problem(value)
        types = int if self.kind == "integer" else (int, float)
        if isinstance(value, bool) or not isinstance(value, types) or not math.isfinite(value):
            return False
        is_above_low = value > self.low if self.open_low else value >= self.low
        return is_above_low and value <= self.high

    def refusal(self, value: Any) -> str:
        """Why a value is not admitted, to follow the parameter's name: 'must be a number. Got ... instead.'."""
        problem = self._find_rule_problem(value) if self.kind == TABLE else ""
        return f"must be {self.describe()}{f': {problem}.' if problem else f'. Got {value!r} instead.'}"

    def _find_rule_problem(self, value: Any) -> str:
        """The reason why a value is not a table of rules; empty if it is one."""
        try:
            factor_rules.read_rules(value)
        except ParameterError as error:
            return str(error)
        return ""

    def normalize(self, value: Any) -> Any:
        """An admitted value in the form that ``Params`` stores, so that 1 and 1.0 give one recipe."""
        if self.kind == TABLE:
            return factor_rules.read_rules(value)
        return float(value) if self.kind == "real" and value is not None else value

    def to_plain(self, value: Any) -> Any:
        """A value as plain data, for YAML and JSON."""
        return [rule.to_plain() for rule in value] if self.kind == TABLE else value

    def to_text(self, value: Any) -> str:
        """A value as text that ``parse`` reads back exactly."""
        if self.kind == TABLE:
            return factor_rules.rules_text(factor_rules.read_rules(value))
        if isinstance(value, float):
            return exact_text(value)
        return "none" if value is None else str(value).lower()

    def to_brief_text(self, value: Any) -> str:
        """A value in a few words, for titles: '0.3', 'blocks 0-1 × 0'."""
        if self.kind == TABLE:
            return factor_rules.describe_rules(factor_rules.read_rules(value))
        return f"{value:g}" if isinstance(value, float) else str(value)

    def parse(self, text: str) -> Any:
        """The value written as ``text`` on a command line; raises ValueError if the text is not such a value."""
        word = text.strip()
        if self.optional and word.lower() in {"", "none", "unset"}:
            return None
        if self.kind == "flag":
            return _parse_flag(word)
        if self.kind == "choice":
            return word
        if self.kind == TABLE:
            return factor_rules.parse_rules(word)
        return int(word) if self.kind == "integer" else float(word)


def _parse_flag(word: str) -> bool:
    if word.lower() in {"true", "yes", "on", "1"}:
        return True
    if word.lower() in {"false", "no", "off", "0"}:
        return False
    raise ValueError(f"{word!r} is neither true nor false")


def _make_field(bound: Bound) -> Any:
    return dataclasses.field(default=bound.default, metadata={BOUND: bound})


def real(default: float | None, **bound: Any) -> Any:
    """A field that holds a number; NaN and infinities are refused."""
    return _make_field(Bound(kind="real", default=default, **bound))


def fraction(default: float | None, **bound: Any) -> Any:
    """A field that holds a fraction in [0, 1]; never percent."""
    return real(default, **{"low": 0.0, "high": 1.0, "step": 0.01, **bound})


def integer(default: int | None, **bound: Any) -> Any:
    """A field that holds a whole number."""
    return _make_field(Bound(kind="integer", default=default, **{"step": 1, **bound}))


def choice(*choices: str, **bound: Any) -> Any:
    """A field that holds one of ``choices``; the first is the default."""
    return _make_field(Bound(kind="choice", default=choices[0], choices=choices, **bound))


def flag(default: bool, **bound: Any) -> Any:
    """A field that is on or off."""
    return _make_field(Bound(kind="flag", default=default, **bound))


def rules(**bound: Any) -> Any:
    """A field that holds a table of ``FactorRule``, empty by default. It also takes rules as text or plain mappings."""
    return _make_field(Bound(kind=TABLE, default=(), **bound))


@dataclass(frozen=True, kw_only=True)
class Params:
    """Base of every parameter set: bounded, checked when created, immutable."""

    owner: ClassVar[str] = ""  # the method's key, set at registration, for error messages

    def __post_init__(self) -> None:
        for name, bound in self.bounds().items():
            value = getattr(self, name)
            if not bound.accepts(value):
                raise ParameterError(f"{self._title()}.{name} {bound.refusal(value)}")
            object.__setattr__(self, name, bound.normalize(value))

    @classmethod
    def _title(cls) -> str:
        return cls.owner or cls.__name__

    @classmethod
    def bounds(cls) -> dict[str, Bound]:
        """Parameter name -> Bound, in the order of declaration."""
        return {f.name: f.metadata[BOUND] for f in dataclasses.fields(cls)}

    @classmethod
    def build(cls, values: Mapping[str, Any], owner: str = "") -> Self:
        """Parameters from a mapping; missing ones take their defaults. ``owner`` names the method in error texts.

        Raises:
            ParameterError: a name is unknown (the message suggests the nearest), or a value is out of bounds.
        """
        bounds = cls.bounds()
        for name in values:
            if name not in bounds:
                raise ParameterError(describe_unknown_parameter(owner or cls._title(), str(name), bounds))
        return cls(**values)

    def effective_values(self) -> dict[str, Any]:
        """Parameter name -> value, for the parameters that have an effect with these values of the others."""
        bounds, values = self.bounds(), self.values()
        return {name: value for name, value in values.items() if is_effective(bounds[name], values)}

    def values(self) -> dict[str, Any]:
        """Parameter name -> value, defaults included."""
        return {name: getattr(self, name) for name in self.bounds()}

    def stated_values(self) -> dict[str, Any]:
        """Parameter name -> value, without ``later`` parameters at their defaults."""
        bounds = self.bounds()
        return {
            name: value
            for name, value in self.values().items()
            if not (bounds[name].later and value == bounds[name].default)
        }

    def to_plain(self) -> dict[str, Any]:
        """``stated_values`` as plain data."""
        return {name: self.bounds()[name].to_plain(value) for name, value in self.stated_values().items()}


def is_effective(bound: Bound, values: Mapping[str, Any]) -> bool:
    """Whether a parameter has an effect with these values of the others."""
    return bound.when is None or values.get(bound.when[0]) == bound.when[1]


def describe_unknown_parameter(owner: str, name: str, bounds: Mapping[str, Bound]) -> str:
    """The error message for a parameter that ``owner`` does not have; suggests the parameter of the same meaning."""
    names = ", ".join(bounds) or "no parameters"
    synonym = next((known for known in SYNONYMS.get(name.casefold(), ()) if known in bounds), None)
    hint = f" Did you mean {synonym!r}?" if synonym else did_you_mean(name, bounds)
    return f"{owner} has no parameter {name!r}; it takes {names}.{hint}"


@dataclass(frozen=True, kw_only=True)
class NoParams(Params):
    """The parameters of methods that have none."""
