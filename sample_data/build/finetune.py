"""Fine-tuning: one expert per in-domain task, and one model on all eight, each against frozen heads."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as nnf

from sample_data.build import corpus, pretrain
from sample_data.build.network import Tower, accuracy, augment_images, cosine, normalize_images, optimizer
from sample_data.build.tasks import BY_KEY, IN_DOMAIN, Task

BATCH, SEED, CLIP = 64, 0, 1.0


@dataclass(frozen=True)
class Setting:
    """How gently and how long one tower is tuned; settled on the validation images."""

    rate: float
    steps: int
    batch: int = BATCH


EXPERTS = {
    "digits": Setting(1.2e-4, 500),
    "fashion": Setting(1e-4, 400),
    "street": Setting(1.2e-4, 500),
    "letters": Setting(1.2e-4, 500),
    "signs": Setting(6e-5, 300),
    "land": Setting(4e-5, 300),
    "textures": Setting(1e-4, 400),
    "flags": Setting(7e-5, 350),
}
MULTITASK = "multitask"
MULTITASK_RATE, MULTITASK_BATCH = 2e-4, 128


def setting_of(name: str) -> Setting:
    """An expert's setting, or the multi-task model's: it sees as many images of a task as that task's expert did."""
    if name != MULTITASK:
        return EXPERTS[name]
    images = sum(each.steps * each.batch for each in EXPERTS.values())
    return Setting(MULTITASK_RATE, images // MULTITASK_BATCH, MULTITASK_BATCH)


def describe(name: str) -> dict[str, object]:
    """What the model's file says about its training."""
    more = {
        "optimizer": "AdamW, betas 0.9 and 0.98, weight decay 0.1 on matrices",
        "gradient_clip": CLIP,
        "schedule": "10 % warm-up, cosine to zero",
        "head": "frozen",
    }
    return {**asdict(setting_of(name)), **more}


class Stream:
    """Batches of one or several tasks' training images; several are drawn in proportion to their experts' images."""

    def __init__(self, folder: Path, tasks: tuple[Task, ...], seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.sets = [corpus.load(folder, f"{task.key}_train") for task in tasks]
        shares = np.array([EXPERTS[task.key].steps for task in tasks], float)
        self.shares = shares / shares.sum()

    def batch(self, size: int) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
        """Per task that was drawn: its place, images (n, 3, 32, 32), labels (n,)."""
        parts = []
        for k, count in enumerate(self.random.multinomial(size, self.shares)):
            if count:
                pixels, labels = self.sets[k]
                chosen = self.random.integers(0, len(labels), count)
                parts.append((k, normalize_images(pixels[chosen]), torch.from_numpy(labels[chosen])))
        return parts


def train(
    learned: torch.nn.Module,
    compute_features: Callable[[torch.Tensor], torch.Tensor],
    stream: Stream,
    heads: Sequence[torch.Tensor],
    scale: float,
    setting: Setting,
    seed: int,
) -> Iterator[tuple[float, torch.Tensor]]:
    """Train the parameters of ``learned`` against frozen heads, step by step; yields each step's rate and loss.

    ``heads`` are those of the stream's tasks, (classes, 96) each, on the device of ``learned``. ``compute_features``
    turns normalized images (n, 3, 32, 32) into features (n, 96). ``seed`` is that of the augmentation.
    """
    shifts, device = torch.Generator().manual_seed(seed), heads[0].device
    adam, parameters = optimizer([learned], setting.rate), list(learned.parameters())
    for step in range(setting.steps):
        rate = setting.rate * cosine(step, setting.steps, setting.steps // 10)
        for group in adam.param_groups:
            group["lr"] = rate
        parts = stream.batch(setting.batch)
        pixels = augment_images(torch.cat([part[1] for part in parts]).to(device), shifts)
        features = nnf.normalize(compute_features(pixels), dim=-1).split([len(part[1]) for part in parts])
        loss = sum(
            nnf.cross_entropy(scale * own @ heads[k].T, labels.to(device), reduction="sum")
            for own, (k, _, labels) in zip(features, parts, strict=True)
        ) / len(pixels)
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        adam.step()
        yield rate, loss.detach()


def tune_tower(name: str, images: Path, work: Path, say: Callable[[str], None] = print, seed: int = SEED) -> Tower:
    """The tower tuned for one task, or for all of them under the name `multitask`."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tower, captions = pretrain.load(images, work)
    tower.to(device)
    tasks = IN_DOMAIN if name == MULTITASK else (BY_KEY[name],)
    heads = [captions.head(task).detach().to(device) for task in tasks]
    scale, setting = float(captions.scale.detach()), setting_of(name)
    seed = zlib.crc32(f"{seed}/{name}".encode())
    started = time.monotonic()
    training = train(tower, tower, Stream(images, tasks, seed), heads, scale, setting, seed)
    for done, (_, loss) in enumerate(training, 1):
        if done == setting.steps or done % 200 == 0:
            left = (time.monotonic() - started) / done * (setting.steps - done)
            say(f"{name}: step {done}/{setting.steps} loss {loss.item():.3f} left {left:.0f} s")
    return tower.cpu()


def report(name: str, tower: Tower, images: Path, work: Path) -> str:
    """Validation accuracy on the task or tasks, in percent, and the relative size of the task vector."""
    before, captions = pretrain.load(images, work)
    scores = []
    for task in IN_DOMAIN if name == MULTITASK else (BY_KEY[name],):
        pixels, labels = corpus.load(images, f"{task.key}_validation")
        scores.append(100 * accuracy(tower, captions.head(task).detach(), pixels, labels))
    return f"{name}: validation {np.mean(scores):.1f} %, task vector {100 * relative_size(before, tower):.1f} %"


@torch.no_grad()
def relative_size(before: Tower, after: Tower) -> float:
    """Norm of the task vector over the norm of the pretrained weights."""
    pairs = list(zip(before.parameters(), after.parameters(), strict=True))
    moved = sum(float((b - a).double().square().sum()) for a, b in pairs)
    return (moved / sum(float(a.double().square().sum()) for a, _ in pairs)) ** 0.5


def tune_and_save(name: str, images: Path, work: Path, say: Callable[[str], None] = print, seed: int = SEED) -> None:
    """Tunes one tower, unless the work folder has it already, and keeps it."""
    path = work / f"{name}.pt"
    if path.exists():
        return
    tower = tune_tower(name, images, work, say, seed)
    torch.save(tower.state_dict(), path)
    say(report(name, tower, images, work))
