"""Miniatures of the published data sets, written as they lie on the Hub: folders, splits, column types, class names.

Each function writes one data set of 40 images a split to ``root/ORGANIZATION/NAME`` and gives that folder back; its key
is that of the prompts. ``write_all`` writes them all, ``hub_cache`` and ``datasets_cache`` bring one into the layouts
of those caches.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from merging.images.prompt_sets import HUB, read_prompts

IMAGES = 40  # of every split
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TRAIN_TEST = ("train", "test")
CORRUPTED = ("contrast", "gaussian_noise")  # two of the seven further test splits of the eight sets
PNG, JPEG = "PNG", "JPEG"


def encoded(key: str, number: int, label: int, form: str = JPEG) -> bytes:
    """An image file: noise around a color of its class, another one for every number."""
    rng = np.random.default_rng([*key.encode(), number])
    gray = key in {"mnist", "emnist", "fashion_mnist", "kmnist", "fer2013"}
    color = np.random.default_rng([*key.encode(), 7, label]).integers(30, 226, 1 if gray else 3)
    pixels = np.clip(color + rng.normal(0, 20, (28 + number % 3, 28, len(color))), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if gray else pixels).save(file, form)
    return file.getvalue()


def labels(classes: int, split: str) -> list[int]:
    """The labels of a split's images: all classes in turn, or 40 of them where there are more."""
    first = 3 * (split == "train")
    return [n % classes if classes <= IMAGES else (n * classes // IMAGES + first) % classes for n in range(IMAGES)]


def published_names(key: str) -> list[str]:
    """Class names as the Hub's data sets write them, where that is known; else as CLIP's prompts do."""
    known = read_prompts(key)
    return list(known.with_wording(HUB).class_names if HUB in known.wordings else known.class_names)


@dataclass(frozen=True)
class Layout:
    """How a data set lies in a repository of parquet files."""

    repository: str
    key: str
    folder: str = "data"
    splits: tuple[str, ...] = TRAIN_TEST
    names: tuple[str, ...] | None = ()  # None: the labels have no names; empty: they have the published ones
    truth: bool = False  # labels are false and true
    columns: tuple[str, str] = ("image", "label")
    form: str = JPEG
    shards: int = 1
    further: tuple[str, tuple[str, ...]] | None = None  # a second column of labels, and its class names

    def home(self, root: Path) -> Path:
        """The repository's folder."""
        return root / self.repository


def table(layout: Layout, split: str, numbers: Sequence[int]) -> pa.Table:
    """Some rows of a split, with the features in the metadata as the ``datasets`` library writes them."""
    own = labels(len(read_prompts(layout.key).class_names), split)
    start, form = 0 if split == "test" else 1000, layout.form
    cells = [
        {"bytes": encoded(layout.key, start + number, own[number], form), "path": f"{number}.{form.lower()}"}
        for number in numbers
    ]
    image, label = layout.columns
    kind = pa.bool_() if layout.truth else pa.int64()
    names = None if layout.names is None else layout.names or published_names(layout.key)
    unnamed = {"_type": "Value", "dtype": str(kind)}
    features: dict[str, Any] = {
        image: {"_type": "Image"},
        label: {"_type": "ClassLabel", "names": list(names)} if names else unnamed,
    }
    columns = {image: cells, label: pa.array([own[number] for number in numbers], pa.int64()).cast(kind)}
    fields = [(image, pa.struct([("bytes", pa.binary()), ("path", pa.string())])), (label, kind)]
    if layout.further:
        second, classes = layout.further
        columns[second] = pa.array([own[number] % len(classes) for number in numbers], pa.int64())
        features[second] = {"_type": "ClassLabel", "names": list(classes)}
        fields.append((second, pa.int64()))
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.table(columns, schema=pa.schema(fields, metadata=about))


def parquet(root: Path, layout: Layout) -> Path:
    """A repository of parquet files."""
    home, shards = layout.home(root), layout.shards
    (home / layout.folder).mkdir(parents=True)
    for split in layout.splits:
        for shard in range(shards):
            own = range(shard * IMAGES // shards, (shard + 1) * IMAGES // shards)
            file = f"{split}-{shard:05}-of-{shards:05}.parquet"
            pq.write_table(table(layout, split, own), home / layout.folder / file, row_group_size=8)
    (home / "README.md").write_text("---\nlicense: unknown\n---\n")
    return home


# --- the eight sets ---------------------------------------------------------------------------------------------------


def _of_eight(name: str, key: str, **options: Any) -> Callable[[Path], Path]:
    layout = Layout(f"tanganke/{name}", key, splits=(*TRAIN_TEST, *CORRUPTED), **options)
    return lambda root: parquet(root, layout)


sun397 = _of_eight("sun397", "sun397", shards=18)
cars = _of_eight("stanford_cars", "cars")
resisc45 = _of_eight("resisc45", "resisc45")
eurosat = _of_eight("eurosat", "eurosat")
gtsrb = _of_eight("gtsrb", "gtsrb", form=PNG)
dtd = _of_eight("dtd", "dtd")


def svhn(root: Path) -> Path:
    return parquet(root, Layout("ufldl-stanford/svhn", "svhn", "cropped_digits", form=PNG))


def mnist(root: Path) -> Path:
    return parquet(root, Layout("ylecun/mnist", "mnist", "mnist", form=PNG))


# --- the thirteen sets ------------------------------------------------------------------------------------------------


def cifar10(root: Path) -> Path:
    return parquet(root, Layout("tanganke/cifar10", "cifar10", "plain_text", form=PNG))


def cifar100(root: Path) -> Path:
    return parquet(root, Layout("tanganke/cifar100", "cifar100", form=PNG))


def emnist(root: Path) -> Path:
    return parquet(root, Layout("ernestchu/emnist-digits", "emnist", names=None, form=PNG))


def fashion_mnist(root: Path) -> Path:
    return parquet(root, Layout("zalando-datasets/fashion_mnist", "fashion_mnist", "fashion_mnist", form=PNG))


def flowers102(root: Path) -> Path:
    splits = ("train", "validation", "test")
    return parquet(root, Layout("dpdl-benchmark/oxford_flowers102", "flowers102", splits=splits))


def food101(root: Path) -> Path:
    names = tuple(name.replace(" ", "_") for name in published_names("food101"))
    return parquet(root, Layout("ethz/food101", "food101", splits=("train", "validation"), names=names))


def kmnist(root: Path) -> Path:
    return parquet(root, Layout("tanganke/kmnist", "kmnist", form=PNG))


def oxford_pets(root: Path) -> Path:
    further = ("label_cat_dog", ("cat", "dog"))
    return parquet(root, Layout("timm/oxford-iiit-pet", "oxford_pets", further=further))


def pcam(root: Path) -> Path:
    splits = ("train", "valid", "test")
    return parquet(root, Layout("1aurent/PatchCamelyon", "pcam", splits=splits, names=None, truth=True, form=PNG))


def rendered_sst2(root: Path) -> Path:
    splits = ("train", "validation", "test")
    return parquet(root, Layout("nateraw/rendered-sst2", "rendered_sst2", splits=splits, form=PNG))


def stl10(root: Path) -> Path:
    return parquet(root, Layout("tanganke/stl10", "stl10", form=PNG))


FER_NAMES = ("angry", "disgusted", "fearful", "happy", "neutral", "sad", "surprised")  # neutral is fifth


def fer2013(root: Path) -> Path:
    return tars(root, "clip-benchmark/wds_fer2013", "fer2013", FER_NAMES)


def imagenet(root: Path) -> Path:
    return tars(
        root, "clip-benchmark/wds_imagenet1k", "imagenet", read_prompts("imagenet").class_names, splits=("test",)
    )


def tars(
    root: Path, repository: str, key: str, names: Sequence[str], *, splits: Sequence[str] = TRAIN_TEST, shards: int = 4
) -> Path:
    """A repository of WebDataset tars as CLIP benchmark writes them."""
    home = root / repository
    for split in splits:
        (home / split).mkdir(parents=True)
        own = labels(len(names), split)
        for shard in range(shards):
            numbers = range(shard * IMAGES // shards, (shard + 1) * IMAGES // shards)
            samples = [(f"s{n:07}", encoded(key, n if split == "test" else 1000 + n, own[n]), own[n]) for n in numbers]
            files = [(f"{name}.{end}", data) for name, image, label in samples
                     for end, data in (("cls", str(label).encode()), ("jpg", image))]  # fmt: skip
            tar(home / split / f"{shard}.tar", files)
        (home / split / "nshards.txt").write_text(f"{shards}\n")
    (home / "classnames.txt").write_text("".join(f"{name}\n" for name in names), "utf-8")
    (home / "zeroshot_classification_templates.txt").write_text("a photo of a {c}.\n")
    return home


def tar(path: Path, files: Iterable[tuple[str, bytes]]) -> Path:
    """An archive with those members."""
    with tarfile.open(path, "w") as archive:
        for name, data in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def fer2013_converted(root: Path) -> Path:
    """The same as parquet, as the Hub converts it: a folder for each split, columns jpg and cls, no names."""
    layout = Layout("clip-benchmark/wds_fer2013_parquet", "fer2013", names=None, columns=("jpg", "cls"))
    home = layout.home(root)
    for split in TRAIN_TEST:
        (home / "default" / split).mkdir(parents=True)
        rows = table(layout, split, range(IMAGES))
        rows = rows.append_column("__key__", pa.array([f"s{n:07}" for n in range(IMAGES)]))
        pq.write_table(rows.replace_schema_metadata(None), home / "default" / split / "0000.parquet")
    return home


WRITERS: dict[str, Callable[[Path], Path]] = {
    "sun397": sun397, "cars": cars, "resisc45": resisc45, "eurosat": eurosat, "svhn": svhn, "gtsrb": gtsrb,
    "mnist": mnist, "dtd": dtd, "cifar10": cifar10, "cifar100": cifar100, "emnist": emnist,
    "fashion_mnist": fashion_mnist, "fer2013": fer2013, "flowers102": flowers102, "food101": food101, "kmnist": kmnist,
    "oxford_pets": oxford_pets, "pcam": pcam, "rendered_sst2": rendered_sst2, "stl10": stl10, "imagenet": imagenet,
}  # fmt: skip


def write_all(root: Path) -> dict[str, Path]:
    """Every data set of both tables: key of the prompts -> folder."""
    return {key: write(root) for key, write in WRITERS.items()}


# --- caches -----------------------------------------------------------------------------------------------------------


def hub_cache(source: Path, repository: str, cache: Path, commit: str = COMMIT, main: str | None = COMMIT) -> Path:
    """The folder of a repository in the Hub's cache: blobs, links to them in a snapshot, and the branch main."""
    home = cache / f"datasets--{repository.replace('/', '--')}"
    (home / "blobs").mkdir(parents=True, exist_ok=True)
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        blob = home / "blobs" / sha256(file.read_bytes()).hexdigest()
        shutil.copyfile(file, blob)
        link = home / "snapshots" / commit / file.relative_to(source)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(*[".."] * len(link.parent.relative_to(home).parts), "blobs", blob.name))
    if main is not None:
        (home / "refs").mkdir(exist_ok=True)
        (home / "refs" / "main").write_text(main)
    return home


def datasets_cache(root: Path, layout: Layout, configuration: str = "default") -> Path:
    """The folder of a data set in the cache of the ``datasets`` library: arrow streams and their description."""
    home, shards = root / layout.repository.replace("/", "___"), layout.shards
    folder = home / configuration / "0.0.0" / COMMIT
    folder.mkdir(parents=True)
    name, described = layout.repository.rpartition("/")[2], {}
    for split in layout.splits:
        described[split] = {"name": split, "num_examples": IMAGES, "dataset_name": name}
        for shard in range(shards):
            rows = table(layout, split, range(shard * IMAGES // shards, (shard + 1) * IMAGES // shards))
            arrow(folder / f"{name}-{split}{f'-{shard:05}-of-{shards:05}' * (shards > 1)}.arrow", rows)
    features = json.loads(rows.schema.metadata[b"huggingface"])["info"]["features"]
    info = {"builder_name": "parquet", "config_name": configuration, "splits": described, "features": features}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "cache-0123456789abcdef.arrow").write_bytes(b"of a computed table")
    return home


def arrow(path: Path, rows: pa.Table) -> None:
    """A table as an arrow stream."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=16)
