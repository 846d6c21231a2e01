"""The store: runs exist whole or not at all, whoever dies, whoever else writes, whatever happens to the disk."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time

import pandas as pd
import pytest

from merging.errors import StoreError
from merging.files import atomic
from merging.files.records import write_json
from merging.files.tables import read_table, write_table
from merging.runs import run as stored_run
from merging.runs.facts import facts
from merging.runs.run import FACTS
from merging.runs.store import Store

ID, OTHER = "0123456789ab", "ba9876543210"
TABLE = pd.DataFrame(
    {
        "expert": ["1", "NA", "a, \"b\"\n'c'", ""],
        "value": [0.1, math.nan, math.inf, 1 / 3],
        "count": [1, 2, 3, 2**60],
        "kept": [True, False, True, False],
    }
)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", libraries=())


def _fill(folder, run_id=ID, title="A run", **changes):
    """What a run consists of, with a small stand-in for the model."""
    schema = write_table(folder, "saliency", TABLE)
    (folder / "recipe.yaml").write_text("merge: ties\nexperts: {a: a.safetensors}\n")
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 16)
    said = facts(
        run_id=run_id, created=True, device="CPU", kind="merge", title=title, seconds={"merging": 1.0}, warnings=[],
        seed=None, chain=["ties"], experts=["a"], inputs={}, benchmark=None, work={},
        models={"merged": "model.safetensors"}, tables={"saliency": schema},
    )  # fmt: skip
    write_json(folder / FACTS, said | changes)


def _write(store, run_id=ID, **changes):
    with store.writing(run_id) as folder:
        _fill(folder, run_id, **changes)
    return store.run(run_id)


def test_a_run_reads_back_as_written(store):
    run = _write(store)
    assert (run.id, run.kind, run.title, run.provenance) == (ID, "merge", "A run", "this machine")
    assert run.tables == ("saliency",)
    pd.testing.assert_frame_equal(run.table("saliency"), TABLE)
    assert run.recipe is not None
    assert run.recipe.experts == (("a", "a.safetensors"),)
    assert run.model_path == run.path / "model.safetensors"
    assert run.scores is None
    assert run.versions["torch"]
    assert [found.id for found in store.runs()] == [ID]
    assert store.size() == sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())


def test_an_empty_store_is_not_even_made(store):
    assert store.runs() == []
    assert store.size() == 0
    assert not store.has(ID)
    assert not store.root.exists()


def test_folders_are_private(store):
    run = _write(store)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(run.path.parent.stat().st_mode) == 0o700


def test_absent_runs_and_tables_say_what_to_do(store):
    with pytest.raises(StoreError, match=r"There is no run 'ffffffffffff'.*carries the recipe can compute it again"):
        store.run("f" * 12)
    with pytest.raises(StoreError, match=r"no table 'salienci'\. Did you mean 'saliency'\? It has: saliency\."):
        _write(store).table("salienci")


@pytest.mark.parametrize("name", ["../../etc", "", ".", "0123456789AB", "0123456789abc", "a/b", "\0"])
def test_odd_names_are_no_runs(store, name):
    _write(store)
    assert not store.has(name)
    with pytest.raises(StoreError):
        store.delete(name)
    with pytest.raises(StoreError), store.writing(name):
        pass


def test_an_error_leaves_nothing(store):
    with pytest.raises(RuntimeError), store.writing(ID) as folder:
        _fill(folder)
        raise RuntimeError
    assert not store.has(ID)
    assert list((store.root / "runs").iterdir()) == []


def test_the_first_writer_wins_and_the_second_is_polite(store):
    with store.writing(ID) as slow:
        _fill(slow, title="slow")
        _write(store, title="fast")
    assert store.run(ID).title == "fast"
    assert [path.name for path in (store.root / "runs").iterdir()] == [ID]


def test_replace_takes_the_place(store):
    _write(store, title="before")
    with store.writing(ID, replace=True) as folder:
        _fill(folder, title="after")
    assert store.run(ID).title == "after"
    assert [path.name for path in (store.root / "runs").iterdir()] == [ID]


def test_a_good_copy_takes_the_place_of_a_damaged_one(store):
    """Damage that nobody has looked at must not make the good copy the loser."""
    run = _write(store, title="bad")
    with store.writing(ID) as folder:
        _fill(folder, title="good")
        (run.path / atomic.MANIFEST).write_text("{}")
    assert store.run(ID).title == "good"


def _whole_files(run):
    return [path for path in sorted(run.path.rglob("*")) if path.is_file()]


def _cut(path, rng):
    os.truncate(path, rng.randrange(path.stat().st_size))


def _flip(path, rng):
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _empty(path, rng):
    path.write_bytes(b"")


def _lose(path, rng):
    path.unlink()


@pytest.mark.parametrize("damage", [_cut, _flip, _empty, _lose])
@pytest.mark.parametrize("seed", range(5))
def test_damage_is_a_miss(store, damage, seed, caplog):
    """Twenty random faults: never a wrong number, one warning, set aside, and the run can be written anew."""
    run = _write(store)
    rng = random.Random(f"{damage.__name__} {seed}")
    files = _whole_files(run)
    damage(rng.choice(files), rng)
    with caplog.at_level(logging.WARNING), contextlib.suppress(StoreError):
        found = store.find(ID)
        if found is not None:  # damage inside a file that is not read for the facts
            pd.testing.assert_frame_equal(found.table("saliency"), TABLE)
            assert found.recipe_yaml
            assert found.model_path
            pytest.fail("the damage was not seen")
    assert len(caplog.records) == 1
    assert not store.has(ID)
    assert store.runs() == []
    assert [path.name[:12] for path in (store.root / "corrupt").iterdir()] == [ID]
    assert _write(store).id == ID


def test_sizes_are_checked_before_anything_is_used(store):
    os.truncate(_write(store).model_path, 10)
    assert store.runs() == []


def test_a_reader_goes_on_when_the_run_is_swapped(store, monkeypatch):
    run = _write(store)
    with store.writing(ID, replace=True) as folder:
        monkeypatch.setattr("test_store.TABLE", TABLE.assign(value=0.5))
        _fill(folder)
    assert set(run.table("saliency")["value"]) == {0.5}


def test_a_good_copy_is_not_set_aside_for_what_was_there_before(store, monkeypatch):
    monkeypatch.setattr(stored_run, "ATTEMPTS", 1)
    run = _write(store)
    with store.writing(ID, replace=True) as folder:
        monkeypatch.setattr("test_store.TABLE", TABLE.assign(value=0.5))
        _fill(folder)
    with pytest.raises(StoreError, match="damaged"):
        run.table("saliency")
    assert set(store.run(ID).table("saliency")["value"]) == {0.5}


def test_damage_after_the_first_use_is_seen(store):
    run = _write(store)
    run.table("saliency")
    path = run.path / "tables" / "saliency.csv"
    text = path.read_text()
    path.write_text(text.replace("0.1", "0.2"))
    os.utime(path, (1, 1))
    with pytest.raises(StoreError, match=r"damaged .*saliency\.csv does not have the sha-256.*Run its recipe again"):
        run.table("saliency")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"files": 1}', '{"files": {"run.json": 1}}', "[" * 100_000, '{"files": {"../x": {}}}']
)
def test_odd_manifests_are_damage(store, text):
    run = _write(store)
    (run.path / atomic.MANIFEST).write_text(text)
    assert not store.has(ID)
    assert store.runs() == []


def test_runs_of_other_formats_are_left_out(store):
    """A newer program's runs are not damaged: they stay where they are."""
    with store.writing(ID) as folder:
        _fill(folder, format=99)
    assert store.runs() == []
    assert (store.root / "runs" / ID).exists()


