"""The store: runs read back as written, are replaced whole, listed, deleted and swept; disks that are full."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from dataclasses import replace

import pandas as pd
import pytest
from stored_runs import ID, OTHER, TABLE, fill, write_run

from merging.base.errors import Cancelled, StoreError
from merging.base.files.processes import ProcessId, this_process
from merging.base.files.tables import read_table, write_table
from merging.study.runs.run_facts import run_facts
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


def test_a_run_reads_back_as_written(store):
    run = write_run(store)
    assert (run.id, run.kind, run.title, run.provenance) == (ID, "merge", "A run", "this machine")
    assert run.tables == ("saliency",)
    pd.testing.assert_frame_equal(run.table("saliency"), TABLE)
    assert run.recipe is not None
    assert run.recipe.experts == (("a", "a.safetensors"),)
    assert run.model_path == run.path / "model.safetensors"
    assert run.scores is None
    assert run.versions["torch"]
    assert [found.id for found in store.list_runs()] == [ID]
    assert store.size() == sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())


def test_an_empty_store_is_not_even_made(store):
    assert store.list_runs() == []
    assert store.size() == 0
    assert not store.has_run(ID)
    assert not store.root.exists()


def test_a_library_run_that_is_replaced_as_a_whole_is_read_again(tmp_path):
    writer = Store(tmp_path / "library", libraries=())
    first = write_run(writer)
    reader = Store(tmp_path / "own", libraries=(first.path.parent,))
    assert [run.title for run in (*reader.list_runs(), reader.get_run(ID))] == ["A run"] * 2
    with writer.write_run(ID, replace=True) as folder:
        fill(folder, title="Another")
    assert [run.title for run in (*reader.list_runs(), reader.get_run(ID))] == ["Another"] * 2
    writer.delete(ID)
    assert reader.list_runs() == [] and not reader.has_run(ID)


def test_folders_are_private(store):
    run = write_run(store)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(run.path.parent.stat().st_mode) == 0o700


def test_absent_runs_and_tables_say_what_to_do(store):
    with pytest.raises(StoreError, match=r"There is no run 'ffffffffffff'.*carries the recipe can compute it again"):
        store.get_run("f" * 12)
    with pytest.raises(StoreError, match=r"no table 'salienci'\. Did you mean 'saliency'\? It has: saliency\."):
        write_run(store).table("salienci")


@pytest.mark.parametrize("name", ["../../etc", "", ".", "0123456789AB", "0123456789abc", "a/b", "\0"])
def test_odd_names_are_no_runs(store, name):
    write_run(store)
    assert not store.has_run(name)
    with pytest.raises(StoreError):
        store.delete(name)
    with pytest.raises(StoreError), store.write_run(name):
        pass


def test_the_first_writer_wins_and_the_second_is_polite(store):
    with store.write_run(ID) as slow:
        fill(slow, title="slow")
        write_run(store, title="fast")
    assert store.get_run(ID).title == "fast"
    assert [path.name for path in (store.root / "runs").iterdir()] == [ID]


def test_runs_of_other_formats_are_left_out(store):
    """A newer program's runs are not damaged: they stay where they are."""
    with store.write_run(ID) as folder:
        fill(folder, format=99)
    assert store.list_runs() == []
    assert (store.root / "runs" / ID).exists()


def test_a_library_is_read_and_never_written(tmp_path, caplog):
    maker = Store(tmp_path / "sample", libraries=(), dated=False)
    write_run(maker)
    write_run(maker, OTHER)
    library = tmp_path / "sample" / "runs"
    (library / OTHER / "run.json").write_text("{}")
    before = {path: path.read_bytes() for path in library.rglob("*") if path.is_file()}
    store = Store(tmp_path / "store", libraries=(library, tmp_path / "no such library"))
    for _ in range(2):
        assert [(run.id, run.provenance) for run in store.list_runs()] == [(ID, "precomputed")]
        assert not store.has_run(OTHER)
    assert len(caplog.records) == 1
    with pytest.raises(StoreError, match="not one of this machine's own"):
        store.delete(ID)
    assert {path: path.read_bytes() for path in library.rglob("*") if path.is_file()} == before
    own = write_run(store, title="computed here")
    assert store.get_run(ID).provenance == own.provenance == "this machine"
    assert len(store.list_runs()) == 1


