"""Nearest neighbors: the images of the choosing half whose features are nearest to an image's, in two models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from merging.base.errors import StoreError
from merging.engine.evaluation.image_features import compute_features
from merging.models.model_references import EXPERTS, PRETRAINED
from merging.study.analysis import measurement_store
from merging.study.measure import measure
from merging.study.runs.reference_models import reference_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from merging.base.progress import Meter
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.images.image_encoder import Encoder
    from merging.study.analysis.measurement_store import StoredMeasurement
    from merging.study.one_image.named_towers import Towers
    from merging.study.one_image.studied_image import StudiedImage
    from merging.study.one_image.trace import Trace

SPLIT = "choosing"
BANK_MEASUREMENT = "feature_bank"  # the measurement that stores features
SHOWN_NEIGHBORS, COMPARED_NEIGHBORS = 8, 20  # the numbers of neighbors that are listed, and whose overlap is counted


@dataclass(frozen=True, eq=False)
class FeatureBank:
    """Unit features (n, e) of images of the choosing half, with the data set, number and class of each image.

    They are in half precision like stored ones, so neighbors are the same for stored and for new features.
    """

    features: NDArray[np.float16]
    images: pd.DataFrame  # task, number, class


def list_same_domain(benchmark: Benchmark, task: str, experts: Sequence[str]) -> list[str]:
    """The data sets in the same domain as ``task``: those with an expert among ``experts``, or those without."""
    has_expert = task in experts
    return [candidate.key for candidate in benchmark.tasks if (candidate.key in experts) == has_expert]


def compute_bank(
    encoder: Encoder, benchmark: Benchmark, tasks: Sequence[str], meter: Meter | None = None
) -> FeatureBank:
    """The features of all images of these data sets' choosing halves, from one pass of each image."""
    rows = []
    for key in tasks:
        images, title = benchmark.load_unlabeled(key, SPLIT), benchmark.find_task(key).title
        raw = compute_features(encoder, images, meter, "Reading features", title, benchmark.preprocess)
        rows.append(normalize(raw, dim=-1).numpy().astype(np.float16))
    return FeatureBank(np.concatenate(rows), list_images(benchmark, tasks))


def list_images(benchmark: Benchmark, tasks: Sequence[str]) -> pd.DataFrame:
    """All images of these data sets' choosing halves: task, number, class."""
    tables = []
    for key in tasks:
        labels = benchmark.load_labels(key, SPLIT)
        names = np.array(benchmark.find_task(key).class_names, dtype=object)[labels]
        tables.append(pd.DataFrame({"task": key, "number": np.arange(len(labels)), "class": names}))
    return pd.concat(tables, ignore_index=True)


def get_bank(towers: Towers, key: str, tasks: Sequence[str]) -> FeatureBank:
    """The features of these data sets' images in a model of ``towers``.

    Features of a stored run, or of a reference model that was evaluated, are measured once and stored. Those of a
    draft, a previewed merge without a stored run, or of one of several models of a run are computed again on each call,
    as are all if the store is not writable.
    """
    run_id = _find_stored_run(towers, key)
    if run_id:
        stored: StoredMeasurement | None
        try:
            stored = measure(BANK_MEASUREMENT, towers.store, towers.benchmark, run_id, context=towers.context)
        except StoreError:
            stored = measurement_store.find_measurement_result(BANK_MEASUREMENT, towers.store, towers.benchmark, run_id)
        if stored is not None:
            return read_bank(stored, towers.benchmark, tasks)
    return compute_bank(towers(key).encoder, towers.benchmark, tasks)


def _find_stored_run(towers: Towers, key: str) -> str:
    """The id of the run with which a model's features are stored; empty if they are not stored."""
    if key in towers.drafts:
        return ""
    if key == PRETRAINED or key.startswith(EXPERTS):
        run_id = reference_id(towers.benchmark, key.removeprefix(EXPERTS))
        return run_id if towers.store.find(run_id) else ""
    return "" if "/" in key else towers.store.resolve_id(key)


