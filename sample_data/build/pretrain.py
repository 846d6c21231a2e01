"""Pretraining: image and caption row pulled together over every data set at once, the in-domain tasks kept scarce."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as nnf

from sample_data.build import corpus
from sample_data.build.network import Captions, Tower, accuracy, augment_images, cosine, normalize_images, optimizer
from sample_data.build.tasks import TASKS

STEPS, BATCH, RATE, WARM_UP, SEED = 4800, 128, 1.2e-3, 100, 0
SHARE = {  # of the images drawn; the in-domain tasks are scarce and mislabeled so that experts have something to learn
    "digits": 0.0016,
    "fashion": 0.0012,
    "street": 0.003,
    "letters": 0.003,
    "signs": 0.0018,
    "land": 0.0005,
    "textures": 0.002,
    "flags": 0.002,
    "uci_digits": 0.08,
    "kana": 0.07,
    "greek": 0.08,
    "cyrillic": 0.07,
    "symbols": 0.06,
    "emoji": 0.05,
    "shapes": 0.07,
}
MISLABELED = 0.3
SCARCE_CLASS_START, SCARCE_CLASS_FACTOR = (
    2400,
    3,
)  # from this step on in-domain images are rarer still, or pretraining learns them
SAVE_EVERY = 400


class Mix:
    """Draws training batches from all web images by the shares above."""

    def __init__(self, folder: Path, captions: Captions, seed: int) -> None:
        self.offset = captions.offset
        keys = [task.key for task in TASKS]
        self.sets = {key: corpus.load(folder, f"{key}_web") for key in [*keys, "broad"]}
        self.keys = list(self.sets)
        shares = np.array([SHARE.get(key, 0.0) for key in keys])
        scarcer = np.where([task.in_domain for task in TASKS], shares / SCARCE_CLASS_FACTOR, shares)
        self.early, self.late = (np.append(part, 1 - part.sum()) for part in (shares, scarcer))
        self.in_domain = {task.key: len(task.class_names) for task in TASKS if task.in_domain}
        self.reseed(seed)

    def reseed(self, seed: int, step: int = 0) -> None:
        """Starts the draws anew: done at every saved step, so that a resumed run equals an unbroken one."""
        self.random = np.random.default_rng(seed)
        self.shares = self.early if step < SCARCE_CLASS_START else self.late

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Images (n, 3, 32, 32), normalized, and the row of the caption table each belongs to (n,)."""
        images, rows = [], []
        for key, count in zip(self.keys, self.random.multinomial(size, self.shares), strict=True):
            if not count:
                continue
            pixels, labels = self.sets[key]
            chosen = self.random.integers(0, len(labels), count)
            truth = labels[chosen].copy()
            if key in self.in_domain:
                wrong = self.random.random(count) < MISLABELED
                truth[wrong] = self.random.integers(0, self.in_domain[key], int(wrong.sum()))
            images.append(pixels[chosen])
            rows.append(truth + self.offset[key])
        return normalize_images(np.concatenate(images)), torch.from_numpy(np.concatenate(rows))


def _average_gradients(parameters: list[torch.nn.Parameter]) -> None:
    flat = torch.cat([p.grad.flatten() for p in parameters])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        p.grad.copy_(part.view_as(p))


def quick_check(tower: Tower, captions: Captions, folder: Path, count: int = 100) -> str:
    """Validation accuracy in and out of domain, in percent, on the first `count` images of each data set."""
    scores: dict[str, float] = {}
    for task in TASKS:
        images, labels = corpus.load(folder, f"{task.key}_validation")
        scores[task.key] = 100 * accuracy(tower, captions.head(task).detach(), images[:count], labels[:count])
    means = [np.mean([scores[t.key] for t in TASKS if t.in_domain == inside]) for inside in (True, False)]
    return f"in {means[0]:.1f} out {means[1]:.1f} | " + " ".join(f"{k} {v:.0f}" for k, v in scores.items())


def run_pretraining(
    rank: int, workers: int, images: Path, work: Path, say: Callable[[str], None] = print, seed: int = SEED
) -> None:
    """One worker's share of pretraining; worker 0 reports, saves and can be stopped and started again."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        torch.set_num_threads(1)
    if workers > 1:
        dist.init_process_group("gloo", init_method=f"file://{work / 'meeting'}", rank=rank, world_size=workers)
    torch.manual_seed(seed)
    broad_classes = int(corpus.load(images, "broad_web")[1].max()) + 1
    tower, captions = Tower().to(device), Captions(broad_classes).to(device)
    parameters = [*tower.parameters(), *captions.parameters()]
    adam = optimizer([tower, captions], RATE)
    first = _resume(work, tower, captions, adam)
    mix, shifts = Mix(images, captions, seed), torch.Generator()
    started = time.monotonic()
    for step in range(first, STEPS):
        if step % SAVE_EVERY == 0:
            stretch = (seed * STEPS + step) * workers + rank
            mix.reseed(stretch, step)
            shifts.manual_seed(stretch)
        for group in adam.param_groups:
            group["lr"] = RATE * cosine(step, STEPS, WARM_UP)
        pixels, rows = mix.batch(BATCH // workers)
        features = nnf.normalize(tower(augment_images(pixels.to(device), shifts)), dim=-1)
        loss = nnf.cross_entropy(captions.scale * features @ captions.rows().T, rows.to(device))
        adam.zero_grad()
        loss.backward()
        if workers > 1:
            _average_gradients(parameters)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        adam.step()
        done = step + 1
        if rank == 0 and (done % SAVE_EVERY == 0 or done == STEPS):
            state = {"step": done, "tower": tower.state_dict(), "captions": captions.state_dict()}
            torch.save({**state, "adam": adam.state_dict()}, work / "pretraining.pt")
            left = (time.monotonic() - started) / (done - first) * (STEPS - done)
            say(
                f"step {done}/{STEPS} loss {loss.item():.3f} left {left / 60:.1f} min  "
                + quick_check(tower, captions, images)
            )
    if workers > 1:
        dist.destroy_process_group()


def _resume(work: Path, tower: Tower, captions: Captions, adam: torch.optim.AdamW) -> int:
    path = work / "pretraining.pt"
    if not path.exists():
        return 0
    saved = torch.load(path, weights_only=True)
    tower.load_state_dict(saved["tower"])
    captions.load_state_dict(saved["captions"])
    adam.load_state_dict(saved["adam"])
    return int(saved["step"])


def load(images: Path, work: Path) -> tuple[Tower, Captions]:
    """The pretrained tower and its caption table, on the processor."""
    saved = torch.load(work / "pretraining.pt", map_location="cpu", weights_only=True)
    captions = Captions(int(corpus.load(images, "broad_web")[1].max()) + 1)
    tower = Tower()
    tower.load_state_dict(saved["tower"])
    captions.load_state_dict(saved["captions"])
    return tower, captions


def describe() -> dict[str, object]:
    """What the pretrained model's file says about its training."""
    return {
        "steps": STEPS,
        "batch": BATCH,
        "rate": RATE,
        "warm_up": WARM_UP,
        "schedule": "cosine to zero",
        "optimizer": "AdamW, betas 0.9 and 0.98, weight decay 0.1 on matrices",
        "gradient_clip": 1.0,
        "in_domain_share": round(sum(SHARE[task.key] for task in TASKS if task.in_domain), 4),
        "in_domain_share_divided_from_step": [SCARCE_CLASS_START, SCARCE_CLASS_FACTOR],
        "in_domain_labels_replaced": MISLABELED,
    }
