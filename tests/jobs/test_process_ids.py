"""A process is known by its number and its time of birth."""

from __future__ import annotations

import os

from merging.tasks.queue.job_records import ProcessId


def test_this_process_is_alive_and_not_elsewhere() -> None:
    own = ProcessId.of(os.getpid())
    assert own.alive() and not own.elsewhere()
    parent = ProcessId.of(os.getppid())
    assert parent.alive() and parent.elsewhere()


def test_a_number_that_another_process_has_now_is_not_the_same_process() -> None:
    own = ProcessId.of(os.getpid())
    assert not ProcessId(own.pid, own.born - 3600, own.host).alive()
    assert not ProcessId().alive() and ProcessId.of(2**30) == ProcessId()
