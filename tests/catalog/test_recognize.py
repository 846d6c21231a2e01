"""A model is told by its content, and a file that is none is listed with the reason."""

from __future__ import annotations

import os
import re
from pathlib import Path

import bad_files
import bad_parts
import pytest
import tiny
import torch
from daily import some_of
from safetensors.torch import save_file
from shelf_folders import recognize_folder, transformers

from merging.sharing.catalog.model_groups import find_nearest_base


def test_a_model_is_told_by_its_content(root: Path) -> None:
    base, tuned = tiny.family()
    tiny.write(root / "a.bin", base)
    torch.save(tuned["flags"], root / "b.safetensors")
    transformers(root / "c", base)
    found = {item.name: what for item, what in recognize_folder(root)}
    assert {what.kind for what in found.values()} == {"model"}
    assert found["a"].format == "safetensors" and found["b"].format == "torch file (zip archive)"
    assert found["c"].names.startswith("Transformers") and found["c"].activation == "quick_gelu"
    assert found["a"].architecture == "2 × 16, patch 8, 16 px" == found["b"].architecture
    assert len({what.signature for what in found.values()}) == 1
    near = found["b"].distance(found["a"])
    assert near is not None and 0 < near.ratio < 0.5 and not near.unrelated
    assert find_nearest_base(found["b"], {"base": found["a"]}) == ("base", near)
    half = found["c"].distance(found["a"])
    assert half is not None and half.ratio == pytest.approx(0, abs=2e-3)  # it was written in half precision


def test_heads_unknown_models_and_other_files_are_told_apart(root: Path) -> None:
    torch.save({"weight": torch.ones(7, 8)}, root / "head_Cars.pt")
    save_file({name: torch.ones(3, 3) for name in "abcde"}, root / "net.safetensors")
    (root / "README.md").write_text("hello")
    (root / "evil.npz").write_bytes(b"PK\3\4 no archive")
    found = {item.listed_path.rpartition("/")[2]: (item, what) for item, what in recognize_folder(root)}
    assert found["head_Cars.pt"][1].kind == "head"
    assert found["head_Cars.pt"][1].architecture == "7 classes, 8 features"
    assert found["net.safetensors"][1].kind == "other"
    assert "no known model family" in found["net.safetensors"][1].problem
    for name in ("README.md", "evil.npz"):
        assert not found[name][0].has_model_name and found[name][1].kind == "unreadable"


# How a file is bad is read in tests/formats; here it is enough that one of each group is listed.
FIRST = {name.partition(":")[0]: name for name in reversed(bad_files.CASES)}.values()


@pytest.mark.parametrize("case", some_of(bad_files.CASES, *FIRST))
def test_a_bad_file_is_listed_with_the_reason(root: Path, case: str) -> None:
    build, says = bad_files.CASES[case]
    path = build(root)
    if path == root or not os.path.lexists(path):
        return  # nothing is there to be listed
    found = {item.path: what for item, what in recognize_folder(root)}
    if path not in found:  # two shards of a model's folder, which is one item
        path = root
    assert found[path].kind == "unreadable", case
    assert re.search(f"{says}|outside of", found[path].problem), found[path].problem
    assert not (root / bad_parts.MARKER).exists()


def test_a_file_that_no_code_expected_is_a_sentence(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.write(root / "a.safetensors", tiny.pretrained())

    def broken(*args: object, **options: object) -> None:
        raise IndexError("surprise")

    monkeypatch.setattr("merging.sharing.catalog.model_recognition.inspect", broken)
    (_, what), *_ = recognize_folder(root)
    assert what.kind == "unreadable" and "IndexError" in what.problem and "surprise" not in what.problem


def test_a_name_that_is_no_text_is_listed(root: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(root) + b"/\xff.safetensors")).write_bytes(b"x")
    except OSError:
        pytest.skip("this file system has text for names")
    (_, what), *_ = recognize_folder(root)
    assert "cannot be decoded" in what.problem
