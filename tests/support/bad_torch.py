"""Files of torch that are damaged, lie, or are something else."""

from __future__ import annotations

import pickle
import struct
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bad_parts import state, torch_saved, write_torch_archive
from safetensors.torch import save_file


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
    return lambda folder: write_torch_archive(folder, tensor_pickle(*args))


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
    return write_torch_archive(folder, b"\x80\x02]q\x00" + steps + b".")


def memo_bomb(folder: Path) -> Path:
    return write_torch_archive(folder, b"\x80\x02" + b"N0" * 600_000 + b".")


def truncated(folder: Path) -> Path:
    path = torch_saved(state(), folder)
    path.write_bytes(path.read_bytes()[:-300])
    return path


def scripted(folder: Path) -> Path:
    return write_torch_archive(folder, pickle.dumps({}, 2), lambda z: z.writestr("archive/code/__torch__.py", "x"))


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
    return write_torch_archive(folder, b"\x80\x02" + pairs + made + b"u.")


def shared_parameters(folder: Path) -> Path:
    """200 modules that have the same 10,000 things among their parameters."""
    things = b"}q\x03(" + b"".join(b"U\x05%05xN" % i for i in range(10_000)) + b"u}q\x06c__main__\nModule\nq\x05"
    part = b"h\x05)\x81}(U\x0b_parametersh\x03U\x08_modulesh\x06ub"
    parts = b"}(" + b"".join(b"U\x04%04x" % i + part for i in range(200)) + b"u"
    return write_torch_archive(
        folder, b"\x80\x02" + things + b")\x81}(U\x0b_parametersh\x06U\x08_modules" + parts + b"ub."
    )


def slow_memo(folder: Path) -> Path:
    """130,000 entries of the memo whose numbers have the same hash."""
    return write_torch_archive(
        folder, b"\x80\x02N" + b"".join(b"p%d\n" % (i * sys.hash_info.modulus) for i in range(130_000)) + b"."
    )


def slow_name(folder: Path) -> Path:
    """A class with a name of a million letters, made 100,000 times."""
    text = b"X" + struct.pack("<I", 1 << 20) + b"A" * (1 << 20)
    return write_torch_archive(folder, b"\x80\x04" + text * 2 + b"\x93q\x00" + b"h\x00)R0" * 100_000 + b".")


def long_parameter(folder: Path) -> Path:
    """A module whose parameter has a name of a million letters, in 30,000 places of another."""
    module = torch.nn.Module()
    module.register_parameter("A" * (1 << 20), torch.nn.Parameter(torch.ones(1)))
    whole = torch.nn.Module()
    for i in range(30_000):
        whole.add_module(f"m{i}", module)
    return torch_saved(whole, folder)


def long_number(folder: Path) -> Path:
    """A state dict whose key is a number that Python refuses to print."""
    tensor = tensor_pickle((2,), (1,), 16).removesuffix(b"s.").split(b"X\x01\x00\x00\x00w", 1)[1]
    return write_torch_archive(folder, b"\x80\x02}L0x" + b"F" * 4000 + b"\n" + tensor + b"s.")


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


def with_complex() -> dict[str, torch.Tensor]:
    return state() | {"embed.weight": torch.ones(2, dtype=torch.complex64)}


def pickled_complex(folder: Path) -> Path:
    (folder / "bad.pkl").write_bytes(pickle.dumps(with_complex(), 4))
    return folder / "bad.pkl"


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
    "complex": (lambda f: torch_saved(with_complex(), f), r"tensor 'embed.weight' is of type complex64 \(complex"),
    "complex in a file from before 1.6": (
        lambda f: torch_saved(with_complex(), f, _use_new_zipfile_serialization=False),
        r"tensor 'embed.weight' is of type complex64 \(complex",
    ),
    "complex in a plain pickle": (pickled_complex, r"tensor 'embed.weight' is of type complex64 \(complex"),
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
    "memo of one hash": (slow_memo, "its pickle cannot be read"),
    "name of a million letters": (slow_name, "its pickle cannot be read"),
    "parameter of a million letters": (long_parameter, "name has 1,048,576 letters"),
    "key of 5,000 digits": (long_number, "not names: a number"),
    "alpha of 400 digits": (adapter("1" + "0" * 400), "lora_alpha is a number"),
    "alpha that is none": (adapter("NaN"), "lora_alpha is a number"),
    "odd arguments": (odd_arguments, "has no storage"),
    "several models": (several, "several models"),
    "unfolding views": (shared_view, "views that unfold"),
}
