"""Glossary words on the page: those already explained, and the one for which the page was opened."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.session import address, view_state

_FOR_A_WORD, _EXPLAINED = "_for_a_word", "_explained"


def is_opened_for_word() -> bool:
    """Whether the page was opened by a link to the explanation of a word."""
    if view_state.value_from_link(address.WORD):
        st.session_state[_FOR_A_WORD] = True
    return bool(st.session_state.get(_FOR_A_WORD))


def begin_page() -> None:
    """Begin a page: no word on it is explained yet."""
    st.session_state[_EXPLAINED] = {}
    if not view_state.relative_address().startswith("methods"):
        st.session_state.pop(_FOR_A_WORD, None)


def words_explained_elsewhere(place: str) -> set[str]:
    """The words that are explained on the page in another position than ``place``."""
    positions: dict[str, str] = st.session_state.get(_EXPLAINED, {})
    return {word for word, position in positions.items() if position != place}


def note_explained(place: str, words: Sequence[str]) -> None:
    """Note that these words are explained in the position ``place`` on the page."""
    st.session_state[_EXPLAINED] = {**st.session_state.get(_EXPLAINED, {}), **dict.fromkeys(words, place)}
