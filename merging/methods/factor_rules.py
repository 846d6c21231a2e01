"""Factors of task vectors, written as rules that select blocks, roles, sections, tensors and experts.

As text, a rule is 'b0-1/r.norm_scale=0': selectors joined by '/', then the factor. Rules are joined by '+'; later rules
override earlier ones. Selectors are b0 or b0-1 (blocks), r.ROLE, s.SECTION, t.PATTERN (a shell pattern on names of
tensors) and e.EXPERT; a rule for everything is 'all=0.5'. Selectors of one kind are joined by *or*, kinds by *and*. In
names and patterns, every character except letters, digits and _ . - * ? [ ] ! is written as %XX, as in web addresses,
so that no name can end a rule, a parameter or a step of a chain. A section is a part of the network outside its blocks.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, unquote

from merging.base.errors import ParameterError
from merging.base.text import did_you_mean, exact_text, first_few, printable
from merging.models.families import EMBEDDINGS, INFERRED_ROLES, OUTPUT, UNMERGED, Parameter, Role

if TYPE_CHECKING:  # numpy takes a while to import, and reading recipes does not need it
    import numpy as np
    from numpy.typing import NDArray

MAX_FACTOR = 10.0  # the largest absolute value of a factor
MAX_RULES, MAX_TEXT_BYTES = 200, 20_000  # of one table of rules
# INFERRED_ROLES occur only in networks other than CLIP: a rule may name them, but errors do not suggest them.
ROLES = tuple(str(role) for role in Role if role not in UNMERGED | INFERRED_ROLES)
SECTIONS = (EMBEDDINGS, OUTPUT)
# {field of a rule: prefix of its selectors in text}
SELECTOR_PREFIXES = {"blocks": "b", "roles": "r.", "sections": "s.", "tensors": "t.", "experts": "e."}
EVERYTHING = "all"  # the selector of a rule for everything, in text
MAX_TITLE_RULES, MAX_TITLE_CHARACTERS = 2, 60  # of rules that a title states one by one
BLOCK_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")  # "3" or "0-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorRule:
    """One factor and the selectors of its tensors; an empty selector selects all, and selectors are joined by *and*.

    ``blocks`` are numbers and ranges ("3", "0-1"). ``tensors`` are shell patterns on names of tensors: open_clip's
    names without prefix, or the names in the file.

    Raises:
        ParameterError: the factor is not a finite number in [-10, 10], a role or section is unknown, or a range of
            blocks is malformed.
    """

    factor: float
    blocks: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    experts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        factor = self.factor
        is_number = isinstance(factor, int | float) and not isinstance(factor, bool)
        if not is_number or not math.isfinite(factor) or abs(factor) > MAX_FACTOR:
            raise ParameterError(
                f"the factor must be a number in [-{MAX_FACTOR:g}, {MAX_FACTOR:g}], got {reprlib.repr(factor)}"
            )
        object.__setattr__(self, "factor", float(factor) + 0.0)  # -0 is 0
        object.__setattr__(self, "blocks", tuple(map(_normalize_range, self.blocks)))
        for kind, known in (("role", ROLES), ("section", SECTIONS)):
            for word in getattr(self, f"{kind}s"):
                if word not in known and (kind == "section" or word not in INFERRED_ROLES):
                    hint = did_you_mean(word, known)
                    raise ParameterError(f"there is no {kind} {word[:80]!r}.{hint} Known: {', '.join(known)}")
        for name in (*self.tensors, *self.experts):
            if not name or any("\ud800" <= character <= "\udfff" for character in name):  # surrogates: no valid text
                raise ParameterError(f"{name!r} is not a name of a tensor or an expert")

    @classmethod
    def from_plain(cls, entry: Any) -> Self:
        """A rule from plain data such as {blocks: "0-1", roles: [norm_scale, shift], factor: 0}."""
        if isinstance(entry, cls):
            return entry
        if not isinstance(entry, Mapping):
            raise ParameterError(f'a rule is written as {{blocks: "0-1", factor: 0}}, got {reprlib.repr(entry)}')
        fields = (*SELECTOR_PREFIXES, "factor")
        for name in entry:
            if name not in fields:
                hint = did_you_mean(str(name), fields)
                raise ParameterError(
                    f"a rule has no {reprlib.repr(name)}.{hint} It takes {', '.join(SELECTOR_PREFIXES)} and factor"
                )
        if "factor" not in entry:
            raise ParameterError("the factor is missing")
        return cls(
            factor=entry["factor"], **{name: _parse_selector(name, entry.get(name)) for name in SELECTOR_PREFIXES}
        )

    def to_plain(self) -> dict[str, Any]:
        """The rule as plain data, which ``from_plain`` reads back."""
        selectors = self._selectors()
        plain = {name: words[0] if len(words) == 1 else list(words) for name, words in selectors.items()}
        return {**plain, "factor": self.factor}

    def selector_text(self) -> str:
        """The rule's selectors as text: 'b0-1/r.norm_scale'."""
        texts = [
            prefix + _escape_word(word) for name, prefix in SELECTOR_PREFIXES.items() for word in getattr(self, name)
        ]
        return "/".join(texts) or EVERYTHING

    def text(self) -> str:
        """The rule as text: 'b0-1/r.norm_scale=0'."""
        return f"{self.selector_text()}={exact_text(self.factor)}"

    def describe(self) -> str:
        """The rule in words: 'blocks 0-1, norm_scale × 0'."""
        selectors = self._selectors()
        parts = [" and ".join(map(printable, words)) for name, words in selectors.items() if name != "blocks"]
        if self.blocks:
            is_single_block = len(self.blocks) == 1 and self.blocks[0].isdigit()
            parts.insert(0, f"{'block' if is_single_block else 'blocks'} {' and '.join(self.blocks)}")
        return f"{', '.join(parts) or EVERYTHING} × {exact_text(self.factor)}"

    def _selectors(self) -> dict[str, tuple[str, ...]]:
        """{field: its words}, of the selectors that are not empty."""
        return {name: words for name in SELECTOR_PREFIXES if (words := getattr(self, name))}


