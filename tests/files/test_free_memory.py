"""Free memory: the machine's, within what the control groups around a process have left."""

from __future__ import annotations

from pathlib import Path

import pytest

from merging.base import free_memory as module
from merging.base import threads
from merging.base.free_memory import free_memory
from merging.tasks.queue import spare_process

MACHINE = 8 << 30


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes the files of a control group; the machine has ``MACHINE`` bytes free."""
    memory = module.psutil.virtual_memory()._replace(available=MACHINE)
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(module, "GROUPS_ROOT", tmp_path)
    monkeypatch.setattr(module, "PROCESS_GROUPS_FILE", tmp_path / "of_process")

    def write(path: str, files: module.GroupFiles, limit: object, used: int, pages: int = 0) -> None:
        folder = tmp_path / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / files.limit).write_text(f"{limit}\n")
        (folder / files.used).write_text(f"{used}\n")
        stat = f"anon 7\n{files.prefix}active_file {pages}\n{files.prefix}inactive_file {pages}\nshmem 9\n"
        (folder / "memory.stat").write_text(stat)

    return write


def lines(*each: str) -> None:
    module.PROCESS_GROUPS_FILE.write_text("".join(f"{line}\n" for line in each))


def test_without_control_groups_it_is_the_machines(group):
    assert free_memory() == MACHINE
    lines("0::/")
    assert free_memory() == MACHINE


def test_the_smallest_of_the_groups_around_a_process_counts(group):
    lines("0::/service/inner")
    group("service/inner", module.VERSION_2, "max", 100)
    assert free_memory() == MACHINE
    group("service", module.VERSION_2, 3 << 30, 1 << 30)
    assert free_memory() == 2 << 30
    group("service", module.VERSION_2, 3 << 30, 1 << 30, pages=1 << 28)
    assert free_memory() == (2 << 30) + (1 << 29)  # pages of files give way
    group("service/inner", module.VERSION_2, 1 << 30, 2 << 30)
    assert free_memory() == 0


def test_of_version_1_the_group_of_the_memory_controller_counts(group):
    lines("3:cpu,cpuacct:/elsewhere", "2:hugetlb,memory:/box", "0::/")
    group("memory", module.VERSION_1, (1 << 63) - 4096, 1 << 20)
    group("memory/box", module.VERSION_1, 1 << 30, 1 << 29, pages=1 << 20)
    group("memory/elsewhere", module.VERSION_1, 5, 5)
    assert free_memory() == (1 << 29) + (1 << 21)


def test_a_container_that_sees_its_own_group_as_the_root_counts(group):
    lines("2:memory:/docker/0123")
    group("memory", module.VERSION_1, 1 << 30, 1 << 29)
    assert free_memory() == 1 << 29


@pytest.mark.parametrize(
    ("line", "path", "files"),
    [
        ("0::/service/inner", "service", module.VERSION_2),
        ("4:memory:/box", "memory/box", module.VERSION_1),
        ("0::/", "", None),
    ],
)
def test_memory_ran_out_if_the_system_has_killed_for_it_meanwhile(group, monkeypatch, tmp_path, line, path, files):
    counts = tmp_path / (f"{path}/{files.kills}" if files else "vmstat")
    monkeypatch.setattr(module, "MACHINE_COUNTERS_FILE", tmp_path / "vmstat")
    counts.parent.mkdir(parents=True, exist_ok=True)
    counts.write_text("low 0\noom 5\noom_kill 2\noom_group_kill 0\n")
    lines(line)
    watch = module.MemoryWatch()
    watch.sample()
    assert not watch.ran_out()
    counts.write_text("low 0\noom 9\noom_kill 2\noom_group_kill 7\n")  # a limit was met, and nothing killed
    assert not watch.ran_out()
    counts.write_text("low 0\noom 9\noom_kill 3\noom_group_kill 7\n")
    assert watch.ran_out() and not module.MemoryWatch().ran_out()
    watch.sample()
    assert watch.ran_out()  # this look may have come after the process was gone
    last = module.MemoryWatch(sample_count=1)
    counts.write_text("low 0\noom 9\noom_kill 4\noom_group_kill 7\n")
    assert last.ran_out()
    last.sample()
    assert not last.ran_out()
    for _ in range(2):
        watch.sample()
    assert not watch.ran_out()  # what was killed long before the end has nothing to do with it


def test_memory_ran_out_if_hardly_any_was_free_at_the_last_looks(group, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "MACHINE_COUNTERS_FILE", tmp_path / "vmstat")  # which is not there
    watch, free = (
        module.MemoryWatch(),
        iter((module.LOW_MEMORY_BYTES - 1, module.LOW_MEMORY_BYTES, module.LOW_MEMORY_BYTES)),
    )
    monkeypatch.setattr(module, "free_memory", lambda: next(free))
    assert not watch.ran_out()
    found = []
    for _ in range(3):
        watch.sample()
        found.append(watch.ran_out())
    assert found == [True, True, False]  # the second look may have come after the process was gone


def test_layers_at_once_and_the_spare_process_keep_to_it(group, monkeypatch: pytest.MonkeyPatch):
    lines("0::/")
    group("", module.VERSION_2, 1 << 30, 1 << 29)
    assert threads.piece_memory() == 1 << 28
    spare = spare_process.SpareProcess()
    monkeypatch.setattr(spare_process, "WorkerProcess", lambda *_: pytest.fail("there is no memory for a process"))
    spare._wanted.set()
    spare.renew()
