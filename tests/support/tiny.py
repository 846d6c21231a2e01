"""A family of tiny CLIP towers and a benchmark around them, written in the formats of the real ones.

Two blocks of width 16 and images of 16 × 16: everything that the program does can be tested on them in milliseconds.
Labels are what a task's own expert predicts (a tenth of them shuffled), so experts beat the pretrained model on their
task as real ones do; tasks without an expert are labeled by the pretrained model.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from merging.engine.evaluation.image_features import compute_features, predict
from merging.images.image_encoder import Encoder
from merging.models.checkpoint import MappingCheckpoint
from merging.study.method_checks.tiny_team import TinyTower, make_expert

WIDTH, LAYERS, PATCH, SIZE, EMBED = 16, 2, 8, 16, 8
TOKENS = 1 + (SIZE // PATCH) ** 2
ARCHITECTURE = TinyTower().architecture
EXPERTS = ("circles", "digits", "flags", "leaves")
OUTSIDE = ("letters", "tiles")  # tasks without an expert
CLASSES = 5
EXEMPLARS, CHOOSING, REPORTING = 12, 20, 30
MEAN, STD = [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]

StateDict = dict[str, Tensor]


def tower() -> TinyTower:
    """The tower of the sizes above, which tests change."""
    return TinyTower(WIDTH, LAYERS, PATCH, SIZE, EMBED)


def shapes() -> dict[str, tuple[int, ...]]:
    """open_clip's names and shapes of the visual tower; tests may change the number of tokens alone."""
    return tower().shapes() | {"visual.positional_embedding": (TOKENS, WIDTH)}


def pretrained(seed: int = 0) -> StateDict:
    """Random weights of the size that such a tower has."""
    return tower().make_pretrained(seed)


def expert(base: StateDict, seed: int, size: float = 0.1) -> StateDict:
    """The pretrained model moved in a random direction, more in some tensors than in others."""
    return make_expert(base, seed, size)


def family(experts: tuple[str, ...] = EXPERTS, seed: int = 0) -> tuple[StateDict, dict[str, StateDict]]:
    """A pretrained model and its experts, float32, in memory."""
    return tower().make_team(experts, seed)


def checkpoint(tensors: StateDict) -> MappingCheckpoint:
    """A checkpoint in memory that knows its architecture, as the written files do."""
    opened = MappingCheckpoint(tensors, "tiny")
    opened.metadata = {"architecture": json.dumps(ARCHITECTURE)}
    return opened


def write(path: Path, tensors: StateDict, dtype: torch.dtype = torch.float16, role: str = "expert") -> Path:
    """A checkpoint file with the metadata of the bundled ones."""
    metadata = {"architecture": json.dumps(ARCHITECTURE), "role": role, "task": path.stem, "training": "", "seed": "0"}
    save_file({name: value.to(dtype) for name, value in tensors.items()}, path, metadata)
    return path


@dataclass(frozen=True)
class Family:
    """Checkpoint files of one pretrained model and its experts."""

    pretrained: Path
    experts: dict[str, Path]


def write_family(folder: Path, dtype: torch.dtype = torch.float32, experts: tuple[str, ...] = EXPERTS) -> Family:
    """The family as files ``pretrained.safetensors`` and ``<expert>.safetensors``."""
    folder.mkdir(parents=True, exist_ok=True)
    base, tuned = family(experts)
    return Family(
        write(folder / "pretrained.safetensors", base, dtype, "pretrained"),
        {name: write(folder / f"{name}.safetensors", tensors, dtype) for name, tensors in tuned.items()},
    )


def write_benchmark(folder: Path, halved: Collection[str] = ()) -> Path:
    """A folder in the layout of sample_data/: tasks.json, heads.safetensors, data/*.npz, models/*.safetensors.

    The tasks in ``halved`` have half as many images to test on as the others.
    """
    base, tuned = family()
    write_family(folder / "models", torch.float16)
    mean = {name: torch.stack([e[name] for e in tuned.values()]).mean(dim=0) for name in base}
    write(folder / "models" / "multitask.safetensors", mean, role="multitask")
    heads: StateDict = {}
    (folder / "data").mkdir()
    for index, key in enumerate((*EXPERTS, *OUTSIDE)):
        model = tuned.get(key, base)
        heads[key] = _write_task(folder / "data" / f"{key}.npz", model, index, key in tuned, key in halved)
    save_file(heads | {"logit_scale": torch.tensor(100.0)}, folder / "heads.safetensors")
    (folder / "tasks.json").write_text(json.dumps(_tasks(), allow_nan=False))
    return folder


def _write_task(path: Path, model: StateDict, index: int, has_expert: bool, halved: bool) -> Tensor:
    """The data set of one task; gives its head (classes, d)."""
    rng = np.random.default_rng(index)
    sizes = {"exemplar": EXEMPLARS} if has_expert else {}
    sizes |= {"choosing": CHOOSING // (1 + halved), "reporting": REPORTING // (1 + halved)}
    images = rng.integers(0, 256, (sum(sizes.values()), SIZE, SIZE, 3), dtype=np.uint8)
    images //= rng.integers(1, 9, (len(images), 1, 1, 3), dtype=np.uint8)  # a tint, so that images differ as a whole
    x = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
    found = compute_features(Encoder.from_checkpoint(checkpoint(model)), (x - 0.5) / 0.25)
    spread = found - found.mean(dim=0)
    head = spread[torch.from_numpy(rng.choice(len(spread), CLASSES, replace=False))]
    head = torch.nn.functional.normalize(head, dim=-1)
    labels = predict(found, head)
    noisy = rng.random(len(labels)) < 0.1
    labels[noisy] = rng.integers(0, CLASSES, int(noisy.sum()))
    parts = np.split(np.arange(len(images)), np.cumsum(list(sizes.values()))[:-1])
    arrays = {f"{split}_images": images[at] for split, at in zip(sizes, parts, strict=True)}
    arrays |= {f"{split}_labels": labels[at] for split, at in zip(sizes, parts, strict=True)}
    np.savez(path, **arrays)
    return head


def _tasks() -> dict[str, object]:
    tasks = [
        {
            "key": key,
            "title": key.capitalize(),
            "group": "in_domain" if key in EXPERTS else "out_of_domain",
            "class_names": [f"{key} {number}" for number in range(CLASSES)],
            "descriptions": [f"a picture of {key} {number}" for number in range(CLASSES)],
            "source": "made by the tests",
            "license": "CC0",
            "counts": {"choosing": CHOOSING, "reporting": REPORTING},
        }
        for key in (*EXPERTS, *OUTSIDE)
    ]
    return {"preprocess": {"image_size": SIZE, "mean": MEAN, "std": STD}, "tasks": tasks}
