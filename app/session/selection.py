"""The visitor's selection: a tensor, an expert or its task, an image, a class. One selection for all pages.

It is in the address as ``tensor`` with ``action_scope`` (its block, its layer), ``expert``, ``image``
(task:split:index) and ``class_name``.
"""

from __future__ import annotations

import streamlit as st

from app.session import address, view_state

TENSOR, EXPERT, IMAGE, CLASS = address.TENSOR, address.EXPERT, address.IMAGE, address.CLASS_NAME
SCOPE = address.ACTION_SCOPE
NOUNS = {TENSOR: "tensor", EXPERT: "expert", IMAGE: "image", CLASS: "class"}
KINDS = (*NOUNS, SCOPE)
THIS_TENSOR = "this tensor"  # the scope if none is chosen, which the address leaves out
SCOPE_EXTENTS = {  # kind: all tensors of its role
    THIS_TENSOR: "tensor", "its block": "block", "this layer in all blocks": "layer", "its kind": "kind",
}  # fmt: skip
PICK_HINT, MARK_HINT = "Click {}, or choose", "Click {} to mark it on all pages."  # of charts, with "a tensor"
_SELECTION_KEY, _SHOWN_KINDS_KEY, _PICKERS_KEY = "_selection", "_selection_shown", "_selection_pickers"


def follow_link() -> None:
    """Read the link that was just opened, and write the selection into the address of the page that is drawn next."""
    st.session_state[_SHOWN_KINDS_KEY] = set()
    for kind in KINDS:
        if value := view_state.value_from_link(kind):
            _chosen_values()[kind] = value[:300]
        view_state.write_parameter(kind, chosen_value(kind))


def _chosen_values() -> dict[str, str]:
    chosen: dict[str, str] = st.session_state.setdefault(_SELECTION_KEY, {})
    return chosen


def chosen_value(kind: str) -> str:
    """The chosen tensor, expert, image or class; empty if none is chosen."""
    return _chosen_values().get(kind, "")


def choose_value(kind: str, value: str | None) -> None:
    """Choose a tensor, its scope, an expert, an image or a class for every page; None clears the choice."""
    _chosen_values()[kind] = "" if value in (None, THIS_TENSOR) else value
    view_state.write_parameter(kind, chosen_value(kind))


def chosen_scope() -> str:
    """What is chosen with the tensor, a key of ``SCOPE_EXTENTS``."""
    return scope if (scope := chosen_value(SCOPE)) in SCOPE_EXTENTS else THIS_TENSOR


def clear_selection() -> None:
    """Choose nothing."""
    for kind in KINDS:
        choose_value(kind, None)


def note_shown(kind: str) -> None:
    """Note that the page that is being drawn shows the selection of this kind."""
    st.session_state.setdefault(_SHOWN_KINDS_KEY, set()).add(kind)


def mark_value(kind: str) -> str | None:
    """The selection of this kind for a chart that marks it; None if nothing is chosen."""
    note_shown(kind)
    return chosen_value(kind) or None


def kinds_not_shown() -> list[str]:
    """The kinds with a selection that the page does not show."""
    return [kind for kind in NOUNS if chosen_value(kind) and kind not in st.session_state.get(_SHOWN_KINDS_KEY, ())]


def picker_key(kind: str, value: str | None) -> str:
    """The key of the picker that shows ``value``: a new one whenever something other than the picker changed the value.

    A new picker begins with the value in the browser, too. A picker that was changed through the session would not, if
    the visitor interrupts the script before the browser has the change.
    """
    pickers: dict[str, tuple[int, str | None]] = st.session_state.setdefault(_PICKERS_KEY, {})
    count, shown = pickers.get(kind, (0, value))
    pickers[kind] = (count + (shown != value), value)
    return _picker_key(kind, pickers[kind][0])


def choose_from_picker(kind: str, key: str) -> None:
    """Callback of a picker; a request with the key of an earlier picker is not a choice."""
    pickers: dict[str, tuple[int, str | None]] = st.session_state.setdefault(_PICKERS_KEY, {})
    count, _ = pickers.get(kind, (0, None))
    if key == _picker_key(kind, count):
        value = st.session_state[key]
        pickers[kind] = (count, value)
        choose_value(kind, value)


def _picker_key(kind: str, count: int) -> str:
    return f"{kind}_{count}" if count else kind
