"""What stands for painted factors in the address and in recipes: rules in a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app.session.painting import Factors
from merging.checkpoints.families import Parameter, Role
from merging.methods.factor_rules import FactorRule, parse_rules, resolve, rules_text

if TYPE_CHECKING:
    import pandas as pd

KEPT = 256  # tables whose rules are remembered
LONGEST = 1500  # characters of the rules in the address


def parameters(facts: pd.DataFrame) -> list[Parameter]:
    """The tensors of a table with a row for each: tensor, role, part, section, order."""
    return [
        Parameter(row.tensor, Role(row.role), row.part, row.section, _block(row.section), row.order)
        for row in facts.itertuples()
    ]


def _block(section: str) -> int | None:
    name, _, number = section.partition(" ")
    return int(number) if name == "block" else None


def rules_of(factors: Factors, experts: Sequence[str], tensors: Sequence[Parameter]) -> tuple[FactorRule, ...]:
    """Few rules that give these factors (K, L)."""
    return _rules_of(factors.tobytes(), tuple(experts), tuple(tensors))


@st.cache_data(max_entries=KEPT, show_spinner=False)
def _rules_of(raw: bytes, experts: tuple[str, ...], tensors: tuple[Parameter, ...]) -> tuple[FactorRule, ...]:
    import numpy as np

    from merging.methods.simplify_factors import simplify

    return simplify(np.frombuffer(raw).reshape(len(experts), -1), experts, tensors)


def text_of(factors: Factors, experts: Sequence[str], tensors: Sequence[Parameter]) -> str:
    """The text of the factors in the address; empty if all are 1."""
    return rules_text(rules_of(factors, experts, tensors))


def factors_of(text: str, experts: Sequence[str], tensors: Sequence[Parameter]) -> Factors:
    """The factors (K, L) that a text in the address stands for; raises MergingError."""
    return resolve(parse_rules(text), 1.0, experts, tensors).values
