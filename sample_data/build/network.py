"""The visual tower under open_clip's parameter names, and the concept table that stands in for a text tower."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from sample_data.build.tasks import TASKS, Task

ARCHITECTURE = {
    "embed_dim": 96,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 32, "layers": 6, "width": 192, "head_width": 48, "patch_size": 8},
}
MEAN, STD = (0.45, 0.45, 0.45), (0.30, 0.30, 0.30)


class Attention(nn.Module):
    """Self-attention with the query, key and value weights packed in one matrix, as open_clip stores them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (n, t, width) -> tokens."""
        count, tokens, width = x.shape
        packed = nnf.linear(x, self.in_proj_weight, self.in_proj_bias)
        q, k, v = packed.view(count, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nnf.scaled_dot_product_attention(q, k, v)
        return self.out_proj(mixed.transpose(1, 2).reshape(count, tokens, width))


class Block(nn.Module):
    """A pre-norm transformer block with QuickGELU."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (n, t, width) -> tokens."""
        x = x + self.attn(self.ln_1(x))
        hidden = self.mlp["c_fc"](self.ln_2(x))
        return x + self.mlp["c_proj"](hidden * torch.sigmoid(1.702 * hidden))


class Tower(nn.Module):
    """Images (n, 3, 32, 32), normalized -> features (n, 96), not normalized."""

    def __init__(self) -> None:
        super().__init__()
        config = ARCHITECTURE["vision_cfg"]
        width, patch, layers = config["width"], config["patch_size"], config["layers"]
        tokens = (config["image_size"] // patch) ** 2 + 1
        self.conv1 = nn.Conv2d(3, width, patch, patch, bias=False)
        self.class_embedding = nn.Parameter(torch.empty(width))
        self.positional_embedding = nn.Parameter(torch.empty(tokens, width))
        self.ln_pre = nn.LayerNorm(width)
        self.transformer = nn.ModuleDict(
            {"resblocks": nn.ModuleList(Block(width, width // config["head_width"]) for _ in range(layers))}
        )
        self.ln_post = nn.LayerNorm(width)
        self.proj = nn.Parameter(torch.empty(width, ARCHITECTURE["embed_dim"]))
        self._initialize(width, layers)

    def _initialize(self, width: int, layers: int) -> None:
        """CLIP's scheme: residual outputs start smaller the deeper the tower."""
        for name, value in self.named_parameters():
            if value.ndim < 2 and name != "class_embedding":
                continue
            std = width**-0.5
            if name.endswith(("out_proj.weight", "c_proj.weight")):
                std *= (2 * layers) ** -0.5
            if name.endswith("c_fc.weight"):
                std = (2 * width) ** -0.5
            if name == "conv1.weight":
                std = 192**-0.5
            nn.init.normal_(value, std=std)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, 3, 32, 32) -> features (n, 96)."""
        patches = self.conv1(images).flatten(2).transpose(1, 2)
        start = self.class_embedding.expand(len(images), 1, -1)
        x = self.ln_pre(torch.cat([start, patches], 1) + self.positional_embedding)
        for block in self.transformer["resblocks"]:
            x = block(x)
        return self.ln_post(x[:, 0]) @ self.proj


class Captions(nn.Module):
    """Unit rows for every (data set, class): a concept vector, shared between data sets, plus a data set vector.

    It plays the part of CLIP's text tower: a nine means the same in three data sets, whose styles differ.
    """

    START_SCALE, TOP_SCALE = 16.0, 30.0

    def __init__(self, broad_classes: int) -> None:
        super().__init__()
        broad = [f"broad/{k}" for k in range(broad_classes)]
        names = [(task.key, concept) for task in TASKS for concept in task.concept_names]
        names += [("broad", concept) for concept in broad]
        concepts = {name: k for k, name in enumerate(dict.fromkeys(concept for _, concept in names))}
        domains = {name: k for k, name in enumerate(dict.fromkeys(key for key, _ in names))}
        self.register_buffer("concept_of", torch.tensor([concepts[concept] for _, concept in names]))
        self.register_buffer("domain_of", torch.tensor([domains[key] for key, _ in names]))
        self.concept = nn.Parameter(torch.randn(len(concepts), ARCHITECTURE["embed_dim"]) * 0.1)
        self.domain = nn.Parameter(torch.randn(len(domains), ARCHITECTURE["embed_dim"]) * 0.05)
        self.log_scale = nn.Parameter(torch.tensor(self.START_SCALE).log())
        self.offset: dict[str, int] = {}
        for row, (key, _) in enumerate(names):
            self.offset.setdefault(key, row)

    @property
    def scale(self) -> Tensor:
        """The factor on cosine similarities, capped."""
        return self.log_scale.exp().clamp(max=self.TOP_SCALE)

    def rows(self) -> Tensor:
        """Every row, unit length (rows, 96)."""
        return nnf.normalize(self.concept[self.concept_of] + self.domain[self.domain_of], dim=-1)

    def head(self, task: Task) -> Tensor:
        """The task's own rows (classes, 96)."""
        start = self.offset[task.key]
        return self.rows()[start : start + len(task.class_names)]


def normalize_images(images: np.ndarray | Tensor) -> Tensor:
    """uint8 (n, 32, 32, 3) -> float (n, 3, 32, 32), ready for the tower."""
    pixels = torch.from_numpy(np.array(images)) if isinstance(images, np.ndarray) else images
    pixels = pixels.permute(0, 3, 1, 2).float() / 255
    shape = (1, 3, 1, 1)
    return (pixels - pixels.new_tensor(MEAN).view(shape)) / pixels.new_tensor(STD).view(shape)


def augment_images(images: Tensor, random: torch.Generator) -> Tensor:
    """A shift of at most one pixel and a little brightness, for training: normalized images in and out."""
    count, side = len(images), images.shape[-1]
    padded = nnf.pad(images, (1, 1, 1, 1), mode="replicate")
    top, left = torch.randint(0, 3, (2, count, 1), generator=random)
    rows = (torch.arange(side) + top).view(count, 1, side, 1).to(images.device)
    columns = (torch.arange(side) + left).view(count, 1, 1, side).to(images.device)
    each = torch.arange(count, device=images.device).view(count, 1, 1, 1)
    channels = torch.arange(3, device=images.device).view(1, 3, 1, 1)
    light = 1 + 0.1 * (2 * torch.rand(count, 1, 1, 1, generator=random) - 1)
    return padded[each, channels, rows, columns] * light.to(images.device)


@torch.no_grad()
def accuracy(tower: Tower, head: Tensor, images: np.ndarray, labels: np.ndarray) -> float:
    """Share of images whose feature lies nearest to its own class's row, by angle."""
    device = tower.proj.device
    right = 0
    for start in range(0, len(images), 256):
        part = slice(start, start + 256)
        features = tower(normalize_images(images[part]).to(device))
        right += int(((features @ head.to(device).T).argmax(1).cpu() == torch.as_tensor(labels[part])).sum())
    return right / len(images)


def optimizer(modules: list[nn.Module], rate: float) -> torch.optim.AdamW:
    """AdamW with weight decay on the tower's matrices only: not on scales, shifts or the concept table."""
    named = [(name, value) for module in modules for name, value in module.named_parameters()]
    free = {"concept", "domain", "log_scale"}
    decayed = [value for name, value in named if value.ndim > 1 and name not in free]
    rest = [value for name, value in named if value.ndim <= 1 or name in free]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98))


def cosine(step: int, steps: int, warm_up: int) -> float:
    """Learning-rate factor: linear warm-up, then a half cosine to zero, by step number and never by the clock."""
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))
