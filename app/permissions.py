"""The permissions of this server's visitors. Every function that writes checks them, independently of the page.

The mode, ``MERGESCOPE_SHARED`` and the server's network address decide: some actions are only for a single user.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import streamlit as st

from merging.base import modes
from merging.base.errors import ModeError
from merging.base.modes import VisitorAction
from merging.tasks.workers.certificates import is_this_machine

REQUIRED_ACTIONS: dict[str, tuple[VisitorAction, Callable[..., object]]] = {}
# By module and name of a decorated function: the action that it requires, and the function with the check.
P = ParamSpec("P")
R = TypeVar("R")


def is_allowed(action: VisitorAction) -> bool:
    """Whether visitors of this server may do the action."""
    return modes.is_allowed(action) and not (action in modes.SINGLE_USER_ACTIONS and has_others())


def has_others() -> bool:
    """Whether several people may use this server: a setting says so, or other machines can reach it."""
    return modes.is_shared() or not is_this_machine(str(st.get_option("server.address")))


def require(action: VisitorAction) -> None:
    """Raises ModeError if visitors of this server may not do the action."""
    if not is_allowed(action):
        raise ModeError(modes.explain_refusal(action).replace("`", ""))


def requires(action: VisitorAction) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: the function raises ModeError, and does nothing, if visitors may not do the action."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            require(action)
            return function(*args, **kwargs)

        REQUIRED_ACTIONS[f"{function.__module__}.{function.__qualname__}"] = action, call
        return call

    return decorate