def test_a_library_is_read_and_never_written(tmp_path, caplog):
    maker = Store(tmp_path / "sample", libraries=(), dated=False)
    _write(maker)
    _write(maker, OTHER)
    library = tmp_path / "sample" / "runs"
    (library / OTHER / "run.json").write_text("{}")
    before = {path: path.read_bytes() for path in library.rglob("*") if path.is_file()}
    store = Store(tmp_path / "store", libraries=(library, tmp_path / "no such library"))
    for _ in range(2):
        assert [(run.id, run.provenance) for run in store.runs()] == [(ID, "precomputed")]
        assert not store.has(OTHER)
    assert len(caplog.records) == 1
    with pytest.raises(StoreError, match="not one of this machine's own"):
        store.delete(ID)
    assert {path: path.read_bytes() for path in library.rglob("*") if path.is_file()} == before
    own = _write(store, title="computed here")
    assert store.run(ID).provenance == own.provenance == "this machine"
    assert len(store.runs()) == 1


def test_dates_are_left_out_on_request(tmp_path):
    assert Store(tmp_path, dated=False).dated is False
    assert facts(run_id=ID, created=False, device="CPU")["created"] is None


def test_newest_first_and_precomputed_last(tmp_path):
    maker = Store(tmp_path / "sample", libraries=())
    _write(maker, "c" * 12)
    store = Store(tmp_path / "store", libraries=(tmp_path / "sample" / "runs",))
    _write(store, "a" * 12, created="2026-01-02T00:00:00+00:00")
    _write(store, "b" * 12, created="2026-01-03T00:00:00+00:00")
    assert [run.id[0] for run in store.runs()] == ["b", "a", "c"]


