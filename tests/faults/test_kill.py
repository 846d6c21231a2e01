"""Processes killed at every stage of a job: after a restart nothing is half, nothing is lost, and the rest can be done.

A stage is a change of the disk, or a report of progress (see tests/support/stages.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from daily import EVERY_STAGE, sampled
from fault_store import FaultStore, check_after_restart, entries, leftovers
from nursery import ProcessForker, submit
from stages import PUBLISHING, choose_stages
from stand_in_jobs import wait_for_end

from merging.study.run_queue import RunQueue
from merging.study.runs.run_store import Store
from merging.tasks.queue.job_records import Job, State

MOST = 8  # stages at which a job is killed, unless it has more visible renames
WORKS = ("merge", "sweep", "export")
SIGKILLED = -9


class Case:
    """One kind of work, what the store is before and after it, and the stages of its two processes."""

    def __init__(
        self, nursery: ProcessForker, stocked: FaultStore, name: str, folder: Path, env: Mapping[str, str]
    ) -> None:
        self.nursery, self.stocked, self.folder, self.env = nursery, stocked, folder, env
        self.root = folder / "store"  # the same for every attempt: paths are in commands
        self.request = next(work for work in stocked.works if work.name == name).request(self.root)
        self.before = entries(stocked.root)
        self.renew()
        assert self.serve({"log": str(folder / "server")}, {"log": str(folder / "job")}) == 0
        self.after = entries(self.root)
        assert self.after != self.before
        self.stages = {who: (folder / who).read_text().splitlines() for who in ("server", "job")}

    def renew(self) -> None:
        """The store as it is before."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.stocked.copy(self.root)

    def serve(self, stages: Mapping[str, Any] | None, job: Mapping[str, Any] | None, **how: Any) -> int:
        """Let a new server do the work; its exit code, after its job has ended, too."""
        at = {"root": str(self.root)}
        server = self.nursery.start(
            "serve", self.env, self.folder / "log", root=str(self.root), asked=[self.request],
            stages=stages and {**at, **stages}, job=job and {**at, **job}, **how,
        )  # fmt: skip
        code = server.wait()
        self.nursery.settle()
        return code

    def check_after_restart(self, told: State | None = None) -> None:
        """A new server finds nothing half, says what happened, and can finish the work."""
        runner = RunQueue(Store(self.root, libraries=()), device="cpu")
        try:
            check_after_restart(self.root, self.before, self.after)
            jobs = runner.list_jobs()
            assert [job.state for job in jobs] == ([] if not jobs else [told or check_told(jobs[0])])
            again = runner.submit_again(jobs[0].id) if jobs else submit(runner, self.request)
            job = wait_for_end(runner, again.id)
            assert (job.state, job.error) == (State.DONE, "")
            assert entries(self.root) == self.after
            assert leftovers(self.root) == []
        finally:
            runner.close()


def check_told(job: Job) -> State:
    """What is said of a job fits its state; gives that state."""
    assert bool(job.error) == (job.state == State.INTERRUPTED)
    assert job.state in {State.INTERRUPTED, State.DONE}
    return State(job.state)


@pytest.fixture
def case(
    request: pytest.FixtureRequest, nursery: ProcessForker, stocked: FaultStore, tmp_path: Path, environment: dict[str,
    str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Case]:  # fmt: skip
    monkeypatch.setattr("subprocess.Popen", nursery.popen())
    made = Case(nursery, stocked, request.param, tmp_path, environment)
    yield made
    nursery.settle()


@pytest.mark.full
@EVERY_STAGE
@pytest.mark.parametrize("case", WORKS, indirect=True)
def test_job_and_server_killed_at_a_stage_of_the_job(case: Case, every: bool) -> None:
    for number in sampled(choose_stages(case.stages["job"], MOST), every, "job and server"):
        case.renew()
        code = case.serve(None, {"kill_at": number}, with_server=True)
        assert code == SIGKILLED, case.stages["job"][number - 1]
        case.check_after_restart()


@EVERY_STAGE
@pytest.mark.parametrize("case", ["merge"], indirect=True)
def test_the_server_alone_killed_at_a_stage_of_its_own(case: Case, every: bool) -> None:
    """Its job goes on; a new server sees that, and does not take what was done for interrupted."""
    for number in sampled(choose_stages(case.stages["server"], 12), every, "server alone"):
        case.renew()
        stage = case.stages["server"][number - 1]
        assert case.serve({"kill_at": number}, {}) == SIGKILLED, stage
        case.check_after_restart(State.DONE if entries(case.root) == case.after else State.INTERRUPTED)


@pytest.mark.full
@pytest.mark.parametrize("case", WORKS, indirect=True)
def test_the_job_alone_killed(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server clears up at once, says what happened, and does the work when asked again."""
    publishing = next(n for n, name in enumerate(case.stages["job"], 1) if name.startswith(PUBLISHING))
    for number in (publishing - 1, publishing):
        case.renew()
        runner = RunQueue(Store(case.root, libraries=()), device="cpu")
        with monkeypatch.context() as patch:
            patch.setattr("subprocess.Popen", case.nursery.popen({"root": str(case.root), "kill_at": number}))
            job = wait_for_end(runner, submit(runner, case.request).id)
        assert job.state == State.FAILED
        assert job.error.startswith("It was killed"), "whether memory was short depends on the machine"
        check_after_restart(case.root, case.before, case.after)
        runner.close()
        case.check_after_restart(State.FAILED)
