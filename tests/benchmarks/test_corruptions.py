"""Corruptions of images: against plain numpy and torchvision, independent of other images, worse by severity."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from merging.base.open_clip_import import prepare_torchvision
from merging.images import corruptions
from merging.images.corruptions import CORRUPTIONS, SEVERITIES, corrupt_images, corruption_value

NAMES = [f"flags:{number}" for number in range(4)]


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Four smooth images with an edge each."""
    y, x = np.mgrid[:32, :32] / 31
    base = np.stack([x, y, (x > 0.5) * 0.6 + 0.2 * y], axis=-1)
    return np.stack([np.roll(255 * base, 3 * shift, axis=1).astype(np.uint8) for shift in range(4)])


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_an_image_does_not_depend_on_the_others(kind: str, images: np.ndarray) -> None:
    together = corrupt_images(images, kind, 3, NAMES)
    assert together.shape == images.shape and together.dtype == np.uint8
    assert (together != images).any(axis=(1, 2, 3)).all()
    backward = corrupt_images(images[::-1], kind, 3, NAMES[::-1])
    assert np.array_equal(backward[::-1], together)
    assert np.array_equal(corrupt_images(images[2:3], kind, 3, NAMES[2:3])[0], together[2])


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("side", [32, 224])
def test_every_severity_is_worse_than_the_last(kind: str, side: int, images: np.ndarray) -> None:
    enlarged = images.repeat(side // 32, axis=1).repeat(side // 32, axis=2)
    errors = [
        np.abs(corrupt_images(enlarged, kind, severity, NAMES).astype(float) - enlarged).mean()
        for severity in SEVERITIES
    ]
    assert errors == sorted(errors) and len(set(errors)) == len(SEVERITIES)


def test_noise_is_that_of_torchvision(images: np.ndarray) -> None:
    prepare_torchvision()
    from torchvision.transforms.v2 import functional

    torch.manual_seed(zlib.crc32(b"7:flags:1:4"))
    pixels = torch.from_numpy(images[1]).permute(2, 0, 1).float().contiguous() / 255
    expected = functional.gaussian_noise(pixels, sigma=corruption_value(corruptions.NOISE, 4, 32))
    found = corrupt_images(images[1:2], corruptions.NOISE, 4, NAMES[1:2], seed=7)[0]
    assert np.array_equal(found, (255 * expected).round().permute(1, 2, 0).numpy())
    assert (found != corrupt_images(images[1:2], corruptions.NOISE, 4, NAMES[1:2], seed=8)[0]).any()


def test_blur_against_plain_numpy(images: np.ndarray) -> None:
    deviation = corruption_value(corruptions.BLUR, 5, 32)
    reach = round(3 * deviation)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    kernel /= kernel.sum()
    padded = np.pad(images[0].astype(float), ((reach, reach), (reach, reach), (0, 0)), "reflect")
    rows = np.apply_along_axis(np.convolve, 0, padded, kernel, "valid")
    expected = np.apply_along_axis(np.convolve, 1, rows, kernel, "valid")
    found = corrupt_images(images[:1], corruptions.BLUR, 5, NAMES[:1])[0]
    assert np.abs(found - expected).max() <= 0.51


def test_contrast_against_plain_numpy(images: np.ndarray) -> None:
    factor = corruption_value(corruptions.CONTRAST, 2, 32)
    gray = np.floor(images[0].astype(float) @ [0.2989, 0.587, 0.114]).mean()
    expected = factor * images[0] + (1 - factor) * gray
    found = corrupt_images(images[:1], corruptions.CONTRAST, 2, NAMES[:1])[0]
    assert np.abs(found - expected).max() <= 1


def test_jpeg_is_that_of_pil_and_pixels_are_means_of_boxes(images: np.ndarray) -> None:
    file = io.BytesIO()
    Image.fromarray(images[0]).save(file, "JPEG", quality=40)
    assert np.array_equal(corrupt_images(images[:1], corruptions.JPEG, 5, NAMES[:1])[0], np.asarray(Image.open(file)))
    large = np.random.default_rng(0).integers(256, size=(1, 128, 128, 3)).astype(np.uint8)
    found = corrupt_images(large, corruptions.PIXELATION, 5, NAMES[:1])[0]  # a quarter of the side: boxes of 4 × 4
    means = large[0].reshape(32, 4, 32, 4, 3).mean(axis=(1, 3)).repeat(4, axis=0).repeat(4, axis=1)
    assert np.abs(found - means).max() <= 1


def test_no_image_is_no_error() -> None:
    nothing = np.zeros((0, 32, 32, 3), np.uint8)
    assert all(len(corrupt_images(nothing, kind, 1, [])) == 0 for kind in CORRUPTIONS)
