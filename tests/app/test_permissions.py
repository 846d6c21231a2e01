"""What a mode forbids is decided in one place, which everything of the app that writes passes."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st
import writing_calls
from stand_in_jobs import SLEEP, wait_for_end, wait_until

from app import permissions
from app.guards import messages
from app.reading import page_data
from app.session.click_errors import PROBLEM_KEY
from app.session.job_queue import SessionQueue
from merging.base import modes
from merging.base.errors import ModeError
from merging.base.modes import VisitorAction
from merging.study.run_queue import RunQueue
from merging.study.runs.run_store import Store
from merging.tasks.queue.job_records import JobFiles

# What changes something in every mode, and why it may.
FOR_EVERYBODY = {
    ("app.live.component", "_make_temporary_root"): "where the server of Mix only reads",
    ("app.live.component", "_write_once"): "the files of Mix, once for a benchmark",
    ("app.live.desk", "write_desk"): "the files of Mix, once for a benchmark",
    ("app.live.fetch", "fetch"): "a command, which no visitor reaches",
    ("app.reading.polls", "record_answer"): "counts in a class",
    ("app.reading.previews", "cancel_preview"): "drops a preview of the session's own",
    ("app.serve", "settings_problem"): "the server's start",
    ("app.session.job_queue", "cancel"): "the session's own jobs only, see below",
    ("app.session.report_keeper", "_changing"): "the report of whoever has its token",
    ("app.session.report_keeper", "delete"): "the report of whoever has its token",
    ("app.snapshot.site_folder", "_replace_folder"): "a command, which no visitor reaches",
    ("app.snapshot.site_folder", "write_site"): "a command, which no visitor reaches",
    ("app.views.lessons.class_panel", "_begin_class"): "a class",
    ("app.views.lessons.class_panel", "_end_class"): "the session's own class",
}
ALONE = {VisitorAction.UPLOAD, VisitorAction.PATH, VisitorAction.DELETE}
SERVERS = {  # {how a server is set up: what its visitors may do}
    "full": set(VisitorAction),
    "switch": set(VisitorAction) - ALONE,
    "address": set(VisitorAction) - ALONE,
    "class": {VisitorAction.MERGE, VisitorAction.MEASURE, VisitorAction.PREVIEW},
    "read": set(),
}


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A server that is set up in this way."""
    how = str(request.param)
    monkeypatch.delenv(modes.SHARED_VARIABLE, raising=False)
    monkeypatch.setenv(modes.MODE_VARIABLE, how if how in modes.MODE_NAMES else "full")
    if how == "switch":
        monkeypatch.setenv(modes.SHARED_VARIABLE, "1")
    if how == "address":
        monkeypatch.setattr(permissions, "is_this_machine", lambda _host: False)
    return how


def test_everything_that_writes_asks() -> None:
    found = [function for function, _ in writing_calls.writing_calls().values()]
    unasked = {(one.module, one.node.name) for one in found if not writing_calls.asks_permission(one)}
    assert unasked == set(FOR_EVERYBODY)


def test_each_writing_call_is_refused_where_its_act_is(server: str) -> None:
    for function, _ in writing_calls.writing_calls().values():
        importlib.import_module(function.module)
    assert {act for act, _ in permissions.REQUIRED_ACTIONS.values()} > ALONE
    for name, (act, call) in permissions.REQUIRED_ACTIONS.items():
        assert permissions.is_allowed(act) == (act in SERVERS[server]), name
        if not permissions.is_allowed(act):
            with pytest.raises(ModeError, match="own machine"):
                call()


@pytest.fixture
def queues(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], SessionQueue]]:
    """The queue as the session of that name sees it; its jobs do nothing until they are stopped."""

    def start(files: JobFiles, *_: object) -> subprocess.Popen[bytes]:
        with (files.folder / "log.txt").open("wb") as log:
            return subprocess.Popen([sys.executable, "-c", SLEEP], stdout=log, start_new_session=True)

    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    monkeypatch.setattr(JobFiles, "start", start)
    store = Store(tmp_path / "store", libraries=())
    runner = RunQueue(store, device="cpu")
    yield lambda session: SessionQueue(runner, store, tiny_folder, lambda: None, session)
    runner.close()


def said() -> str:
    """What the last click refused, once."""
    return str(st.session_state.pop(PROBLEM_KEY, ""))


def test_a_command_asks_by_what_it_does(server: str, queues: Callable[[str], SessionQueue]) -> None:
    queue = queues("" if server in ("full", "address") else "mine")
    for words, act in ((["export", "x"], VisitorAction.EXPORT), (["digest", "x"], VisitorAction.COMMAND)):
        if act in SERVERS[server]:
            job = queue.command(words[0], "x", "title", words)
            assert job.is_live and queue.may_stop(job.id)
            queue.cancel(job.id)
            assert said() == ""
        else:
            with pytest.raises(ModeError, match="own machine"):
                queue.command(words[0], "x", "title", words)


@pytest.mark.parametrize("server", ["switch", "class"], indirect=True)
def test_the_job_of_another_session_is_left_alone(server: str, queues: Callable[[str], SessionQueue]) -> None:
    mine, theirs = queues("mine"), queues("theirs")
    job = mine.runner.submit_command("kind", "x", "title", ["digest", "x"], session="mine")
    wait_until(lambda: mine.get(job.id).state == "running")
    for change in (theirs.cancel, theirs.pause, theirs.dismiss):
        change(job.id)
        assert "another session" in said().casefold() or server == "class"  # where nobody may pause and dismiss
        assert mine.get(job.id).state == "running"
    with pytest.raises(ModeError):
        theirs.submit_again(job.id)
    assert mine.may_stop(job.id) and not theirs.may_stop(job.id)
    assert [one.id for one in mine.own_jobs()] == [job.id] and theirs.own_jobs() == []
    mine.cancel(job.id)
    assert said() == "" and wait_for_end(mine, job.id).state == "cancelled"


def test_a_job_for_which_others_wait_is_not_paused(
    monkeypatch: pytest.MonkeyPatch, queues: Callable[[str], SessionQueue]
) -> None:
    monkeypatch.setenv(modes.SHARED_VARIABLE, "1")
    first, other, second = queues("first"), queues("other"), queues("second")
    busy = other.sweep("a" * 12, "Before it")
    job = first.sweep("b" * 12, "Both want it")
    assert second.sweep("b" * 12, "Both want it").id == job.id
    first.pause(job.id)
    assert "Other sessions wait" in said() and first.get(job.id).state == "queued"
    first.cancel(job.id)  # leaves it
    assert said() == "" and second.get(job.id).state == "queued"
    second.pause(job.id)
    assert said() == "" and second.get(job.id).state == "paused" and other.get(busy.id).is_live


@pytest.mark.parametrize(("address", "others"), [("127.0.0.1", False), ("::1", False), ("0.0.0.0", True)])
def test_a_server_that_other_machines_reach_is_shared_for_all_that_asks(
    address: str, others: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.delenv(modes.SHARED_VARIABLE, raising=False)
    monkeypatch.delenv(modes.MODE_VARIABLE, raising=False)
    monkeypatch.setattr(permissions.st, "get_option", {"server.address": address}.get)
    assert permissions.has_others() == messages.has_others() == messages.is_refused(messages.CLEAR_CACHE) == others
    assert permissions.is_allowed(VisitorAction.DELETE) != others
    monkeypatch.setattr(page_data, "session_name", lambda: "name")
    assert page_data.job_queue().session == ("name" if others else "")
