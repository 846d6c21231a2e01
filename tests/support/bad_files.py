"""Files that are no good checkpoints, each with what must be said of it: damaged, lying, or made to run code.

Every function takes an empty folder and gives the path to open. Files that are made to run code would create the
folder's file "marker".
"""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bad_archives import ARCHIVES
from safetensors.torch import save, save_file

MARKER = "marker"


def state() -> dict[str, torch.Tensor]:
    """A small model that is of no family: reading does not depend on that."""
    draw = torch.Generator().manual_seed(0)
    shapes = {"conv1.weight": (4, 3, 3, 3), "conv1.bias": (4,), "embed.weight": (40, 16), "fc1.weight": (16, 16)}
    return {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}


# --- safetensors -----------------------------------------------------------------------------------------------------


def container(folder: Path, header: Any, data: bytes, length: int | None = None) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = folder / "bad.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)
    return path


def entry(begin: Any, end: Any, shape: list[Any], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def cut(size: int) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        path = folder / "bad.safetensors"
        raw = save(state())
        path.write_bytes(raw[:size])
        return path

    return build


def plain(content: bytes, name: str = "bad.safetensors") -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return build


def made(header: Any, data: bytes = b"", length: int | None = None) -> Callable[[Path], Path]:
    return lambda folder: container(folder, header, data, length)


def overlap_bomb(folder: Path) -> Path:
    size = 4 << 20
    header = {f"t{i:05}": entry(0, size, [size // 4]) for i in range(3000)}
    return container(folder, header, bytes(size))


def many_tensors(folder: Path) -> Path:
    listed = b",".join(b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in range(60_000))
    return container(folder, b"{" + listed + b"}", b"")


SAFETENSORS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "empty": (plain(b""), r"empty \(0 bytes\)"),
    "7 bytes": (plain(b"1234567"), "7 bytes"),
    "cut in header": (cut(60), "truncated"),
    "cut in data": (cut(1000), "truncated: the header promises"),
    "one byte short": (cut(-1), "truncated"),
    "length 2^63": (made({"w": entry(0, 4, [1])}, bytes(4), 2**63), "at most 100,000,000 are read"),
    "length 2^64-1": (made({"w": entry(0, 4, [1])}, bytes(4), 2**64 - 1), "at most 100,000,000 are read"),
    "length 0": (made({"w": entry(0, 4, [1])}, bytes(4), 0), "not valid JSON"),
    "header 101 MB": (made({"w": entry(0, 4, [1])}, bytes(4), 101_000_000), "claims to take 101,000,000 bytes"),
    "length off by one": (lambda f: container(f, {"w": entry(0, 4, [1])}, bytes(5), 64), "JSON|follow"),
    "list": (made([1, 2]), "is a list, not a mapping"),
    "not utf-8": (made(b'{"\xff\xfe": 1}'), "not valid JSON"),
    "byte order mark": (made(b"\xef\xbb\xbf{}"), "not valid JSON"),
    "deep": (made(b'{"w":' + b"[" * 100_000), "not valid JSON"),
    "overlap bomb": (overlap_bomb, "overlaps"),
    "begin after end": (made({"w": entry(8, 4, [1])}, bytes(8)), "'w'"),
    "shape overflow": (made({"w": entry(0, 4, [2**40, 2**40])}, bytes(4)), "'w' of shape"),
    "float8": (made({"w": entry(0, 4, [4], "F8_E4M3")}, bytes(4)), "dtype 'F8_E4M3'"),
    "many dimensions": (lambda f: container(f, {"w": entry(0, 4, [2**62] * 50_000)}, bytes(4)), "'w' is malformed"),
    "many tensors": (many_tensors, "holds 60,000 tensors"),
    "many things": (made(b'{"w": [' + b"1," * 500_010 + b"1]}"), "more than 500,000 values"),
    "half a character": (made(b'{"__metadata__": {"a": "\\ud800"}}'), "not valid JSON"),
    "trailing bytes": (made({"w": entry(0, 4, [1])}, bytes(9)), "5 bytes follow the last tensor"),
    "jpeg": (plain(b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(90)), "JPEG image"),
    "numpy": (plain(b"\x93NUMPY\x01\x00v\x00{'descr'" + bytes(90), "bad.npy"), "NumPy array"),
    "hdf5": (plain(b"\x89HDF\r\n\x1a\n" + bytes(90), "bad.h5"), "HDF5"),
    "gguf": (plain(b"GGUF\x03\0\0\0" + bytes(90), "bad.gguf"), "GGUF"),
    "png": (plain(b"\x89PNG\r\n\x1a\n" + bytes(90)), "PNG image"),
    "web page": (plain(b"<!DOCTYPE html><html>"), "web page"),
    "web page in small letters": (plain(b"\n <!doctype html>"), "web page"),
    "xml": (plain(b"<?xml version='1.0'?><Error/>"), "XML"),
    "gzip": (plain(b"\x1f\x8b\x08" + bytes(40)), "gzip: unpack it"),
    "git lfs": (plain(b"version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
    "random": (plain(bytes(range(200, 256)) * 20, "bad.pt"), "neither safetensors"),
}


# --- paths and indexes -----------------------------------------------------------------------------------------------


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


def pointing(target: str) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        save_file({"w": torch.ones(1)}, folder.parent / "secret.safetensors")
        return shards(folder, lambda index, _: index["weight_map"].update(w=target.format(folder.parent)))

    return build


def linked(target: Callable[[Path], Path], name: str = "bad.safetensors") -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        (folder / name).symlink_to(target(folder))
        return folder / name

    return build


def outside(folder: Path) -> Path:
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
    "link out": (linked(outside), "link that leads outside"),
    "folder with a link out": (lambda f: linked(outside, "model.safetensors")(f).parent, "link that leads outside"),
    "folder with a link out to nothing": (
        lambda f: linked(lambda g: g.parent / "gone", "model.safetensors")(f).parent,
        "link that leads outside",
    ),
    "link into nothing": (linked(lambda f: f / "gone"), "not found"),
    "link in a circle": (linked(lambda f: f / "bad.safetensors"), "not found or not readable"),
    "pipe": (pipe, "not a regular file"),
    "missing shard": (
        lambda f: shards(f, lambda i, at: (at / "model-00002-of-00002.safetensors").unlink()),
        "'model-00002-of-00002.safetensors' is missing",
    ),
    "dot dot": (pointing("../secret.safetensors"), "outside of its folder"),
    "absolute": (pointing("{}/secret.safetensors"), "outside of its folder"),
    "backslash": (pointing("..\\secret.safetensors"), "outside of its folder"),
    "unc": (pointing("\\\\127.0.0.1\\share\\x.safetensors"), "outside of its folder"),
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
    "large index": (plain(b'{"a": "' + b"x" * (40 << 20) + b'"}', "x.index.json"), "more than an index of shards has"),
    "cut index": (plain(b'{"weight_map": {"a": "b"', "model.safetensors.index.json"), "not valid JSON"),
    "pickles in several files": (
        lambda f: plain(b"{}", "pytorch_model.bin.index.json")(f).parent,
        "pickled weights in several files",
    ),
    "same key twice": (plain(b'{"weight_map": {"a": "b", "a": "c"}}', "x.index.json"), "names 'a' twice"),
    "shard is a pickle": (to_pickle, "Python pickle, not safetensors"),
}


# --- pickles that would run code -------------------------------------------------------------------------------------


class Runs:
    """Unpickled by pickle itself, it would create the marker."""

    def __init__(self, folder: Path, function: Any = os.mkdir) -> None:
        self.path, self.function = str(folder / MARKER), function

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        if self.function is exec:
            return exec, (f"open({self.path!r}, 'w').close()",)
        return self.function, (self.path, "w") if self.function is open else (self.path,)


def zipped(folder: Path, content: bytes, change: Callable[[zipfile.ZipFile], None] = lambda z: None) -> Path:
    """A torch archive with that pickle."""
    path = folder / "bad.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/data/0", bytes(64))
        change(archive)
    return path


def raw(build: Callable[[Path], bytes], name: str = "bad.bin") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(build(folder))
        return folder / name

    return write


def called(module: str, name: str, *, stack: bool = False) -> Callable[[Path], bytes]:
    """A pickle that calls a name with the marker's path."""

    def build(folder: Path) -> bytes:
        text = str(folder / MARKER).encode()
        path = b"X" + struct.pack("<I", len(text)) + text
        if stack:
            names = b"".join(b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, name))
            return b"\x80\x04" + names + b"\x93" + path + b"\x85R."
        return b"\x80\x02c" + f"{module}\n{name}\n".encode() + path + b"\x85R."

    return build


def chain(folder: Path) -> Path:
    """getattr(__import__("os"), "mkdir")(marker), written as a chain of calls."""
    text = str(folder / MARKER).encode()
    get = b"cbuiltins\ngetattr\n(c__main__\nos\nX\x05\x00\x00\x00mkdirtR"
    return zipped(folder, b"\x80\x02" + get + b"(X" + struct.pack("<I", len(text)) + text + b"tR.")


def torch_saved(thing: Any, folder: Path, name: str = "bad.pt", **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(thing, folder / name, **options)
    return folder / name


def flagged(folder: Path) -> Path:
    path = zipped(folder, called("builtins", "exec")(folder))
    content = bytearray(path.read_bytes())
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.find(magic) + at] |= 1
    path.write_bytes(content)
    return path


def bad_checksum(folder: Path) -> Path:
    path = zipped(folder, called("builtins", "exec")(folder))
    content = bytearray(path.read_bytes())
    content[content.find(b"PK\x01\x02") + 16] ^= 0xFF
    path.write_bytes(content)
    return path


def two_pickles(folder: Path) -> Path:
    def change(archive: zipfile.ZipFile) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            archive.writestr("archive/data.pkl", called("builtins", "exec")(folder))

    return zipped(folder, pickle.dumps({}, 2), change)


def evil_module(folder: Path) -> Path:
    module = torch.nn.Linear(2, 2)
    module.extra = Runs(folder, exec)
    return torch_saved(module, folder)


def tar(folder: Path) -> Path:
    import tarfile

    with tarfile.open(folder / "bad.pt", "w") as archive:
        content = called("os", "mkdir")(folder)
        info = tarfile.TarInfo("pickle")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return folder / "bad.pt"


RUNNING: dict[str, tuple[Callable[[Path], Path], str]] = {
    "exec": (raw(lambda f: pickle.dumps(Runs(f, exec))), r"asks to run code \('builtins\.exec'\)"),
    "open": (raw(lambda f: pickle.dumps(Runs(f, open)), "bad.pkl"), r"asks to run code"),
    "inst": (raw(lambda f: f"(S'{f / MARKER}'\nios\nmkdir\n.".encode()), r"run code \('os\.mkdir'\)"),
    "system": (lambda f: zipped(f, called("os", "system")(f)), r"run code \('os\.system'\)"),
    "stack global": (lambda f: zipped(f, called("posix", "mkdir", stack=True)(f)), r"run code \('posix\.mkdir'\)"),
    "dotted": (lambda f: zipped(f, called("torch.serialization", "os.mkdir", stack=True)(f)), "run code"),
    "collect_env": (lambda f: zipped(f, called("torch.utils.collect_env", "run")(f)), "run code"),
    "popen": (lambda f: zipped(f, called("subprocess", "Popen")(f)), "run code"),
    "getattr chain": (chain, "not a plain name"),
    "named safetensors": (raw(lambda f: pickle.dumps(Runs(f)), "bad.safetensors"), "run code"),
    "zip named safetensors": (
        lambda f: zipped(f, called("os", "mkdir")(f)).rename(f / "bad.safetensors"),
        "run code",
    ),
    "nested in a state dict": (lambda f: torch_saved(state() | {"x": Runs(f, exec)}, f), "run code"),
    "in a module": (evil_module, "run code"),
    "legacy": (lambda f: torch_saved(Runs(f), f, _use_new_zipfile_serialization=False), "run code"),
    "flag bit": (flagged, "encrypted"),
    "bad checksum": (bad_checksum, "checksum"),
    "two pickles": (two_pickles, "two members"),
    "tar": (tar, "tar archive"),
}


# --- torch files that are damaged, lie, or are something else --------------------------------------------------------


def tensor_pickle(size: tuple[int, ...], stride: tuple[int, ...], numel: int, offset: int = 0) -> bytes:
    """A state dict {"w": a float32 view of storage 0}, as torch writes it, with numbers of one's own."""

    def number(value: int) -> bytes:
        return b"\x8a\x09" + value.to_bytes(9, "little")

    def numbers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(number, values)) + b"t"

    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
    reference = storage + number(numel) + b"tQ"
    args = b"(" + reference + number(offset) + numbers(size) + numbers(stride) + b"\x89ccollections\nOrderedDict\n)Rt"
    return b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n" + args + b"Rs."


def viewed(*args: Any) -> Callable[[Path], Path]:
    return lambda folder: zipped(folder, tensor_pickle(*args))


def bomb(folder: Path) -> Path:
    path = folder / "bad.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", tensor_pickle((1 << 24,), (1,), 1 << 24))
        archive.writestr("archive/data/0", bytes(64 << 20))
    return path


