"""Images are prepared as open_clip prepares them, to the last bit; files that are no images are refused in words."""

from __future__ import annotations

import io
import struct
import threading
import warnings
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from merging.base.errors import TaskError
from merging.base.open_clip_import import prepare_torchvision
from merging.images import preprocess
from merging.images.preprocess import MEAN, STD, crop_square, read_image, to_image

SIZE = 32


def noise(*shape, seed=0, dtype=np.uint8):
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max + 1, shape, dtype=dtype)


def encoded(image, form="PNG", **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def rotated(data):
    image = Image.open(io.BytesIO(data))
    exif = image.getexif()
    exif[0x0112] = 6
    return encoded(image, "JPEG", exif=exif)


def palette():
    image = Image.fromarray(noise(50, 70, 3)).quantize(16)
    image.info["transparency"] = bytes(range(16))
    return encoded(image)


FILES = {
    "odd size": lambda: encoded(Image.fromarray(noise(45, 77, 3))),
    "tall": lambda: encoded(Image.fromarray(noise(301, 33, 3))),
    "smaller than the tower": lambda: encoded(Image.fromarray(noise(9, 14, 3))),
    "exactly the tower's size": lambda: encoded(Image.fromarray(noise(SIZE, SIZE, 3))),
    "one side fits": lambda: encoded(Image.fromarray(noise(SIZE, 47, 3))),
    "gray": lambda: encoded(Image.fromarray(noise(40, 61))),
    "gray with alpha": lambda: encoded(Image.fromarray(noise(40, 61, 2), "LA")),
    "alpha": lambda: encoded(Image.fromarray(noise(40, 61, 4))),
    "palette": lambda: encoded(Image.fromarray(noise(50, 70, 3)).quantize(16)),
    "palette with transparency": palette,
    "one bit": lambda: encoded(Image.fromarray(noise(40, 61)).convert("1")),
    "16 bit gray": lambda: encoded(Image.fromarray(noise(40, 61, dtype=np.uint16))),
    "JPEG": lambda: encoded(Image.fromarray(noise(90, 61, 3)), "JPEG"),
    "CMYK": lambda: encoded(Image.fromarray(noise(40, 61, 4), "CMYK"), "JPEG"),
    "rotated by its tag": lambda: rotated(encoded(Image.fromarray(noise(40, 61, 3)), "JPEG")),
    "GIF": lambda: encoded(Image.fromarray(noise(40, 61, 3)), "GIF"),
    "BMP": lambda: encoded(Image.fromarray(noise(40, 61, 3)), "BMP"),
    "PPM": lambda: encoded(Image.fromarray(noise(40, 61, 3)), "PPM"),
    "WEBP": lambda: encoded(Image.fromarray(noise(40, 61, 3)), "WEBP"),
}


@pytest.fixture(scope="module")
def transform():
    prepare_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from open_clip.transform import image_transform

        return image_transform(SIZE, is_train=False)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Palette images")
@pytest.mark.parametrize("kind", FILES)
def test_pixels_are_those_of_open_clip(kind, transform):
    data = FILES[kind]()
    expected = transform(Image.open(io.BytesIO(data)))
    pixels = crop_square(read_image(data, kind), SIZE)
    assert pixels.shape == (SIZE, SIZE, 3) and pixels.dtype == np.uint8
    x = torch.from_numpy(pixels).permute(2, 0, 1).to(torch.float32) / 255
    found = (x - torch.tensor(MEAN).reshape(3, 1, 1)) / torch.tensor(STD).reshape(3, 1, 1)
    assert torch.equal(found, expected)


def test_arrays_are_images_too(transform):
    gray = noise(28, 28)
    expected = transform(Image.fromarray(gray))
    for pixels in (gray, gray[..., None]):
        found = torch.from_numpy(crop_square(to_image(pixels), SIZE)).permute(2, 0, 1) / 255
        mean, std = torch.tensor(MEAN).reshape(3, 1, 1), torch.tensor(STD).reshape(3, 1, 1)
        assert torch.equal((found - mean) / std, expected)


def test_images_read_side_by_side_leave_other_warnings_as_they_are(monkeypatch):
    entered = {name: threading.Event() for name in ("first", "second")}
    first_is_done = threading.Event()

    def wait(image, label):
        entered[label].set()
        assert (entered["second"] if label == "first" else first_is_done).wait(60)

    monkeypatch.setattr(preprocess, "check_size", wait)
    data = encoded(Image.fromarray(noise(3, 4, 3)))
    threads = [threading.Thread(target=read_image, args=(data, name)) for name in entered]
    threads[0].start()
    assert entered["first"].wait(60)
    threads[1].start()
    threads[0].join(60)
    first_is_done.set()
    threads[1].join(60)
    with pytest.raises(UserWarning, match="of another matter"):
        warnings.warn("of another matter", stacklevel=1)


def test_pil_warns_of_nothing_that_is_read():
    assert crop_square(read_image(palette(), "an image"), SIZE).shape == (SIZE, SIZE, 3)


def bomb(width, height):
    """A PNG of a few bytes that promises that many pixels."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


REFUSED = {
    "empty": (b"", "empty"),
    "cut": (FILES["JPEG"]()[:200], "damaged"),
    "text": (b"hello, this is no image at all", "not an image of a known format"),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
    "web page": (b"<!DOCTYPE html><html></html>", "web page"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
    "tiff": (encoded(Image.fromarray(noise(4, 4)), "TIFF"), "TIFF"),
    "bomb": (bomb(30_000, 30_000), "pixels"),
    "smaller bomb": (bomb(6_000, 5_000), "at most 25,000,000"),
    "larger bomb": (bomb(200_000, 200_000), "pixels"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_image_is_refused_by_name(kind):
    data, problem = REFUSED[kind]
    with pytest.raises(TaskError, match=problem) as caught:
        read_image(data, "dog\n1.jpg")
    assert "dog\\n1.jpg" in str(caught.value)


def test_an_image_that_would_become_huge_when_resized_is_refused():
    with pytest.raises(TaskError, match="long and narrow"):
        crop_square(Image.new("L", (1, 120_000)), 224)


@pytest.mark.parametrize("height,width", [(40, 20), (20, 40), (32, 32), (33, 70)])
def test_the_shorter_side_is_resized_and_the_middle_is_cut_out(height, width):
    """The steps by hand; that they are open_clip's is tested above, more slowly."""
    image = Image.fromarray(noise(height, width, 3))
    scale = SIZE / min(height, width)
    long = int(scale * max(height, width))
    resized = image.resize((SIZE, long) if width <= height else (long, SIZE), Image.Resampling.BICUBIC)
    start = round((long - SIZE) / 2)
    plain = np.asarray(resized)
    plain = plain[start : start + SIZE] if width <= height else plain[:, start : start + SIZE]
    np.testing.assert_array_equal(crop_square(image, SIZE), plain)
