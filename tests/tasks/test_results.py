"""Stored results: own ones and those of libraries, what is damaged or of another kind, and results so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from stored_runs import write_run

from merging.base.errors import StoreError
from merging.base.files.atomic import MANIFEST, seal
from merging.study.runs.run_store import Store
from merging.tasks.quarantine import Quarantine
from merging.tasks.results import Result, ResultKind, Results

KIND, NAME = ResultKind("note", "notes", "note.json", "Write it again."), "0123456789ab"
TABLE = pd.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"]})


def results(root: Path, *libraries: Path, accepted: Any = None) -> Results[Result]:
    """The notes of a store; those that say another ``accepted`` text are of another kind."""

    def view(result: Result) -> Result | None:
        return result if accepted in {None, result.facts["text"]} else None

    return Results(KIND, view, root, libraries, Quarantine(root))


def write(notes: Results[Result], text: str, **more: Any) -> None:
    notes.write(NAME, {"text": text}, {"t": TABLE}, {"n": np.arange(3)}, **more)


def test_an_own_result_goes_first_and_a_library_is_read(tmp_path: Path) -> None:
    write(results(tmp_path / "shared"), "of the library")
    both = results(tmp_path / "own", tmp_path / "shared" / "notes")
    found = both.find(NAME)
    assert found is not None and found.facts["text"] == "of the library" and not found.is_own
    write(both, "own")
    found = both.find(NAME)
    assert found is not None and found.facts["text"] == "own" and found.is_own
    assert found.columns("t").frame().equals(TABLE) and found.array("n").tolist() == [0, 1, 2]
    assert {name: place.folder for name, place in both.list_locations().items()} == {NAME: tmp_path / "own" / "notes"}
    with pytest.raises(StoreError, match=r"^Note 0123456789ab has no table 'tt'\. Did you mean 't'\? It has: t\.$"):
        found.columns("tt")
    with pytest.raises(StoreError, match=r"^Note 0123456789ab has no array 'm'\.$"):
        found.array("m")


def test_what_is_whole_stays_and_what_is_of_another_kind_is_replaced(tmp_path: Path) -> None:
    notes = results(tmp_path, accepted="second")
    write(notes, "first")
    assert notes.find(NAME) is None
    write(notes, "second")
    write(notes, "third")
    found = notes.find(NAME)
    assert found is not None and found.facts["text"] == "second"
    write(notes, "third", replace=True)
    assert notes.find(NAME) is None


@pytest.mark.parametrize("inside", [True, False])
def test_a_damaged_result_of_a_library_stays_where_it_is(tmp_path: Path, inside: bool) -> None:
    folder = tmp_path / ("store/benchmarks/mine" if inside else "elsewhere")
    run = write_run(Store(folder, libraries=()))
    (run.path / "run.json").write_text("{}", "utf-8")
    store = Store(tmp_path / "store", libraries=(folder / "runs",))
    assert store.list_runs() == [] and run.path.is_dir()
    (damage,) = store.damaged.list_damage()
    assert damage.path == damage.origin == run.path


def test_a_result_so_far_is_there_as_long_as_it_is_computed(tmp_path: Path) -> None:
    notes = results(tmp_path)
    with notes.publish_partial() as folder:
        assert notes.find_partial(NAME) is None
        for text in ("one", "two"):
            write(notes, text, root=folder, replace=True)
            found = notes.find_partial(NAME)
            assert found is not None and found.facts["text"] == text and found.columns("t").frame().equals(TABLE)
        assert notes.find(NAME) is None
        (folder / NAME / "note.json").write_text("[]", "utf-8")
        assert notes.find_partial(NAME) is None and folder.is_dir()
    assert notes.find_partial(NAME) is None and not list(notes.own_folder.iterdir())


def test_files_that_are_as_written_but_no_table_and_no_array_are_damage(tmp_path: Path) -> None:
    notes = results(tmp_path)
    notes.write(NAME, {"text": ""}, {"t": TABLE}, {"n": np.array([{}], object).astype("U9")})
    found = notes.find(NAME)
    assert found is not None and found.array("n").dtype.kind == "U"
    (found.path / "n.npy").write_bytes(b"\x80\x04")  # the beginning of a pickle
    (found.path / MANIFEST).unlink()
    seal(found.path)
    with pytest.raises(StoreError, match=r"^Note 0123456789ab is damaged \(n\.npy cannot be read: .*Write it again\.$"):
        notes.find(NAME).array("n")  # type: ignore[union-attr]


def test_a_result_that_was_deleted_meanwhile_says_so(tmp_path: Path) -> None:
    notes = results(tmp_path)
    write(notes, "a")
    found = notes.find(NAME)
    assert found is not None
    notes.own_folder.rename(tmp_path / "away")
    with pytest.raises(StoreError, match=r"^Note 0123456789ab was deleted meanwhile\. Write it again\.$"):
        found.columns("t")
