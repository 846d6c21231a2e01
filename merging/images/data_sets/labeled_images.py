"""What data sets of every format have in common: parts with labels, and their images one by one."""

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

TRAIN, VALIDATION, TEST, WHOLE = "train", "validation", "test", "whole"
PART_NAMES = {
    "train": TRAIN, "training": TRAIN, "val": VALIDATION, "valid": VALIDATION, "validation": VALIDATION,
    "dev": VALIDATION, "test": TEST, "testing": TEST, "eval": TEST,
}  # fmt: skip
Labels = NDArray[np.int64]


class DataSet(ABC):
    """Images with labels in parts: "train", "validation" and "test", or one part, "whole".

    ``class_names`` are the data set's own; None where it has only numbers as labels. ``lists_classes``: they come from
    a published list, and the files that are here need not have an image of each.
    """

    kind: str
    parts: Mapping[str, Labels]
    class_names: tuple[str, ...] | None = None
    lists_classes: bool = False
    notes: tuple[str, ...] = ()

    @abstractmethod
    def read_images(self, part: str, indices: Sequence[int]) -> Iterator[tuple[int, Image.Image | TaskError]]:
        """(index, image) for increasing indices of a part; in place of a damaged image, the error that says why."""

    def reference(self, part: str, index: int) -> ImageReference | None:
        """Where the encoded image of an index lies, found without reading it; None where single images cannot be read.

        ``references.read_encoded`` gives the bytes of such places. Arrays of pixels and arrow streams have none.
        """
        return None

    @property
    def classes(self) -> int:
        """Number of classes: that of the names, or by the largest label where there are none."""
        if self.class_names is not None:
            return len(self.class_names)
        return 1 + max(int(labels.max()) for labels in self.parts.values() if len(labels))


def part_of_name(name: str) -> str | None:
    """The part that a folder or split of that name holds; None if it is not the name of a part."""
    return PART_NAMES.get(name.casefold())
