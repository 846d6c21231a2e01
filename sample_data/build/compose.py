"""From a sprite to a photograph-like image: warp it, lay it on a background, light it, blur it, add noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as nnf
from torch import Tensor

SIZE = 32
CHUNK = 2000  # images composed at once: a few hundred megabytes


@dataclass(frozen=True)
class Style:
    """How strongly one data set varies. Lengths are fractions of the image, angles degrees, light of full scale."""

    rotate: float = 8.0
    shift: float = 0.06
    scale: tuple[float, float] = (0.85, 1.0)
    shear: float = 0.08
    elastic: float = 0.0
    stroke: float = 0.0
    background: str = "gradient"  # gradient | noise | stripes | black | paper
    ink: str = "color"  # color | white | dark
    contrast: float = 0.35
    light: float = 0.15
    blur: float = 0.3
    noise: float = 0.04
    bar: float = 0.0

    def harder(self, **changes: object) -> Style:
        """The same style with some of its fields changed."""
        return replace(self, **changes)


def compose(sprites: Tensor, style: Style, random: torch.Generator) -> Tensor:
    """Sprites (n, 48, 48) masks or (n, 4, 48, 48) color with alpha, uint8 -> images (n, 32, 32, 3) uint8."""
    parts = [_compose_chunk(chunk.float() / 255, style, random) for chunk in sprites.split(CHUNK)]
    return torch.cat(parts)


def _compose_chunk(sprites: Tensor, style: Style, random: torch.Generator) -> Tensor:
    count = len(sprites)
    front, back = _draw_two_colors(count, style, random)
    ground = _background(back, style, random)
    if sprites.ndim == 3:
        alpha = _warp(_restroke(sprites.unsqueeze(1), style, random), style, random)
        image = ground + (front[:, :, None, None] - ground) * alpha
    else:
        # premultiplied by alpha: clean edges when warped
        paint = torch.cat([sprites[:, :3] * sprites[:, 3:], sprites[:, 3:]], 1)
        warped = _warp(paint, style, random)
        image = ground * (1 - warped[:, 3:]) + warped[:, :3] * _tint(count, random)
    if style.bar:
        image = _add_occluders(image, style.bar, random)
    return finish(image, style, random)


def finish(image: Tensor, style: Style, random: torch.Generator) -> Tensor:
    """Light gradient, blur, noise: float (n, 3, 32, 32) -> uint8 (n, 32, 32, 3)."""
    count = len(image)
    ramp = torch.linspace(-1, 1, SIZE)
    slope = _draw_between(-style.light, style.light, (count, 3), random)
    image = image * (1 + slope[:, 0, None, None, None])
    image = image + slope[:, 1, None, None, None] * ramp[:, None] + slope[:, 2, None, None, None] * ramp[None, :]
    blurred = nnf.avg_pool2d(nnf.pad(image, (1, 1, 1, 1), mode="replicate"), 3, 1)
    amount = torch.rand(count, 1, 1, 1, generator=random) * (torch.rand(count, 1, 1, 1, generator=random) < style.blur)
    image = image + (blurred - image) * amount
    sigma = torch.rand(count, 1, 1, 1, generator=random) * style.noise
    image = image + torch.randn(image.shape, generator=random) * sigma
    return (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def _draw_between(low: float, high: float, shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=random)


def _draw_two_colors(count: int, style: Style, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """A front and a back color per image (n, 3) whose mean levels differ by at least the style's contrast."""
    if style.ink == "white":
        return torch.ones(count, 3), torch.zeros(count, 3)
    if style.ink == "dark":
        ink = _draw_between(0.0, 0.3, (count, 1), random).expand(-1, 3)
        return ink, _draw_between(0.75, 1.0, (count, 1), random).expand(-1, 3)
    return draw_contrasting_colors(count, style.contrast, random)


def draw_contrasting_colors(count: int, contrast: float, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two random colors per image, drawn again until their mean levels differ enough."""
    pair = torch.rand(count, 2, 3, generator=random)
    while (close := (pair.mean(2).diff(dim=1).abs()[:, 0] < contrast)).any():
        pair[close] = torch.rand(int(close.sum()), 2, 3, generator=random)
    return pair[:, 0], pair[:, 1]


def _background(back: Tensor, style: Style, random: torch.Generator) -> Tensor:
    count = len(back)
    plain = back[:, :, None, None].expand(count, 3, SIZE, SIZE)
    if style.background in ("black", "paper"):
        return plain
    if style.background == "stripes":
        angle, cycles, phase = _draw_between(0, 6.2832, (3, count, 1, 1), random)
        line = torch.linspace(0, 1, SIZE)
        wave = torch.cos(angle) * line[:, None] + torch.sin(angle) * line[None, :]
        return plain + 0.08 * torch.sin(wave * (20 + 5 * cycles) + phase).unsqueeze(1)
    cells, strength = (4, 0.3) if style.background == "noise" else (2, 0.15)
    coarse = _draw_between(-strength, strength, (count, 3, cells, cells), random)
    return plain + nnf.interpolate(coarse, (SIZE, SIZE), mode="bilinear", align_corners=True)


def _restroke(mask: Tensor, style: Style, random: torch.Generator) -> Tensor:
    """Strokes made thinner or thicker by cutting a blurred mask at a random level."""
    if not style.stroke:
        return mask
    soft = nnf.avg_pool2d(nnf.avg_pool2d(mask, 3, 1, 1), 3, 1, 1)
    level = 0.42 + _draw_between(-style.stroke, style.stroke, (len(mask), 1, 1, 1), random)
    return torch.sigmoid((soft - level) * 14)


def _warp(sprites: Tensor, style: Style, random: torch.Generator) -> Tensor:
    count = len(sprites)
    angle = torch.deg2rad(_draw_between(-style.rotate, style.rotate, (count,), random))
    size = 1 / _draw_between(*style.scale, (count,), random)
    shear = _draw_between(-style.shear, style.shear, (count,), random)
    shift = _draw_between(-2 * style.shift, 2 * style.shift, (count, 2), random)
    cos, sin = torch.cos(angle) * size, torch.sin(angle) * size
    theta = torch.stack([cos, cos * shear - sin, shift[:, 0], sin, sin * shear + cos, shift[:, 1]], 1).view(-1, 2, 3)
    grid = nnf.affine_grid(theta, [count, 1, SIZE, SIZE], align_corners=False)
    if style.elastic:
        bend = _draw_between(-style.elastic, style.elastic, (count, 2, 4, 4), random)
        grid = grid + nnf.interpolate(bend, (SIZE, SIZE), mode="bicubic", align_corners=True).permute(0, 2, 3, 1)
    return nnf.grid_sample(sprites, grid, mode="bilinear", padding_mode="zeros", align_corners=False).clamp(0, 1)


def _tint(count: int, random: torch.Generator) -> Tensor:
    return _draw_between(0.75, 1.1, (count, 3, 1, 1), random)


def _add_occluders(image: Tensor, chance: float, random: torch.Generator) -> Tensor:
    """A vertical bar of one color over some of the images, as a flagpole or a lamp post would be."""
    count = len(image)
    start = torch.randint(0, SIZE - 4, (count, 1), generator=random)
    columns = torch.arange(SIZE)
    bar = (columns >= start) & (columns < start + torch.randint(2, 5, (count, 1), generator=random))
    bar &= torch.rand(count, 1, generator=random) < chance
    color = _draw_between(0.1, 0.6, (count, 3, 1, 1), random)
    return torch.where(bar[:, None, None, :], color, image)
