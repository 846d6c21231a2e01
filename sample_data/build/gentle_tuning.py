"""Fine-tuning a team of four experts from the stored pretrained model, gently or not, for ``gentle_study``."""

from __future__ import annotations

import json
import shutil
import time
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as nnf
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.func import functional_call

from merging.base.settings import BUNDLED_FOLDER
from merging.study.training_tables import CONTROL, STORED
from sample_data.build import corpus, export, finetune
from sample_data.build.network import Tower
from sample_data.build.tasks import BY_KEY

TEAM = ("street", "signs", "textures", "flags")
LORA_ENDINGS = ("in_proj_weight", "out_proj.weight", "c_fc.weight", "c_proj.weight")  # the linear weights of a block


@dataclass(frozen=True)
class Setting:
    """How a team is fine-tuned, relative to the stored experts' rates and steps (``finetune.EXPERTS``).

    ``pull`` is a decoupled weight decay toward the pretrained weights (L2-SP): each step moves every scalar by rate *
    pull * (pretrained - scalar). With a ``rank``, only low-rank updates of the linear weights are learned (LoRA, Hu et
    al., ICLR 2022, with alpha equal to the rank), and then added to these weights.
    """

    key: str
    words: str
    rate: float = 1.0
    steps: float = 1.0
    pull: float = 0.0
    rank: int = 0
    seed: int = finetune.SEED


SETTINGS = (
    Setting(STORED, "the stored experts"),
    Setting("third", "rate / 3", rate=1 / 3),
    Setting("quarter", "a quarter of the steps", steps=0.25),
    Setting("lora16", "LoRA, rank 16, rate x 3", rate=3.0, rank=16),
    Setting("pull", "decay of 300 toward the pretrained weights", pull=300.0),
    Setting("pull150", "decay of 150 toward the pretrained weights", pull=150.0),
    Setting(CONTROL, "as the stored experts, with seed 1", seed=1),
)


class Adapted(torch.nn.Module):
    """The linear weights' low-rank updates B A: A (rank, inputs) starts random, B (outputs, rank) at zero."""

    def __init__(self, tower: Tower, rank: int) -> None:
        super().__init__()
        weights = {name: value for name, value in tower.named_parameters() if name.endswith(LORA_ENDINGS)}
        self.names = list(weights)
        self.down = torch.nn.ParameterList(torch.randn(rank, w.shape[1]) / w.shape[1] ** 0.5 for w in weights.values())
        self.up = torch.nn.ParameterList(torch.zeros(w.shape[0], rank) for w in weights.values())

    def add_to(self, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """All weights, with the updates added."""
        changes = {name: up @ down for name, up, down in zip(self.names, self.up, self.down, strict=True)}
        return {name: value + changes[name] if name in changes else value for name, value in weights.items()}


def read_tower(path: Path) -> dict[str, torch.Tensor]:
    """A stored tower's weights in single precision, without the prefix of their names."""
    return {name.removeprefix("visual."): value.float() for name, value in load_file(path).items()}


def tune_expert(setting: Setting, key: str, images: Path) -> dict[str, torch.Tensor]:
    """The weights of one task's expert: ``finetune.train`` from the stored pretrained model and head."""
    base = read_tower(BUNDLED_FOLDER / "models/pretrained.safetensors")
    heads = load_file(BUNDLED_FOLDER / "heads.safetensors")
    stored, tower = finetune.EXPERTS[key], Tower()
    tower.load_state_dict(base)
    scaled = replace(stored, rate=stored.rate * setting.rate, steps=round(stored.steps * setting.steps))
    seed = zlib.crc32(f"{setting.seed}/{key}".encode())
    torch.manual_seed(seed)
    stream = finetune.Stream(images, (BY_KEY[key],), seed)
    updates = Adapted(tower, setting.rank) if setting.rank else None

    def compute_features(pixels: torch.Tensor) -> torch.Tensor:
        return functional_call(tower, updates.add_to(base), (pixels,)) if updates else tower(pixels)

    scale = float(heads["logit_scale"])
    for rate, _ in finetune.train(updates or tower, compute_features, stream, [heads[key]], scale, scaled, seed):
        if setting.pull:
            with torch.no_grad():
                for name, value in tower.named_parameters():
                    value.lerp_(base[name], rate * setting.pull)
    return {name: value.detach() for name, value in (updates.add_to(base) if updates else tower.state_dict()).items()}


def prepare_experts(setting: Setting, store: Path, team: tuple[str, ...] = TEAM) -> Path:
    """The folder of a setting's benchmark: the bundled images and heads, the pretrained model and a team of experts."""
    folder = store / setting.key
    (folder / "models").mkdir(parents=True, exist_ok=True)
    export.copy_images(BUNDLED_FOLDER, folder)
    shutil.copyfile(BUNDLED_FOLDER / "heads.safetensors", folder / "heads.safetensors")
    for name in ("pretrained", *team):
        path = folder / f"models/{name}.safetensors"
        if path.exists():
            continue
        started, source = time.process_time(), BUNDLED_FOLDER / f"models/{name}.safetensors"
        is_stored = setting.key == STORED or name == "pretrained"
        weights = read_tower(source) if is_stored else tune_expert(setting, name, store / "images")
        seconds = 0.0 if is_stored else time.process_time() - started
        with safe_open(source, "pt") as file:
            about = {"architecture": file.metadata()["architecture"], "seconds": json.dumps(round(seconds, 1))}
        save_file({f"visual.{each}": value.contiguous() for each, value in weights.items()}, path, metadata=about)
        print(f"{setting.key}: {name}, {seconds:.0f} s", flush=True)
    return folder


def draw_images(folder: Path) -> None:
    """Draw the four tasks' training images, as the benchmark's were drawn; keep those that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for key in TEAM:
        if not (folder / f"{key}_train_labels.npy").exists():
            corpus.save(folder, f"{key}_train", *corpus.draw_set(BY_KEY[key], "train", BY_KEY[key].train, 0))


def measure_vectors(folder: Path) -> dict[str, float]:
    """Relative norms in percent, the mean change of a scalar of the linear weights, and cosines of the task vectors."""
    base = load_file(folder / "models/pretrained.safetensors")
    moved = [{n: v - base[n] for n, v in load_file(folder / f"models/{key}.safetensors").items()} for key in TEAM]
    flat = torch.stack([torch.cat([each[n].flatten() for n in base]) for each in moved]).double()
    linear = torch.cat([each[n].abs().flatten() for each in moved for n in base if n.endswith(LORA_ENDINGS)])
    norm = torch.cat([value.flatten() for value in base.values()]).double().norm()
    unit = nnf.normalize(flat, dim=1)
    sizes = 100 * flat.norm(dim=1) / norm
    cosines = (unit @ unit.T)[torch.triu_indices(len(TEAM), len(TEAM), 1).unbind()]
    return {f"norm_{key}": float(size) for key, size in zip(TEAM, sizes, strict=True)} | {
        "norm": float(sizes.mean()),
        "linear_change": float(linear.double().mean()),
        "cosine": float(cosines.mean()),
    }
