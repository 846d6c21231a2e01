"""Factors by expert and tensor as a parameter of a method: its field, its values for a slot, its part of ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from merging.methods.factor_rules import FactorRule, find_factors, resolve
from merging.methods.params import Params, rules
from merging.models.families import Parameter, stored_tensor_name

if TYPE_CHECKING:
    from merging.methods.slot import Slot

LEAST_NORM = 1e-7  # tensors whose sum of absolute values is below this are not rescaled, as in mergekit


def factor_field(label: str, help: str, when: tuple[str, Any] | None = None) -> Any:
    """The field of factors by expert and tensor, empty by default; ``help`` states what they multiply."""
    return rules(label=label, help=f"{help} Rules as in the edit manual.", when=when, later=True)


def slot_factors(slot: Slot, table: Sequence[FactorRule]) -> tuple[float, ...]:
    """Every expert's factor of this slot's tensor, (K,); 1 where no rule applies.

    Query, key and value of a packed tensor have the factors of that tensor.
    """
    parameter = replace(slot.parameter, name=stored_tensor_name(slot.name))
    return find_factors(tuple(table), 1.0, slot.experts, parameter)


def as_rows(values: Sequence[float], vectors: Tensor) -> Tensor:
    """Numbers (K,) as a tensor (K, 1, ...) that multiplies vectors (K, *S)."""
    return vectors.new_tensor(values).reshape(-1, *[1] * (vectors.dim() - 1))


def keep_size(vectors: Tensor, kept: Tensor) -> Tensor:
    """``kept`` (K, *S), each row times the factor that restores the sum of absolute values of ``vectors`` (K, *S).

    Rows whose sum is nearly 0, before or after, are unchanged.
    """
    before, after = (rows.flatten(1).abs().double().sum(dim=1) for rows in (vectors, kept))
    usable = (before >= LEAST_NORM) & (after >= LEAST_NORM)
    scale = (before / after).where(usable, before.new_ones(())).to(kept)
    return kept * scale.reshape(-1, *[1] * (kept.dim() - 1))


def content_with(name: str) -> Callable[[Any, Sequence[str], Sequence[Parameter]], dict[str, Any]]:
    """The ``content`` of a method whose parameter ``name`` holds such factors.

    It is the step's plain data, with the digest of the factors in place of the rules, which can be written in several
    ways. The function raises ParameterError if a rule names tensors or experts that do not exist.
    """

    def content(params: Params, experts: Sequence[str], parameters: Sequence[Parameter]) -> dict[str, Any]:
        plain = params.to_plain()
        if name in plain:
            plain[name] = resolve(getattr(params, name), 1.0, experts, parameters).digest
        return plain

    return content
