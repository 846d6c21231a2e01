"""Modes of a server: the table, the variable, and a queue that holds to it."""

from __future__ import annotations

import pytest

from merging.base import modes
from merging.base.errors import ModeError
from merging.base.modes import ALLOWED_ACTIONS, Mode, VisitorAction


def test_full_allows_everything_class_less_and_read_nothing(monkeypatch):
    assert (
        ALLOWED_ACTIONS[Mode.FULL]
        == set(VisitorAction)
        > ALLOWED_ACTIONS[Mode.CLASS]
        > ALLOWED_ACTIONS[Mode.READ]
        == set()
    )
    monkeypatch.delenv(modes.MODE_VARIABLE, raising=False)
    monkeypatch.delenv("MERGESCOPE_SHARED", raising=False)
    assert modes.server_mode() == Mode.FULL and not modes.is_shared()
    for written, mode in ((" Class ", Mode.CLASS), ("read", Mode.READ)):
        monkeypatch.setenv(modes.MODE_VARIABLE, written)
        assert modes.server_mode() == mode and modes.is_shared()


def test_where_several_people_share_a_server_in_full_mode_nothing_is_uploaded_typed_or_deleted(monkeypatch):
    monkeypatch.delenv(modes.MODE_VARIABLE, raising=False)
    monkeypatch.setenv(modes.SHARED_VARIABLE, "1")
    refused = {act for act in VisitorAction if not modes.is_allowed(act)}
    assert refused == {VisitorAction.UPLOAD, VisitorAction.PATH, VisitorAction.DELETE}
    for act in refused:
        assert modes.explain_refusal(act).startswith(f"Several people use this server, so it has no {act}. ")
    monkeypatch.setenv(modes.SHARED_VARIABLE, "off")
    assert all(map(modes.is_allowed, VisitorAction))


def test_a_wrong_value_names_the_right_ones(monkeypatch):
    monkeypatch.setenv(modes.MODE_VARIABLE, "classs")
    with pytest.raises(ModeError, match=r"is 'classs'; expected one of full, class, read. Did you mean 'class'\?"):
        modes.server_mode()


@pytest.mark.parametrize("act", VisitorAction)
def test_a_refusal_names_the_mode_and_a_way(act, monkeypatch):
    monkeypatch.setenv(modes.MODE_VARIABLE, "read")
    assert modes.explain_refusal(act).startswith(f"This server is in read mode, which has no {act}. ")
    assert "own machine" in modes.explain_refusal(act)
