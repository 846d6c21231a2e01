"""Which images a chain that adapts without labels learns from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from merging.methods.params import Params, choice, integer


@dataclass(frozen=True, kw_only=True)
class TestData(Params):
    """Which images a chain that adapts without labels learns from, and how many of each merged task."""

    __test__ = False  # no test, whatever pytest makes of the name
    owner: ClassVar[str] = "test_data"

    split: str = choice(
        "choosing", "reporting", "exemplars", label="Adapts on",
        help="Images that are learned from without labels: the other half of the test images, those that scores are "
        "reported on, as in the papers, or training images.",
    )  # fmt: skip
    per_task: int | None = integer(
        None, low=1, high=1_000_000, slider=(16, 256), optional=True, unset="all images",
        label="Test images per task", help="Unlabeled images of each task that are learned from.",
    )  # fmt: skip
    seed: int = integer(0, low=0, slider=(0, 100), label="Test data seed", help="Which of these images are drawn.")
