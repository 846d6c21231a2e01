"""WebDataset tars: in each, an image and its label ``.cls`` for every sample; class names in ``classnames.txt``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from merging.base.errors import CheckpointError, TaskError
from merging.base.files.paths import open_regular, resolve_contained
from merging.base.text import first_few, printable
from merging.images.data_sets.class_list import read_listed_names
from merging.images.data_sets.image_references import ImageReference, read_encoded
from merging.images.data_sets.labeled_images import WHOLE, DataSet, Labels, part_of_name
from merging.images.data_sets.tar_members import TarMember, read_members
from merging.images.preprocess import read_image

IMAGE_ENDINGS = ("jpg", "jpeg", "png", "webp", "ppm", "pgm", "bmp", "gif")
LABEL_ENDING, SHARDS_FILE = "cls", "nshards.txt"
MAX_LABEL_DIGITS = 9  # digits of a label


@dataclass(frozen=True, slots=True)
class Tars:
    """The tars of each part of a data set."""

    name: str
    root: Path
    parts: Mapping[str, Sequence[Path]]
    notes: tuple[str, ...] = ()


class TarData(DataSet):
    """Samples in the order of the tars and of their members; a sample's name is a member's up to its first dot."""

    kind = "WebDataset"

    def __init__(self, tars: Tars, image: str | None = None, label: str | None = None) -> None:
        self._image_ending, self._label_ending = image, label or LABEL_ENDING
        self._references: dict[str, list[ImageReference]] = {}
        self.parts: Mapping[str, Labels] = {part: self._read_part(part, files) for part, files in tars.parts.items()}
        self.class_names, self.notes = read_listed_names(tars.root), tars.notes
        self.lists_classes = self.class_names is not None

    def _read_part(self, part: str, files: Iterable[Path]) -> Labels:
        labels: list[int] = []
        references = self._references[part] = []
        for file in files:
            descriptor = _open_file(file)
            try:
                for key, sample in _group_samples(file).items():
                    image = self._find_image(sample, key, file)
                    labels.append(self._read_label(sample, key, file, descriptor))
                    references.append(ImageReference(file, offset=image.offset, size=image.size))
            finally:
                os.close(descriptor)
        return np.array(labels, dtype=np.int64)

    def _find_image(self, sample: Mapping[str, TarMember], key: str, file: Path) -> TarMember:
        endings = (
            [self._image_ending] if self._image_ending else [ending for ending in IMAGE_ENDINGS if ending in sample]
        )
        if len(endings) == 1 and endings[0] in sample:
            return sample[endings[0]]
        name, members_text = printable(key, 60), first_few(f".{ending}" for ending in sample)
        if len(endings) > 1:
            raise TaskError(
                f"{file.name}: sample {name!r} has several images: {members_text}. Choose one with image_column."
            )
        raise TaskError(
            f"{file.name}: sample {name!r} has no image; it has {members_text}. Name its ending with image_column."
        )

    def _read_label(self, sample: Mapping[str, TarMember], key: str, file: Path, descriptor: int) -> int:
        member, name = sample.get(self._label_ending), printable(key, 60)
        if member is None:
            members_text = first_few(f".{ending}" for ending in sample)
            raise TaskError(
                f"{file.name}: sample {name!r} has no label .{self._label_ending}; it has {members_text}. A data set "
                "of images with labels is needed; label_column names another ending."
            )
        text = os.pread(descriptor, min(member.size, 4 * MAX_LABEL_DIGITS), member.offset).strip()
        if not text.isdigit() or len(text) > MAX_LABEL_DIGITS:
            label_text = printable(text.decode("ascii", "replace"), 30)
            raise TaskError(f"{file.name}: the label {label_text!r} of sample {name!r} is not a number in digits.")
        return int(text)

    def read_images(self, part: str, indices: Sequence[int]) -> Iterator[tuple[int, Image.Image | TaskError]]:
        references = [self._references[part][index] for index in indices]
        for index, reference, data in zip(indices, references, read_encoded(references), strict=True):
            try:
                yield index, data if isinstance(data, TaskError) else read_image(data, reference.label)
            except TaskError as error:
                yield index, error

    def find_reference(self, part: str, index: int) -> ImageReference | None:
        return self._references[part][index]


def _group_samples(file: Path) -> dict[str, dict[str, TarMember]]:
    """{sample: {ending: member}} of a tar. Raises TaskError for a sample with two members of one ending."""
    samples: dict[str, dict[str, TarMember]] = {}
    for member in read_members(file):
        folder, _, name = member.name.rpartition("/")
        stem, dot, ending = name.partition(".")
        if not stem or not dot:  # hidden files, and a README
            continue
        sample = samples.setdefault(f"{folder}/{stem}", {})
        if sample.setdefault(ending.casefold(), member) is not member:
            raise TaskError(f"{file.name} holds {printable(member.name, 80)!r} twice.")
    return samples


def _open_file(file: Path) -> int:
    try:
        return open_regular(resolve_contained(file))
    except CheckpointError as error:
        raise TaskError(str(error)) from None


def find_tars(path: Path, name: str) -> Tars | None:
    """The tars of a data set: one tar, the tars in a folder, or in its folder of each split; None if there are none.

    Raises:
        TaskError: only some of the tars in one folder have names of parts.
    """
    if path.is_file():
        return Tars(name, path.parent, {WHOLE: [path]}) if path.suffix == ".tar" else None
    parts: dict[str, list[Path]] = {}
    notes: list[str] = []
    for root in (path, path / "data"):
        for folder in sorted(root.iterdir()) if root.is_dir() else ():
            if (
                (part := part_of_name(folder.name))
                and folder.is_dir()
                and not folder.is_symlink()
                and (tars := _list_tars(folder))
            ):
                parts.setdefault(part, []).extend(tars)
                notes += _note_missing_tars(folder, len(tars))
        if not parts:
            parts = _group_by_part(_list_tars(root), name)
            notes = _note_missing_tars(root, sum(map(len, parts.values()))) if parts else []
        if parts:
            return Tars(name, path, parts, tuple(notes))
    return None


def _list_tars(folder: Path) -> list[Path]:
    """The tars in a folder, 2.tar before 10.tar."""

    def sort_key(file: Path) -> list[str | int]:
        return [int(piece) if piece.isdigit() else piece for piece in re.split(r"([0-9]+)", file.stem)]

    return sorted(folder.glob("*.tar"), key=sort_key)


def _group_by_part(tars: Sequence[Path], name: str) -> dict[str, list[Path]]:
    """{part: its tars}, by a word of their names such as train-0001; one part if no name has such a word."""
    parts: dict[str, list[Path]] = {}
    unknown = []
    for file in tars:
        words = re.split(r"[-_.]", file.stem)
        part = next((part for word in words if (part := part_of_name(word))), None)
        parts.setdefault(part or WHOLE, []).append(file)
        unknown += [file.name] * (part is None)
    if unknown and len(unknown) < len(tars):
        raise TaskError(f"{name}: the splits of {first_few(unknown)} are unknown, while the other tars name theirs.")
    return parts


def _note_missing_tars(folder: Path, count: int) -> list[str]:
    """A note if some of a folder's tars are missing; ``nshards.txt`` has their number."""
    try:
        text = (folder / SHARDS_FILE).read_bytes()[: 4 * MAX_LABEL_DIGITS].strip()
    except OSError:
        return []
    if not text.isdigit() or len(text) > MAX_LABEL_DIGITS or int(text) <= count:
        return []
    return [f"Only {count} of the {int(text)} tars in {folder.name}/ are present; fetch the others for all its images."]
