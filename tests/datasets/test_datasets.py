"""Data sets in every form are told apart by content and read as their own tools read them; odd ones are refused."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest
import tiny_data

from merging.base.errors import TaskError
from merging.base.files.npz import Npz
from merging.images.benchmarks.build.benchmark_description import Description, read_classes
from merging.images.benchmarks.build.class_names import name_classes
from merging.images.data_sets.data_set_formats import open_data
from merging.images.prompt_sets import read_prompts

PARTS = {"train": tiny_data.rows(4), "test": tiny_data.rows(6, 100)}


# --- what a data set is ----------------------------------------------------------------------------------------------


def arrays(path, **found):
    np.savez(path, **found)
    return path


def grays(n=6):
    return np.zeros((n, 8, 8), np.uint8)


GOOD_ARRAYS = {
    "gray": {"images": grays(), "labels": np.arange(6)},
    "one channel": {"images": grays()[..., None], "labels": np.arange(6)[:, None]},
    "channels first": {"data": np.zeros((6, 3, 8, 8), np.uint8), "targets": np.arange(6, dtype=np.uint8)},
    "Keras": {"x_train": grays(), "y_train": np.arange(6), "x_test": grays(), "y_test": np.arange(6)},
    "split": {"images": grays(), "labels": np.arange(6) // 2, "split": np.array(["train", "test"] * 3)},
}


@pytest.mark.parametrize("kind", GOOD_ARRAYS)
def test_arrays_come_in_several_forms(kind, tmp_path):
    data = open_data(arrays(tmp_path / "x.npz", **GOOD_ARRAYS[kind]))
    assert set(data.parts) == ({"train", "test"} if kind in {"Keras", "split"} else {"whole"})
    for part, labels in data.parts.items():
        shown = dict(data.read_images(part, range(len(labels))))
        assert len(shown) == len(labels) and all(image.size == (8, 8) for image in shown.values())


BAD_ARRAYS = {
    "objects": ({"images": np.array([None, 1], object), "labels": np.arange(2)}, "holds Python objects"),
    "floats": ({"images": np.zeros((2, 8, 8)), "labels": np.arange(2)}, "uint8"),
    "labels missing": ({"images": grays()}, "no arrays 'images' and 'labels'"),
    "too few labels": ({"images": grays(), "labels": np.arange(5)}, "one whole number for each of the 6"),
    "labels from 1": ({"images": grays(2), "labels": np.array([1, 3]), "class_names": np.array(["a", "b", "c"])},
                      "are these from 1"),
    "negative": ({"images": grays(2), "labels": np.array([-1, 0])}, "are in -1 … 0"),
    "class without image": ({"images": grays(2), "labels": np.array([0, 2])}, "class '1' has no image"),
    "odd split": ({"images": grays(2), "labels": np.arange(2), "split": np.array(["a", "b"])}, "'split' has a, b"),
    "features": ({"features": np.zeros((2, 8)), "labels": np.arange(2)}, "holds features of one model, not images"),
    "by columns": ({"images": np.asfortranarray(np.zeros((2, 8, 8), np.uint8)), "labels": np.arange(2)}, "by columns"),
    "none": ({"images": grays(0), "labels": np.arange(0)}, "holds no images"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_ARRAYS)
def test_odd_arrays_are_refused_in_words(kind, tmp_path):
    found, problem = BAD_ARRAYS[kind]
    with pytest.raises(TaskError, match=problem):
        open_data(arrays(tmp_path / "x.npz", **found))


def header(shape, dtype="|u1"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def test_archives_that_promise_more_than_they_are_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    for name, content, problem in (
        ("images.npy", header((10**6, 1000, 1000, 3)) + b"x" * 10, "states 3,000,000,000,000 bytes"),
        ("images.npy", header((2, 2)) + b"x" * 10, "states 4 bytes and has 10"),
        ("images.npy", b"hello", "damaged or not an npz"),
        ("images.npy", header((2,), "|O") + b"x" * 16, "Python objects"),
        ("images.npy", header((1,) * 65) + b"x", "has 65 dimensions; at most 64"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, content)
        with pytest.raises(TaskError, match=problem):
            Npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        for letter in "ab":
            archive.writestr(letter * 60_000, header((1,)) + b"x")
    with pytest.raises(TaskError, match="long names"):
        Npz(path)
    monkeypatch.setattr("merging.base.files.npz.ZIP_BOMB_MIN_BYTES", 1 << 20)
    size = 1 << 24
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("images.npy", "w") as stream:
        stream.write(header((size,)))
        stream.write(bytes(size))
    assert path.stat().st_size < 50_000
    with pytest.raises(TaskError, match="would unpack"):
        Npz(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(TaskError, match="damaged"):
        Npz(path)


def test_an_array_that_was_changed_on_disk_is_noticed(tmp_path):
    path = arrays(tmp_path / "x.npz", images=np.arange(3000, dtype=np.uint8).reshape(30, 10, 10), labels=np.arange(30))
    raw = bytearray(path.read_bytes())
    raw[1000] ^= 1
    path.write_bytes(raw)
    with pytest.raises(TaskError, match="damaged"), Npz(path) as archive:
        archive.read("images")


BAD_FOLDERS = {
    "nothing": ([], "has no class folders"),
    "empty class": (["cat/1.png", "dog/"], "class 'dog' has no image"),
    "empty class in a part": (["train/cat/1.png", "test/cat/"], "class 'cat' has no image in test"),
    "other classes in a part": (["train/cat/1.png", "test/dog/1.png"], "different class folders.*cat, dog"),
    "parts and classes": (["train/cat/1.png", "test/cat/1.png", "cat/1.png"], "mixes parts"),
    "the same part twice": (["val/cat/1.png", "valid/cat/1.png"], "two folders for the same part"),
}


@pytest.mark.parametrize("kind", BAD_FOLDERS)
def test_odd_folders_are_refused_in_words(kind, tmp_path):
    files, problem = BAD_FOLDERS[kind]
    for name in files:
        path = tmp_path / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_bytes(tiny_data.png(1))
    with pytest.raises(TaskError, match=problem):
        open_data(tmp_path)


def test_folders_are_read_as_torchvision_reads_them(tmp_path):
    names = ["10", "2", "Zebra", "apple", "train", "Ölbaum", "日本", "a\u0301"]  # one is called like a part
    for number, name in enumerate(names):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "b.png").write_bytes(tiny_data.png(number))
        (tmp_path / name / "deep" / "a.PNG").write_bytes(tiny_data.png(number))
        (tmp_path / name / "Thumbs.db").write_bytes(b"x")
        (tmp_path / name / ".hidden.png").write_bytes(b"x")
    data = open_data(tmp_path)
    assert data.class_names == tuple(sorted(names))
    assert data.parts["whole"].tolist() == [number for number in range(len(names)) for _ in "ab"]
    assert "8 files" in data.notes[0]
    assert set(name_classes(data).names) == {"10", "2", "Zebra", "apple", "train", "Ölbaum", "日本", "\u00e1"}


def test_hugging_face_columns_are_found_or_asked_for(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    listed = tiny_data.rows(2)
    cells = [tiny_data.png(number) for number, _ in listed]
    labels = [label for _, label in listed]
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"img": cells, "label": labels, "text": ["x"] * 6}), path)
    data = open_data(path)
    assert data.class_names is None and data.class_count == 3 and set(data.parts) == {"whole"}
    assert {image.mode for _, image in data.read_images("whole", [1, 4])} == {"RGB"}
    features = {name: {"_type": "ClassLabel", "names": ["a", "b", "c"]} for name in ("fine_label", "coarse_label")}
    schema = {"huggingface": json.dumps({"info": {"features": features | {"img": {"_type": "Image"}}}})}
    table = pa.table({"img": cells, "fine_label": labels, "coarse_label": labels}).replace_schema_metadata(schema)
    pq.write_table(table, path)
    with pytest.raises(
        TaskError, match=r"several columns of labels: fine_label, coarse_label. Choose one with label_column"
    ):
        open_data(path)
    assert open_data(path, label="fine_label").class_names == ("a", "b", "c")
    with pytest.raises(TaskError, match="no column 'fine'"):
        open_data(path, label="fine")
    pq.write_table(pa.table({"words": ["x"]}), path)
    with pytest.raises(TaskError, match="give image_column"):
        open_data(path)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(TaskError, match="damaged"):
        open_data(path)


def test_hugging_face_files_lead_nowhere_else(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "secret.png").write_bytes(tiny_data.png(0))
    inside = tmp_path / "data"
    inside.mkdir()
    (inside / "here.png").write_bytes(tiny_data.png(1))
    cells = [{"bytes": None, "path": name} for name in ("here.png", "../secret.png", str(tmp_path / "secret.png"))]
    pq.write_table(pa.table({"image": cells, "label": [0, 1, 2]}), inside / "test.parquet")
    found = [picture for _, picture in open_data(inside).read_images("test", [0, 1, 2])]
    assert found[0].size == (24 + 1, 21)
    assert all("neither in the table nor in its folder" in str(error) for error in found[1:])
    for name in ("../secret.arrow", "/etc/passwd", 7):
        (inside / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
        with pytest.raises(TaskError, match="does not list its arrow files"):
            open_data(inside)


def test_what_is_no_data_set_is_said(tmp_path):
    with pytest.raises(TaskError, match="no such file"):
        open_data(tmp_path / "nothing")
    (tmp_path / "x.csv").write_text("a,b")
    with pytest.raises(TaskError, match="is not a data set of a known format"):
        open_data(tmp_path / "x.csv")


# --- class names -----------------------------------------------------------------------------------------------------


def test_class_names_are_matched_never_guessed(tmp_path):
    data = open_data(tiny_data.folder(tmp_path / "folder", PARTS))
    numbers = open_data(arrays(tmp_path / "x.npz", images=grays(10), labels=np.arange(10)))
    assert name_classes(data, ["a", "b", "c"]).names == ("a", "b", "c")
    assert name_classes(data, ["Cat", "Apple tree", "bear"]).names == ("Apple tree", "bear", "Cat"), "by name"
    assert name_classes(data, {"cat": "kitten", "bear": "bear", "apple_tree": "tree"}).names == (
        "tree",
        "bear",
        "kitten",
    )
    assert name_classes(numbers, None, read_prompts("mnist")).names == tuple("0123456789")
    for given, published, problem in (
        (["a", "b"], None, "2 class names are given; the data set has 3"),
        ({"cat": "x"}, None, "No class name is given for 'apple_tree', 'bear'"),
        (["a", "A", "c"], None, "Classes 0 and 1 are both called 'A'"),
        (["a", "", "c"], None, "is not a class name"),
        (["a", "b\nc", "c"], None, "is not a class name"),
        (None, "cifar10", "'apple_tree' is not a class of CIFAR-10"),
    ):
        with pytest.raises(TaskError, match=problem):
            name_classes(data, given, read_prompts(published) if published else None)
    with pytest.raises(TaskError, match="their meaning is not stated"):
        name_classes(numbers)
    with pytest.raises(TaskError, match="files of FER2013 differ in what they mean"):
        name_classes(numbers, None, read_prompts("fer2013"))
    few = open_data(arrays(tmp_path / "y.npz", images=grays(3), labels=np.arange(3)))
    with pytest.raises(TaskError, match="EuroSAT has 10 classes; the data set has 3"):
        name_classes(few, None, read_prompts("eurosat"))


def test_class_names_come_from_files(tmp_path):
    (tmp_path / "a.txt").write_text("\ufeffdog\n\n cat \nño\n", "utf-8")
    assert read_classes(tmp_path / "a.txt") == ("dog", "cat", "ño")
    (tmp_path / "b.json").write_text('["dog", 7]')
    assert read_classes(tmp_path / "b.json") == ("dog", "7")
    (tmp_path / "c.yaml").write_text("n01: tench\nn02: goldfish\n")
    assert read_classes(tmp_path / "c.yaml") == {"n01": "tench", "n02": "goldfish"}
    (tmp_path / "d.txt").write_bytes(b"dog\ncaf\xe9\n")
    with pytest.raises(TaskError, match=r"d.txt, line 2: it is not text in UTF-8"):
        read_classes(tmp_path / "d.txt")
    with pytest.raises(TaskError, match="cannot be read"):
        read_classes(tmp_path / "e.txt")


# --- descriptions ----------------------------------------------------------------------------------------------------


def task_with(**options):
    return {"pretrained": "x", "tasks": {"a": {"images": "b", **options}}}


BAD_DESCRIPTIONS = {
    "a list": ([], "is a mapping"),
    "no tasks": ({"pretrained": "x"}, "lacks tasks"),
    "unknown": ({"pretrained": "x", "tasks": {"a": "b"}, "image": 3}, "has no 'image'. Did you mean 'images'"),
    "unknown of a task": (
        {"pretrained": "x", "tasks": {"a": {"images": "b", "prompt": "c"}}},
        "Did you mean 'prompts'",
    ),
    "key": ({"pretrained": "x", "tasks": {"../a": "b"}}, "cannot name a task"),
    "reserved": ({"pretrained": "x", "tasks": {"logit_scale": "b"}}, "cannot name a task"),
    "prompts": (
        {"pretrained": "x", "tasks": {"a": {"images": "b", "prompts": "flower102"}}},
        "Did you mean 'flowers102'",
    ),
    "number": ({"pretrained": "x", "tasks": {"a": "b"}, "images": -1}, "whole number"),
    "truth": ({"pretrained": "x", "tasks": {"a": "b"}, "seed": True}, "whole number"),
    "std": ({"pretrained": "x", "tasks": {"a": "b"}, "std": [1, 1, 0]}, "three numbers"),
    "templates": (task_with(templates="x {}"), "list of strings"),
}


@pytest.mark.parametrize("kind", BAD_DESCRIPTIONS)
def test_odd_descriptions_are_refused_in_words(kind, tmp_path):
    data, problem = BAD_DESCRIPTIONS[kind]
    with pytest.raises(TaskError, match=problem):
        Description.from_plain(data, tmp_path)
