"""Tars are read by their headers alone, within bounds, and what is odd in them is refused in words."""

from __future__ import annotations

import gzip
import tarfile

import published_layouts as layouts
import pytest

from merging.base.errors import TaskError
from merging.images.data_sets import tar_members
from merging.images.data_sets.data_set_formats import open_data
from merging.images.data_sets.image_references import read_encoded
from merging.images.data_sets.tar_members import read_members

IMAGE = layouts.encoded("fer2013", 0, 0)
GOOD = [("s0.cls", b"0\n"), ("s0.jpg", IMAGE), ("s1.jpg", IMAGE), ("s1.cls", b"1")]


def test_samples_are_grouped_by_name_and_found_in_the_file(tmp_path):
    files = [
        ("README", b"x"),
        ("./.hidden", b"y"),
        *GOOD,
        ("s0.json", b"{}"),
        ("deep/s0.PNG", IMAGE),
        ("deep/s0.cls", b"2"),
    ]
    data = open_data(layouts.tar(tmp_path / "x.tar", files))
    assert data.parts["whole"].tolist() == [0, 1, 2] and data.class_names is None and data.kind == "WebDataset"
    raw = (tmp_path / "x.tar").read_bytes()
    places = [data.find_reference("whole", index) for index in range(3)]
    assert all(raw[place.offset : place.offset + place.size] == IMAGE for place in places)
    assert list(read_encoded(places)) == [IMAGE] * 3
    assert {image.size for _, image in data.read_images("whole", [0, 2])} == {(28, 28)}


BAD_MEMBERS = {
    "no label": ([("s0.jpg", IMAGE)], "sample '/s0' has no label .cls; it has .jpg"),
    "no image": ([("s0.cls", b"0")], "sample '/s0' has no image; it has .cls"),
    "two images": ([*GOOD, ("s0.png", IMAGE)], "several images: .cls, .jpg, .png. Choose one with image_column"),
    "twice": ([*GOOD, ("s0.jpg", IMAGE)], "holds 's0.jpg' twice"),
    "a word": ([("s0.jpg", IMAGE), ("s0.cls", b"cat")], "the label 'cat' of sample '/s0' is not a number"),
    "negative": ([("s0.jpg", IMAGE), ("s0.cls", b"-1")], "the label '-1'"),
    "huge": ([("s0.jpg", IMAGE), ("s0.cls", b"9" * 30)], "is not a number in digits"),
    "too many classes": ([("s0.jpg", IMAGE), ("s0.cls", b"9" * 9)], "at most 1,000,000 classes"),
    "absolute": ([("/etc/s0.jpg", IMAGE)], "the name '/etc/s0.jpg' leads out of the archive"),
    "upward": ([("a/../../s0.jpg", IMAGE)], "leads out of the archive"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_MEMBERS)
def test_odd_members_are_refused_in_words(kind, tmp_path):
    files, problem = BAD_MEMBERS[kind]
    with pytest.raises(TaskError, match=f"x.tar.*{problem}"):
        open_data(layouts.tar(tmp_path / "x.tar", files))


def test_an_ending_can_be_chosen(tmp_path):
    other = layouts.encoded("fer2013", 1, 1, layouts.PNG)
    path = layouts.tar(tmp_path / "x.tar", [*GOOD[:2], ("s0.png", other), ("s0.class.txt", b"0")])
    data = open_data(path, image="png", label="class.txt")
    assert next(read_encoded([data.find_reference("whole", 0)])) == other


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE])
def test_links_and_special_files_are_refused(kind, tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        entry = tarfile.TarInfo("s0.jpg")
        entry.type, entry.linkname = kind, "/etc/passwd"
        archive.addfile(entry)
    with pytest.raises(TaskError, match=r"'s0.jpg' is a link or a special file|damaged"):
        list(read_members(tmp_path / "x.tar"))


def test_cut_damaged_and_compressed_tars_are_refused(tmp_path):
    raw = layouts.tar(tmp_path / "good.tar", GOOD).read_bytes()
    assert len(list(read_members(tmp_path / "good.tar"))) == 4
    second = raw.index(b"s1.jpg")
    for name, data, problem in (
        ("cut", raw[: second + 700], "is cut off|unexpected end"),
        ("ended", raw[:second], "after 2 members there is no end-of-archive block"),
        ("header", raw[:second] + b"\xff" * 512 + raw[second + 512 :], "after 2 members there is no"),
        ("zip", gzip.compress(raw), "not an uncompressed tar"),
        ("none", b"x" * 2000, "not an uncompressed tar"),
    ):
        (tmp_path / f"{name}.tar").write_bytes(data)
        with pytest.raises(TaskError, match=problem):
            list(read_members(tmp_path / f"{name}.tar"))
    with pytest.raises(TaskError, match="not found"):
        list(read_members(tmp_path / "missing.tar"))


def test_a_header_cannot_ask_for_much_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(tar_members, "MAX_HEADER_BYTES", 2048)
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("n" * 5000))
    with pytest.raises(TaskError, match=r"a header of [\d,]+ bytes"):
        list(read_members(tmp_path / "x.tar"))
    monkeypatch.setattr(tar_members, "MAX_MEMBERS", 1)
    layouts.tar(tmp_path / "y.tar", GOOD)
    with pytest.raises(TaskError, match="more than 1 members"):
        list(read_members(tmp_path / "y.tar"))


def test_tars_belong_to_the_split_that_they_name_in_the_order_of_their_numbers(tmp_path):
    for name in ("imagenet-train-2.tar", "imagenet-train-10.tar", "imagenet-val-0.tar"):
        label = name.partition(".")[0].rpartition("-")[2].encode()
        layouts.tar(
            tmp_path / name, [(f"{n}.{end}", data) for n in range(1) for end, data in (("jpg", IMAGE), ("cls", label))]
        )
    (tmp_path / "classnames.txt").write_text("".join(f"class {n}\n" for n in range(11)))
    data = open_data(tmp_path)
    assert {part: labels.tolist() for part, labels in data.parts.items()} == {"train": [2, 10], "validation": [0]}
    assert "8 of its 11 classes have no image in these files" in data.notes[0]
    layouts.tar(tmp_path / "more.tar", GOOD)
    with pytest.raises(TaskError, match=r"the splits of more.tar are unknown"):
        open_data(tmp_path)


def test_labels_beyond_the_list_are_refused(tmp_path):
    layouts.tar(tmp_path / "test.tar", [("a.jpg", IMAGE), ("a.cls", b"7")])
    (tmp_path / "classnames.txt").write_text("".join(f"{name}\n" for name in layouts.FER_NAMES))
    with pytest.raises(TaskError, match="labels of part 'test' are in 7 … 7, and there are 7 classes"):
        open_data(tmp_path)
    (tmp_path / "classnames.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(TaskError, match=r"classnames.txt, line 1: it is not text in UTF-8"):
        open_data(tmp_path)


def test_an_image_that_the_file_no_longer_holds_is_said(tmp_path):
    data = open_data(layouts.tar(tmp_path / "x.tar", GOOD))
    place = data.find_reference("whole", 1)
    with place.file.open("r+b") as file:
        file.truncate(place.offset + 10)
    assert "the file ends within this image" in str(next(read_encoded([place])))
    place.file.unlink()
    assert "x.tar: not found" in str(next(read_encoded([place])))
    assert all(isinstance(picture, TaskError) for _, picture in data.read_images("whole", [0, 1]))