def _parse_selector(name: str, value: Any) -> tuple[str, ...]:
    """The words of a selector, from one word or a list; blocks may also be numbers, or separated by commas."""
    entries = [] if value is None else value if isinstance(value, list | tuple) else [value]
    for entry in entries:
        if not isinstance(entry, str | int) or isinstance(entry, bool):
            raise ParameterError(f"{name} is a text or a list of texts, got {reprlib.repr(value)}")
    texts = [str(entry) for entry in entries]
    return tuple(part.strip() for text in texts for part in text.split(",")) if name == "blocks" else tuple(texts)


def _normalize_range(word: str) -> str:
    """A number or range of blocks in its shortest form: '3' or '0-1'. Raises ParameterError."""
    match = BLOCK_RANGE.fullmatch(word)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)  # no match: as a reversed range
    if low > high:
        raise ParameterError(f"blocks are written as 3 or 0-1, got {word[:80]!r}")
    return str(low) if low == high else f"{low}-{high}"


def _escape_word(word: str) -> str:
    """The word with %XX for every character that could end a rule; ``unquote`` reads it back."""
    return quote(word, safe="*?[]!").replace("~", "%7E")


# --- tables of rules -------------------------------------------------------------------------------------------------


def read_rules(entries: Any) -> tuple[FactorRule, ...]:
    """Rules from a list of plain mappings or of rules, or from text.

    Raises:
        ParameterError: a rule is invalid (the message gives its number), or there are too many.
    """
    if isinstance(entries, str):
        return parse_rules(entries)
    if not isinstance(entries, list | tuple):
        raise ParameterError(f"rules are a list, got {reprlib.repr(entries)}")
    return check_count(_read_numbered(entries, FactorRule.from_plain))


def parse_rules(text: str) -> tuple[FactorRule, ...]:
    """The rules in a text such as 'b0-1=0+r.norm_scale=0'; an empty text has none.

    Raises:
        ParameterError: a rule is invalid (the message gives its number), or there are too many.
    """
    if len(text.encode("utf-8", "replace")) > MAX_TEXT_BYTES:
        raise ParameterError(_describe_size(len(text.encode("utf-8", "replace"))))
    return check_count(_read_numbered(text.split("+") if text.strip() else [], _parse_rule))


def rules_text(rules: Iterable[FactorRule]) -> str:
    """The rules as one text, which ``parse_rules`` reads back to equal rules."""
    return "+".join(rule.text() for rule in rules)


