"""Damaged runs count as absent, are set aside, and never hide a good copy."""

from __future__ import annotations

import os

import pytest
from stored_runs import ID, TABLE, fill, write_run

from merging.base.errors import StoreError
from merging.base.files import atomic
from merging.tasks import results


def test_a_good_copy_takes_the_place_of_a_damaged_one(store):
    """Damage that nobody has looked at must not make the good copy the loser."""
    run = write_run(store, title="bad")
    with store.write_run(ID) as folder:
        fill(folder, title="good")
        (run.path / atomic.MANIFEST).write_text("{}")
    assert store.get_run(ID).title == "good"


def test_a_run_in_the_folder_of_another_id_is_none(store):
    run, other = write_run(store), "f" * 12
    run.path.rename(run.path.with_name(other))
    assert store.find(other) is None and store.find(ID) is None
    assert store.list_runs() == []


def test_sizes_are_checked_before_anything_is_used(store):
    os.truncate(write_run(store).model_path, 10)
    assert store.list_runs() == []


def test_a_good_copy_is_not_set_aside_for_what_was_there_before(store, monkeypatch):
    monkeypatch.setattr(results, "READ_ATTEMPTS", 1)
    run = write_run(store)
    with store.write_run(ID, replace=True) as folder:
        monkeypatch.setattr("stored_runs.TABLE", TABLE.assign(value=0.5))
        fill(folder)
    with pytest.raises(StoreError, match="damaged"):
        run.table("saliency")
    assert set(store.get_run(ID).table("saliency")["value"]) == {0.5}


def test_damage_after_the_first_use_is_seen(store):
    run = write_run(store)
    run.table("saliency")
    path = run.path / "tables" / "saliency.csv"
    text = path.read_text()
    path.write_text(text.replace("0.1", "0.2"))
    os.utime(path, (1, 1))
    with pytest.raises(
        StoreError,
        match=r"damaged .*saliency\.csv does not have the sha-256.*\) and counts as absent. Run its recipe again",
    ):
        run.table("saliency")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"files": 1}', '{"files": {"run.json": 1}}', "[" * 100_000, '{"files": {"../x": {}}}']
)
def test_odd_manifests_are_damage(store, text):
    run = write_run(store)
    (run.path / atomic.MANIFEST).write_text(text)
    assert not store.has_run(ID)
    assert store.list_runs() == []


def test_a_run_that_is_swapped_while_it_is_looked_at_is_not_set_aside(store, monkeypatch, tmp_path):
    run, whole = write_run(store), atomic.is_whole
    (run.path / atomic.MANIFEST).write_text("{}")
    good = tmp_path / "good"
    with store.write_run("f" * 12) as folder:
        fill(folder)
    (store.root / "runs" / ("f" * 12)).rename(good)

    def swapped_meanwhile(path):
        found = whole(path)
        if good.exists():  # just behind the first look
            atomic.remove_entry(run.path)
            good.rename(run.path)
        return found

    monkeypatch.setattr(atomic, "is_whole", swapped_meanwhile)
    store.find(ID)
    assert not good.exists() and store.has_run(ID)
    assert not (store.root / "corrupt").exists()
