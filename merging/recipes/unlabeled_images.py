"""The settings of the images that a chain learns from without labels.

They are called test data, as papers learn on test images; ``split`` can also choose training images ("exemplars").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from merging.methods.params import Params, choice, integer


@dataclass(frozen=True, kw_only=True)
class TestData(Params):
    """The images that a chain learns from without labels: their split, their number per merged task, and a seed."""

    __test__ = False  # pytest would otherwise collect the class by its name
    owner: ClassVar[str] = "test_data"  # names the settings in the errors of ``Params``

    split: str = choice(
        "choosing", "reporting", "exemplars", label="Adapts on",
        help="Images to learn from without labels: the half of the test images that is not scored, the scored half "
        "as in the papers, or training images.",
    )  # fmt: skip
    per_task: int | None = integer(
        None, low=1, high=1_000_000, slider=(16, 256), optional=True, unset="all images",
        label="Test images per task", help="Unlabeled images of each task to learn from.",
    )  # fmt: skip
    seed: int = integer(0, low=0, slider=(0, 100), label="Test data seed", help="Which of these images are sampled.")
