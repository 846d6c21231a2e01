"""What takes room on the disk, and what of it can be given back."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny

from merging.base.errors import StoreError
from merging.base.files.disk import folder_size
from merging.sharing.export import stored_exports
from merging.study.runs.disk_usage import WEIGHTS, measure_usage
from merging.study.runs.run_store import Store


def test_room_is_counted_by_what_takes_it(tmp_path: Path) -> None:
    for name, size in {
        "runs/a/model.safetensors": 50,
        "runs/a/run.json": 7,
        "measured/x/y.csv": 3,
        "odd.txt": 2,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    found = measure_usage(tmp_path)
    assert (found[WEIGHTS], found["tables and scores of runs"], found["measurements"]) == (50, 7, 3)
    assert sum(found.values()) == 62 == folder_size(tmp_path)
    assert sum(measure_usage(tmp_path / "nowhere").values()) == 0


def test_weights_can_be_dropped_and_the_rest_stays(tmp_path: Path, tiny_family: tiny.Family) -> None:
    from merging.recipes.recipe import Recipe
    from merging.study.runs.execute import execute

    store = Store(tmp_path, libraries=())
    experts = {name: str(path) for name, path in tiny_family.experts.items()}
    recipe = Recipe.build("ties", pretrained=str(tiny_family.pretrained), experts=experts)
    run = execute(recipe, store, evaluate=False)
    assert run.has_model
    tables = {name: run.table(name) for name in run.tables}
    store.delete_models(run.id)
    after = store.get_run(run.id)
    assert not after.has_model and after.recipe == recipe and after.created == run.created
    assert all(after.table(name).equals(table) for name, table in tables.items())
    assert not list(after.path.glob("*.safetensors"))
    assert execute(recipe, store, evaluate=False, need_model=True).has_model
    with pytest.raises(StoreError, match="own"):
        store.delete_models("0" * 12)


def test_exports_are_found_by_their_folders(tmp_path: Path) -> None:
    place = stored_exports.default_folder(tmp_path, "0123456789ab", "hf")
    (place / "tables").mkdir(parents=True)
    (place / "README.md").write_text("card")
    (place / "tables" / "a.csv").write_text("x")
    (tmp_path / "exports" / "something else").mkdir()
    (found,) = stored_exports.list_exports(tmp_path)
    assert (found.run_id, found.target_key, found.read_card(), found.nbytes) == ("0123456789ab", "hf", "card", 5)
    assert [name for name, _ in found.files] == ["README.md", "tables/a.csv"]
    stored_exports.delete_export(tmp_path, stored_exports.StoredExport("x", "hf", tmp_path))
    assert place.exists()
    stored_exports.delete_export(tmp_path, found)
    assert list(stored_exports.list_exports(tmp_path)) == [] == list(stored_exports.list_exports(tmp_path / "nowhere"))
