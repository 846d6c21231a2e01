"""Few rules that give a table of factors: by expert, block, role, section and kind of tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from merging.methods.factor_rules import SECTIONS, SELECTORS, FactorRule, canonical_name, resolve, rules_text
from merging.models.families import UNMERGED, Parameter

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _TensorGroup:
    """Tensors that one selector, or a group of tensors within one block, names; ``columns`` (L,) are booleans."""

    rule: FactorRule
    columns: NDArray[np.bool_]
    block: int | None = None


def simplify(factors: Table, experts: Sequence[str], parameters: Sequence[Parameter]) -> tuple[FactorRule, ...]:
    """Rules that give exactly these factors (K, L) over a default of 1: the fewest that a greedy search finds.

    A first rule or two may paint a common value everywhere, or by expert, block or role, and the others what differs.
    Rules of several experts, blocks, roles or kinds of tensors count as one.
    """
    merged = [p for p in parameters if p.role not in UNMERGED]
    if factors.shape != (len(experts), len(merged)):
        raise ValueError(f"factors of {len(experts)} experts and {len(merged)} tensors, not {factors.shape}")
    places = _tensor_groups(tuple(merged))
    written: list[list[FactorRule]] = []
    for first in _first_layers(factors, experts, merged):
        base = resolve(first, 1.0, experts, merged).values
        rules = _join_rules([*first, *_cover(factors, base, experts, places)])
        if np.array_equal(resolve(rules, 1.0, experts, merged).values, factors):
            written.append(rules)
    fewest = min(written, key=lambda rules: (len(rules), len(rules_text(rules))))
    return tuple(fewest)


@lru_cache(maxsize=8)  # a canvas asks after every stroke
def _tensor_groups(parameters: tuple[Parameter, ...]) -> tuple[_TensorGroup, ...]:
    return tuple(_each_tensor_group(parameters))


def _each_tensor_group(parameters: Sequence[Parameter]) -> Iterator[_TensorGroup]:
    """Every group of tensors that a rule may name, largest kinds first: all, a role, a section, a kind, a tensor."""

    def place(rule: FactorRule, block: int | None = None) -> _TensorGroup:
        return _TensorGroup(rule, resolve([rule], 1.0, [""], parameters).rules[0] == 1, block)

    blocks = sorted({p.block for p in parameters if p.block is not None})
    roles = sorted({str(p.role) for p in parameters})
    kinds = dict.fromkeys(_block_pattern(p) for p in parameters if p.block is not None)
    groups = [FactorRule(factor=0.0), *(FactorRule(factor=0.0, roles=(role,)) for role in roles)]
    groups += [FactorRule(factor=0.0, tensors=(kind,)) for kind in kinds]
    for group in groups:
        whole = place(group)
        yield whole
        for block in blocks:
            if any(p.block == block and hit for p, hit in zip(parameters, whole.columns, strict=True)):
                yield place(replace(group, blocks=(str(block),)), block)
    for section in SECTIONS:
        if any(p.section == section for p in parameters):
            yield place(FactorRule(factor=0.0, sections=(section,)))
    alike = Counter((_block_pattern(p), p.block) for p in parameters)  # more than one where towers have the same layers
    for p in parameters:
        if p.block is None or _block_pattern(p) == p.name or alike[_block_pattern(p), p.block] > 1:
            yield place(FactorRule(factor=0.0, tensors=(_own_name(p, parameters),)))


def _block_pattern(parameter: Parameter) -> str:
    """A pattern of this tensor in every block: '*.attn.in_proj_weight'."""
    before, _, after = parameter.name.rpartition(f".{parameter.block}.")
    return f"*.{after}" if before else parameter.name


def _own_name(parameter: Parameter, parameters: Sequence[Parameter]) -> str:
    """The shorter of a tensor's two names that is its alone."""
    short = canonical_name(parameter.name)
    return short if [canonical_name(p.name) for p in parameters].count(short) == 1 else parameter.name


def _first_layers(
    factors: Table, experts: Sequence[str], parameters: Sequence[Parameter]
) -> Iterator[list[FactorRule]]:
    """Ways to start: nothing, the commonest value everywhere, or by expert, by block and section, by role."""
    yield []
    if (common := _commonest(factors)) != 1.0:
        yield [FactorRule(factor=common)]
    yield _common_rules(factors, {name: (slice(i, i + 1), slice(None)) for i, name in enumerate(experts)}, "experts")
    places: dict[str, list[int]] = {}
    roles: dict[str, list[int]] = {}
    for i, p in enumerate(parameters):
        if p.block is not None or p.section in SECTIONS:  # no rule names what a tower has before its blocks
            places.setdefault(p.section if p.block is None else str(p.block), []).append(i)
        roles.setdefault(str(p.role), []).append(i)
    sections = {name: (slice(None), places.pop(name)) for name in SECTIONS if name in places}
    blocks = {name: (slice(None), columns) for name, columns in places.items()}
    yield [*_common_rules(factors, blocks, "blocks"), *_common_rules(factors, sections, "sections")]
    yield _common_rules(factors, {name: (slice(None), columns) for name, columns in roles.items()}, "roles")


