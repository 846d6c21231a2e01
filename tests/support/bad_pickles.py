"""Pickles that would run code; with Python's own pickle they would create the marker."""

from __future__ import annotations

import io
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch
from bad_parts import MARKER, Runs, call_name, raw, state, torch_saved, write_torch_archive


def chain(folder: Path) -> Path:
    """getattr(__import__("os"), "mkdir")(marker), written as a chain of calls."""
    text = str(folder / MARKER).encode()
    get = b"cbuiltins\ngetattr\n(c__main__\nos\nX\x05\x00\x00\x00mkdirtR"
    return write_torch_archive(folder, b"\x80\x02" + get + b"(X" + struct.pack("<I", len(text)) + text + b"tR.")


def flagged(folder: Path) -> Path:
    path = write_torch_archive(folder, call_name("builtins", "exec")(folder))
    content = bytearray(path.read_bytes())
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.find(magic) + at] |= 1
    path.write_bytes(content)
    return path


def bad_checksum(folder: Path) -> Path:
    path = write_torch_archive(folder, call_name("builtins", "exec")(folder))
    content = bytearray(path.read_bytes())
    content[content.find(b"PK\x01\x02") + 16] ^= 0xFF
    path.write_bytes(content)
    return path


def two_pickles(folder: Path) -> Path:
    def change(archive: zipfile.ZipFile) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            archive.writestr("archive/data.pkl", call_name("builtins", "exec")(folder))

    return write_torch_archive(folder, pickle.dumps({}, 2), change)


def evil_module(folder: Path) -> Path:
    module = torch.nn.Linear(2, 2)
    module.extra = Runs(folder, exec)
    return torch_saved(module, folder)


def tar(folder: Path) -> Path:
    import tarfile

    with tarfile.open(folder / "bad.pt", "w") as archive:
        content = call_name("os", "mkdir")(folder)
        info = tarfile.TarInfo("pickle")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return folder / "bad.pt"


RUNNING: dict[str, tuple[Callable[[Path], Path], str]] = {
    "exec": (raw(lambda f: pickle.dumps(Runs(f, exec))), r"asks to run code \('builtins\.exec'\)"),
    "open": (raw(lambda f: pickle.dumps(Runs(f, open)), "bad.pkl"), r"asks to run code"),
    "inst": (raw(lambda f: f"(S'{f / MARKER}'\nios\nmkdir\n.".encode()), r"run code \('os\.mkdir'\)"),
    "system": (lambda f: write_torch_archive(f, call_name("os", "system")(f)), r"run code \('os\.system'\)"),
    "stack global": (
        lambda f: write_torch_archive(f, call_name("posix", "mkdir", stack=True)(f)),
        r"run code \('posix\.mkdir'\)",
    ),
    "dotted": (
        lambda f: write_torch_archive(f, call_name("torch.serialization", "os.mkdir", stack=True)(f)),
        "run code",
    ),
    "collect_env": (lambda f: write_torch_archive(f, call_name("torch.utils.collect_env", "run")(f)), "run code"),
    "popen": (lambda f: write_torch_archive(f, call_name("subprocess", "Popen")(f)), "run code"),
    "getattr chain": (chain, "not a plain name"),
    "named safetensors": (raw(lambda f: pickle.dumps(Runs(f)), "bad.safetensors"), "run code"),
    "zip named safetensors": (
        lambda f: write_torch_archive(f, call_name("os", "mkdir")(f)).rename(f / "bad.safetensors"),
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
