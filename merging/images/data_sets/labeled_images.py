"""The interface of data sets of every format: parts with labels, and their images one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from merging.base.errors import TaskError

if TYPE_CHECKING:
    from merging.images.data_sets.image_references import ImageReference

TRAIN, VALIDATION, TEST, WHOLE = "train", "validation", "test", "whole"  # parts; WHOLE: the data set is in one piece
PART_NAMES = {  # name of a folder or split, as data sets write it -> part
    "train": TRAIN, "training": TRAIN, "val": VALIDATION, "valid": VALIDATION, "validation": VALIDATION,
    "dev": VALIDATION, "test": TEST, "testing": TEST, "eval": TEST,
}  # fmt: skip
Labels = NDArray[np.int64]


class DataSet(ABC):
    """Images with labels in parts: "train", "validation" and "test", or one part, "whole".

    ``class_names`` are the data set's own; None if its labels are only numbers. With ``lists_classes`` they come from a
    published list, and the files on disk need not have an image of each class. Labels are (n,) int64.
    """

    kind: str
    parts: Mapping[str, Labels]
    class_names: tuple[str, ...] | None = None
    lists_classes: bool = False
    notes: tuple[str, ...] = ()

    @abstractmethod
    def read_images(self, part: str, indices: Sequence[int]) -> Iterator[tuple[int, Image.Image | TaskError]]:
        """(index, image) for increasing indices of a part; a damaged image gives its error instead."""

    def find_reference(self, part: str, index: int) -> ImageReference | None:
        """The reference to an encoded image, which is not read; None if single images cannot be referenced.

        ``image_references.read_encoded`` reads its bytes. Arrays of pixels and arrow streams have no references.
        """
        return None

    @property
    def class_count(self) -> int:
        """Number of classes: of the names, or of the labels up to the largest one if there are no names."""
        if self.class_names is not None:
            return len(self.class_names)
        return 1 + max(int(labels.max()) for labels in self.parts.values() if len(labels))


def part_of_name(name: str) -> str | None:
    """The part that a folder or split of this name holds; None if the name is not of a part."""
    return PART_NAMES.get(name.casefold())