def test_delete(store):
    _write(store)
    store.delete(ID)
    assert not store.has(ID)
    assert list((store.root / "runs").iterdir()) == []


def test_the_sweep_takes_only_our_own_old_folders_of_dead_writers(store):
    _write(store)
    runs = store.root / "runs"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = {
        "dead and old": f"tmp-{'0' * 32}-{dead.pid}",
        "dead and new": f"tmp-{'1' * 32}-{dead.pid}",
        "living and old": f"tmp-{'2' * 32}-{os.getpid()}",
        "not ours": f"tmp-backup-{dead.pid}",
    }
    for what, name in names.items():
        (runs / name).mkdir()
        (runs / name / "file").write_text("x")
        if "old" in what or what == "not ours":
            os.utime(runs / name / "file", (1, 1))
            os.utime(runs / name, (1, 1))
    Store(store.root, libraries=())
    left = {path.name for path in runs.iterdir()}
    assert left == {ID, *names.values()} - {names["dead and old"]}
    store.sweep(dead.pid)  # who is known to be dead is swept at once
    assert names["dead and new"] not in {path.name for path in runs.iterdir()}


WRITER = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_store import _fill
from merging.runs.store import Store
with Store(Path({root!r}), libraries=()).writing({run_id!r}) as folder:
    _fill(folder)
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_no_run(store):
    code = WRITER.format(tests=os.path.dirname(__file__), root=str(store.root), run_id=ID)  # noqa: PTH120
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGKILL)
    assert store.runs() == []
    assert len(list((store.root / "runs").iterdir())) == 1
    store.sweep(child.pid)
    assert list((store.root / "runs").iterdir()) == []


def test_a_run_that_is_swapped_while_it_is_looked_at_is_not_set_aside(store, monkeypatch, tmp_path):
    run, whole = _write(store), atomic.is_whole
    (run.path / atomic.MANIFEST).write_text("{}")
    good = tmp_path / "good"
    with store.writing("f" * 12) as folder:
        _fill(folder)
    (store.root / "runs" / ("f" * 12)).rename(good)

    def swapped_meanwhile(path):
        found = whole(path)
        if good.exists():  # just behind the first look
            atomic.retire(run.path)
            good.rename(run.path)
        return found

    monkeypatch.setattr(atomic, "is_whole", swapped_meanwhile)
    store.find(ID)
    assert not good.exists() and store.has(ID)
    assert not (store.root / "corrupt").exists()


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.slow
def test_many_writers_and_readers_of_one_run(store, replace):
    """No lock is taken here: whatever a reader sees is whole, and nobody gets an error."""
    _write(store)
    problems, stop = [], threading.Event()

    def write():
        try:
            for _ in range(15):
                with store.writing(ID, replace=replace) as folder:
                    _fill(folder)
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


def test_a_full_disk_is_a_sentence(store, monkeypatch):
    def full(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic, "seal", full)
    with pytest.raises(StoreError, match=r"is full \(No space left on device\); nothing was kept"), store.writing(ID):
        pass
    assert list((store.root / "runs").iterdir()) == []


def test_a_store_that_cannot_be_written_to_is_a_sentence(store, monkeypatch):
    def refuse(root):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(atomic, "make_temporary", refuse)
    with pytest.raises(StoreError, match="set MERGESCOPE_STORE"), store.writing(ID):
        pass


def test_the_lock_waits_and_gives_up_when_asked(store):
    class Enough(Exception):  # noqa: N818
        pass

    looks = []

    def check():
        looks.append(time.monotonic())
        if len(looks) > 1:
            raise Enough

    with store.lock(ID), pytest.raises(Enough), Store(store.root, libraries=()).lock(ID, check):
        pytest.fail("two had the lock")


def test_a_folder_without_locks_is_no_hindrance(tmp_path):
    (tmp_path / "locks").write_text("a file where the folder should be")
    with Store(tmp_path, libraries=()).lock(ID):
        pass


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"x": math.nan})
    assert list(tmp_path.iterdir()) == []
    write_json(tmp_path / "x.json", {"x": 1})
    assert json.loads((tmp_path / "x.json").read_text()) == {"x": 1}


def test_tables_may_be_empty(tmp_path):
    schema = write_table(tmp_path, "empty", TABLE.iloc[:0])
    pd.testing.assert_frame_equal(read_table(tmp_path / "tables" / "empty.csv", schema), TABLE.iloc[:0])
    with pytest.raises(StoreError, match="cannot be called"):
        write_table(tmp_path, "../evil", TABLE)
