"""What stands for painted factors in the address: rules in a line, or a draft in the store where they are too long."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import streamlit as st

from app.reading import page_data
from app.session import painting_state
from app.session.painting import Factors
from merging.base.errors import ParameterError, StoreError
from merging.base.files import strict_json
from merging.methods.factor_rules import LARGEST, FactorRule, parse_rules, resolve, rules_text
from merging.models.families import Parameter
from merging.study.runs.drafts import Drafts

CACHED = 256  # tables whose rules are remembered
LONGEST = 1500  # characters of the rules in the address
DRAFT, KIND = "~", "painting"  # how the address begins where a draft holds the factors, and the draft's kind
MOST_TABLES = 100  # tables in a session's draft, the last ones


def fit_rules(factors: Factors, experts: Sequence[str], tensors: Sequence[Parameter]) -> tuple[FactorRule, ...]:
    """Few rules that give these factors (K, L)."""
    return _rules_of(factors.tobytes(), tuple(experts), tuple(tensors))


@st.cache_data(max_entries=CACHED, show_spinner=False)
def _rules_of(raw: bytes, experts: tuple[str, ...], tensors: tuple[Parameter, ...]) -> tuple[FactorRule, ...]:
    from merging.methods.simplify_factors import simplify

    return simplify(np.frombuffer(raw).reshape(len(experts), -1), experts, tensors)


def write_factors(factors: Factors, experts: Sequence[str], tensors: Sequence[Parameter]) -> str:
    """The text of the factors in the address; empty if all are 1, or if it is too long and the store is read-only."""
    text = rules_text(fit_rules(factors, experts, tensors))
    if len(text) <= LONGEST:
        return text
    content = {"experts": list(experts), "tensors": [p.name for p in tensors], "factors": factors.tolist()}
    raw = json.dumps(content, separators=(",", ":")).encode("utf-8", "backslashreplace")
    name, drafted = hashlib.sha256(raw).hexdigest()[:32], painting_state.stored_draft()
    drafted.tables.pop(name, None)
    drafted.tables[name] = raw
    for oldest in list(drafted.tables)[:-MOST_TABLES]:
        del drafted.tables[oldest]
    parts = {part: (lambda raw=raw: raw) for part, raw in drafted.tables.items()}
    try:
        drafted.token = Drafts(page_data.store()).store(
            KIND, {"title": "factors painted by hand"}, drafted.token, parts
        )
    except StoreError:
        return ""
    return f"{DRAFT}{drafted.token}.{name}"


def read_factors(text: str, experts: Sequence[str], tensors: Sequence[Parameter]) -> Factors:
    """The factors (K, L) that a text in the address stands for.

    Raises:
        MergingError: it names other experts or tensors, is no list of rules, or its draft is gone.
    """
    if not text.startswith(DRAFT):
        return resolve(parse_rules(text), 1.0, experts, tensors).values
    token, _, name = text.removeprefix(DRAFT).partition(".")
    content = strict_json.parse_json(Drafts(page_data.store()).read_part(KIND, token, name), name[:40], "the painting")
    names = [name.encode("utf-8", "backslashreplace").decode() for name in (*experts, *(p.name for p in tensors))]
    if [*content.get("experts", ()), *content.get("tensors", ())] != names:
        raise ParameterError("It was painted on other experts, or on another architecture, than this run's.")
    try:
        factors = np.array(content.get("factors"), np.float64)
    except (TypeError, ValueError):
        factors = np.full(0, np.nan)
    if factors.shape != (len(experts), len(tensors)) or not (np.abs(factors) <= LARGEST).all():
        raise ParameterError(f"Its factors are not numbers in [-{LARGEST:g}, {LARGEST:g}], one for each cell.")
    return factors
