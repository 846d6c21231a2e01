"""Every reader of files and texts from outside, as a function of bytes, with small inputs that it reads."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import pickle
import struct
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save

from app.session import report_codec
from merging.base.errors import MergingError
from merging.base.files import strict_json
from merging.base.files.atomic import DamagedError
from merging.base.files.npz import Npz
from merging.cli.model_options import parse_experts
from merging.engine.evaluation.feature_file import FeatureFile
from merging.images.benchmarks.build.benchmark_description import Description, read_classes
from merging.images.data_sets.data_set_formats import check_labels
from merging.images.data_sets.image_references import read_encoded
from merging.images.data_sets.web_dataset import TarData, Tars
from merging.images.zero_shot_heads import read_head
from merging.models.formats.configs import read_config_beside
from merging.models.formats.format_recognition import open_path
from merging.recipes.chain_text import parse_chain
from merging.recipes.recipe import Recipe
from merging.study.runs.drafts import parse_draft
from merging.study.runs.run_store import Store
from merging.study.sweeps.sweep import Sweep

FOLDER = Path(tempfile.gettempdir())  # where inputs are written before they are opened; the fuzzer sets another
CORPUS = Path(__file__).resolve().parents[1] / "fuzz" / "corpus.zip"
MOST_READ = 4096  # scalars of a tensor


@dataclass(frozen=True)
class Reader:
    """``read`` raises MergingError for whatever it does not read, and nothing else."""

    read: Callable[[bytes], Any]
    seeds: Callable[[], list[bytes]]


def written(data: bytes, name: str) -> Path:
    path = FOLDER / name
    path.write_bytes(data)
    return path


# --- checkpoints -----------------------------------------------------------------------------------------------------


def read_checkpoint(name: str, data: bytes) -> None:
    """All that opening a checkpoint reads, and the first numbers of every tensor."""
    checkpoint = open_path(written(data, name), name, name)
    for tensor, info in checkpoint.infos.items():
        checkpoint.read_flat(tensor, 0, min(info.numel, MOST_READ))


def read_header(data: bytes) -> None:
    """The bytes as the header of a safetensors file of the right length, which random changes seldom keep."""
    read_checkpoint("fuzzed.safetensors", struct.pack("<Q", len(data)) + data + bytes(62))


def read_archive(data: bytes) -> None:
    """The bytes as the pickle in a torch archive whose checksums are right."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, part in {"data.pkl": data, "version": b"3\n", "data/0": bytes(64), "data/1": bytes(64)}.items():
            archive.writestr(f"archive/{name}", part)
    read_checkpoint("fuzzed.pt", content.getvalue())


def read_configuration(data: bytes) -> None:
    """The bytes as the configuration beside a file of weights."""
    for name, weights in {
        "config.json": "model.safetensors",
        "open_clip_config.json": "open_clip_model.safetensors",
    }.items():
        written(data, name)
        read_config_beside(FOLDER / weights)
        (FOLDER / name).unlink()


def read_task_header(data: bytes) -> None:
    read_head(written(data, "head.pt"), None, 4)


def state() -> dict[str, torch.Tensor]:
    return {"weight": torch.eye(3, 4), "b": torch.ones(3, dtype=torch.float16), "n": torch.tensor(7)}


def torch_file(thing: Any, **options: Any) -> bytes:
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of whole modules
        torch.save(thing, content, **options)
    return content.getvalue()


def torch_files(**options: Any) -> list[bytes]:
    nested = {"epoch": 3, "state_dict": state(), "args": {"lr": 0.1, "names": ["a", "b"]}}
    return [torch_file(thing, **options) for thing in (state(), nested, torch.nn.Linear(2, 2), {"a": [1, (2, None)]})]


def pickles() -> list[bytes]:
    plain = [pickle.dumps(state(), protocol) for protocol in (4, 2)]
    return [*plain, pickle.dumps({"a": np.ones(2), "b": {1, 2}, "c": {"d": b"e"}}, 4), pickle.dumps([1, "x", 2.5], 0)]


def inner_pickles() -> list[bytes]:
    rows = {"weight": torch.eye(4), "bias": torch.ones(16)}
    things = (rows, {"epoch": 3, "state_dict": rows, "args": {"lr": 0.1}}, torch.nn.Linear(16, 1, bias=False))
    archives = [zipfile.ZipFile(io.BytesIO(torch_file(thing))) for thing in things]
    return [archive.read(next(n for n in archive.namelist() if n.endswith("data.pkl"))) for archive in archives]


