"""The store under several processes and threads: writers that die, readers that go on."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import stored_runs
from network_store import hide_until_listed
from stored_runs import ID, TABLE, fill, write_run


def test_a_reader_goes_on_when_the_run_is_swapped(store, monkeypatch):
    run = write_run(store)
    with store.writing(ID, replace=True) as folder:
        monkeypatch.setattr("stored_runs.TABLE", TABLE.assign(value=0.5))
        fill(folder)
    assert set(run.table("saliency")["value"]) == {0.5}


WRITER = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from stored_runs import fill
from merging.runs.store import Store
with Store(Path({root!r}), libraries=()).writing({run_id!r}) as folder:
    fill(folder)
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_no_run(store):
    code = WRITER.format(tests=str(Path(stored_runs.__file__).parent), root=str(store.root), run_id=ID)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGKILL)
    assert store.runs() == []
    assert len(list((store.root / "runs").iterdir())) == 1
    store.sweep()
    assert list((store.root / "runs").iterdir()) == []


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.slow
def test_many_writers_and_readers_of_one_run(store, replace):
    """No lock is taken here: whatever a reader sees is whole, and nobody gets an error."""
    write_run(store)
    problems, stop = [], threading.Event()

    def write():
        try:
            for _ in range(15):
                with store.writing(ID, replace=replace) as folder:
                    fill(folder)
        except Exception as error:
            problems.append(error)

    def read():
        while not stop.is_set():
            try:
                if (run := store.find(ID)) is not None:
                    run.table("saliency")
            except Exception as error:
                problems.append(error)

    writers = [threading.Thread(target=write) for _ in range(3)]
    reader = threading.Thread(target=read)
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert problems == []
    assert store.has(ID)
    assert [path.name for path in (store.root / "runs").iterdir()] == [ID]
    assert not (store.root / "corrupt").exists()


def test_a_run_that_another_computer_has_just_stored_is_found(store, monkeypatch):
    run = write_run(store)
    with monkeypatch.context() as patch:
        listings = hide_until_listed(patch, run.path)
        assert store.find(ID) is None and not listings  # asked for often, and nothing was promised
        assert store.run(ID).id == ID and len(listings) == 1