def test_dates_are_left_out_on_request(tmp_path):
    assert Store(tmp_path, dated=False).dated is False
    assert run_facts(run_id=ID, is_dated=False, device="CPU")["created"] is None


def test_newest_first_and_precomputed_last(tmp_path):
    maker = Store(tmp_path / "sample", libraries=())
    write_run(maker, "c" * 12)
    store = Store(tmp_path / "store", libraries=(tmp_path / "sample" / "runs",))
    write_run(store, "a" * 12, created="2026-01-02T00:00:00+00:00")
    write_run(store, "b" * 12, created="2026-01-03T00:00:00+00:00")
    assert [run.id[0] for run in store.list_runs()] == ["b", "a", "c"]


def test_the_sweep_takes_only_what_dead_writers_left(store):
    write_run(store)
    runs = store.root / "runs"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    me, gone = this_process(), ProcessId.from_pid(dead.pid)
    dead.wait()
    names = {
        "dead": f"tmp-{'0' * 32}-{gone.text}",
        "dead file": f".run.json.tmp-{'1' * 32}-{gone.text}",
        "number in use again": f"tmp-{'2' * 32}-{replace(me, born=me.born - 60).text}",
        "alive": f"tmp-{'3' * 32}-{me.text}",
        "elsewhere": f"tmp-{'4' * 32}-{replace(gone, host='0' * 8).text}",
        "elsewhere, old": f"tmp-{'5' * 32}-{replace(gone, host='0' * 8).text}",
        "names no computer, old": f"tmp-{'6' * 32}-{dead.pid}",
        "not ours, old": f"tmp-backup-{dead.pid}",
    }
    for kind, name in names.items():
        (runs / name).mkdir()
        (runs / name / "file").write_text("x")
        if "old" in kind:
            os.utime(runs / name / "file", (1, 1))
            os.utime(runs / name, (1, 1))
    (runs / "tmp").mkdir()
    (runs / f".x.json.tmp-{'8' * 32}-{gone.text}").write_text("half")
    Store(store.root, libraries=())
    left = {kind for kind, name in names.items() if (runs / name).exists()}
    assert left == {"alive", "elsewhere", "names no computer, old", "not ours, old"}
    assert {path.name for path in runs.iterdir()} == {ID, "tmp", *(names[kind] for kind in left)}


def test_the_lock_waits_and_gives_up_when_asked(store):
    looks = []

    def cancel():
        looks.append(time.monotonic())
        return len(looks) > 1

    other = Store(store.root, libraries=())
    with store.lock(ID), pytest.raises(Cancelled), other.lock(ID, Context(cancel=cancel)):
        pytest.fail("two had the lock")
    assert len(looks) == 2


def test_a_folder_without_locks_is_no_hindrance(tmp_path):
    (tmp_path / "locks").write_text("a file where the folder should be")
    seen = []
    one, other = (Store(tmp_path, libraries=()) for _ in range(2))
    with one.lock(ID), other.lock(ID, Context(cancel=lambda: seen.append("waits"))):
        seen.append("both are inside")
    assert seen == ["both are inside"]


def test_tables_may_be_empty(tmp_path):
    schema = write_table(tmp_path, "empty", TABLE.iloc[:0])
    pd.testing.assert_frame_equal(read_table(tmp_path / "tables" / "empty.csv", schema), TABLE.iloc[:0])
    with pytest.raises(StoreError, match="cannot be called"):
        write_table(tmp_path, "../evil", TABLE)
