"""Rules of factors, drawn by Hypothesis: any well-formed ones, with names that hold every sign that ends a part."""

from __future__ import annotations

from hypothesis import strategies as st

from merging.methods.factor_rules import MAX_FACTOR, ROLES, SECTIONS, FactorRule

# Every character that YAML can carry at all, and often those that lines, links and patterns are made of.
SIGNS = st.one_of(
    st.sampled_from("+,;:=/*?[]!%~&# ."),
    st.characters(exclude_categories=("Cs", "Cc"), include_characters="\t\n"),
)
NAMES = st.text(SIGNS, min_size=1, max_size=8)
BLOCKS = st.tuples(st.integers(0, 99), st.integers(0, 99)).map(sorted).map(lambda pair: f"{pair[0]}-{pair[1]}")


def some(words: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(words, max_size=2).map(tuple)


RULES = st.builds(
    FactorRule,
    factor=st.floats(-MAX_FACTOR, MAX_FACTOR),
    blocks=some(BLOCKS),
    roles=some(st.sampled_from(ROLES)),
    sections=some(st.sampled_from(SECTIONS)),
    tensors=some(NAMES),
    experts=some(NAMES),
)
TABLES = st.lists(RULES, max_size=4).map(tuple)
