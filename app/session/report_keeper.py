"""Stores the report of a session under the random token in the address, and finds it there again.

A token opens one report in every tab and on every reload. Each change first reads the changes of other tabs and is
stored at once; only new charts are written. If the store fails, the report stays in this session, and the page reports
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import streamlit as st

from app.session import address, report_codec
from app.session.report_draft import ReportDraft
from merging.base.errors import MergingError, StoreError
from merging.study.runs import drafts
from merging.study.runs.drafts import Drafts
from merging.study.runs.run_store import Store

DRAFT_KIND = "report"
FIELD_PREFIXES = ("report_title", "report_introduction", "report_tables", "report_recipes", "view_title_", "view_note_")
NOT_STORED = "The report exists in this session only, and a reload loses it. {}"
DELETED = "The report was deleted from the store. The next change in this tab stores it again."
NO_STATE = (0, 0, 0)  # the state of a report that is not stored
_KEEPER_KEY, _RESET_COUNT_KEY = "_report_keeper", "_report_forgotten"


class ReportKeeper:
    """The report of one session: ``token`` names it in the store, ``problem`` explains why storing failed."""

    def __init__(self, token: str = "") -> None:
        self.token, self.problem = token, ""
        self._draft = ReportDraft(changing=self._changing)
        self._state = NO_STATE  # of the stored report that the draft was read from or written to

    @cached_property
    def drafts(self) -> Drafts:
        """The stored drafts."""
        return Drafts(Store(libraries=()))

    def read_draft(self) -> ReportDraft:
        """The current report; read again if another tab changed it."""
        if self.token:
            self._read()
        return self._draft

    def _read(self) -> None:
        token, before = self.token, self._state
        state = self.drafts.state(DRAFT_KIND, token)
        if state == before != NO_STATE:
            return
        try:
            payload = self.drafts.read(DRAFT_KIND, token)
            part = partial(self.drafts.read_part, DRAFT_KIND, token)
            self._draft.take_over(report_codec.decode(payload, part, self._draft.views))
            self._state, self.problem = state, ""
            _forget_fields()
        except StoreError as error:
            self.token, self._state = "", NO_STATE
            self.problem = DELETED if state == NO_STATE != before else str(error)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Read the stored report, let the change happen, and store the result."""
        if self.token:
            self._read()
        yield
        try:
            payload, parts = report_codec.encode(self._draft), report_codec.make_table_writers(self._draft)
            self.token = self.drafts.store(DRAFT_KIND, payload, self.token, parts)
            self._state, self.problem = self.drafts.state(DRAFT_KIND, self.token), ""
        except MergingError as error:
            self.problem = NOT_STORED.format(error)
        show_token()

    def delete(self) -> None:
        """Delete the report from the store and from this session. Raises StoreError if it cannot be deleted."""
        if self.token:
            self.drafts.remove(DRAFT_KIND, self.token)
        start_report()


def current_keeper() -> ReportKeeper:
    """The keeper of this session."""
    keeper: ReportKeeper = st.session_state.setdefault(_KEEPER_KEY, ReportKeeper())
    return keeper


def current_report() -> ReportDraft:
    """The report of this session, read from the store if another tab changed it."""
    return current_keeper().read_draft()


def without_token(query: Mapping[str, Any]) -> dict[str, Any]:
    """The query without the report's token, for links that must not open the report."""
    return {key: value for key, value in query.items() if key != address.REPORT_TOKEN}


def open_linked_report(token: str) -> None:
    """Once for every run of a page: open the report that the link names, and put its token into the address."""
    if token and token != current_keeper().token:
        open_report(token)
    keeper = current_keeper()
    if keeper.token and keeper.drafts.state(DRAFT_KIND, keeper.token) == NO_STATE:
        keeper.read_draft()  # notes whether it exists; an existing report is read when it is needed
    show_token()


def show_token() -> None:
    """Put the token into the address."""
    token = current_keeper().token
    if token and st.query_params.get(address.REPORT_TOKEN) != token:
        st.query_params[address.REPORT_TOKEN] = token
    elif not token and address.REPORT_TOKEN in st.query_params:
        del st.query_params[address.REPORT_TOKEN]


def start_report() -> None:
    """Start a new report; the previous one stays in the store."""
    open_report("")


def open_report(token: str) -> None:
    """Continue with the report under this token."""
    st.session_state[_KEEPER_KEY] = ReportKeeper(token)
    _forget_fields()
    show_token()


def list_earlier_reports() -> list[drafts.Draft]:
    """The stored reports other than this one, newest first; empty for visitors who may not read the whole store."""
    keeper = current_keeper()
    return [draft for draft in keeper.drafts.list_drafts(DRAFT_KIND) if draft.token != keeper.token]


def field_key(name: str) -> str:
    """The key of a field of the Report page; a new one after ``_forget_fields``.

    A new field begins with the report's value in the browser, too. A field that was changed through the session would
    not, if the visitor interrupts the script before the browser has the change.
    """
    count = st.session_state.get(_RESET_COUNT_KEY, 0)
    return f"{name}_{count}" if count else name


def _forget_fields() -> None:
    """Forget the values of the fields on the Report page, so that they show the report again."""
    if any(isinstance(key, str) and key.startswith(FIELD_PREFIXES) for key in st.session_state):
        st.session_state[_RESET_COUNT_KEY] = st.session_state.get(_RESET_COUNT_KEY, 0) + 1
