"""Images per second of an evaluation whose images lie in a parquet file, against decoding alone and forward alone.

    PYTHONPATH=.:tests/support python tests/bench/throughput.py [--images 400] [--device auto] [--processes]

The images are JPEGs of photographs' size, drawn and written first, and the model is ViT-B/32 with random weights. On a
CPU decoding and forward passes share the cores, so no overlap can be faster than both one after the other: the ratio is
the processor seconds (user and system, of all threads) of both alone to those of the evaluation, and that of the wall
times. On an accelerator they do not share, and the ratio is the wall time of the slower one to that of the evaluation.
The target is at least 0.9.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from random_towers import B32, tower

from merging.base.devices import choose_device, describe_device, describe_machine, is_host
from merging.engine.evaluation.image_features import compute_features
from merging.images.batch_sizes import short_batch
from merging.images.benchmarks.data_set_locations import Location
from merging.images.benchmarks.image_decoding import count_threads, decode_images, stack_pixels
from merging.images.benchmarks.referenced_images import ReferencedImages
from merging.images.image_encoder import Encoder
from merging.images.preprocess import MEAN, STD, crop_square, read_image
from merging.models.checkpoint import MappingCheckpoint

SIDE, TARGET = 224, 0.9
SIZES = ((500, 375), (375, 500), (640, 480), (1024, 683))  # of the pictures, as in SUN397, Cars, DTD and Flowers102


def picture(number: int) -> bytes:
    """A JPEG with smooth parts and noise, which takes about as many bytes as a photograph."""
    rng = np.random.default_rng(number)
    width, height = SIZES[number % len(SIZES)]
    coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((width, height))
    noisy = np.asarray(coarse, np.int16) + rng.normal(0, 12, (height, width, 1)).astype(np.int16)
    file = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def write(path: Path, count: int) -> int:
    """A parquet file with so many pictures; gives its bytes."""
    cells = [{"bytes": picture(number), "path": f"{number}.jpg"} for number in range(count)]
    pq.write_table(pa.table({"image": cells}), path, row_group_size=100)
    return path.stat().st_size


def prepare(pixels: np.ndarray[Any, Any]) -> torch.Tensor:
    """As ``Benchmark.preprocess``."""
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).to(torch.float32) / 255
    return (x - torch.tensor(MEAN).reshape(3, 1, 1)) / torch.tensor(STD).reshape(3, 1, 1)


def timed(work: Callable[[], object], device: torch.device) -> tuple[float, float]:
    """Seconds of the wall and of all processors, children included."""
    before, started = os.times(), time.monotonic()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    after = os.times()
    return time.monotonic() - started, sum(after[:4]) - sum(before[:4])


def decode(images: ReferencedImages) -> None:
    """Decode all images and prepare them, and nothing else."""
    with decode_images(images.list_references(), SIDE, lambda squares: prepare(stack_pixels(squares))) as chunks:
        for _ in chunks:
            pass


def pool(images: ReferencedImages, kind: type[ThreadPoolExecutor | ProcessPoolExecutor]) -> None:
    """The same by a plain pool of threads or processes, which get bytes and give pixels."""
    from merging.images.data_sets.image_references import read_encoded

    with kind(count_threads()) as workers:
        for _ in workers.map(one_square, list(read_encoded(images.list_references())), chunksize=8):
            pass


def one_square(data: bytes) -> np.ndarray[Any, Any]:
    """The pixels of one picture."""
    return crop_square(read_image(data, "image"), SIDE)


def main() -> None:
    """Print the rates, and write them if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--processes", action="store_true", help="also compare threads with processes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = choose_device(options.device)
    encoder = Encoder.from_checkpoint(MappingCheckpoint(tower(0, **B32), "ViT-B/32"), device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.parquet"
        size = write(path, options.images)
        places = np.stack([np.zeros(options.images), np.arange(options.images), np.zeros(options.images)], axis=1)
        images = ReferencedImages([Location.of_file(path, "image")], places.astype(np.int64), SIDE)
        batch = prepare(images[:128]).to(device)
        step = short_batch(encoder.architecture) if is_host(device) else len(batch)

        def forward() -> None:
            with torch.inference_mode():
                for start in range(0, options.images, step):
                    encoder(batch[: min(step, options.images - start)])

        work: dict[str, Callable[[], object]] = {
            "decoding": lambda: decode(images),
            "forward": forward,
            "evaluation": lambda: compute_features(encoder, images, prepare=prepare),
        }
        if options.processes:
            work |= {"threads": lambda: pool(images, ThreadPoolExecutor)}
            work |= {"processes": lambda: pool(images, ProcessPoolExecutor)}
        for each in work.values():  # once to warm up
            each()
        rounds = [{name: timed(each, device) for name, each in work.items()} for _ in range(options.rounds)]
    best = {name: [min(one[name][place] for one in rounds) for place in (0, 1)] for name in work}
    report(best, options, device, size)


def report(best: dict[str, list[float]], options: argparse.Namespace, device: torch.device, size: int) -> None:
    """Print the rates and the ratio."""
    print(f"{options.images} JPEGs, {size / options.images / 1000:.0f} kB each; {describe_device(device)}, "
          f"{describe_machine()}; best of {options.rounds}")  # fmt: skip
    for name, (wall, processor) in best.items():
        rate, cost = options.images / wall, processor / options.images * 1000
        print(f"{name:<12}{rate:>9.1f} images/s{cost:>9.1f} ms of processors an image")
    (decoded, decoded_cpu), (forward, forward_cpu), (both, both_cpu) = (
        best[name] for name in ("decoding", "forward", "evaluation")
    )
    if is_host(device):
        ratios = {"processor": (decoded_cpu + forward_cpu) / both_cpu, "wall": (decoded + forward) / both}
    else:
        ratios = {"wall": max(decoded, forward) / both}
    for name, ratio in ratios.items():
        print(f"{name} time, both alone to the evaluation: {ratio:.2f} (target {TARGET})")
    if options.json:
        options.json.write_text(json.dumps({"seconds": best, "ratios": ratios, "images": options.images}, indent=1))


if __name__ == "__main__":
    main()