def read_bank(stored: StoredMeasurement, benchmark: Benchmark, tasks: Sequence[str]) -> FeatureBank:
    """The stored features of some data sets. Raises StoreError if the measurement is damaged."""
    rows, table = stored.array("features"), stored.table("images").set_index("task")
    spans = [slice(int(start), int(start) + int(n)) for start, n in table.loc[list(tasks), ["first", "n"]].to_numpy()]
    return FeatureBank(np.concatenate([rows[span] for span in spans]), list_images(benchmark, tasks))


def nearest_images(trace: Trace, image: StudiedImage, bank: FeatureBank) -> pd.DataFrame:
    """The nearest images in one model: model, rank (from 1), image (TASK:SPLIT:N), task, class, cosine.

    The list does not contain the image itself.
    """
    query = normalize(trace.features()[-1:], dim=-1).half().float().numpy()[0]  # rounded like the bank
    indices, cosines = _find_nearest(query, bank, image.name)
    rows = bank.images.iloc[indices]
    names = _list_image_names(rows)
    table = rows.reset_index(drop=True).assign(
        model=trace.key, rank=range(1, len(indices) + 1), image=names, cosine=cosines
    )
    return table[["model", "rank", "image", "task", "class", "cosine"]]


def neighbor_overlap(
    pair: tuple[Trace, Trace], image: StudiedImage, banks: tuple[FeatureBank, FeatureBank]
) -> pd.DataFrame:
    """One row: the share of the 20 nearest images that two models have in common, and its mean over the data set.

    Columns: model, reference, overlap, mean (over the images of the data set in the choosing half, none of which is its
    own neighbor), n. ``pair`` and ``banks`` are the run's and the reference's; both banks have the same images in the
    same order.
    """
    neighbor_names = [set(nearest_images(trace, image, bank)["image"]) for trace, bank in zip(pair, banks, strict=True)]
    neighbor_count = min(COMPARED_NEIGHBORS, *map(len, neighbor_names)) or 1
    overlap = len(neighbor_names[0] & neighbor_names[1]) / neighbor_count
    own_indices = np.flatnonzero(banks[0].images["task"].to_numpy() == image.name.split(":")[0])
    mean = mean_overlap(banks, own_indices)
    row = {"model": pair[0].key, "reference": pair[1].key, "overlap": overlap, "mean": mean, "n": len(own_indices)}
    return pd.DataFrame([row])


def mean_overlap(banks: tuple[FeatureBank, FeatureBank], queries: NDArray[np.intp]) -> float:
    """The mean overlap of the nearest images of the banks' images at indices ``queries`` (q,); NaN without queries."""
    neighbors = []
    for bank in banks:
        rows = torch.from_numpy(bank.features).float()
        cosines = rows[queries] @ rows.T
        cosines[range(len(queries)), queries] = -torch.inf
        neighbors.append(cosines.topk(min(COMPARED_NEIGHBORS, cosines.shape[1] - 1), dim=-1).indices.numpy())
    shares = [
        len(np.intersect1d(neighbors_a, neighbors_b)) / len(neighbors_a)
        for neighbors_a, neighbors_b in zip(*neighbors, strict=True)
        if len(neighbors_a)
    ]
    return float(np.mean(shares)) if shares else float("nan")


def _find_nearest(
    query: NDArray[np.float32], bank: FeatureBank, name: str
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Indices and cosines (k,) of the nearest images to a query (e,), without the image named ``name``."""
    cosines = bank.features.astype(np.float32) @ query
    task, _, split_and_number = name.partition(":")
    split, _, number = split_and_number.partition(":")
    if split == SPLIT:
        itself = (bank.images["task"] == task) & (bank.images["number"] == int(number))
        cosines = np.where(itself.to_numpy(), -np.inf, cosines)
    order = np.argsort(-cosines, kind="stable")[:COMPARED_NEIGHBORS]
    order = order[np.isfinite(cosines[order])]
    return order, cosines[order]


def _list_image_names(rows: pd.DataFrame) -> list[str]:
    return [f"{task}:{SPLIT}:{number}" for task, number in zip(rows["task"], rows["number"], strict=True)]