def describe_rules(rules: Sequence[FactorRule]) -> str:
    """The rules in a few words: 'blocks 0-1 × 0', or only their number if the words would be long."""
    words = "; ".join(rule.describe() for rule in rules[:MAX_TITLE_RULES])
    if 0 < len(rules) <= MAX_TITLE_RULES and len(words) <= MAX_TITLE_CHARACTERS:
        return words
    return f"{len(rules) or 'no'} rule{'' if len(rules) == 1 else 's'}"


def check_count(rules: Sequence[FactorRule]) -> tuple[FactorRule, ...]:
    """The same rules. Raises ParameterError if there are too many or their text is too long."""
    if len(rules) > MAX_RULES:
        raise ParameterError(f"there are {len(rules):,} rules; at most {MAX_RULES} are taken")
    if (size := len(rules_text(rules))) > MAX_TEXT_BYTES:
        raise ParameterError(_describe_size(size))
    return tuple(rules)


def _describe_size(size: int) -> str:
    """The error message for a table of rules whose text has too many bytes."""
    return f"the rules take {size:,} bytes; at most {MAX_TEXT_BYTES:,} are taken"


def _read_numbered(entries: Sequence[Any], read: Callable[[Any], FactorRule]) -> list[FactorRule]:
    """The rules that ``read`` makes of the entries; its errors get the entry's number, counted from 1."""
    if len(entries) > MAX_RULES:
        raise ParameterError(f"there are {len(entries):,} rules; at most {MAX_RULES} are taken")
    rules = []
    for number, entry in enumerate(entries, 1):
        try:
            rules.append(read(entry))
        except ParameterError as error:
            raise ParameterError(f"rule {number}: {error}") from None
    return rules


def _parse_rule(text: str) -> FactorRule:
    """The rule in a text such as 'b0-1/r.norm_scale=0'. Raises ParameterError."""
    selectors, equals, factor = (piece.strip() for piece in text.partition("="))
    if not equals:
        raise ParameterError(f"write a rule as b0-1=0, got {text[:80]!r}")
    words: dict[str, list[str]] = {name: [] for name in SELECTOR_PREFIXES}
    for selector in [] if selectors == EVERYTHING else selectors.split("/"):
        name = next(
            (name for name, sign in SELECTOR_PREFIXES.items() if selector.startswith(sign) and selector != sign), ""
        )
        if not name:
            raise ParameterError(
                f"{selector[:80]!r} selects nothing; write b0-1 (blocks), r.ROLE, s.SECTION, t.PATTERN, e.EXPERT or all"
            )
        try:
            words[name].append(unquote(selector.removeprefix(SELECTOR_PREFIXES[name]), errors="strict"))
        except UnicodeDecodeError:
            raise ParameterError(f"{selector[:80]!r} is no text in UTF-8 after its %XX are read") from None
    try:
        value: Any = float(factor)
    except ValueError:
        value = factor  # refused by FactorRule, whose message shows it
    return FactorRule(factor=value, **{name: tuple(entries) for name, entries in words.items()})


