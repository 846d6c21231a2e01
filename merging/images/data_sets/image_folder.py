"""Folders of images for each class, optionally in parts train, val and test, as in torchvision's ImageFolder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from merging.base.errors import TaskError
from merging.base.files.paths import open_regular
from merging.base.text import first_few, printable
from merging.images.data_sets.image_references import ImageReference
from merging.images.data_sets.labeled_images import WHOLE, DataSet, part_of_name
from merging.images.preprocess import MAX_BYTES, read_image

SUFFIXES = (
    ".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".pbm", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".svg",
)  # fmt: skip
MAX_DEPTH = 8


class FolderData(DataSet):
    """Class folders sorted by name, which is the order of their label numbers; files in them sorted by path."""

    kind = "folder of class folders"

    def __init__(self, root: Path) -> None:
        self._root = Path(os.path.realpath(root))
        parts = self._find_parts()
        names = {part: [folder.name for folder in _list_folders(path)] for part, path in parts.items()}
        first, *other_parts = names
        for other in other_parts:
            if different := set(names[first]) ^ set(names[other]):
                raise TaskError(
                    f"{root.name}: {first!r} and {other!r} have different class folders, so their labels would not "
                    f"agree: {first_few(sorted(different))}."
                )
        self.class_names = tuple(names[first])
        if not self.class_names:
            raise TaskError(f"{root.name} has no class folders. A folder of images for every class is needed.")
        self._files: dict[str, list[str]] = {}
        self.parts, self._ignored_count = {}, 0
        for part, folder in parts.items():
            self._add_part(part, folder)
        if self._ignored_count:
            self.notes = (f"{self._ignored_count} files without the ending of an image were ignored.",)

    def _find_parts(self) -> dict[str, Path]:
        """{part: its folder}; the root itself if there are no parts."""
        folders = _list_folders(self._root)
        part_names = {folder: part_of_name(folder.name) for folder in folders}
        part_folders = [folder for folder, part in part_names.items() if part]
        if not part_folders or (len(part_folders) == 1 and len(folders) > 1):  # a single "train" may be a class
            return {WHOLE: self._root}
        if len(part_folders) < len(folders):
            other_names = first_few(folder.name for folder, part in part_names.items() if not part)
            raise TaskError(
                f"{self._root.name} mixes parts ({first_few(f.name for f in part_folders)}) with others: {other_names}."
            )
        parts = {str(part): folder for folder, part in part_names.items()}
        if len(parts) < len(part_folders):
            raise TaskError(
                f"{self._root.name} has two folders for the same part: {first_few(f.name for f in part_folders)}."
            )
        return parts

    def _add_part(self, part: str, folder: Path) -> None:
        """Add a part with its files and labels (n,)."""
        files: list[str] = []
        labels: list[int] = []
        for number, name in enumerate(self.class_names or ()):
            images = sorted(self._list_images(folder / name, 0))
            if not images:
                raise TaskError(f"{self._root.name}: class {printable(name)!r} has no image in {folder.name}/.")
            files += images
            labels += [number] * len(images)
        self._files[part] = files
        self.parts = {**self.parts, part: np.array(labels, dtype=np.int64)}

    def _list_images(self, folder: Path, depth: int) -> Iterator[str]:
        """Paths of images below a folder, relative to the root."""
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False) and depth < MAX_DEPTH:
                    yield from self._list_images(Path(entry.path), depth + 1)
                elif entry.name.lower().endswith(SUFFIXES):
                    yield os.path.relpath(entry.path, self._root)
                else:
                    self._ignored_count += 1

    def read_images(self, part: str, indices: Sequence[int]) -> Iterator[tuple[int, Image.Image | TaskError]]:
        for index in indices:
            name = self._files[part][index]
            try:
                yield index, read_image(self._read_bytes(name), name)
            except TaskError as error:
                yield index, error

    def find_reference(self, part: str, index: int) -> ImageReference:
        file = Path(os.path.realpath(self._root / self._files[part][index]))
        is_readable = file.is_relative_to(self._root) and file.is_file()
        return ImageReference(file, size=file.stat().st_size if is_readable else 0)  # size 0 counts as damaged

    def _read_bytes(self, name: str) -> bytes:
        """A file's content; raises TaskError for special files and links that lead out of the folder."""
        target = Path(os.path.realpath(self._root / name))
        if not target.is_relative_to(self._root):
            raise TaskError(f"{printable(name)} is a link that leads outside the folder; it is not followed.")
        try:
            descriptor = open_regular(target)
            with os.fdopen(descriptor, "rb") as file:
                size = os.fstat(descriptor).st_size
                if size > MAX_BYTES:
                    raise TaskError(f"{printable(name)} is {size:,} bytes; at most {MAX_BYTES:,} are read.")
                return file.read()
        except TaskError:
            raise
        except (ValueError, OSError) as error:
            raise TaskError(f"{printable(name)} cannot be read: {printable(str(error))}") from None


def _list_folders(root: Path) -> list[Path]:
    """Visible folders in a folder, sorted by name; raises TaskError for links to folders."""
    folders = []
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.is_dir() and not entry.name.startswith((".", "__")):
                if entry.is_symlink():
                    raise TaskError(f"{printable(entry.name)} is a link to a folder; it is not followed.")
                folders.append(Path(entry.path))
    return sorted(folders, key=lambda folder: folder.name)
