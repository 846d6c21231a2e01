"""A user's own picture, resized and cropped for a tower: one PNG, JPEG or WebP under the limits of data sets' images.

Other files are refused with a reason: drawings, animations, and files with other data after the end of the picture.
Only pixels are returned, so no metadata (location, time, camera) leaves the file.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from merging.base.errors import TaskError
from merging.base.text import printable, size_text
from merging.images.preprocess import crop_square, read_image

MAX_BYTES = 2_000_000  # of the picture's file
JPEG, PNG, WEBP = "JPEG", "PNG", "WEBP"
PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xae\x42\x60\x82"
JPEG_START, JPEG_END = b"\xff\xd8", b"\xff\xd9"
SAVE_ADVICE = "Save it again as PNG, JPEG or WebP with an image program."


def read_own_image(data: bytes, file_name: str, size: int) -> NDArray[np.uint8]:
    """The pixels (size, size, 3) of a picture, resized and cropped as the images of a benchmark are.

    Raises:
        TaskError: the file is too large, not a PNG, JPEG or WebP, damaged, animated, or has data after the picture.
    """
    label = printable(file_name or "the image", 60)
    if len(data) > MAX_BYTES:
        raise TaskError(
            f"{label} is {size_text(len(data))}; at most {size_text(MAX_BYTES)} are accepted. Make it smaller."
        )
    image = read_image(data, label)
    if image.format not in (JPEG, PNG, WEBP):
        raise TaskError(f"{label} is a {image.format} file; a PNG, JPEG or WebP is expected. {SAVE_ADVICE}")
    frames = getattr(image, "n_frames", 1)
    if frames > 1:
        raise TaskError(f"{label} is animated: it has {frames} frames, and one is expected. Save a single frame.")
    if trailing := _count_trailing_bytes(data, str(image.format)):
        raise TaskError(
            f"{label} is a {image.format} with {size_text(trailing)} of other data after the picture, so it may be "
            f"another kind of file as well. {SAVE_ADVICE}"
        )
    return crop_square(image, size, label)


def _count_trailing_bytes(data: bytes, image_format: str) -> int:
    """How many bytes follow the end of the picture; zeros and line ends are padding and do not count."""
    if image_format == PNG:
        end = _find_png_end(data)
    elif image_format == WEBP:
        end = 8 + int.from_bytes(data[4:8], "little")  # the RIFF header has the size of what follows it
        end += end % 2  # chunks have an even number of bytes
    else:
        end = _find_jpeg_end(data)
    return len(data[end:].strip(b"\0\r\n"))


def _find_png_end(data: bytes) -> int:
    """The end of the chunk IEND, found chunk by chunk: another chunk's data may contain the four letters."""
    end = len(PNG_START)
    while end + 12 <= len(data):
        length, kind = int.from_bytes(data[end : end + 4], "big"), data[end + 4 : end + 8]
        end += 12 + length  # 4 bytes each of length, kind and checksum
        if kind == b"IEND":
            break
    return end


def _find_jpeg_end(data: bytes) -> int:
    """The end of the picture: the first marker "end of image" after the segments before the scans."""
    scans = len(JPEG_START)
    while scans + 4 <= len(data) and data[scans] == 0xFF and data[scans + 1] != 0xDA:  # 0xDA: start of a scan
        scans += 1 if data[scans + 1] == 0xFF else 2 + int.from_bytes(data[scans + 2 : scans + 4], "big")
    end = data.find(JPEG_END, scans)
    return len(data) if end < 0 else end + len(JPEG_END)
