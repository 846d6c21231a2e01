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

SESSION_KEY = "_painting"
_SEEN, _DRAFTED, _CHAIN = "_painted_seen", "_painted_drafted", "_painted_chain"
STALE_SECONDS = 0.5  # seconds in which the browser may still send the address that it had before the last stroke


@dataclass
class StoredPainting:
    """A painting, the text in the address with its factors, and the time when that text was written."""

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
    stored = st.session_state.get(SESSION_KEY)
    if view_state.is_entered():  # the address wins if it has a painting, else the session
        st.session_state[_CHAIN] = view_state.value_from_link(address.CHAIN)
        if text or stored is None:
            st.session_state[_SEEN] = text
    elif stored is not None and time.monotonic() - stored.written > STALE_SECONDS:  # the browser went back or forward
        st.session_state[_SEEN] = text
    view_state.write_parameter(address.CHAIN, painted_chain())


def painted_chain() -> str:
    """The chain from Merge that the factors belong to, as a link writes it; empty if painting began on Masks."""
    return str(st.session_state.get(_CHAIN, ""))


def follow_address(
    experts: Sequence[str], tensors: Sequence[str], read: Callable[[str], Factors]
) -> tuple[Painting, str]:
    """The session's painting of these tensors, updated from the address; and the reason if that fails, else "".

    ``read`` returns the factors (experts, tensors) of a text in the address, and raises MergingError.
    """
    stored = st.session_state.get(SESSION_KEY)
    seen, problem = st.session_state.pop(_SEEN, None), ""
    new = not isinstance(stored, StoredPainting) or not stored.painting.fits(experts, tensors)
    if new:
        stored = st.session_state[SESSION_KEY] = StoredPainting(Painting.blank(experts, tensors))
    if seen is None or (seen == stored.text and not new):
        return stored.painting, ""
    try:
        factors = read(seen)
    except MergingError as error:
        problem = str(error)
    else:
        if new:
            stored.painting.factors = factors
        else:
            stored.painting.go_to(factors, "from the address")
        stored.text, stored.factors = seen, stored.painting.factors
    return stored.painting, problem


def painting() -> Painting | None:
    """The session's painting, for callbacks; None if there is none."""
    stored = st.session_state.get(SESSION_KEY)
    return stored.painting if isinstance(stored, StoredPainting) else None


def write_painting(text_of: Callable[[Factors], str]) -> str:
    """Write the painting into the address, if it is not there; ``text_of`` returns the text for factors.

    Returns that text.

    A link's own text stays as it is, so that the browser's Back leads past it.
    """
    stored: StoredPainting = st.session_state[SESSION_KEY]
    now = stored.painting.factors
    if stored.factors is None or not np.array_equal(stored.factors, now):
        stored.text, stored.factors = text_of(now), now
    if st.query_params.get(address.PAINTED_FACTORS, "") != stored.text:
        stored.written = time.monotonic()  # the browser does not have it yet
    view_state.write_parameter(address.PAINTED_FACTORS, stored.text)
    return stored.text


def stored_draft() -> StoredDraft:
    """This session's draft in the store, for tables that are too long for the address."""
    draft = st.session_state.get(_DRAFTED)
    if not isinstance(draft, StoredDraft):
        draft = st.session_state[_DRAFTED] = StoredDraft()
    return draft
