"""The painting of this session and its text in the address, which links, reloads and the browser's Back restore."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import streamlit as st

from app.session import address, view_state
from app.session.painting import Factors, Painting
from merging.base.errors import MergingError

PAINTING_KEY = "_painting"
_ADDRESS_TEXT_KEY, _STORED_DRAFT_KEY, _CHAIN_KEY = "_painted_seen", "_painted_drafted", "_painted_chain"
STALE_SECONDS = 0.5  # seconds in which the browser may still send the address that it had before the last stroke


@dataclass
class StoredPainting:
    """A painting, its text in the address with that text's factors, and when it was written (monotonic seconds)."""

    painting: Painting
    text: str = ""
    factors: Factors | None = None
    written: float = 0.0


@dataclass
class StoredDraft:
    """The draft of this session in the store: its token, and its tables of factors by name, the newest last."""

    token: str = ""
    tables: dict[str, bytes] = field(default_factory=dict)


def note_painted_text() -> None:
    """Note the painting in the address. A page calls this only when the whole page is drawn.

    A part that is drawn alone does not follow the address: its requests may have the address from before the last
    stroke.
    """
    text = st.query_params.get(address.PAINTED_FACTORS, "")
    stored = st.session_state.get(PAINTING_KEY)
    if view_state.is_entered():  # the address wins if it has a painting, else the session
        st.session_state[_CHAIN_KEY] = view_state.value_from_link(address.CHAIN)
        if text or stored is None:
            st.session_state[_ADDRESS_TEXT_KEY] = text
    elif stored is not None and time.monotonic() - stored.written > STALE_SECONDS:  # the browser went back or forward
        st.session_state[_ADDRESS_TEXT_KEY] = text
    view_state.write_parameter(address.CHAIN, painted_chain())


def painted_chain() -> str:
    """The chain from Merge that the factors belong to, as a link writes it; empty if painting began on Masks."""
    return str(st.session_state.get(_CHAIN_KEY, ""))


def follow_address(
    experts: Sequence[str], tensors: Sequence[str], read_factors: Callable[[str], Factors]
) -> tuple[Painting, str]:
    """The session's painting of these tensors, updated from the address; and the reason if that fails, else "".

    ``read_factors`` returns the factors (experts, tensors) of a text in the address, and raises MergingError.
    """
    stored = st.session_state.get(PAINTING_KEY)
    address_text, problem = st.session_state.pop(_ADDRESS_TEXT_KEY, None), ""
    is_new = not isinstance(stored, StoredPainting) or not stored.painting.fits(experts, tensors)
    if is_new:
        stored = st.session_state[PAINTING_KEY] = StoredPainting(Painting.blank(experts, tensors))
    if address_text is None or (address_text == stored.text and not is_new):
        return stored.painting, ""
    try:
        factors = read_factors(address_text)
    except MergingError as error:
        problem = str(error)
    else:
        if is_new:
            stored.painting.factors = factors
        else:
            stored.painting.go_to(factors, "from the address")
        stored.text, stored.factors = address_text, stored.painting.factors
    return stored.painting, problem


def current_painting() -> Painting | None:
    """The session's painting, for callbacks; None if there is none."""
    stored = st.session_state.get(PAINTING_KEY)
    return stored.painting if isinstance(stored, StoredPainting) else None


def write_painting(format_factors: Callable[[Factors], str]) -> str:
    """Write the painting into the address, if it is not there; ``format_factors`` returns the text for factors.

    The text of a link stays unchanged, so that the browser's Back leads to the page before the link.
    """
    stored: StoredPainting = st.session_state[PAINTING_KEY]
    factors = stored.painting.factors
    if stored.factors is None or not np.array_equal(stored.factors, factors):
        stored.text, stored.factors = format_factors(factors), factors
    if st.query_params.get(address.PAINTED_FACTORS, "") != stored.text:
        stored.written = time.monotonic()  # the browser does not have it yet
    view_state.write_parameter(address.PAINTED_FACTORS, stored.text)
    return stored.text


def stored_draft() -> StoredDraft:
    """This session's draft in the store, for tables that are too long for the address."""
    draft: StoredDraft = st.session_state.setdefault(_STORED_DRAFT_KEY, StoredDraft())
    return draft