def _common_rules(factors: Table, parts: Mapping[str, tuple[slice, slice | list[int]]], field: str) -> list[FactorRule]:
    """A rule for every common value other than 1 of these parts of the table."""
    common: dict[float, list[str]] = {}
    for name, part in parts.items():
        common.setdefault(_commonest(factors[part]), []).append(name)
    return [FactorRule(factor=value, **{field: tuple(names)}) for value, names in common.items() if value != 1.0]


def _commonest(factors: Table) -> float:
    values, counts = np.unique(factors, return_counts=True)
    return float(values[counts.argmax()]) if len(values) else 1.0


def _cover(factors: Table, base: Table, experts: Sequence[str], places: Sequence[_TensorGroup]) -> list[FactorRule]:
    """Rules that turn ``base`` into ``factors``, found from the last one to the first.

    A rule may paint over cells that a later one paints, so each takes as many cells of its value as it can.
    """
    members = np.array([place.columns for place in places], float)  # (places, L)
    groups = _joinable_groups(places)
    open_cells, rules = np.ones(factors.shape, bool), []
    while (missing := open_cells & (factors != base)).any():
        options = []
        for value in set(factors[missing]):
            free = members @ (open_cells & (factors != value)).T == 0  # (places, K): no other value is needed there
            gain = np.where(free, members @ (missing & (factors == value)).T, 0)
            options.append((*_best_rule(free, gain, groups), value))
        _, rows, group, value = max(options, key=lambda option: option[0])
        names = () if rows.all() else tuple(name for name, row in zip(experts, rows, strict=True) if row)
        blocks = tuple(_block_ranges([places[i].block for i in group]))
        rules.append(replace(places[group[0]].rule, factor=float(value), experts=names, blocks=blocks))
        open_cells[np.ix_(rows, members[group].any(axis=0))] = False
    return rules[::-1]


def _joinable_groups(places: Sequence[_TensorGroup]) -> Table:
    """Places that one rule can name together, (groups, places): one outside the blocks, or one kind in all blocks."""
    names = [replace(place.rule, blocks=()) if place.block is not None else i for i, place in enumerate(places)]
    groups = list(dict.fromkeys(names))
    return np.array([[name == group for name in names] for group in groups], float)


def _best_rule(
    free: NDArray[np.bool_], gain: Table, groups: Table
) -> tuple[tuple[float, int], NDArray[np.bool_], NDArray[np.intp]]:
    """The experts (K,) and places of the rule that settles most cells, after how many, and how many places it names."""
    together = gain.sum(axis=1) * free.all(axis=1)  # for all experts at once
    totals = groups @ np.column_stack([together, gain])
    group, column = divmod(int(totals.argmax()), totals.shape[1])
    settled = together if column == 0 else gain[:, column - 1]
    chosen = np.flatnonzero(groups[group] * settled)
    rows: NDArray[np.bool_] = np.asarray(free[chosen].all(axis=0))  # every expert in which the same may be painted
    if column:
        rows &= gain[chosen].any(axis=0) | (np.arange(free.shape[1]) == column - 1)
    return (float(gain[chosen][:, rows].sum()), -len(chosen)), rows, chosen


def _block_ranges(blocks: Sequence[int | None]) -> Iterator[str]:
    """'0-2', '4' from 0, 1, 2 and 4; nothing from None."""
    numbers = sorted(block for block in blocks if block is not None)
    while numbers:
        run = [n for i, n in enumerate(numbers) if n == numbers[0] + i]
        yield f"{run[0]}-{run[-1]}"
        numbers = numbers[len(run) :]


def _join_rules(rules: Sequence[FactorRule]) -> list[FactorRule]:
    """The same rules, neighbors of one factor that differ in one selector joined: their order does not matter."""
    joined: list[FactorRule] = []
    for rule in rules:
        for i in reversed(range(len(joined))):
            if joined[i].factor != rule.factor:
                joined.append(rule)
                break
            if union := _join_two(joined[i], rule):
                joined[i] = union
                break
        else:
            joined.append(rule)
    return joined


def _join_two(one: FactorRule, other: FactorRule) -> FactorRule | None:
    """One rule for both, None if they differ in more than one selector or one of them selects all there."""
    selectors, others = ({name: getattr(rule, name) for name in SELECTORS} for rule in (one, other))
    names = [name for name in SELECTORS if selectors[name] != others[name]]
    if len(names) != 1 or not selectors[names[0]] or not others[names[0]]:
        return None
    selectors[names[0]] = tuple(dict.fromkeys((*selectors[names[0]], *others[names[0]])))
    return FactorRule(factor=one.factor, **selectors)
