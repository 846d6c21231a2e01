"""Bad files: each is refused with one clear sentence, at once, in little memory, and none of them runs anything."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import bad_archives
import bad_files
import bad_parts
import bad_paths
import bad_pickles
import pytest
import safetensors_header
import tiny
import torch
from safetensors.torch import load_file, save_file

import merging
from merging.base.errors import CheckpointError
from merging.base.files.paths import resolve_contained
from merging.models.formats import safetensors
from merging.models.formats.model_sources import open_checkpoint
from merging.models.tensor_info import DTYPE_NAMES, dtype_name

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", bad_files.CASES)
def test_a_bad_file_is_refused_with_a_reason(name, tmp_path):
    build, says = bad_files.CASES[name]
    folder = tmp_path / "folder"
    folder.mkdir()
    path = build(folder)
    started = time.process_time()
    with pytest.raises(CheckpointError, match=says) as caught:
        open_checkpoint(path).parameters  # noqa: B018 - what is lazy is asked for, too
    assert time.process_time() - started < 5  # of this process: other work on the machine does not count
    text = str(caught.value)
    assert len(text) < 600 and text.isprintable() and "weights_only" not in text and str(tmp_path) not in text
    assert not (folder / bad_parts.MARKER).exists()


def test_the_files_that_run_code_would_run_it(tmp_path):
    """Otherwise their refusal would show nothing."""
    for name in ("exec", "inst", "named safetensors"):
        folder = tmp_path / name
        folder.mkdir()
        path = bad_pickles.RUNNING[name][0](folder)
        pickle.loads(path.read_bytes())
        assert (folder / bad_parts.MARKER).exists(), name


MEASURE = """
import sys, resource
from pathlib import Path
from merging.base.errors import CheckpointError
from merging.models.formats.model_sources import open_checkpoint
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        open_checkpoint(path)
    except CheckpointError:
        continue
    raise SystemExit(path)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.full
