"""Glossary words on the page: those already explained, and the one for which the page was opened."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.session import address, view_state

_OPENED_FOR_WORD_KEY, _EXPLAINED_KEY = "_for_a_word", "_explained"


def is_opened_for_word() -> bool:
    """Whether the page was opened by a link to the explanation of a word."""
    if view_state.value_from_link(address.WORD):
        st.session_state[_OPENED_FOR_WORD_KEY] = True
    return bool(st.session_state.get(_OPENED_FOR_WORD_KEY))


def begin_page() -> None:
    """Begin a page: no word on it is explained yet."""
    st.session_state[_EXPLAINED_KEY] = {}
    if not view_state.relative_address().startswith("methods"):
        st.session_state.pop(_OPENED_FOR_WORD_KEY, None)


def words_in_other_positions(position: str) -> set[str]:
    """The words that the page explains in another position than ``position``."""
    positions: dict[str, str] = st.session_state.get(_EXPLAINED_KEY, {})
    return {word for word, other_position in positions.items() if other_position != position}


def note_explained(position: str, words: Sequence[str]) -> None:
    """Note that these words are explained at this position on the page."""
    st.session_state[_EXPLAINED_KEY] = {**st.session_state.get(_EXPLAINED_KEY, {}), **dict.fromkeys(words, position)}
