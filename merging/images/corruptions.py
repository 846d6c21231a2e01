"""Corruptions of images at five severities: noise, blur, contrast, JPEG, pixelation.

The values are those of CIFAR-10-C for images of at most ``SMALL_SIDE`` pixels a side, and of ImageNet-C for larger ones
(Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", and
the programs published with it).
"""

from __future__ import annotations

import importlib
import io
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.open_clip_import import prepare_torchvision

NOISE, BLUR, CONTRAST, JPEG, PIXELATION = "noise", "blur", "contrast", "JPEG", "pixelation"
CORRUPTIONS = (NOISE, BLUR, CONTRAST, JPEG, PIXELATION)
SEVERITIES = (1, 2, 3, 4, 5)
SMALL_SIDE = 64
SMALL_VALUES = {  # of CIFAR-10-C, by severity
    NOISE: (0.04, 0.06, 0.08, 0.09, 0.10),  # standard deviation, of the range of a pixel
    BLUR: (0.4, 0.6, 0.7, 0.8, 1.0),  # standard deviation, pixels
    CONTRAST: (0.75, 0.5, 0.4, 0.3, 0.15),  # factor
    JPEG: (80, 65, 58, 50, 40),  # quality
    PIXELATION: (0.95, 0.9, 0.85, 0.75, 0.65),  # size of the small image, relative to the image's
}
LARGE_VALUES = {  # of ImageNet-C, by severity
    NOISE: (0.08, 0.12, 0.18, 0.26, 0.38),
    BLUR: (1.0, 2.0, 3.0, 4.0, 6.0),
    CONTRAST: (0.4, 0.3, 0.2, 0.1, 0.05),
    JPEG: (25, 18, 15, 10, 7),
    PIXELATION: (0.6, 0.5, 0.4, 0.3, 0.25),
}
Pixels = NDArray[np.uint8]


def corruption_value(kind: str, severity: int, side: int) -> float:
    """The value of a kind of corruption at a severity from 1 to 5, for images of ``side`` pixels a side."""
    return (SMALL_VALUES if side <= SMALL_SIDE else LARGE_VALUES)[kind][severity - 1]


def corrupt_images(images: Pixels, kind: str, severity: int, names: Sequence[str], seed: int = 0) -> Pixels:
    """The images (n, h, w, 3) after a kind of corruption at a severity from 1 to 5.

    Random numbers of an image depend on its name in ``names`` (n), the severity and the seed only, not on the other
    images.
    """
    value = corruption_value(kind, severity, images.shape[1])
    if kind == NOISE:
        pairs = zip(images, names, strict=True)
        noisy = [_add_noise(image, value, zlib.crc32(f"{seed}:{name}:{severity}".encode())) for image, name in pairs]
        return np.stack(noisy) if noisy else images
    if kind in (JPEG, PIXELATION):
        change_one = _compress if kind == JPEG else _pixelate
        return np.stack([change_one(image, value) for image in images]) if len(images) else images
    pixels = torch.from_numpy(images.copy()).permute(0, 3, 1, 2)
    change_all = _blur if kind == BLUR else _reduce_contrast
    changed: Pixels = change_all(pixels, value).permute(0, 2, 3, 1).contiguous().numpy()
    return changed


def _add_noise(image: Pixels, deviation: float, seed: int) -> Pixels:
    """The image (h, w, 3) with normal noise.

    It is that of torchvision's ``v2.GaussianNoise``, which takes no generator: the same numbers in the same order.
    """
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.from_numpy(image.copy()).permute(2, 0, 1).contiguous().float() / 255
    noise = torch.randn(pixels.shape, generator=generator)
    noisy: Pixels = ((pixels + deviation * noise).clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    return noisy


def _import_transforms() -> Any:
    """The module torchvision.transforms.v2.functional, which takes seconds to import."""
    prepare_torchvision()
    return importlib.import_module("torchvision.transforms.v2.functional")


def _blur(pixels: Tensor, deviation: float) -> Tensor:
    """Images (n, 3, h, w) after torchvision's Gaussian blur, with a kernel of three deviations to each side."""
    blurred: Tensor = _import_transforms().gaussian_blur(pixels, [2 * round(3 * deviation) + 1] * 2, [deviation] * 2)
    return blurred


def _reduce_contrast(pixels: Tensor, factor: float) -> Tensor:
    """Images (n, 3, h, w) after torchvision's change of contrast: nearer to the mean of their gray values."""
    reduced: Tensor = _import_transforms().adjust_contrast(pixels, factor)
    return reduced


def _compress(image: Pixels, quality: float) -> Pixels:
    """The image (h, w, 3) after JPEG of PIL; torchvision's needs its compiled library, which a CPU torch lacks."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=int(quality))
    return np.asarray(Image.open(file))


def _pixelate(image: Pixels, scale: float) -> Pixels:
    """The image (h, w, 3) after shrinking and enlarging with PIL's box filter; torchvision has no such transform."""
    from PIL import Image

    height, width = image.shape[:2]
    small = Image.fromarray(image).resize((int(width * scale), int(height * scale)), Image.Resampling.BOX)
    return np.asarray(small.resize((width, height), Image.Resampling.BOX))