def laughs(folder: Path) -> Path:
    steps = b"".join(
        b"](" + b"h" + bytes([i]) * 1 + (b"h" + bytes([i])) * 9 + b"eq" + bytes([i + 1]) for i in range(60)
    )
    return zipped(folder, b"\x80\x02]q\x00" + steps + b".")


def memo_bomb(folder: Path) -> Path:
    return zipped(folder, b"\x80\x02" + b"N0" * 600_000 + b".")


def truncated(folder: Path) -> Path:
    path = torch_saved(state(), folder)
    path.write_bytes(path.read_bytes()[:-300])
    return path


def scripted(folder: Path) -> Path:
    return zipped(folder, pickle.dumps({}, 2), lambda z: z.writestr("archive/code/__torch__.py", "x"))


def several(folder: Path) -> Path:
    return torch_saved({"first": state(), "second": state()}, folder)


def shared_view(folder: Path) -> Path:
    whole = torch.zeros(10_000)
    return torch_saved({f"w{i}": whole.view(100, 100) for i in range(50)}, folder)


def many_modules(folder: Path) -> Path:
    """Modules that hold the next one twice: 2^30 paths to the last."""
    inner = torch.nn.Linear(1, 1)
    for _ in range(30):
        inner = torch.nn.Sequential(OrderedDict(a=inner, b=inner))
    return torch_saved(inner, folder)


