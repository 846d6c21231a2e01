"""Two servers and a command line on one store at the same second: one result each, and nobody waits for ever."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from fault_store import Entries, FaultStore, Request, check_locks_are_free, entries, leftovers
from nursery import ForkedProcess, ProcessForker
from stand_in_jobs import wait_until

from merging.base.errors import Cancelled
from merging.base.files.locks import hold_lock
from merging.recipes.recipe import Recipe
from merging.study.run_queue import RunQueue
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from merging.tasks.queue.job_records import State

WORKS = ("merge", "sweep", "export")
SOON = 0.5  # seconds until all begin
PATIENCE = 60.0  # seconds that a wait which should not be may take


class Shared:
    """A store that several processes work on."""

    def __init__(self, nursery: ProcessForker, stocked: FaultStore, folder: Path, env: Mapping[str, str]) -> None:
        self.nursery, self.folder, self.env = nursery, folder, env
        self.root = stocked.copy(folder / "store")
        self.before = entries(self.root)
        self.requests = {work.name: work.request(self.root) for work in stocked.works}

    def begin(self, works: Sequence[tuple[str, Request]], unlocked: bool = False) -> list[ForkedProcess]:
        """Servers and command lines that begin at the same time."""
        when = time.time() + SOON
        return [
            self.nursery.start(
                "run_together", self.env, self.folder / f"log{number}", how=how, begin=when, unlocked=unlocked,
                **({"root": str(self.root), "asked": [request]} if how == "serve" else {"words": self.words(request)}),
            )
            for number, (how, request) in enumerate(works)
        ]  # fmt: skip

    def words(self, request: Request) -> list[str]:
        """The command that does on a command line what a server is asked for."""
        method, *arguments = request
        if method == "submit":
            recipe = self.folder / "recipe.yaml"
            recipe.write_text(arguments[0])
            words = ["run", str(recipe)]
        elif method == "command":
            words = arguments[3]
        else:
            words = {"sweep": ["sweep", "--stored"], "measure": ["measure", arguments[0]]}[method]
            words = [*words, arguments[1] if method == "measure" else arguments[0]]
        device = [] if "--device" in words else ["--device", "cpu"]
        return [*words, "--store", str(self.root), *device]

    def hold(self, run_id: str) -> ForkedProcess:
        """A process that holds the lock of a run."""
        ready, log = self.folder / "ready", self.folder / "log"
        how = {"root": str(self.root), "run_id": run_id, "ready": str(ready)}
        holder = self.nursery.start("hold", self.env, log, **how)
        wait_until(ready.exists)
        return holder

    def finish(self, children: Sequence[ForkedProcess]) -> Entries:
        """What is there when all have ended well."""
        for number, child in enumerate(children):
            assert child.wait() == 0, (self.folder / f"log{number}").read_text()
        self.nursery.settle()
        runner = RunQueue(Store(self.root, libraries=()), device="cpu")
        assert {job.state for job in runner.list_jobs()} <= {State.DONE}
        assert leftovers(self.root) == []
        check_locks_are_free(self.root)
        assert not (self.root / "corrupt").exists()
        return entries(self.root)


@pytest.fixture
def shared(
    nursery: ProcessForker, stocked: FaultStore, tmp_path: Path, environment: Mapping[str, str]
) -> Iterator[Shared]:
    yield Shared(nursery, stocked, tmp_path, environment)
    nursery.settle()


@pytest.fixture(scope="module")
def alone(
    nursery: ProcessForker, stocked: FaultStore, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Entries]:
    """What a store holds after one kind of work that nobody else did."""
    env = {**os.environ, "MERGESCOPE_BENCHMARK": str(tiny_folder)}

    @cache
    def done(name: str) -> Entries:
        undisturbed = Shared(nursery, stocked, tmp_path_factory.mktemp(name), env)
        return undisturbed.finish(undisturbed.begin([("command", undisturbed.requests[name])]))

    return done


@pytest.mark.parametrize(
    ("name", "unlocked"),
    [
        ("merge", False), ("merge", True),
        *(pytest.param(name, True, marks=pytest.mark.full) for name in WORKS if name != "merge"),
    ],
)  # fmt: skip
def test_the_same_work_at_once_gives_one_result(
    shared: Shared, alone: Callable[[str], Entries], name: str, unlocked: bool
) -> None:
    request = shared.requests[name]
    works = [("serve", request), ("serve", request), ("command", request)]
    assert shared.finish(shared.begin(works, unlocked)) == alone(name)


@pytest.mark.full
def test_different_work_at_once_gives_all_results(shared: Shared, alone: Callable[[str], Entries]) -> None:
    works = [("serve", "merge"), ("serve", "measurement"), ("command", "sweep"), ("command", "export")]
    now = shared.finish(shared.begin([(how, shared.requests[name]) for how, name in works]))
    new = {
        name: {entry for entry, files in alone(name).items() if shared.before.get(entry) != files} for _, name in works
    }
    assert set(now) == set(shared.before).union(*new.values())
    for name, made in new.items():
        assert {entry: now[entry] for entry in made} == {entry: alone(name)[entry] for entry in made}, name


@pytest.mark.parametrize("sent", [signal.SIGSTOP, signal.SIGKILL])
def test_nobody_waits_for_a_holder_of_the_lock_that_is_stopped_or_killed(shared: Shared, sent: signal.Signals) -> None:
    recipe = Recipe.from_yaml(shared.requests["merge"][1])
    store, holder = Store(shared.root, libraries=()), shared.hold(open_inputs(recipe).run_id())
    holder.send_signal(sent)
    end = time.monotonic() + PATIENCE
    run = execute(recipe, store, evaluate=False, context=Context(device="cpu", cancel=lambda: time.monotonic() > end))
    assert run.has_model
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    check_locks_are_free(shared.root)


def test_whoever_waits_says_for_whom_and_stops_when_asked(shared: Shared) -> None:
    recipe = Recipe.from_yaml(shared.requests["merge"][1])
    store, holder = Store(shared.root, libraries=()), shared.hold(open_inputs(recipe).run_id())
    phases: list[str] = []
    words = f"Waiting for process {holder.pid}, which computes the same run"
    with pytest.raises(Cancelled):
        context = Context("cpu", lambda said: phases.append(said.phase), lambda: words in phases)
        execute(recipe, store, evaluate=False, context=context)
    holder.send_signal(signal.SIGKILL)
    holder.wait()


def test_a_wait_has_an_end(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold_lock(path) as first, hold_lock(path, max_seconds=0.2) as second:
        assert (first, second) == (True, False)
    with hold_lock(path, max_seconds=0.0) as third:
        assert third
