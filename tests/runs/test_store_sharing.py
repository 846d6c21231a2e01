"""The store under several processes and threads: writers that die, readers that go on."""

from __future__ import annotations

from network_store import hide_until_listed
from stored_runs import ID, TABLE, fill, write_run


def test_a_reader_goes_on_when_the_run_is_swapped(store, monkeypatch):
    run = write_run(store)
    with store.write_run(ID, replace=True) as folder:
        monkeypatch.setattr("stored_runs.TABLE", TABLE.assign(value=0.5))
        fill(folder)
    assert set(run.table("saliency")["value"]) == {0.5}


def test_a_run_that_another_computer_has_just_stored_is_found(store, monkeypatch):
    run = write_run(store)
    with monkeypatch.context() as patch:
        listings = hide_until_listed(patch, run.path)
        assert store.find(ID) is None and not listings  # asked for often, and nothing was promised
        assert store.get_run(ID).id == ID and len(listings) == 1
