"""What bad files are made of: a small model, plain bytes, pickles, torch archives."""

from __future__ import annotations

import os
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

MARKER = "marker"


def state() -> dict[str, torch.Tensor]:
    """A small model that is of no family: reading does not depend on that."""
    draw = torch.Generator().manual_seed(0)
    shapes = {"conv1.weight": (4, 3, 3, 3), "conv1.bias": (4,), "embed.weight": (40, 16), "fc1.weight": (16, 16)}
    return {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}


def plain(content: bytes, name: str = "bad.safetensors") -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return build


class Runs:
    """Unpickled by pickle itself, it would create the marker."""

    def __init__(self, folder: Path, function: Any = os.mkdir) -> None:
        self.path, self.function = str(folder / MARKER), function

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        if self.function is exec:
            return exec, (f"open({self.path!r}, 'w').close()",)
        return self.function, (self.path, "w") if self.function is open else (self.path,)


def write_torch_archive(
    folder: Path, content: bytes, change: Callable[[zipfile.ZipFile], None] = lambda z: None
) -> Path:
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


def call_name(module: str, name: str, *, stack: bool = False) -> Callable[[Path], bytes]:
    """A pickle that calls a name with the marker's path."""

    def build(folder: Path) -> bytes:
        text = str(folder / MARKER).encode()
        path = b"X" + struct.pack("<I", len(text)) + text
        if stack:
            names = b"".join(b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, name))
            return b"\x80\x04" + names + b"\x93" + path + b"\x85R."
        return b"\x80\x02c" + f"{module}\n{name}\n".encode() + path + b"\x85R."

    return build


def torch_saved(thing: Any, folder: Path, name: str = "bad.pt", **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(thing, folder / name, **options)
    return folder / name
