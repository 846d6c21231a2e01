"""Small data sets on disk in every form that is read, and a text tower that goes with the tiny models."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tiny
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

NAMES = ("apple_tree", "bear", "cat")
WIDTH, HEADS, LAYERS, CONTEXT, VOCABULARY = 16, 2, 1, 12, 300


def picture(number: int) -> NDArray[np.uint8]:
    """Noise of some odd size, another one for every number."""
    rng = np.random.default_rng(number)
    return rng.integers(0, 256, (20 + number % 5, 24 + number % 3, 3), dtype=np.uint8)


def png(number: int) -> bytes:
    """The same as a file."""
    file = io.BytesIO()
    Image.fromarray(picture(number)).save(file, "PNG")
    return file.getvalue()


def rows(each: int, first: int = 0) -> list[tuple[int, int]]:
    """(number of the picture, label) with ``each`` pictures of every class, class by class."""
    return [(first + label * each + i, label) for label in range(len(NAMES)) for i in range(each)]


def folder(root: Path, parts: dict[str, list[tuple[int, int]]]) -> Path:
    """An image folder; the part "" is the root itself."""
    for part, listed in parts.items():
        for number, label in listed:
            place = root / part / NAMES[label]
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{number:05}.png").write_bytes(png(number))
    return root


def same_size(listed: list[tuple[int, int]]) -> NDArray[np.uint8]:
    """Pictures of one size, as an npz holds them."""
    return np.stack([picture(number)[:20, :24] for number, _ in listed])


def table(listed: list[tuple[int, int]]) -> pa.Table:
    """A Hugging Face table with its features in the metadata."""
    features = {
        "image": {"_type": "Image"},
        "label": {"_type": "ClassLabel", "names": list(NAMES)},
    }
    schema = pa.schema(
        [("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.int64())],
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )
    cells = [{"bytes": png(number), "path": f"{number}.png"} for number, _ in listed]
    return pa.table({"image": cells, "label": [label for _, label in listed]}, schema=schema)


def arrow(root: Path, parts: dict[str, list[tuple[int, int]]]) -> Path:
    """A data set as ``save_to_disk`` writes it."""
    root.mkdir()
    (root / "dataset_dict.json").write_text(json.dumps({"splits": list(parts)}))
    for part, listed in parts.items():
        (root / part).mkdir()
        file = "data-00000-of-00001.arrow"
        (root / part / "state.json").write_text(json.dumps({"_data_files": [{"filename": file}]}))
        found = table(listed)
        with pa.OSFile(str(root / part / file), "wb") as sink, pa.ipc.new_stream(sink, found.schema) as writer:
            writer.write_table(found, max_chunksize=4)
    return root


def parquet(root: Path, parts: dict[str, list[tuple[int, int]]]) -> Path:
    """A data set as it lies on the hub, each part in two files."""
    (root / "data").mkdir(parents=True)
    for part, listed in parts.items():
        middle = len(listed) // 2
        for number, piece in enumerate((listed[:middle], listed[middle:])):
            pq.write_table(table(piece), root / "data" / f"{part}-{number:05}-of-00002.parquet")
    return root


def text_state(vocabulary: int = VOCABULARY, context: int = CONTEXT) -> dict[str, Tensor]:
    """A text tower of random weights under open_clip's names."""
    draw = torch.Generator().manual_seed(5)
    w = WIDTH
    shapes = {
        "token_embedding.weight": (vocabulary, w), "positional_embedding": (context, w),
        "ln_final.weight": (w,), "ln_final.bias": (w,), "text_projection": (w, tiny.EMBED),
    }  # fmt: skip
    for block in range(LAYERS):
        at = f"transformer.resblocks.{block}."
        shapes |= {
            at + "ln_1.weight": (w,), at + "ln_1.bias": (w,), at + "ln_2.weight": (w,), at + "ln_2.bias": (w,),
            at + "attn.in_proj_weight": (3 * w, w), at + "attn.in_proj_bias": (3 * w,),
            at + "attn.out_proj.weight": (w, w), at + "attn.out_proj.bias": (w,),
            at + "mlp.c_fc.weight": (4 * w, w), at + "mlp.c_fc.bias": (4 * w,),
            at + "mlp.c_proj.weight": (w, 4 * w), at + "mlp.c_proj.bias": (w,),
        }  # fmt: skip
    return {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()} | {
        "logit_scale": torch.tensor(4.0)
    }


def whole_model(path: Path) -> Path:
    """The tiny pretrained model with a text tower, in one file."""
    about = {"architecture": json.dumps(tiny.ARCHITECTURE | {"text_cfg": {"heads": HEADS}})}
    save_file(tiny.pretrained() | text_state(), path, about)
    return path


def open_clip_folder(folder: Path) -> Path:
    """The tiny pretrained model with a text tower for CLIP's own vocabulary, as open_clip saves models."""
    folder.mkdir()
    save_file(tiny.pretrained() | text_state(49408, 77), folder / "open_clip_model.safetensors")
    model = tiny.ARCHITECTURE | {"text_cfg": {"heads": HEADS, "layers": LAYERS, "width": WIDTH}}
    said = {"model_cfg": model, "preprocess_cfg": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}}
    (folder / "open_clip_config.json").write_text(json.dumps(said))
    return folder


def letters(prompts: list[str], context: int) -> Tensor:
    """Tokens without a vocabulary: the bytes of a prompt, cut, and an end that is larger than all."""
    found = torch.zeros(len(prompts), context, dtype=torch.int64)
    for row, prompt in zip(found, prompts, strict=True):
        read = list(prompt.encode()[: context - 1])
        row[: len(read) + 1] = torch.tensor([*read, VOCABULARY - 1])
    return found
