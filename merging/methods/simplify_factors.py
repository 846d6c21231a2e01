"""Expresses a table of factors by few rules: by expert, block, role, section and kind of tensor.

A kind is the tensors of all blocks that have the same name inside their block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merging.methods.factor_rules import SECTIONS, SELECTOR_PREFIXES, FactorRule, canonical_name, resolve, rules_text
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

    The first rules may set a common value everywhere, or by expert, block or role; later rules set other cells. A rule
    for several experts, blocks, roles or kinds of tensors counts as one. L counts the tensors that are merged.
    """
    merged = [p for p in parameters if p.role not in UNMERGED]
    if factors.shape != (len(experts), len(merged)):
        raise ValueError(f"factors of {len(experts)} experts and {len(merged)} tensors, not {factors.shape}")
    groups = _list_tensor_groups(tuple(merged))
    candidates: list[list[FactorRule]] = []
    for first_rules in _list_first_rules(factors, experts, merged):
        base = resolve(first_rules, 1.0, experts, merged).values
        rules = _join_rules([*first_rules, *_cover(factors, base, experts, groups)])
        if np.array_equal(resolve(rules, 1.0, experts, merged).values, factors):
            candidates.append(rules)
    fewest = min(candidates, key=lambda rules: (len(rules), len(rules_text(rules))))
    return tuple(fewest)


@lru_cache(maxsize=8)  # a page on which users paint factors simplifies them after every stroke
def _list_tensor_groups(parameters: tuple[Parameter, ...]) -> tuple[_TensorGroup, ...]:
    return tuple(_make_tensor_groups(parameters))


def _make_tensor_groups(parameters: Sequence[Parameter]) -> Iterator[_TensorGroup]:
    """Every group of tensors that a rule may select: all, roles and kinds (also by block), sections, single tensors."""

    def make_group(rule: FactorRule, block: int | None = None) -> _TensorGroup:
        rule_numbers = resolve([rule], 1.0, [""], parameters).rules[0]  # of one expert with an arbitrary name
        return _TensorGroup(rule, rule_numbers == 1, block)

    blocks = sorted({p.block for p in parameters if p.block is not None})
    roles = sorted({str(p.role) for p in parameters})
    kinds = dict.fromkeys(_block_pattern(p) for p in parameters if p.block is not None)
    rules = [FactorRule(factor=0.0), *(FactorRule(factor=0.0, roles=(role,)) for role in roles)]
    rules += [FactorRule(factor=0.0, tensors=(kind,)) for kind in kinds]
    for rule in rules:
        group = make_group(rule)
        yield group
        for block in blocks:
            if any(p.block == block and selected for p, selected in zip(parameters, group.columns, strict=True)):
                yield make_group(replace(rule, blocks=(str(block),)), block)
    for section in SECTIONS:
        if any(p.section == section for p in parameters):
            yield make_group(FactorRule(factor=0.0, sections=(section,)))
    same_name = Counter((_block_pattern(p), p.block) for p in parameters)  # above 1 if towers have the same layers
    for p in parameters:
        if p.block is None or _block_pattern(p) == p.name or same_name[_block_pattern(p), p.block] > 1:
            yield make_group(FactorRule(factor=0.0, tensors=(_choose_unique_name(p, parameters),)))


def _block_pattern(parameter: Parameter) -> str:
    """A pattern for this tensor in every block: '*.attn.in_proj_weight'."""
    before, _, after = parameter.name.rpartition(f".{parameter.block}.")
    return f"*.{after}" if before else parameter.name


def _choose_unique_name(parameter: Parameter, parameters: Sequence[Parameter]) -> str:
    """A tensor's canonical name if no other tensor has it, else its name in the file."""
    short = canonical_name(parameter.name)
    return short if [canonical_name(p.name) for p in parameters].count(short) == 1 else parameter.name


def _list_first_rules(
    factors: Table, experts: Sequence[str], parameters: Sequence[Parameter]
) -> Iterator[list[FactorRule]]:
    """First rules to try: none, or rules for the commonest value everywhere, by expert, by block, or by role."""
    yield []
    if (common := _find_commonest(factors)) != 1.0:
        yield [FactorRule(factor=common)]
    yield _common_rules(factors, {name: (slice(i, i + 1), slice(None)) for i, name in enumerate(experts)}, "experts")
    positions: dict[str, list[int]] = {}  # {block or section: columns}
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
    """A rule for every value other than 1 that is the commonest in some of these parts of the table (K, L).

    ``parts`` has each part's name, for the rule's ``field``, and its rows and columns.
    """
    common: dict[float, list[str]] = {}
    for name, part in parts.items():
        common.setdefault(_find_commonest(factors[part]), []).append(name)
    return [FactorRule(factor=value, **{field: tuple(names)}) for value, names in common.items() if value != 1.0]


