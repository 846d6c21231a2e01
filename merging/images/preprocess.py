"""CLIP's preprocessing: from an image file to a square of pixels for a visual tower, as in open_clip.

The short side is resized to the tower's size by PIL's bicubic filter (which smooths when it shrinks), then the image is
cropped at its center and converted to RGB; rotation tags are ignored. Pixels stay bytes: dividing by 255 and
normalizing afterwards is exact in float32.
"""

from __future__ import annotations

import io
import re
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from merging.base.errors import TaskError
from merging.base.text import printable

MEAN = (0.48145466, 0.4578275, 0.40821073)  # mean colors of the images that OpenAI's CLIP was trained on
STD = (0.26862954, 0.26130258, 0.27577711)  # their standard deviations
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "GIF", "WEBP")
MAX_PIXELS = 25_000_000  # of a stored image, and of a resized image before the crop
MAX_BYTES = 1 << 28  # of an image file in a data set
_PIL_FILTER = ("ignore", None, Warning, re.compile(r"PIL\."), 0)  # the form of an entry of ``warnings.filters``
KNOWN_OTHER_FILES = {
    b"\x89PNG": "a damaged PNG",
    b"\xff\xd8": "a damaged JPEG",
    b"<svg": "an SVG drawing; save it as PNG",
    b"<?xml": "an XML file (an SVG drawing?); save it as PNG",
    b"<!DOCTYPE": "a web page; download the image again",
    b"<html": "a web page; download the image again",
    b"version https://git-lfs": "a Git LFS pointer; run `git lfs pull`",
    b"II*\0": "a TIFF file, which is not read; save it as PNG",
    b"MM\0*": "a TIFF file, which is not read; save it as PNG",
}


def silence_pil() -> None:
    """Ignore PIL's warnings in this process: odd metadata, dropped transparency, sizes that this module checks.

    ``warnings.catch_warnings`` would change the filters of all threads, permanently if two calls overlap.
    """
    if list(warnings.filters[:1]) != [_PIL_FILTER]:
        warnings.filterwarnings("ignore", module=_PIL_FILTER[3].pattern)


def read_image(data: bytes, label: str) -> Image.Image:
    """A decoded image from the bytes of a file; ``label`` is its name in messages.

    Raises:
        TaskError: the file is empty, damaged, of an unknown format, or too large.
    """
    if not data:
        raise TaskError(f"{printable(label)} is empty (0 bytes).")
    silence_pil()
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        check_size(image, label)
        image.load()
    except TaskError:
        raise
    except Image.DecompressionBombError:
        raise TaskError(f"{printable(label)} has more than {MAX_PIXELS:,} pixels; refused.") from None
    except UnidentifiedImageError:
        raise TaskError(f"{printable(label)} is {_describe_other_file(data)}.") from None
    except Exception as error:  # decoders raise many kinds on damaged files
        raise TaskError(f"{printable(label)} is damaged: {printable(str(error), 100)}.") from None
    return image


def check_size(image: Image.Image, label: str) -> None:
    """Raise TaskError if an image is too large to be decoded, or too narrow to be resized."""
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise TaskError(f"{printable(label)} has {width:,} × {height:,} pixels; at most {MAX_PIXELS:,} are read.")
    if not width or not height:
        raise TaskError(f"{printable(label)} has no pixels.")


def _describe_other_file(data: bytes) -> str:
    """A phrase on the true format of a file that is not an image of a known format."""
    start = data[:64].lstrip()
    kind = next((text for magic, text in KNOWN_OTHER_FILES.items() if start.startswith(magic)), None)
    return kind or f"not an image of a known format ({', '.join(FORMATS)})"


def crop_square(image: Image.Image, size: int, label: str = "the image") -> NDArray[np.uint8]:
    """The pixels (size, size, 3) for a tower whose images have that size.

    Raises:
        TaskError: the image is so long and narrow that resizing it would take too much memory.
    """
    width, height = image.size
    long = int(size * max(width, height) / min(width, height))
    if long * size > MAX_PIXELS:
        raise TaskError(f"{printable(label)} is too long and narrow ({width} × {height}) to be resized.")
    target = (size, long) if width <= height else (long, size)
    left, top = (round((side - size) / 2.0) for side in target)
    silence_pil()
    resized = image if image.size == target else image.resize(target, Image.Resampling.BICUBIC)
    cropped = resized.crop((left, top, left + size, top + size)).convert("RGB")
    pixels: NDArray[np.uint8] = np.array(cropped, dtype=np.uint8)
    return pixels


def to_image(pixels: NDArray[Any]) -> Image.Image:
    """An image from gray pixels (h, w) or (h, w, 1), or from colored pixels (h, w, 3)."""
    return Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)
