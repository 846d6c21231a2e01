"""Writes a table of factors as few rules: by expert, block, role, section and kind of tensor."""

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
    """Tensors that one rule can select; ``columns`` (L,) are booleans, ``block`` is None outside the blocks."""

    rule: FactorRule
    columns: NDArray[np.bool_]
    block: int | None = None


def simplify(factors: Table, experts: Sequence[str], parameters: Sequence[Parameter]) -> tuple[FactorRule, ...]:
    """The fewest rules that a greedy search finds for exactly these factors (K, L), with a default of 1.

    The first rules may set a common value everywhere, or by expert, block or role; the others set what differs. A rule
    for several experts, blocks, roles or kinds of tensors counts as one. L counts the tensors that are merged.
    """
    merged = [p for p in parameters if p.role not in UNMERGED]
    if factors.shape != (len(experts), len(merged)):
        raise ValueError(f"factors of {len(experts)} experts and {len(merged)} tensors, not {factors.shape}")
    groups = _tensor_groups(tuple(merged))
    written: list[list[FactorRule]] = []
    for first in _first_layers(factors, experts, merged):
        base = resolve(first, 1.0, experts, merged).values
        rules = _join_rules([*first, *_cover(factors, base, experts, groups)])
        if np.array_equal(resolve(rules, 1.0, experts, merged).values, factors):
            written.append(rules)
    fewest = min(written, key=lambda rules: (len(rules), len(rules_text(rules))))
    return tuple(fewest)


@lru_cache(maxsize=8)  # the canvas calls it after every stroke
def _tensor_groups(parameters: tuple[Parameter, ...]) -> tuple[_TensorGroup, ...]:
    return tuple(_each_tensor_group(parameters))


def _each_tensor_group(parameters: Sequence[Parameter]) -> Iterator[_TensorGroup]:
    """Every group of tensors that a rule may select: all, roles and kinds (also by block), sections, single tensors."""

    def make_group(rule: FactorRule, block: int | None = None) -> _TensorGroup:
        return _TensorGroup(rule, resolve([rule], 1.0, [""], parameters).rules[0] == 1, block)

    blocks = sorted({p.block for p in parameters if p.block is not None})
    roles = sorted({str(p.role) for p in parameters})
    kinds = dict.fromkeys(_block_pattern(p) for p in parameters if p.block is not None)
    selections = [FactorRule(factor=0.0), *(FactorRule(factor=0.0, roles=(role,)) for role in roles)]
    selections += [FactorRule(factor=0.0, tensors=(kind,)) for kind in kinds]
    for rule in selections:
        whole = make_group(rule)
        yield whole
        for block in blocks:
            if any(p.block == block and hit for p, hit in zip(parameters, whole.columns, strict=True)):
                yield make_group(replace(rule, blocks=(str(block),)), block)
    for section in SECTIONS:
        if any(p.section == section for p in parameters):
            yield make_group(FactorRule(factor=0.0, sections=(section,)))
    alike = Counter((_block_pattern(p), p.block) for p in parameters)  # more than one where towers have the same layers
    for p in parameters:
        if p.block is None or _block_pattern(p) == p.name or alike[_block_pattern(p), p.block] > 1:
            yield make_group(FactorRule(factor=0.0, tensors=(_own_name(p, parameters),)))


def _block_pattern(parameter: Parameter) -> str:
    """A pattern for this tensor in every block: '*.attn.in_proj_weight'."""
    before, _, after = parameter.name.rpartition(f".{parameter.block}.")
    return f"*.{after}" if before else parameter.name


def _own_name(parameter: Parameter, parameters: Sequence[Parameter]) -> str:
    """The shorter of a tensor's two names that no other tensor has."""
    short = canonical_name(parameter.name)
    return short if [canonical_name(p.name) for p in parameters].count(short) == 1 else parameter.name


