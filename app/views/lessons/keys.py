"""The keys that turn the steps of a lesson: comma and point, and those of a presentation remote."""

from __future__ import annotations

from functools import cache
from typing import Any

import streamlit as st

# Streamlit's own shortcuts of buttons know neither a comma nor two keys for one button.
LISTEN = """export default () => {
  const buttons = { ",": "lesson_back", PageUp: "lesson_back", ".": "lesson_next", PageDown: "lesson_next" };
  const typing = (target) => target.closest?.(
    'textarea, select, [contenteditable="true"], input:not([type="range"], [type="radio"], [type="checkbox"])');
  const press = (event) => {
    const name = buttons[event.key];
    const ranged = event.key.startsWith("Page") && event.target.closest?.('input[type="range"], [role="slider"]');
    const held = event.ctrlKey || event.metaKey || event.altKey || event.repeat;
    if (!name || ranged || held || typing(event.target)) return;
    const button = document.querySelector(`.st-key-${name} button:not([disabled])`);
    if (!button) return;
    event.preventDefault();
    button.click();
  };
  window.addEventListener("keydown", press);
  return () => window.removeEventListener("keydown", press);
};"""


@cache
def _listener() -> Any:
    """The part of the page that hears the keys, registered once."""
    return st.components.v2.component("mergescope_lesson_keys", js=LISTEN)


def listen() -> None:
    """Let the keys press Back and Next."""
    _listener()(key="lesson_keys", height=0)
