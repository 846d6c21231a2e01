"""Paths and indexes of shards that lead somewhere else, or nowhere."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from bad_parts import Runs, plain, state
from safetensors.torch import save_file


def shards(folder: Path, change: Callable[[dict[str, Any], Path], None]) -> Path:
    """Two shards and an index; ``change`` spoils the index or the folder."""
    tensors = list(state().items())
    parts = {"model-00001-of-00002.safetensors": tensors[:2], "model-00002-of-00002.safetensors": tensors[2:]}
    index: dict[str, Any] = {"metadata": {"total_size": sum(t.nbytes for _, t in tensors)}, "weight_map": {}}
    for file, part in parts.items():
        save_file(dict(part), folder / file)
        index["weight_map"] |= {name: file for name, _ in part}
    change(index, folder)
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    return path


def point_index_to(target: str) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        save_file({"w": torch.ones(1)}, folder.parent / "secret.safetensors")
        return shards(folder, lambda index, _: index["weight_map"].update(w=target.format(folder.parent)))

    return build


def link_to(target: Callable[[Path], Path], name: str = "bad.safetensors") -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        (folder / name).symlink_to(target(folder))
        return folder / name

    return build


def write_outside(folder: Path) -> Path:
    path = folder.parent / f"secret-{folder.name}.safetensors"
    save_file(state(), path)
    return path


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "bad.safetensors")
    return folder / "bad.safetensors"


def to_pickle(folder: Path) -> Path:
    def change(index: dict[str, Any], at: Path) -> None:
        (at / "model-00002-of-00002.safetensors").write_bytes(pickle.dumps(Runs(at), 4))

    return shards(folder, change)


PATHS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "folder": (lambda f: f, "folder without a checkpoint"),
    "missing": (lambda f: f / "nowhere.safetensors", "not found"),
    "link out": (link_to(write_outside), "link that leads outside"),
    "folder with a link out": (
        lambda f: link_to(write_outside, "model.safetensors")(f).parent,
        "link that leads outside",
    ),
    "folder with a link out to nothing": (
        lambda f: link_to(lambda g: g.parent / "gone", "model.safetensors")(f).parent,
        "link that leads outside",
    ),
    "link into nothing": (link_to(lambda f: f / "gone"), "^bad.safetensors: not found: it is a link"),
    "link in a circle": (link_to(lambda f: f / "bad.safetensors"), "not found or not readable"),
    "pipe": (pipe, "not a regular file"),
    "missing shard": (
        lambda f: shards(f, lambda i, at: (at / "model-00002-of-00002.safetensors").unlink()),
        "'model-00002-of-00002.safetensors' is missing",
    ),
    "dot dot": (point_index_to("../secret.safetensors"), "outside of its folder"),
    "absolute": (point_index_to("{}/secret.safetensors"), "outside of its folder"),
    "backslash": (point_index_to("..\\secret.safetensors"), "outside of its folder"),
    "unc": (point_index_to("\\\\127.0.0.1\\share\\x.safetensors"), "outside of its folder"),
    "tensor not there": (
        lambda f: shards(f, lambda i, _: i["weight_map"].update(w="model-00001-of-00002.safetensors")),
        "'w' is not in 'model-00001-of-00002.safetensors'",
    ),
    "wrong shard": (
        lambda f: shards(f, lambda i, _: i["weight_map"].update({"conv1.bias": "model-00002-of-00002.safetensors"})),
        "'conv1.bias' is not in",
    ),
    "no weight map": (lambda f: shards(f, lambda i, _: i.pop("weight_map")), "no 'weight_map'"),
    "weight map a list": (lambda f: shards(f, lambda i, _: i.update(weight_map=[1])), "no 'weight_map'"),
    "name that forges a line": (lambda f: f / "a\nb\0", "not found or not readable"),
    "large index": (plain(b'{"a": "' + b"x" * (40 << 20) + b'"}', "x.index.json"), "more than any index of shards"),
    "cut index": (plain(b'{"weight_map": {"a": "b"', "model.safetensors.index.json"), "not valid JSON"),
    "pickles in several files": (
        lambda f: plain(b"{}", "pytorch_model.bin.index.json")(f).parent,
        "no 'weight_map'",
    ),
    "same key twice": (plain(b'{"weight_map": {"a": "b", "a": "c"}}', "x.index.json"), "names 'a' twice"),
    "shard is a pickle": (to_pickle, "Python pickle, not safetensors"),
}