def _first_layers(
    factors: Table, experts: Sequence[str], parameters: Sequence[Parameter]
) -> Iterator[list[FactorRule]]:
    """First rules to try: none, or the commonest value everywhere, by expert, by block and section, or by role."""
    yield []
    if (common := _commonest(factors)) != 1.0:
        yield [FactorRule(factor=common)]
    yield _common_rules(factors, {name: (slice(i, i + 1), slice(None)) for i, name in enumerate(experts)}, "experts")
    positions: dict[str, list[int]] = {}
    roles: dict[str, list[int]] = {}
    for i, p in enumerate(parameters):
        if p.block is not None or p.section in SECTIONS:  # no rule selects a tower's tensors before its blocks
            positions.setdefault(p.section if p.block is None else str(p.block), []).append(i)
        roles.setdefault(str(p.role), []).append(i)
    sections = {name: (slice(None), positions.pop(name)) for name in SECTIONS if name in positions}
    blocks = {name: (slice(None), columns) for name, columns in positions.items()}
    yield [*_common_rules(factors, blocks, "blocks"), *_common_rules(factors, sections, "sections")]
    yield _common_rules(factors, {name: (slice(None), columns) for name, columns in roles.items()}, "roles")


def _common_rules(factors: Table, parts: Mapping[str, tuple[slice, slice | list[int]]], field: str) -> list[FactorRule]:
    """A rule for every value other than 1 that is the commonest in some of these parts of the table (K, L)."""
    common: dict[float, list[str]] = {}
    for name, part in parts.items():
        common.setdefault(_commonest(factors[part]), []).append(name)
    return [FactorRule(factor=value, **{field: tuple(names)}) for value, names in common.items() if value != 1.0]


def _commonest(factors: Table) -> float:
    values, counts = np.unique(factors, return_counts=True)
    return float(values[counts.argmax()]) if len(values) else 1.0


def _cover(factors: Table, base: Table, experts: Sequence[str], groups: Sequence[_TensorGroup]) -> list[FactorRule]:
    """Rules that turn ``base`` (K, L) into ``factors`` (K, L), found from the last rule to the first.

    A rule may cover cells that a later rule overrides, so each covers as many cells of its value as it can.
    """
    members = np.array([group.columns for group in groups], float)  # (groups, L)
    unions = _joinable_groups(groups)
    open_cells, rules = np.ones(factors.shape, bool), []
    while (missing := open_cells & (factors != base)).any():
        options = []
        for value in set(factors[missing]):
            free = members @ (open_cells & (factors != value)).T == 0  # (groups, K): no other value is needed there
            gain = np.where(free, members @ (missing & (factors == value)).T, 0)
            options.append((*_best_rule(free, gain, unions), value))
        _, rows, chosen, value = max(options, key=lambda option: option[0])
        names = () if rows.all() else tuple(name for name, row in zip(experts, rows, strict=True) if row)
        blocks = tuple(_block_ranges([groups[i].block for i in chosen]))
        rules.append(replace(groups[chosen[0]].rule, factor=float(value), experts=names, blocks=blocks))
        open_cells[np.ix_(rows, members[chosen].any(axis=0))] = False
    return rules[::-1]


def _joinable_groups(groups: Sequence[_TensorGroup]) -> Table:
    """Groups that one rule can select together, (unions, groups): one outside the blocks, or one kind in all blocks."""
    names = [replace(group.rule, blocks=()) if group.block is not None else i for i, group in enumerate(groups)]
    unions = list(dict.fromkeys(names))
    return np.array([[name == union for name in names] for union in unions], float)


def _best_rule(
    free: NDArray[np.bool_], gain: Table, unions: Table
) -> tuple[tuple[float, int], NDArray[np.bool_], NDArray[np.intp]]:
    """The rule that settles most cells: (cells, -groups), its experts (K,) and the indices of its groups.

    ``free`` (groups, K) tells where the value may be set, ``gain`` (groups, K) how many cells that settles.
    """
    together = gain.sum(axis=1) * free.all(axis=1)  # for all experts at once
    totals = unions @ np.column_stack([together, gain])
    union, column = divmod(int(totals.argmax()), totals.shape[1])
    settled = together if column == 0 else gain[:, column - 1]
    chosen = np.flatnonzero(unions[union] * settled)
    rows: NDArray[np.bool_] = np.asarray(free[chosen].all(axis=0))  # every expert for which the same value may be set
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
    """The same rules, with neighbors of one factor that differ in one selector joined: their order does not matter."""
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
    """One rule for both; None if they differ in more than one selector, or one of them selects everything by it."""
    selectors, others = ({name: getattr(rule, name) for name in SELECTORS} for rule in (one, other))
    names = [name for name in SELECTORS if selectors[name] != others[name]]
    if len(names) != 1 or not selectors[names[0]] or not others[names[0]]:
        return None
    selectors[names[0]] = tuple(dict.fromkeys((*selectors[names[0]], *others[names[0]])))
    return FactorRule(factor=one.factor, **selectors)
