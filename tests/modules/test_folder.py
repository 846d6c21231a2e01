"""Folders with modules: what is written is read back, the same bytes each time, and nothing that does not belong."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import golden_adapt
import pytest
import torch
from golden_adapt import TASKS
from safetensors.torch import load_file, save_file

import merging
from merging.base.errors import CheckpointError, StoreError
from merging.engine.modules.modules import Modules
from merging.engine.modules.reading_modules import read_modules
from merging.engine.modules.writing_modules import choose_file_names, convert_to_tower
from merging.models.checkpoint import MappingCheckpoint

IMAGES = golden_adapt.images()[TASKS[0]].images
CASES = {
    "surgery": {"steps": 2, "rank": 3},
    "wemoe": {"steps": 1, "batch": 4},
    "twin": {"steps": 2, "density": 0.3},
    "mass": {"threshold": 0.3},
}


@pytest.fixture(scope="module", params=CASES)
def modules(request: pytest.FixtureRequest) -> Modules:
    base, experts = golden_adapt.models()
    given = {"twin": "exemplars", "surgery": "test_data", "wemoe": "test_data"}.get(request.param)
    data = {given: golden_adapt.images()} if given else {}
    adapt = (request.param, CASES[request.param])
    options: dict[str, Any] = {"device": "cpu", "architecture": golden_adapt.ARCHITECTURE}
    return merging.merge(base, experts, adapt=adapt, **data, **options).modules


@pytest.fixture
def folder(modules: Modules, tmp_path: Path) -> Path:
    modules.save(tmp_path / "modules here")
    return tmp_path / "modules here"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_modules_show_as_one_line(modules: Modules) -> None:
    assert repr(modules).startswith(f"<Modules: {modules.key}(") and f"for {', '.join(TASKS)}>" in repr(modules)
    assert "tensor" not in repr(modules)


def test_what_is_written_is_read_back(modules: Modules, folder: Path, tmp_path: Path) -> None:
    loaded = merging.load_modules(folder)
    assert (loaded.key, loaded.params, loaded.tasks) == (modules.key, modules.params, modules.tasks)
    assert set(loaded.tensors) == set(modules.tensors)
    assert all(torch.equal(value, modules.tensors[name]) for name, value in loaded.tensors.items())
    assert torch.equal(loaded.features(IMAGES, TASKS[1]), modules.features(IMAGES, TASKS[1]))
    modules.save(tmp_path / "again")
    assert contents(folder) == contents(tmp_path / "again")
    listed = json.loads((folder / "modules.json").read_text())
    hashes = {name: hashlib.sha256(raw).hexdigest() for name, raw in contents(folder).items() if "modules/" in name}
    assert listed["files"] == hashes
    if modules.key in {"wemoe", "twin"}:
        assert "modules/router.safetensors" in hashes
    with pytest.raises(StoreError, match="exists already"):
        modules.save(folder)


def test_the_card_loads_it(modules: Modules, folder: Path) -> None:
    """Its first lines of code are run, and for surgery those of plain torch, too."""
    text = (folder / "README.md").read_text()
    codes = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    names: dict[str, Any] = {"folder": folder, "images": IMAGES, "task": TASKS[0]}
    exec(codes[0], names)
    assert torch.equal(names["f"], modules.features(IMAGES, TASKS[0]))
    assert len(codes) == (2 if modules.key == "surgery" else 1)
    if modules.key == "surgery":
        own = load_file(folder / choose_file_names(TASKS)[TASKS[0]])
        names = {"visual": modules.features, "x": IMAGES, "relu": torch.relu, "scale": 1.0, **own}
        exec(codes[1].splitlines()[0] + "\n" + codes[1].splitlines()[1], names)
        assert torch.allclose(names["f"], modules.features(IMAGES, TASKS[0]), atol=1e-12)


def test_names_of_tasks_cannot_leave_the_folder_or_meet() -> None:
    names = choose_file_names(("../../etc/passwd", "a", "A", "router", "base", "", "ä" * 300, "."))
    stems = [name.removeprefix("modules/").removesuffix(".safetensors") for name in names.values()]
    assert all("/" not in stem and stem not in {"", ".", "..", "router", "base"} for stem in stems)
    assert len({stem.casefold() for stem in stems}) == len(names) and max(map(len, stems)) <= 110


def test_the_digest_is_of_the_model_under_any_names(modules: Modules) -> None:
    tower = {name.removeprefix("visual."): value for name, value in modules.merged.state_dict().items()}
    assert convert_to_tower(MappingCheckpoint(tower, "bare")).digest == convert_to_tower(modules.merged).digest


def test_modules_of_another_model_are_refused(modules: Modules, folder: Path) -> None:
    state = modules.merged.state_dict()
    state["visual.proj"] = state["visual.proj"] + 1e-3
    with pytest.raises(CheckpointError, match="made for another model"):
        read_modules(folder, MappingCheckpoint(state, "merged"))


Change = Callable[[dict[str, Any], Path], Any]


def listed(**values: Any) -> Change:
    return lambda entry, folder: entry.update(values)


def with_files(**values: Any) -> Change:
    return lambda entry, folder: entry["files"].update(values)


def rewritten(change: Callable[[dict[str, torch.Tensor]], Any]) -> Change:
    """The first file with other tensors, and a list that has its hash."""

    def apply(entry: dict[str, Any], folder: Path) -> None:
        name = next(iter(entry["files"]))
        tensors = load_file(folder / name)
        save_file(change(tensors) or tensors, folder / name)
        entry["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()

    return apply


def first(tensors: dict[str, torch.Tensor]) -> str:
    return next(iter(sorted(tensors)))


BAD: dict[str, tuple[Change, str]] = {
    "no such adapt": (listed(key="os.system"), "no adapt called 'os.system'"),
    "a merge": (listed(key="ties"), "no adapt called 'ties'"),
    "another version": (listed(version=2), "not a list of modules of version 1"),
    "a field more": (listed(code="import os"), "not a list of modules"),
    "bad parameters": (listed(params={"steps": -1}), "must be|no parameter"),
    "unknown parameters": (listed(params={"nonsense": 1}), "no parameter 'nonsense'"),
    "no tasks": (listed(tasks=[]), "names 0 tasks"),
    "tasks twice": (listed(tasks=["a", "a"]), "list of different names"),
    "tasks that are no names": (listed(tasks=[1, None]), "list of different names"),
    "a key that is no text": (listed(key=["surgery"]), "are texts"),
    "a path outside": (with_files(**{"../outside.safetensors": "0" * 64}), "belong to none of its tasks"),
    "an absolute path": (with_files(**{"/etc/passwd": "0" * 64}), "belong to none of its tasks"),
    "another hash": (lambda e, f: e["files"].update({next(iter(e["files"])): "0" * 64}), "does not have the SHA-256"),
    "another architecture": (listed(architecture={"vision_cfg": {"head_width": 7}}), "multiple of its head width"),
    "a missing file": (lambda e, f: (f / next(iter(e["files"]))).unlink(), "not found"),
    "a truncated file": (lambda e, f: os.truncate(f / next(iter(e["files"])), 40), "promises|not safetensors"),
    "another shape": (rewritten(lambda t: {**t, first(t): torch.zeros(2, 2, dtype=torch.float64)}), "shape"),
    "whole numbers": (rewritten(lambda t: {n: v.long() for n, v in t.items()}), "not floating-point numbers"),
    "a tensor more": (rewritten(lambda t: {**t, "visual.other": torch.zeros(3)}), "shape|changes no tensor"),
}


def test_hostile_folders_are_refused(modules: Modules, folder: Path, tmp_path: Path) -> None:
    wrong = {}
    for number, (name, (change, message)) in enumerate(BAD.items()):
        bad = shutil.copytree(folder, tmp_path / str(number))
        entry = json.loads((bad / "modules.json").read_text())
        change(entry, bad)
        (bad / "modules.json").write_text(json.dumps(entry))
        try:
            merging.load_modules(bad)
            wrong[name] = "It was read."
        except CheckpointError as error:
            if not re.search(message, str(error)):
                wrong[name] = str(error)
    assert wrong == {}


def test_a_list_that_is_none_is_refused(folder: Path, tmp_path: Path) -> None:
    for text, message in {"[]": "not a mapping", "{": "not valid JSON", '{"a": 1, "a": 2}': "twice"}.items():
        (folder / "modules.json").write_text(text)
        with pytest.raises(CheckpointError, match=message):
            merging.load_modules(folder)
    (folder / "modules.json").write_text(" " * (1 << 20) + "{}")
    with pytest.raises(CheckpointError, match="more than a list of modules can be"):
        merging.load_modules(folder)
    (folder / "modules.json").unlink()
    (tmp_path / "outside.json").write_text("{}")
    (folder / "modules.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(CheckpointError, match="leads outside"):
        merging.load_modules(folder)
    with pytest.raises(CheckpointError, match="not a folder with modules"):
        merging.load_modules(tmp_path)
