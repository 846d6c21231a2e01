"""Facts about how a benchmark's test images were chosen: all images of a data set, or a seeded sample."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merging.images.benchmarks.benchmark_folders import TASKS_FILE
from merging.images.benchmarks.manifest import MANIFEST, has_manifest

REPORTING, CHOOSING = "reporting", "choosing"


@dataclass(frozen=True, slots=True)
class ImageDraw:
    """A sample of ``n`` of the ``of`` images in a data set's part, by a seed; ``balanced`` over the classes."""

    n: int
    of: int
    seed: int
    balanced: bool

    @property
    def text(self) -> str:
        """'all 6,300' or '1,000 of 6,300 drawn with seed 0, class-balanced'."""
        return f"all {self.of:,}" if self.n == self.of else f"{self.n:,} of {self.of:,} drawn {self.how}"

    @property
    def how(self) -> str:
        """'with seed 0, class-balanced'."""
        return f"with seed {self.seed}{', class-balanced' * self.balanced}"


def read_draws(folder: Path, split: str = REPORTING) -> dict[str, ImageDraw]:
    """{task: draw} of a split, in a benchmark that ``benchmark make`` wrote; empty for other folders."""
    if not has_manifest(folder):
        return {}
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        draws = {key: _parse_draw(facts["draws"].get(split)) for key, facts in manifest["tasks"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {key: draw for key, draw in draws.items() if draw is not None}


def _parse_draw(stated: Mapping[str, Any] | None) -> ImageDraw | None:
    return ImageDraw(stated["n"], stated["of"], stated["seed"], stated["balanced"]) if stated else None


def is_whole(folder: Path) -> bool:
    """Whether a benchmark reports on whole test sets, so that no half is for choosing.

    Pages call this before torch is imported, so it reads only the list of tasks; False if it cannot be read.
    """
    try:
        tasks = json.loads((folder / TASKS_FILE).read_bytes())["tasks"]
        return bool(tasks) and not any(CHOOSING in task.get("splits", [CHOOSING]) for task in tasks)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def name_images(split: str = REPORTING, *, whole: bool) -> str:
    """The images of a score as sentences name them: 'reporting half', or 'test set' if it is not cut in halves."""
    return "test set" if whole and split == REPORTING else f"{split} half"


def read_benchmark_facts(folder: Path) -> dict[str, Any]:
    """The facts that a run stores about the benchmark of its scores: test images and licenses, if known.

    The key ``whole`` is present if there is no half of the test images to choose on.
    """
    words, manifest = describe_draws(list(read_draws(folder).values())), _read_manifest(folder)
    licenses = manifest.get("licenses", {})
    facts: dict[str, Any] = {"test_images": words} if words else {}
    facts |= {"licenses": licenses} if licenses else {}
    return facts | ({"whole": True} if manifest.get("whole") else {})


def _read_manifest(folder: Path) -> Mapping[str, Any]:
    """The manifest of a benchmark that ``benchmark make`` wrote; empty for other folders."""
    try:
        return dict(json.loads((folder / MANIFEST).read_bytes())) if has_manifest(folder) else {}
    except (OSError, ValueError, TypeError):
        return {}


def describe_draws(draws: Sequence[ImageDraw]) -> str:
    """A phrase on how the images of several test sets were chosen; empty if nothing is known."""
    if not draws:
        return ""
    partial = [draw for draw in draws if draw.n < draw.of]
    if not partial:
        return "all images of every test set"
    counts, totals = sorted({draw.n for draw in partial}), sorted({draw.of for draw in partial})
    n, total = (
        f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}" for numbers in (counts, totals)
    )
    how = "; ".join(sorted({draw.how for draw in partial}))
    complete = len(draws) - len(partial)
    return f"{n} of {total} images of each test set, drawn {how}" + (f"; all of {complete} others" if complete else "")
