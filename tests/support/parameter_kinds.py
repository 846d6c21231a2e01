"""The parameters of every method, and a class with every kind of parameter that a later one may bring."""

from __future__ import annotations

from dataclasses import dataclass

from merging.methods import registry
from merging.methods.factor_rules import FactorRule
from merging.methods.params import Params, choice, flag, fraction, integer, real, rules
from merging.recipes.recipe import Exemplars


@dataclass(frozen=True, kw_only=True)
class EveryKind(Params):
    """Every kind of parameter that a later method may bring."""

    rate: float = real(1e-5, low=0.0, open_low=True, label="Rate", help="A small number.")
    steps: int = integer(300, low=1, high=100_000, label="Steps", help="A large whole number.")
    few: int = integer(4, low=1, high=16, label="Few", help="A small whole number.")
    share: float = fraction(0.5, label="Share", help="A fraction.")
    tiny: float = real(1e-6, low=0.0, label="Tiny", help="A floor.")
    cut: float | None = real(None, low=0.0, high=1.0, optional=True, unset="1/K", label="Cut", help="May be unset.")
    mode: str = choice("a", "b", label="Mode", help="Two.")
    many: str = choice(*"abcdef", label="Many", help="Six.")
    table: tuple[FactorRule, ...] = rules(label="Table", help="Rules.")
    on: bool = flag(True, label="On", help="A switch.")


KINDS = {method.key: method.params for method in registry.list_methods()}
KINDS |= {"every_kind": EveryKind, "exemplars": Exemplars}
