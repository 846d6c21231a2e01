"""A user's own picture: prepared as the benchmark's images are, and refused in words if it is something else."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from merging.base.errors import TaskError
from merging.images.own_image import MAX_BYTES, read_own_image
from merging.images.preprocess import crop_square, read_image

SIZE = 32


def noise(height=45, width=77):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def encoded(form, image=None, **options):
    file = io.BytesIO()
    (image or noise()).save(file, form, **options)
    return file.getvalue()


def with_thumbnail():
    """A JPEG whose metadata holds another JPEG, with an end of its own, and a place and a time."""
    exif = Image.Exif()
    exif[0x9286] = b"ASCII\0\0\0" + encoded("JPEG", noise(8, 8))
    return encoded("JPEG", exif=exif)


TAKEN = {
    "PNG": lambda: encoded("PNG"),
    "PNG with text": lambda: chunk_before_end(encoded("PNG"), b"tEXt", b"Comment\0IEND\xae\x42\x60\x82 not the end"),
    "JPEG": lambda: encoded("JPEG"),
    "progressive JPEG": lambda: encoded("JPEG", progressive=True),
    "JPEG with a thumbnail": with_thumbnail,
    "padded JPEG": lambda: encoded("JPEG") + b"\0\0\r\n",
    "WebP": lambda: encoded("WEBP"),
    "lossless WebP": lambda: encoded("WEBP", lossless=True),
}


def chunk_before_end(png, kind, data):
    body = kind + data
    chunk = struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    return png[:-12] + chunk + png[-12:]


def frames(form):
    return encoded(form, noise(), save_all=True, append_images=[noise(45, 77).rotate(90)], duration=100)


def large_header():
    header = struct.pack(">IIBBBBB", 8000, 5000, 8, 0, 0, 0, 0)
    body = b"IHDR" + header
    start = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    return start + encoded("PNG")[33:]


REFUSED = {
    "SVG": (lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG drawing"),
    "40 megapixels": (large_header, "8,000 × 5,000 pixels; at most 25,000,000"),
    "GIF": (lambda: encoded("GIF"), "a GIF file; a PNG, JPEG or WebP is expected"),
    "BMP": (lambda: encoded("BMP"), "a BMP file"),
    "animated PNG": (lambda: frames("PNG"), "animated: it has 2 frames"),
    "animated WebP": (lambda: frames("WEBP"), "animated: it has 2 frames"),
    "PNG and web page": (lambda: encoded("PNG") + b"<html><script>1</script>", "24 bytes of other data after"),
    "JPEG and archive": (lambda: encoded("JPEG") + b"PK\3\4" + bytes(range(1, 60)), "other data after the picture"),
    "JPEG and JPEG": (lambda: 2 * encoded("JPEG"), "other data after the picture"),
    "WebP and archive": (lambda: encoded("WEBP") + b"PK\3\4archive", "other data after the picture"),
    "large": (lambda: encoded("PNG") + bytes(MAX_BYTES), "at most 2 MB"),
    "empty": (lambda: b"", "empty"),
    "cut": (lambda: encoded("JPEG")[:300], "damaged"),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_pictures_are_prepared_as_the_benchmark_s_are(kind):
    data = TAKEN[kind]()
    pixels = read_own_image(data, kind, SIZE)
    assert pixels.shape == (SIZE, SIZE, 3)
    np.testing.assert_array_equal(pixels, crop_square(read_image(data, kind), SIZE))


@pytest.mark.parametrize("kind", REFUSED)
def test_other_files_are_refused_in_words(kind):
    make, words = REFUSED[kind]
    with pytest.raises(TaskError, match=words) as refusal:
        read_own_image(make(), "cat\u202e.png", SIZE)
    assert "cat\\u202e.png" in str(refusal.value)
