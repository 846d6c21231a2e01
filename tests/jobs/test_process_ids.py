"""A process is known by its number and its time of birth."""

from __future__ import annotations

import os

from merging.tasks.queue.job_records import ProcessId


def test_this_process_is_alive_and_not_elsewhere() -> None:
    own = ProcessId.from_pid(os.getpid())
    assert own.is_alive() and not own.works_in_another_process()
    parent = ProcessId.from_pid(os.getppid())
    assert parent.is_alive() and parent.works_in_another_process()


def test_a_number_that_another_process_has_now_is_not_the_same_process() -> None:
    own = ProcessId.from_pid(os.getpid())
    assert not ProcessId(own.pid, own.born - 3600, own.host).is_alive()
    assert not ProcessId().is_alive() and ProcessId.from_pid(2**30) == ProcessId()