def headers() -> list[bytes]:
    whole = save(state(), metadata={"architecture": json.dumps({"heads": 2}), "note": "a"})
    return [whole[8 : 8 + struct.unpack("<Q", whole[:8])[0]]]


def configurations() -> list[bytes]:
    tower = {"image_size": 32, "patch_size": 8, "hidden_size": 64, "num_attention_heads": 2, "hidden_act": "quick_gelu"}
    open_clip = {"embed_dim": 32, "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8}}
    configs = [tower | {"model_type": "clip_vision_model"}, {"vision_config": tower, "projection_dim": 32}]
    return [json.dumps(config).encode() for config in (*configs, {"model_cfg": open_clip})]


# --- data, recipes, addresses ----------------------------------------------------------------------------------------


def read_npz(data: bytes) -> None:
    with Npz(written(data, "fuzzed.npz")) as archive:
        for name, info in archive.infos.items():
            if info.nbytes <= 1 << 20:
                archive.read(name)
            if info.shape:
                list(archive.read_rows(name, range(min(2, info.shape[0]))))


FEATURES = {"features": np.ones((2, 4), np.float32), "labels": np.arange(2), "model": np.array("f0")}


def npz(**arrays: Any) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def read_npz_array(data: bytes) -> None:
    """The bytes as an array in an archive whose checksums are right."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("images.npy", data)
    read_npz(content.getvalue())


def npy(array: Any) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def read_description(data: bytes) -> None:
    Description.load(written(data, "benchmark.yaml"))


def classes(data: bytes) -> None:
    read_classes(written(data, "classes.json" if data[:1] in b"[{" else "classes.txt"))


def read_tar(data: bytes) -> None:
    path = written(data, "fuzzed.tar")
    data_set = check_labels(TarData(Tars(path.name, path.parent, {"whole": [path]})), path.name)
    places = (data_set.find_reference("whole", index) for index in range(len(data_set.parts["whole"])))
    list(read_encoded(place for place in places if place))


def samples() -> list[bytes]:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, file in (("a.png", b"an image"), ("a.cls", b"0"), ("é/b.png", b""), ("é/b.cls", b"0")):
            entry = tarfile.TarInfo(name)
            entry.size = len(file)
            archive.addfile(entry, io.BytesIO(file))
    return [content.getvalue().rstrip(b"\0") + bytes(1024)]


def stored_features(data: bytes) -> None:
    FeatureFile.load(written(data, "features.npz"))


def read_link(data: bytes) -> None:
    """The bytes as the query of a link: the chain that is built, experts, runs and sweeps."""
    for key, value in parse_qsl(data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50):
        if key == "chain":
            parse_chain(value)
        elif key == "experts":
            parse_experts(value.split(","), [])
        else:
            Store(FOLDER / "store").list_copies(value)


def text(read: Callable[[str], Any]) -> Callable[[bytes], None]:
    def of_bytes(data: bytes) -> None:
        read(data.decode("utf-8", "replace"))

    return of_bytes


def read_draft(data: bytes) -> None:
    """The bytes as the file of a draft, once as they are, and once as its second line under the right checksum."""
    for raw in (data, hashlib.sha256(data).hexdigest().encode() + b"\n" + data):
        with contextlib.suppress(DamagedError):
            parse_draft(raw)


def read_stored_report(data: bytes) -> None:
    """The bytes as the texts and order of a stored report, and as a table of one."""
    if data.startswith(b"{"):
        report_codec.decode(strict_json.parse_json(data, "a report"), lambda name: REPORT_TABLE)
    else:
        report_codec.read_table(data)


RECIPE = """version: 1
title: "a: b"
pretrained: models/pretrained.safetensors
experts: {digits: models/digits.safetensors, flags: models/flags.safetensors}
exemplars: {per_task: 8, seed: 1}
test_data: {split: reporting, per_task: 9, seed: 2}
edits:
- lwptv: {prune_ratio: 0.7, shared: true}
- dare
- manual: {rules: [{blocks: "0-1", roles: [shift], factor: 0}, {tensors: "*.w", experts: digits, factor: 2}]}
merge: {adamerging: {granularity: task, steps: 3}}
adapt: {surgery: {rank: 16, lr: 0.001}}
"""
SWEEP = """version: 1
kind: values
axes: {task_arithmetic.scaling: [0.1, 0.2, 0.3]}
recipes:
- {version: 1, pretrained: p.safetensors, experts: {a: a.safetensors, b: b.safetensors}, merge: task_arithmetic}
"""
BENCHMARK = """pretrained: clip.safetensors
tasks:
  fruit: {images: fruit, head: heads/fruit.pt, classes: [apple, pear], title: Fruit}
"""
DRAFT = (
    b'{"version":1,"token":"AAAAAAAAAAAAAAAAAAAAAA","parts":{"' + b"a" * 32 + b'":{"sha256":"0","size":3}},'
    b'"payload":{"title":"x","views":[{"options":{"fit":[0.1,null,true]}}]}}'
)
REPORT = (
    b'{"title":"x","introduction":"","tables":true,"recipes":true,"allowed":[],"sources":[{"id":"a","kind":"Run",'
    b'"title":"","facts":[["a","b"]],"digests":[],"recipe":""}],"views":[{"key":"kept_share","title":"","note":"",'
    b'"caption":"","place":"","number":0,"part":"a","size":1,"sources":[],"options":"{\\"mapping\\":[[\\"by\\",\\"role\\"]]}"}]}'
)
REPORT_TABLE = report_codec.write_table(pd.DataFrame({"a": [1.5, np.nan], "b": ["x", None]}))
LINKS = (
    "chain=lwptv:prune_ratio=0.5;ties:density=0.1,scaling=0.3&experts=digits,flags",
    "chain=count_dead_params;activation:gelu;exemplars:per_task=9;cat;task_arithmetic&run=0123456789abcdef",
    "chain=exemplars:seed=2;test_data:split=reporting,per_task=9;lwptv;adamerging:steps=3;surgery:rank=2",
    "chain=manual:b0-1/e.a%2Cb=0+t.*.ln_1.*=0.5,when=after;ties&run=0123456789abcdef",
    "runs=0123456789ab,../../etc/passwd&sweep=new&experts=a=b.pt",
)

READERS = {
    "safetensors": Reader(partial(read_checkpoint, "fuzzed.safetensors"), lambda: [save(state())]),
    "safetensors_header": Reader(read_header, headers),
    "torch_zip": Reader(partial(read_checkpoint, "fuzzed.pt"), torch_files),
    "torch_zip_pickle": Reader(read_archive, inner_pickles),
    "torch_legacy": Reader(
        partial(read_checkpoint, "fuzzed.pth"), lambda: torch_files(_use_new_zipfile_serialization=False)
    ),
    "pickle": Reader(partial(read_checkpoint, "fuzzed.pkl"), pickles),
    "head": Reader(read_task_header, lambda: [torch_file({"weight": torch.eye(3, 4)}), save({"weight": torch.eye(4)})]),
    "configuration": Reader(read_configuration, configurations),
    "npz": Reader(read_npz, lambda: [npz(images=np.zeros((2, 4, 4, 3), np.uint8), labels=np.arange(2)), npz(a=1.5)]),
    "npz_array": Reader(
        read_npz_array, lambda: [npy(np.zeros((2, 3), np.uint8)), npy(np.array("text")), npy(np.ones(2))]
    ),
    "tar": Reader(read_tar, samples),
    "features": Reader(stored_features, lambda: [npz(**FEATURES)]),
    "recipe": Reader(text(Recipe.from_yaml), lambda: [RECIPE.encode()]),
    "sweep": Reader(text(Sweep.from_yaml), lambda: [SWEEP.encode()]),
    "benchmark": Reader(read_description, lambda: [BENCHMARK.encode()]),
    "classes": Reader(classes, lambda: [b"apple\npear\n", b'["apple", "pear"]', b'{"a": "apple"}']),
    "draft": Reader(read_draft, lambda: [DRAFT]),
    "report": Reader(read_stored_report, lambda: [REPORT, REPORT_TABLE]),
    "address": Reader(read_link, lambda: [link.encode() for link in LINKS]),
}


def inputs(name: str) -> list[bytes]:
    """The seeds of a reader, and what fuzzing has added: inputs that reach other lines, or once ended a run."""
    with zipfile.ZipFile(CORPUS) as archive:
        kept = [archive.read(member) for member in archive.namelist() if member.startswith(f"{name}/")]
    return [*READERS[name].seeds(), *kept]


def read(name: str, data: bytes) -> bool:
    """Read bytes, which the reader may refuse with an error of this package. Returns whether it took them."""
    try:
        READERS[name].read(data)
        return True
    except MergingError as error:
        message = str(error)
        if not message.replace("\n", " ").isprintable() or len(message) > 5000 or str(FOLDER) in message:
            raise AssertionError(f"a message that is no sentence for a page: {message[:300]!r}") from error
        return False
