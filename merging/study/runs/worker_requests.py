"""Parts of requests to workers about runs: the store as plain data, and files with their digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from merging.base.errors import CheckpointError
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.formats.files_on_workers import explain_unseen, remember_received_digest
from merging.recipes.recipe import Recipe
from merging.study.runs.opened_recipe import OpenedRecipe, open_inputs
from merging.study.runs.run_store import Store


def store_to_plain(store: Store) -> dict[str, Any]:
    """A store as plain data: its folders and settings."""
    libraries = [str(folder.absolute()) for folder in store.libraries]
    return {
        "root": str(store.root.absolute()), "libraries": libraries, "dated": store.dated, "benchmark": store.benchmark,
    }  # fmt: skip


def store_from_plain(data: Mapping[str, Any]) -> Store:
    """The store that ``store_to_plain`` describes."""
    libraries = tuple(map(Path, data["libraries"]))
    return Store(Path(data["root"]), libraries, dated=bool(data["dated"]), benchmark=str(data["benchmark"]))


def open_with_digests(
    recipe: Recipe, base: Path | None, benchmark: Benchmark | None, digests: Sequence[Mapping[str, Any]]
) -> OpenedRecipe:
    """A recipe with its files open, which take their digests from the request instead of being read.

    Raises:
        WorkerError: this worker does not see a file. CheckpointError: a file is damaged.
    """
    try:
        opened = open_inputs(recipe, base, benchmark)
    except CheckpointError as error:
        raise explain_unseen(recipe.models(base).values(), error) from None
    for checkpoint, digest in zip(opened, digests, strict=True):
        remember_received_digest(checkpoint, digest)
    return opened