def test_bad_files_take_little_memory(tmp_path):
    paths = []
    for number, (name, (build, _)) in enumerate(bad_files.CASES.items()):
        if name.startswith(("torch", "safetensors", "archive")):
            (tmp_path / str(number)).mkdir()
            paths.append(str(build(tmp_path / str(number))))
    done = subprocess.run([sys.executable, "-c", MEASURE, *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100 * 1024  # kilobytes


GOOD = {
    "zero size": lambda f: _saved(f, bad_parts.state() | {"none": torch.empty(0, 4)}),
    "scalar": lambda f: _saved(f, bad_parts.state() | {"scale": torch.tensor(3.0)}),
    "8 MB of metadata": lambda f: _saved(f, bad_parts.state(), {"long": "x" * (8 << 20)}),
    "safetensors named pt": lambda f: _saved(f, bad_parts.state()).rename(f / "x.pt"),
    "torch named safetensors": lambda f: bad_parts.torch_saved(bad_parts.state(), f, "x.safetensors"),
    "legacy": lambda f: bad_parts.torch_saved(bad_parts.state(), f, _use_new_zipfile_serialization=False),
    "link in the folder": lambda f: _link(_saved(f, bad_parts.state()), f / "link"),
    "index": lambda f: bad_paths.shards(f, lambda index, at: None),
}


def _saved(folder, tensors, metadata=None):
    save_file(tensors, folder / "good.safetensors", metadata)
    return folder / "good.safetensors"


def _link(target, path):
    path.symlink_to(target)
    return path


@pytest.mark.parametrize("name", GOOD)
def test_odd_but_good_files_open(name, tmp_path):
    checkpoint = open_checkpoint(GOOD[name](tmp_path))
    assert not checkpoint.cautions
    for key, value in bad_parts.state().items():
        assert torch.equal(checkpoint.read(key), value)


def test_names_that_forge_lines_are_written_out(tmp_path):
    evil = "a\nERROR: all is lost \u202e" + "x" * 300
    path = safetensors_header.container(tmp_path, {evil: safetensors_header.entry(0, 4, [2])}, b"1234")
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400


def test_snapshots_of_the_hub_cache_open(tmp_path):
    repository = tmp_path / "models--someone--something"
    (repository / "blobs").mkdir(parents=True)
    (repository / "snapshots" / "abc").mkdir(parents=True)
    _saved(repository / "blobs", bad_parts.state()).rename(repository / "blobs" / "0123")
    _link(Path("../../blobs/0123"), repository / "snapshots" / "abc" / "model.safetensors")
    assert set(open_checkpoint(repository / "snapshots" / "abc").infos) == set(bad_parts.state())
    shared = tmp_path / "blobs" / "cd"  # what repositories share, since version 2 of the library
    shared.mkdir(parents=True)
    (repository / "blobs" / "0123").rename(shared / "cdef")
    _link(Path("../../blobs/cd/cdef"), repository / "blobs" / "0123")
    assert set(open_checkpoint(repository / "snapshots" / "abc").infos) == set(bad_parts.state())
    _link(Path("../../../other"), repository / "snapshots" / "abc" / "config.json")
    (tmp_path / "other").write_text("{}")
    with pytest.raises(CheckpointError, match="leads outside of its folder"):
        resolve_contained(repository / "snapshots" / "abc" / "config.json")


def _unlisted(index, folder):
    del index["weight_map"]["conv1.bias"]


WARNED = {
    "unlisted": (lambda f: bad_paths.shards(f, _unlisted), "does not list; ignored: conv1.bias"),
    "total size": (lambda f: bad_paths.shards(f, lambda i, _: i["metadata"].update(total_size=3)), "promises 3 bytes"),
    "texts": (lambda f: bad_parts.torch_saved(bad_parts.state() | {"arch": "ViT", "n": None}, f), "arch .text., n"),
    "module": (
        lambda f: bad_parts.torch_saved({f"module.{n}": t for n, t in bad_parts.state().items()}, f),
        "begin with 'module.'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WARNED)
def test_what_is_odd_is_said(name, tmp_path):
    build, says = WARNED[name]
    checkpoint = open_checkpoint(build(tmp_path))
    assert any(re.search(says, caution) for caution in checkpoint.cautions), checkpoint.cautions
    assert torch.equal(checkpoint.read("conv1.weight"), bad_parts.state()["conv1.weight"])


def test_a_torch_file_cut_while_open_is_an_error(tmp_path):
    path = bad_parts.torch_saved({"w": torch.ones(100_000)}, tmp_path)
    checkpoint = open_checkpoint(path)
    os.truncate(path, 4000)
    with pytest.raises(CheckpointError, match="became shorter"):
        checkpoint.read("w")


def test_views_of_storages_read_as_torch_reads_them(tmp_path):
    whole = torch.arange(60.0).reshape(6, 10)
    tensors = {
        "transposed": whole.T, "rows": whole[2:4], "steps": whole[::2, 1::3], "flag": torch.tensor([True, False]),
        "half": whole.half(), "brain": whole.bfloat16()[1:], "empty": torch.empty(0, 3), "scalar": torch.tensor(2.5),
    }  # fmt: skip
    for options in ({}, {"_use_new_zipfile_serialization": False}):
        checkpoint = open_checkpoint(bad_parts.torch_saved(tensors, tmp_path, **options))
        for name, value in tensors.items():
            assert torch.equal(checkpoint.read(name), value) and checkpoint.read(name).dtype == value.dtype
            half = value.numel() // 2
            assert torch.equal(checkpoint.read_flat(name, half, value.numel()), value.reshape(-1)[half:])


@pytest.mark.parametrize("dtype", DTYPE_NAMES, ids=dtype_name)
def test_every_dtype_has_the_names_that_the_libraries_give_it(dtype, tmp_path):
    values = torch.arange(6).to(dtype)
    legacy = bad_parts.torch_saved({"w": values}, tmp_path, "legacy.pt", _use_new_zipfile_serialization=False)
    paths = [bad_parts.torch_saved({"w": values}, tmp_path), legacy, _saved(tmp_path, {"w": values})]
    ours = tmp_path / "ours.safetensors"
    safetensors.save(ours, {"w": values})
    for stored in (*(open_checkpoint(path).read("w") for path in paths), load_file(ours)["w"]):
        assert torch.equal(stored, values) and stored.dtype == dtype
    assert getattr(torch, dtype_name(dtype)) == dtype


def test_tied_tensors_are_told(tmp_path):
    weight = torch.ones(3, 2)
    checkpoint = open_checkpoint(bad_parts.torch_saved({"a": weight, "b": weight}, tmp_path))
    assert checkpoint.notes == ("Some tensors share their numbers: a = b.",)


@pytest.mark.full
def test_the_reader_survives_any_change_of_a_byte(tmp_path):
    """Whatever a damaged pickle says, it is opened or refused with our own error."""
    path = bad_parts.torch_saved({"a": torch.ones(3), "b": {"c": torch.nn.Linear(2, 2)}}, tmp_path)
    legacy = bad_parts.torch_saved(torch.nn.Linear(2, 2), tmp_path, "l.pt", _use_new_zipfile_serialization=False)
    plain = tmp_path / "p.pkl"
    plain.write_bytes(pickle.dumps(torch.nn.Linear(2, 2)))
    draw = torch.Generator().manual_seed(0)
    for source in (path, legacy, plain):
        good = source.read_bytes()
        opened = 0
        for _ in range(300):
            changed = bytearray(good)
            at, value = torch.randint(0, len(good), (), generator=draw), torch.randint(0, 256, (), generator=draw)
            changed[int(at)] = int(value)
            spoiled = tmp_path / "spoiled"
            spoiled.write_bytes(changed)
            try:
                checkpoint = open_checkpoint(spoiled)
                shapes = {name: checkpoint.read(name).shape for name in checkpoint.infos}
            except CheckpointError as error:
                assert spoiled.name in str(error)
            else:
                opened += 1
                assert shapes == {name: info.shape for name, info in checkpoint.infos.items()}
        assert 0 < opened < 300, "a change in numbers goes unnoticed, and one elsewhere does not"


@pytest.mark.parametrize("name", bad_archives.UNUSUAL)
def test_unusual_but_good_archives_open(name, tmp_path):
    path = bad_archives.write(tmp_path, bad_archives.UNUSUAL[name])
    assert torch.equal(open_checkpoint(path).read("w"), bad_archives.VALUES)


@pytest.mark.full
@pytest.mark.parametrize("name", bad_archives.UNUSUAL)
def test_damaged_archives_are_refused_or_opened_and_nothing_else(name, tmp_path):
    content, draw = bad_archives.UNUSUAL[name], random.Random(0)
    for size in range(1, len(content.removesuffix(b"hello"))):
        with pytest.raises(CheckpointError):
            open_checkpoint(bad_archives.write(tmp_path, content[:size]))
    for _ in range(300):
        spoiled = bytearray(content)
        for _ in range(draw.randint(1, 4)):
            at, width = draw.randrange(len(content)), draw.choice((1, 2, 4, 8))
            spoiled[at : at + width] = draw.choice((bytes(width), b"\xff" * width, draw.randbytes(width), b""))
        with contextlib.suppress(CheckpointError):
            open_checkpoint(bad_archives.write(tmp_path, bytes(spoiled))).read("w")


def test_an_architecture_beside_the_weights_that_is_damaged_is_said(tmp_path):
    save_file(bad_parts.state(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "clip", "vision_config": {"hidden_size": -1}}))
    assert "odd sizes" in open_checkpoint(tmp_path).cautions[0]


def _sharded(folder, tensors):
    names = sorted(tensors)
    parts = {"a.safetensors": names[:9], "b.safetensors": names[9:]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def _pickled(folder, tensors):
    (folder / "x.pkl").write_bytes(pickle.dumps(tensors, 4))
    return folder / "x.pkl"


STORED = {
    "safetensors": _saved,
    "shards": _sharded,
    "zip": lambda f, s: bad_parts.torch_saved(s, f),
    "legacy": lambda f, s: bad_parts.torch_saved(s, f, _use_new_zipfile_serialization=False),
    "pickle": _pickled,
}


def _cut(path):
    os.truncate(path, 64)


def _overwritten(path):
    with path.open("r+b") as file:
        file.seek(-40, os.SEEK_END)
        file.write(bytes(40))


def _replaced(path):
    other = path.with_name("other")
    other.write_bytes(b"something else")
    other.replace(path)


DAMAGE = {"cut": (_cut, "became shorter|changed"), "overwritten": (_overwritten, "was changed while")}
DAMAGE |= {"deleted": (lambda path: path.unlink(), ""), "replaced": (_replaced, "")}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("stored", STORED)
def test_a_file_that_changes_during_a_merge_stops_it_or_is_as_it_was(stored, damage, tmp_path):
    """Nothing is mapped, so that no signal ends the program; a file that is gone by name is still there to be read."""
    base, experts = tiny.family(("a",))
    path, done = STORED[stored](tmp_path, experts["a"]), []
    spoil, says = DAMAGE[damage]

    def progress(state):
        if state.fraction > 0.3 and not done:
            done.extend([path] if path.is_file() else sorted(path.glob("*.safetensors")))
            for file in done:
                spoil(file)

    merge = partial(merging.merge, base, {"a": path}, "task_arithmetic", device="cpu", progress=progress)
    if says:
        with pytest.raises(CheckpointError, match=says):
            merge()
    else:
        expected = merging.merge(base, experts, "task_arithmetic", device="cpu").state_dict
        assert all(torch.equal(value, expected[name]) for name, value in merge().state_dict.items())
    assert done