def shared_items(folder: Path) -> Path:
    """200 dictionaries, each made of the same list of 10,000 pairs."""
    pairs = b"X\x01\x00\x00\x00kK\x01\x86q\x03]q\x04(" + b"h\x03" * 10_000 + b"e"
    made = b"ccollections\nOrderedDict\nq\x05}(" + b"".join(b"U\x04%04xh\x05h\x04\x85R" % i for i in range(200))
    return zipped(folder, b"\x80\x02" + pairs + made + b"u.")


def shared_parameters(folder: Path) -> Path:
    """200 modules that have the same 10,000 things among their parameters."""
    things = b"}q\x03(" + b"".join(b"U\x05%05xN" % i for i in range(10_000)) + b"u}q\x06c__main__\nModule\nq\x05"
    part = b"h\x05)\x81}(U\x0b_parametersh\x03U\x08_modulesh\x06ub"
    parts = b"}(" + b"".join(b"U\x04%04x" % i + part for i in range(200)) + b"u"
    return zipped(folder, b"\x80\x02" + things + b")\x81}(U\x0b_parametersh\x06U\x08_modules" + parts + b"ub.")


def adapter(alpha: str) -> Callable[[Path], Path]:
    """A LoRA adapter of one layer with that ``lora_alpha``."""

    def build(folder: Path) -> Path:
        factors = {"l.lora_A.weight": torch.ones(1, 2), "l.lora_B.weight": torch.ones(2, 1)}
        save_file(factors, folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text(f'{{"peft_type": "LORA", "r": 1, "lora_alpha": {alpha}}}')
        return folder

    return build


def other_zip(folder: Path) -> Path:
    np.savez(folder / "bad.npz", w=np.ones(3))
    return folder / "bad.npz"


def sparse() -> torch.Tensor:
    return torch.eye(3).to_sparse()


def odd_arguments(folder: Path) -> Path:
    """A storage whose bytes were to be loaded with something else than a tuple of arguments."""
    content = pickle.dumps({"w": torch.ones(3)}, 4)
    assert content.count(b"\x85\x94R\x94K") == 1  # TUPLE1, MEMOIZE, REDUCE behind the bytes
    (folder / "bad.pkl").write_bytes(content.replace(b"\x85\x94R\x94K", b"\x94R\x94K"))
    return folder / "bad.pkl"


TORCH: dict[str, tuple[Callable[[Path], Path], str]] = {
    "bare tensor": (lambda f: torch_saved(torch.ones(3), f), "a single tensor"),
    "list": (lambda f: torch_saved([torch.ones(3)], f), "is a list"),
    "number": (lambda f: torch_saved(3, f), "is a number"),
    "number keys": (lambda f: torch_saved({7: torch.ones(3)}, f), "not names: 7"),
    "numpy": (lambda f: torch_saved({"w": np.ones(3)}, f), "a dictionary with a NumPy array"),
    "sparse": (lambda f: torch_saved(state() | {"embed.weight": sparse()}, f), "'embed.weight' is sparse"),
    "complex": (lambda f: torch_saved({"w": torch.ones(2, dtype=torch.complex64)}, f), "complex"),
    "float8": (lambda f: torch_saved({"w": torch.ones(2).to(torch.float8_e4m3fn)}, f), "float8"),
    "torchscript": (scripted, "TorchScript"),
    "other zip": (other_zip, "not of torch"),
    "truncated": (truncated, "truncated"),
    "1 TB storage": (viewed((2**38,), (1,), 2**38), "promises 1,099,511,627,776 bytes"),
    "stride 0": (viewed((2**20, 2**20), (0, 0), 16), "repeats its 16 stored numbers"),
    "overlapping strides": (viewed((3, 3), (1, 1), 16), "repeats"),
    "view past storage": (viewed((4, 8), (8, 1), 16), "reaches past its storage"),
    "offset past storage": (viewed((2,), (1,), 16, 15), "reaches past its storage"),
    "zip bomb": (bomb, "compressed member"),
    "billion laughs": (laughs, "is a list"),
    "many instructions": (memo_bomb, "more than 400,000 instructions"),
    "many modules": (many_modules, "too many times"),
    "shared items": (shared_items, "too many times"),
    "shared parameters": (shared_parameters, "too many times"),
    "alpha of 400 digits": (adapter("1" + "0" * 400), "lora_alpha is a number"),
    "alpha that is none": (adapter("NaN"), "lora_alpha is a number"),
    "odd arguments": (odd_arguments, "has no storage"),
    "several models": (several, "several models"),
    "unfolding views": (shared_view, "views that unfold"),
}


CASES = {
    f"{group}: {name}": case
    for group, cases in (
        ("safetensors", SAFETENSORS),
        ("path", PATHS),
        ("runs", RUNNING),
        ("torch", TORCH),
        ("archive", ARCHIVES),
    )
    for name, case in cases.items()
}
