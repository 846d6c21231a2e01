"""The color and symbol of each run: a pinned run has those of its slot, on all pages, for as long as it is pinned."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.session import address
from app.session.view_state import value_from_link, write_parameter
from merging.base.files.short_digest import resolve_prefix

MAX_PINS = 6
_PINNED, _SLOTS = "_pinned", "_run_slots"  # in the session: ids of pinned runs by slot; the slot of every run drawn
_DISTINCT_COLORS = 8  # slots of different colors; later ones repeat a color with another symbol


def follow_link() -> None:
    """Pin the runs in the link that was just opened, and write the pins into the address of the page."""
    if linked_ids := value_from_link(address.PINNED):
        st.session_state[_PINNED] = linked_ids.split(",")[:MAX_PINS]
    write_parameter(address.PINNED, ",".join(pins()))


def forget_pins() -> None:
    """Forget all pinned runs, for the switch to another benchmark."""
    for key in (_PINNED, _SLOTS):
        st.session_state.pop(key, None)


def pins() -> list[str]:
    """The id of the pinned run by slot; a free slot before the last pin has an empty id."""
    return list(st.session_state.get(_PINNED, ()))


def pin_run(run_id: str) -> None:
    """Callback: pin this run in its present slot if that is free, else in the first free one."""
    slots = pins() + [""] * (MAX_PINS - len(pins()))
    free = [slot for slot, pinned_id in enumerate(slots) if not pinned_id]
    if run_id in slots or not free:
        return
    present = st.session_state.get(_SLOTS, {}).get(run_id)
    slots[present if present in free else free[0]] = run_id
    _store_pins(slots)


def unpin_run(run_id: str) -> None:
    """Callback: free the slot of this run; the other pinned runs keep theirs."""
    _store_pins(["" if pinned_id == run_id else pinned_id for pinned_id in pins()])


def side_colors(run_a: str, run_b: str) -> tuple[str, str]:
    """The colors of two compared runs: those of their pins, gray beside a pinned run, or else those of A and B."""
    from viz import theme

    pinned = [resolve_prefix(pinned_id, (run_a, run_b)) for pinned_id in pins()]
    styles, is_any = theme.mark_styles(pinned), bool({run_a, run_b} & set(pinned))
    color_a, color_b = (theme.FADED, theme.FADED) if is_any else (theme.RUN_A, theme.RUN_B)
    return styles[run_a].color if run_a in styles else color_a, styles[run_b].color if run_b in styles else color_b


def _store_pins(slots: list[str]) -> None:
    while slots and not slots[-1]:
        slots.pop()
    st.session_state[_PINNED] = slots
    write_parameter(address.PINNED, ",".join(slots))


def order_by_slot(run_ids: Sequence[str]) -> list[str]:
    """The ids at the positions that fix their colors in charts: a pinned run at its slot, others where they were drawn.

    A slot of a pinned run that is not among them, and one that was another run's, is a gap with a name of its own.
    """
    slots = {resolve_prefix(pinned_id, run_ids): slot for slot, pinned_id in enumerate(pins()) if pinned_id}
    remembered: dict[str, int] = st.session_state.setdefault(_SLOTS, {})
    for run_id in run_ids:
        if run_id not in slots and remembered.get(run_id, -1) not in (-1, *slots.values()):
            slots[run_id] = remembered[run_id]
    for run_id in run_ids:
        if run_id not in slots:
            free = [slot for slot in range(len(slots) + len(run_ids) + 1) if slot not in slots.values()]
            unused = [slot for slot in free if slot not in remembered.values() and slot < _DISTINCT_COLORS]
            slots[run_id] = (unused or free)[0]
    remembered.update({run_id: slots[run_id] for run_id in run_ids})
    by_slot = {slot: run_id for run_id, slot in slots.items()}
    return [by_slot.get(slot, f"free slot {slot}") for slot in range(max(by_slot, default=-1) + 1)]