def _find_commonest(factors: Table) -> float:
    """The commonest value of a part of the table; 1 if the part is empty."""
    values, counts = np.unique(factors, return_counts=True)
    return float(values[counts.argmax()]) if len(values) else 1.0


def _cover(factors: Table, base: Table, experts: Sequence[str], groups: Sequence[_TensorGroup]) -> list[FactorRule]:
    """Rules that turn ``base`` (K, L) into ``factors`` (K, L), found from the last rule to the first.

    A rule may cover cells that a later rule overrides, so each covers as many cells of its value as it can.
    """
    members = np.array([group.columns for group in groups], float)  # (groups, L)
    unions = _find_unions(groups)
    open_cells, rules = np.ones(factors.shape, bool), []  # open: no rule so far, all of which come later, sets the cell
    while (missing := open_cells & (factors != base)).any():
        options = []
        for value in set(factors[missing]):
            free = members @ (open_cells & (factors != value)).T == 0  # (groups, K): no open cell needs another value
            gain = np.where(free, members @ (missing & (factors == value)).T, 0)
            options.append((*_best_rule(free, gain, unions), value))
        _, rows, group_indices, value = max(options, key=lambda option: option[0])
        names = () if rows.all() else tuple(name for name, selected in zip(experts, rows, strict=True) if selected)
        blocks = tuple(_block_ranges([groups[i].block for i in group_indices]))
        # All groups of a union have the same rule apart from the block.
        rules.append(replace(groups[group_indices[0]].rule, factor=float(value), experts=names, blocks=blocks))
        open_cells[np.ix_(rows, members[group_indices].any(axis=0))] = False
    return rules[::-1]


def _find_unions(groups: Sequence[_TensorGroup]) -> Table:
    """Groups that one rule can select together, (unions, groups): one outside the blocks, or one kind in all blocks."""
    union_keys = [replace(group.rule, blocks=()) if group.block is not None else i for i, group in enumerate(groups)]
    return np.array([[key == union for key in union_keys] for union in dict.fromkeys(union_keys)], float)


def _best_rule(
    free: NDArray[np.bool_], gain: Table, unions: Table
) -> tuple[tuple[float, int], NDArray[np.bool_], NDArray[np.intp]]:
    """The rule for one value that sets most cells: (cells, -groups), its experts (K,) and the indices of its groups.

    The first pair ranks rules: of those that set as many cells, the one with fewer groups wins.
    ``free`` (groups, K) is true where the value may be set, ``gain`` (groups, K) counts the cells that need it.
    """
    all_experts = gain.sum(axis=1) * free.all(axis=1)  # (groups,): the gain of a rule for all experts
    totals = unions @ np.column_stack([all_experts, gain])
    union, column = divmod(int(totals.argmax()), totals.shape[1])  # column 0: all experts; column k + 1: expert k
    group_gain = all_experts if column == 0 else gain[:, column - 1]
    indices = np.flatnonzero(unions[union] * group_gain)
    rows: NDArray[np.bool_] = np.asarray(free[indices].all(axis=0))  # every expert for which the same value may be set
    if column:
        rows &= gain[indices].any(axis=0) | (np.arange(free.shape[1]) == column - 1)
    return (float(gain[indices][:, rows].sum()), -len(indices)), rows, indices


def _block_ranges(blocks: Sequence[int | None]) -> Iterator[str]:
    """'0-2', '4' from 0, 1, 2 and 4; nothing from None."""
    numbers = sorted(block for block in blocks if block is not None)
    while numbers:
        run = [n for i, n in enumerate(numbers) if n == numbers[0] + i]
        yield f"{run[0]}-{run[-1]}"
        numbers = numbers[len(run) :]


def _join_rules(rules: Sequence[FactorRule]) -> list[FactorRule]:
    """The same rules, where neighbors with one factor that differ in one selector are joined.

    The order of neighbors with one factor does not matter, so a rule may join any of them.
    """
    joined: list[FactorRule] = []
    for rule in rules:
        for i in reversed(range(len(joined))):
            if joined[i].factor != rule.factor:
                joined.append(rule)
                break
            if combined := _join_two(joined[i], rule):
                joined[i] = combined
                break
        else:
            joined.append(rule)
    return joined


def _join_two(first: FactorRule, second: FactorRule) -> FactorRule | None:
    """One rule for both; None if they differ in several selectors, or in one that is empty in either rule."""
    different = [name for name in SELECTOR_PREFIXES if getattr(first, name) != getattr(second, name)]
    if len(different) != 1:
        return None
    (name,) = different
    first_words, second_words = getattr(first, name), getattr(second, name)
    if not first_words or not second_words:
        return None
    joined_words: dict[str, Any] = {name: tuple(dict.fromkeys((*first_words, *second_words)))}
    return replace(first, **joined_words)
