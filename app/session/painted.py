"""The painting of this session and its text in the address, which links, reloads and the browser's Back restore."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import streamlit as st

from app.session import address, state
from app.session.painting import Factors, Painting
from merging.base.errors import MergingError

KEPT = "_painting"
_SEEN, _DRAFTED, _CHAIN = "_painted_seen", "_painted_drafted", "_painted_chain"
STALE = 0.5  # seconds in which the browser may still send the address that it had before the last stroke


@dataclass
class Kept:
    """A painting, the factors that the text in the address stands for, and when that text was written."""

    painting: Painting
    text: str = ""
    factors: Factors | None = None
    written: float = 0.0


@dataclass
class Drafted:
    """The draft of this session in the store: its token, and the tables of factors in it by name, the newest last."""

    token: str = ""
    tables: dict[str, bytes] = field(default_factory=dict)


def note_address() -> None:
    """Note what the address says of the painting. A page calls this where all of it is drawn.

    A part that is drawn alone does not follow the address: its requests may have the one from before the last stroke.
    """
    text = st.query_params.get(address.PAINTED_FACTORS, "")
    kept = st.session_state.get(KEPT)
    if state.is_entered():  # the address counts if it says anything, else the session
        st.session_state[_CHAIN] = state.linked(address.CHAIN)
        if text or kept is None:
            st.session_state[_SEEN] = text
    elif kept is not None and time.monotonic() - kept.written > STALE:  # the browser went back or forward
        st.session_state[_SEEN] = text
    state.write(address.CHAIN, chain())


def chain() -> str:
    """The chain from Merge that the factors belong to, as a link writes it; empty if painting began on Masks."""
    return str(st.session_state.get(_CHAIN, ""))


def current(experts: Sequence[str], tensors: Sequence[str], read: Callable[[str], Factors]) -> tuple[Painting, str]:
    """The session's painting of these tensors, after what the address asks for; and why it cannot be followed, if so.

    ``read`` gives the factors that a text in the address stands for, and raises MergingError.
    """
    kept = st.session_state.get(KEPT)
    seen, problem = st.session_state.pop(_SEEN, None), ""
    new = not isinstance(kept, Kept) or not kept.painting.fits(experts, tensors)
    if new:
        kept = st.session_state[KEPT] = Kept(Painting.blank(experts, tensors))
    if seen is None or (seen == kept.text and not new):
        return kept.painting, ""
    try:
        factors = read(seen)
    except MergingError as error:
        problem = str(error)
    else:
        if new:
            kept.painting.factors = factors
        else:
            kept.painting.go_to(factors, "from the address")
        kept.text, kept.factors = seen, kept.painting.factors
    return kept.painting, problem


def painting() -> Painting | None:
    """The session's painting, for callbacks; None if there is none."""
    kept = st.session_state.get(KEPT)
    return kept.painting if isinstance(kept, Kept) else None


def write(text_of: Callable[[Factors], str]) -> str:
    """Put the painting into the address, if it is not there; ``text_of`` gives the text that stands for its factors.

    Returns that text.

    A link's own text stays as it is, so that the browser's Back leads past it.
    """
    kept: Kept = st.session_state[KEPT]
    now = kept.painting.factors
    if kept.factors is None or not np.array_equal(kept.factors, now):
        kept.text, kept.factors = text_of(now), now
    if st.query_params.get(address.PAINTED_FACTORS, "") != kept.text:
        kept.written = time.monotonic()  # the browser does not have it yet
    state.write(address.PAINTED_FACTORS, kept.text)
    return kept.text


def drafted() -> Drafted:
    """What this session keeps in the store of tables that are too long for the address."""
    kept = st.session_state.get(_DRAFTED)
    if not isinstance(kept, Drafted):
        kept = st.session_state[_DRAFTED] = Drafted()
    return kept
