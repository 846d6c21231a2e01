"""Safetensors files that are damaged or lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bad_parts import plain, state
from safetensors.torch import save
from safetensors_header import container, entry


def cut(size: int) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        path = folder / "bad.safetensors"
        raw = save(state())
        path.write_bytes(raw[:size])
        return path

    return build


def make_file(
    header: Any, data: bytes = b"", length: int | None = None, size: int | None = None
) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        path = container(folder, header, data, length)
        path.write_bytes(path.read_bytes()[:size])
        return path

    return build


def overlap_bomb(folder: Path) -> Path:
    size = 4 << 20
    header = {f"t{i:05}": entry(0, size, [size // 4]) for i in range(3000)}
    return container(folder, header, bytes(size))


def many_tensors(folder: Path) -> Path:
    listed = b",".join(b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in range(60_000))
    return container(folder, b"{" + listed + b"}", b"")


# Lengths of headers whose first byte, or two, could begin a pickle, or JSON.
PICKLED = (ord("("), ord("c"), ord("]"), ord("}"), ord("{"), 0x0280)

SAFETENSORS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "empty": (plain(b""), r"empty \(0 bytes\)"),
    "7 bytes": (plain(b"1234567"), "7 bytes"),
    **{
        f"cut in the length, {n}": (make_file(bytes(n), length=n, size=7), "truncated: it has 7 bytes") for n in PICKLED
    },
    **{
        f"only the length, {n}": (make_file(bytes(n), length=n, size=8), "truncated: the header alone") for n in PICKLED
    },
    **{
        f"length past the end, {n}": (make_file(b"{}", length=n), "truncated: the header alone promises")
        for n in PICKLED
    },
    "length like a pickle's": (make_file(b"{}", length=0x1_0000_0280), "claims to take 4,294,967,936 bytes"),
    "cut in header": (cut(60), "truncated"),
    "cut in data": (cut(1000), "truncated: the header promises"),
    "one byte short": (cut(-1), "truncated"),
    "length 2^63": (make_file({"w": entry(0, 4, [1])}, bytes(4), 2**63), "at most 100,000,000 are read"),
    "length 2^64-1": (make_file({"w": entry(0, 4, [1])}, bytes(4), 2**64 - 1), "at most 100,000,000 are read"),
    "length 0": (make_file({"w": entry(0, 4, [1])}, bytes(4), 0), "not valid JSON"),
    "header 101 MB": (make_file({"w": entry(0, 4, [1])}, bytes(4), 101_000_000), "claims to take 101,000,000 bytes"),
    "length off by one": (lambda f: container(f, {"w": entry(0, 4, [1])}, bytes(5), 64), "JSON|follow"),
    "list": (make_file([1, 2]), "is a list, not a mapping"),
    "not utf-8": (make_file(b'{"\xff\xfe": 1}'), "not valid JSON"),
    "byte order mark": (make_file(b"\xef\xbb\xbf{}"), "not valid JSON"),
    "deep": (make_file(b'{"w":' + b"[" * 100_000), "not valid JSON"),
    "overlap bomb": (overlap_bomb, "overlaps"),
    "begin after end": (make_file({"w": entry(8, 4, [1])}, bytes(8)), "'w'"),
    "moved past the end": (
        make_file({"a": entry(0, 4, [1]), "moved": entry(104, 108, [1]), "z": entry(8, 12, [1])}, bytes(12)),
        "'moved' reaches past the end of the file: its offsets are 104 and 108, the file has 12 bytes",
    ),
    "complex": (make_file({"w": entry(0, 8, [1], "C64")}, bytes(8)), r"'w' has dtype 'C64' \(complex numbers\)"),
    "shape overflow": (make_file({"w": entry(0, 4, [2**40, 2**40])}, bytes(4)), "'w' of shape"),
    "float8": (make_file({"w": entry(0, 4, [4], "F8_E4M3")}, bytes(4)), "dtype 'F8_E4M3'"),
    "many dimensions": (lambda f: container(f, {"w": entry(0, 4, [2**62] * 50_000)}, bytes(4)), "'w' is malformed"),
    "many tensors": (many_tensors, "holds 60,000 tensors"),
    "many things": (make_file(b'{"w": [' + b"1," * 500_010 + b"1]}"), "more than 500,000 values"),
    "half a character": (make_file(b'{"__metadata__": {"a": "\\ud800"}}'), "not valid JSON"),
    "trailing bytes": (make_file({"w": entry(0, 4, [1])}, bytes(9)), "5 bytes follow the last tensor"),
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