# --- the factors of a table of rules ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedFactors:
    """Every expert's factor of every tensor, ``values`` (K, L), and the number of its rule, ``rules`` (K, L).

    Rules are numbered from 1; 0 stands for the default factor.
    """

    experts: tuple[str, ...]
    tensors: tuple[str, ...]
    values: NDArray[np.float64]
    rules: NDArray[np.int64]

    @property
    def digest(self) -> str:
        """The sha-256 of the factors and the names of the tensors: equal however the rules are written."""
        content = json.dumps([self.tensors, self.values.tolist()], separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def resolve(
    rules: Sequence[FactorRule], default: float, experts: Sequence[str], parameters: Sequence[Parameter]
) -> ResolvedFactors:
    """The factors (K, L) of these experts' tensors by the rules; ``default`` where no rule applies.

    Raises:
        ParameterError: a rule matches nothing, or names an expert, block or tensor that does not exist.
    """
    import numpy as np

    merged = [p for p in parameters if p.role not in UNMERGED]
    names = tuple(p.name for p in merged)
    values = np.full((len(experts), len(merged)), float(default) + 0.0)
    numbers = np.zeros(values.shape, np.int64)
    for number, rule in enumerate(rules, 1):
        try:
            cells = np.ix_(_select_experts(rule, experts), _select_tensors(rule, merged))
        except ParameterError as error:
            raise ParameterError(f"Rule {number} ({printable(rule.text())}) {error}") from None
        values[cells], numbers[cells] = rule.factor, number
    return ResolvedFactors(tuple(experts), names, values, numbers)


@lru_cache(maxsize=8192)  # a tensor that streams in pieces needs the same factors for each
def find_factors(
    rules: tuple[FactorRule, ...], default: float, experts: tuple[str, ...], parameter: Parameter
) -> tuple[float, ...]:
    """Every expert's factor (K,) of one tensor; rules that match nothing are ignored, because ``resolve`` reports them.

    ``default`` where no rule applies.
    """
    values = [default] * len(experts)
    for rule in rules:
        if all(
            not words or any(matches(parameter, word) for word in words)
            for words, matches in (
                (rule.blocks, _in_block),
                (rule.roles, _has_role),
                (rule.sections, _in_section),
                (rule.tensors, _has_name),
            )
        ):
            values = [
                rule.factor if not rule.experts or expert in rule.experts else value
                for expert, value in zip(experts, values, strict=True)
            ]
    return tuple(values)


def _select_experts(rule: FactorRule, experts: Sequence[str]) -> list[bool]:
    """Whether a rule selects each expert, (K,)."""
    for name in rule.experts:
        if name not in experts:
            hint = did_you_mean(name, experts)
            raise ParameterError(f"names {name[:80]!r}, and the experts are {first_few(experts)}.{hint}")
    return [not rule.experts or name in rule.experts for name in experts]


def _select_tensors(rule: FactorRule, parameters: Sequence[Parameter]) -> list[bool]:
    """Whether a rule selects each tensor, (L,)."""
    selected = [True] * len(parameters)
    last_block = max((p.block for p in parameters if p.block is not None), default=-1)
    for name, matches in (
        ("blocks", _in_block),
        ("roles", _has_role),
        ("sections", _in_section),
        ("tensors", _has_name),
    ):
        words = getattr(rule, name)
        by_any_word = [False] * len(parameters)
        for word in words:
            by_word = [matches(p, word) for p in parameters]
            if not any(by_word) or (name == "blocks" and int(word.rpartition("-")[2]) > last_block):
                raise ParameterError(_describe_no_match(name, word, parameters, last_block))
            by_any_word = [a or b for a, b in zip(by_any_word, by_word, strict=True)]
        selected = [a and b for a, b in zip(selected, by_any_word, strict=True)] if words else selected
    if not any(selected):
        raise ParameterError("matches no tensor: each of its selectors matches some, but none matches all of them.")
    return selected


def _in_block(parameter: Parameter, word: str) -> bool:
    low, _, high = word.partition("-")
    return parameter.block is not None and int(low) <= parameter.block <= int(high or low)


def _has_role(parameter: Parameter, word: str) -> bool:
    return parameter.role == word


def _in_section(parameter: Parameter, word: str) -> bool:
    return parameter.section == word


def _has_name(parameter: Parameter, pattern: str) -> bool:
    return fnmatchcase(parameter.name, pattern) or fnmatchcase(canonical_name(parameter.name), pattern)


@lru_cache(maxsize=8192)  # every rule needs the same few hundred names
def canonical_name(name: str) -> str:
    """open_clip's name of a tensor, without prefix; the name itself if open_clip has none."""
    from merging.models.tower_names import find_tower_tensor  # loads torch

    tensor = find_tower_tensor(name)
    return tensor.name if tensor else name


def _describe_no_match(kind: str, word: str, parameters: Sequence[Parameter], last_block: int) -> str:
    """Why a selector matches nothing, and what the model has instead."""
    if kind == "blocks":
        blocks = f"the model has blocks 0 to {last_block}" if last_block >= 0 else "the model has no blocks"
        return f"matches no tensor in block {word}: {blocks}."
    if kind == "tensors":
        names = [p.name for p in parameters]
        hint = did_you_mean(word, names) or did_you_mean(word, map(canonical_name, names))
        return f"matches no tensor: none is called {word[:120]!r}.{hint}"
    return f"matches no tensor: the model has none in {kind} {word!r}."
