"""Painted factors in the address: as rules, or as the token of a draft in the store if the rules are too long.

A session's draft holds the tables of all its long paintings, so that the browser's Back still finds earlier ones.
"""

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
from merging.methods.factor_rules import MAX_FACTOR, FactorRule, parse_rules, resolve, rules_text
from merging.models.families import Parameter
from merging.study.runs.drafts import Drafts

MAX_CACHED_TABLES = 256  # whose rules are cached
MAX_ADDRESS_CHARACTERS = 1500  # characters of the rules in the address
DRAFT_PREFIX = "~"  # the first character of a draft's token in the address
DRAFT_KIND = "painting"
MAX_TABLES = 100  # tables in a session's draft; older ones are dropped


def fit_rules(factors: Factors, experts: Sequence[str], tensors: Sequence[Parameter]) -> tuple[FactorRule, ...]:
    """A short list of rules that yield these factors (experts, tensors)."""
    return _simplify(factors.tobytes(), tuple(experts), tuple(tensors))


@st.cache_data(max_entries=MAX_CACHED_TABLES, show_spinner=False)
def _simplify(raw: bytes, experts: tuple[str, ...], tensors: tuple[Parameter, ...]) -> tuple[FactorRule, ...]:
    from merging.methods.simplify_factors import simplify

    return simplify(np.frombuffer(raw).reshape(len(experts), -1), experts, tensors)


def write_factors(factors: Factors, experts: Sequence[str], tensors: Sequence[Parameter]) -> str:
    """The text of factors (experts, tensors) in the address.

    Empty if all factors are 1, or if their rules are too long for the address and the store cannot be written to.
    """
    text = rules_text(fit_rules(factors, experts, tensors))
    if len(text) <= MAX_ADDRESS_CHARACTERS:
        return text
    content = {
        "experts": list(experts),
        "tensors": [parameter.name for parameter in tensors],
        "factors": factors.tolist(),
    }
    raw = json.dumps(content, separators=(",", ":")).encode("utf-8", "backslashreplace")
    name, draft = hashlib.sha256(raw).hexdigest()[:32], painting_state.stored_draft()
    draft.tables.pop(name, None)
    draft.tables[name] = raw
    for oldest in list(draft.tables)[:-MAX_TABLES]:
        del draft.tables[oldest]
    parts = {part: (lambda raw=raw: raw) for part, raw in draft.tables.items()}
    try:
        draft.token = Drafts(page_data.store()).store(
            DRAFT_KIND, {"title": "factors painted by hand"}, draft.token, parts
        )
    except StoreError:
        return ""
    return f"{DRAFT_PREFIX}{draft.token}.{name}"


def read_factors(text: str, experts: Sequence[str], tensors: Sequence[Parameter]) -> Factors:
    """The factors (experts, tensors) that a text in the address stands for.

    Raises:
        MergingError: it names other experts or tensors, is not a list of rules, or its draft was deleted.
    """
    if not text.startswith(DRAFT_PREFIX):
        return resolve(parse_rules(text), 1.0, experts, tensors).values
    token, _, table_name = text.removeprefix(DRAFT_PREFIX).partition(".")
    content = strict_json.parse_json(
        Drafts(page_data.store()).read_part(DRAFT_KIND, token, table_name), table_name[:40], "the painting"
    )
    names = [  # as ``write_factors`` encodes them
        name.encode("utf-8", "backslashreplace").decode()
        for name in (*experts, *(parameter.name for parameter in tensors))
    ]
    if [*content.get("experts", ()), *content.get("tensors", ())] != names:
        raise ParameterError("It was painted for other experts, or for another architecture, than this run's.")
    try:
        factors = np.array(content.get("factors"), np.float64)
    except (TypeError, ValueError):
        factors = np.full(0, np.nan)
    if factors.shape != (len(experts), len(tensors)) or not (np.abs(factors) <= MAX_FACTOR).all():
        raise ParameterError(f"Its factors are not numbers in [-{MAX_FACTOR:g}, {MAX_FACTOR:g}], one for each cell.")
    return factors
