"""The keys that turn a lesson's steps: comma, period and those of a presentation remote; r reveals, s opens notes."""

from __future__ import annotations

from functools import cache
from typing import Any

import streamlit as st

from app.session import view_state

# Streamlit's shortcuts of buttons support neither a comma nor two keys for one button.
SCRIPT = """const TURN = {
  ",": "lesson_back", PageUp: "lesson_back", ".": "lesson_next", PageDown: "lesson_next", r: "lesson_reveal",
};
const NOTES = "mergescope_notes";
let notes;  // the window of notes while it is open
const address = () => {
  const url = new URL(location.href);
  url.searchParams.delete("present");
  url.searchParams.set("notes", "1");
  return url.href;
};
const typing = (target) => target.closest?.(
  'textarea, select, [contenteditable="true"], input:not([type="range"], [type="radio"], [type="checkbox"])');
export default ({ data }) => {
  if (data.presenting && notes && !notes.closed) setTimeout(() => notes.location.replace(address()), 1500);
  const press = (event) => {
    const name = data.presenting || event.key !== "r" ? TURN[event.key] : undefined;
    const ranged = event.key.startsWith("Page") && event.target.closest?.('input[type="range"], [role="slider"]');
    const modified = event.ctrlKey || event.metaKey || event.altKey || event.repeat;
    if (ranged || modified || typing(event.target)) return;
    if (data.presenting && event.key === "s") {
      notes = window.open(address(), NOTES, "popup,width=900,height=700");
      return;
    }
    const button = name && document.querySelector(`.st-key-${name} button:not([disabled])`);
    if (!button) return;
    event.preventDefault();
    event.stopPropagation();
    button.click();
  };
  window.addEventListener("keydown", press, true);
  document.documentElement.dataset.lessonStep = data.step;  // the step that the keys turn
  return () => window.removeEventListener("keydown", press, true);
};"""


@cache
def _register_listener() -> Any:
    """The page's component that listens to the keys, registered once."""
    return st.components.v2.component("mergescope_lesson_keys", js=SCRIPT)


def draw_key_listener(number: int) -> None:
    """Listen to the keys that press Back and Next, and Reveal on a projector; notes show the step ``number``."""
    _register_listener()(key="lesson_keys", data={"step": number, "presenting": view_state.is_presenting()}, height=0)
