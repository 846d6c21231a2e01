"""One map of the features of several models: what all share is one space, so that positions can be compared.

All models read the same images and answer with the same frozen zero-shot heads, so their features are in one space. The
map is fitted to all of them together; how far an image moves between two models on it is then a number with a meaning,
and controls with a known answer say how good that number is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.base.errors import TaskError
from merging.study.analysis.correlation import fit_line
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.analysis.separability import cosine_distances, trustworthiness, unit_rows
from merging.study.measurements.features import SEED
from merging.study.measurements.tsne import tsne
from merging.study.runs.run import split_run_ids
from merging.tasks.context import Context

MAX_MODELS = 6
PERPLEXITY = 30  # of each model's part
NEIGHBORS = 15  # neighbors on the map that trustworthiness compares
MIN_IMAGES = 10
PLANTED_SHARE = 0.1  # of the images, whose features are exchanged to see whether the map shows it
EQUAL_FEATURES, PLANTED_MOVES, TRUST_LOST = "equal features", "planted moves", "trustworthiness lost"  # checks
EQUAL_LIMIT, PLANTED_LIMIT, TRUST_LIMIT = 0.001, 0.95, 0.02
READING_STAGE, MAPPING_STAGE = "reading features", "maps"  # stages
Maps = NDArray[np.float32]  # (models, images, 2)


class ImageMoves(NamedTuple):
    """How far every image (n,) moved between two models."""

    on_map: NDArray[np.float64]  # as a share of the map's width
    of_features: NDArray[np.float64]  # 1 - cosine of the two features

    @property
    def agreement(self) -> float:
        """Spearman's rank correlation of the two; NaN if either is the same for all images."""
        return fit_line(self.on_map, self.of_features).spearman


def measure_joint_tsne(subject: Subject, context: Context) -> MeasurementResult:
    """One map of images out of domain; see ``_measure_together``."""
    return _measure_together(subject, context, "features")


def measure_joint_tsne_in_domain(subject: Subject, context: Context) -> MeasurementResult:
    """One map of images in domain; see ``_measure_together``."""
    return _measure_together(subject, context, "features_in_domain")


def _measure_together(subject: Subject, context: Context, features_key: str) -> MeasurementResult:
    """One map of the pretrained model and up to five runs, the maps fitted alone, and how far they can be trusted.

    Arrays (models, images, 2), models in the order of "quality" (the pretrained one first), images in that of the
    measurement ``features_key``: "positions", and "alone", each model's own map, started from its joint positions.
    Tables: "quality" (run; trustworthiness of its part, alone of a map fitted alone, aligned of the array "alone";
    agreement, the rank correlation of the images' moves on the map and in features; median move; n) and "checks"
    (check, value, limit, n): the median move of equal features, the AUC with which moves find exchanged features, and
    the largest loss of trustworthiness.

    Raises:
        CheckpointError, TaskError: a model's features cannot be computed, there are too many models or too few images,
            or the pretrained model is missing.
    """
    ordered_ids = _order_runs(subject)
    stages = context.split({READING_STAGE: 1.0 * len(ordered_ids), MAPPING_STAGE: 10.0})
    assert subject.measure_other is not None  # `measure` passes it
    measured = [
        subject.measure_other(features_key, run_id, part)
        for run_id, part in zip(
            ordered_ids, stages[READING_STAGE].split(dict.fromkeys(ordered_ids, 1.0)).values(), strict=True
        )
    ]
    features = [one.array("features").astype(np.float32) for one in measured]
    if len(features[0]) < MIN_IMAGES:
        raise TaskError(f"A map of features needs {MIN_IMAGES} images at least; there are {len(features[0])}.")
    meter = stages[MAPPING_STAGE].meter(2 * len(features) + 4)
    meter.report_part(0, "Computing maps", "all models together")
    positions = fit_joint_map(features)
    meter.advance(len(features), "Computing maps", "all models together")
    alone_maps = []
    for rows, start in zip(features, positions, strict=True):
        alone_maps.append(fit_alone_map(rows, start))
        meter.advance(1, "Computing maps", "each model alone")
    quality = describe_quality(ordered_ids, features, positions, alone_maps)
    lost = float((quality["alone"] - quality["trustworthiness"]).max())
    checks = [*check_moves(features[0]), (TRUST_LOST, lost, TRUST_LIMIT, len(features[0]))]
    meter.advance(4, "Computing maps", "checks with known answers")
    notes = {
        **measured[0].notes,
        "models": len(features),
        "perplexity": fit_perplexity(len(features[0])) * len(features),
    }
    notes |= {"neighbors": NEIGHBORS, "seed": SEED}
    tables = {"quality": quality, "checks": pd.DataFrame(checks, columns=["check", "value", "limit", "n"])}
    return MeasurementResult(tables, notes, {"positions": positions, "alone": np.stack(alone_maps).astype(np.float16)})


def _order_runs(subject: Subject) -> list[str]:
    """The ids of the runs, the pretrained model first, then by id. Raises TaskError."""
    run_ids = split_run_ids(subject.run_id)
    if not 2 <= len(run_ids) <= MAX_MODELS:
        raise TaskError(f"A joint map is of two to {MAX_MODELS} models; these are {len(run_ids)}.")
    is_merged = {run_id: subject.store.get_run(run_id).kind != "pretrained" for run_id in run_ids}
    if all(is_merged.values()):
        raise TaskError("A joint map needs the pretrained model among its models.")
    return sorted(run_ids, key=lambda run_id: (is_merged[run_id], run_id))


# Maps


def fit_perplexity(images: int) -> float:
    """The perplexity of one model's part: ``PERPLEXITY``, or less for few images."""
    return min(PERPLEXITY, (images - 1) / 3)


def fit_joint_map(features: Sequence[NDArray[Any]]) -> Maps:
    """One map (models, n, 2) of several models' features (n, d) of the same images, float32."""
    rows = np.concatenate([unit_rows(of_model) for of_model in features])
    coordinates = tsne(rows, fit_perplexity(len(features[0])) * len(features))
    positions: Maps = coordinates.astype(np.float32).reshape(len(features), -1, 2)
    return positions


def fit_alone_map(features: NDArray[Any], start: NDArray[Any]) -> Maps:
    """A map (n, 2) of one model's features (n, d) alone that starts from its positions (n, 2) on the joint map.

    They are not shrunk first, as usual starts are: from a small start, clusters end up elsewhere. The map is moved to
    the center of these positions.
    """
    centered = (start - start.mean(axis=0)).astype(np.float32)
    coordinates = tsne(unit_rows(features), fit_perplexity(len(features)), start=centered)
    moved: Maps = (coordinates - coordinates.mean(axis=0) + start.mean(axis=0)).astype(np.float32)
    return moved


def map_width(positions: NDArray[Any]) -> float:
    """The longer side of the rectangle around all positions (*S, 2) of a map, in its units."""
    return float(np.ptp(positions.reshape(-1, 2).astype(np.float64), axis=0).max(initial=0)) or 1.0


def measure_moves(positions: NDArray[Any], features: Sequence[NDArray[Any]], model: int, before: int = 0) -> ImageMoves:
    """The moves of all images between two models of a joint map (models, n, 2), by their features (n, d)."""
    shifts = positions[model].astype(np.float64) - positions[before]
    return ImageMoves(
        np.linalg.norm(shifts, axis=1) / map_width(positions), cosine_distances(features[model], features[before])
    )


# How far a map can be trusted


def describe_quality(
    run_ids: Sequence[str], features: Sequence[NDArray[Any]], positions: Maps, alone_maps: Sequence[NDArray[Any]]
) -> pd.DataFrame:
    """The table "quality" from each model's features (n, d), part of the joint map (n, 2) and map alone (n, 2)."""
    rows = []
    for index, (run_id, of_model, alone) in enumerate(zip(run_ids, features, alone_maps, strict=True)):
        unit, moves = unit_rows(of_model), measure_moves(positions, features, index)
        by_itself = tsne(unit, fit_perplexity(len(unit)))
        trust = [trustworthiness(unit, flat, NEIGHBORS) for flat in (positions[index], by_itself, alone)]
        rows.append((run_id, *trust, moves.agreement, float(np.median(moves.on_map)), len(unit)))
    return pd.DataFrame(rows, columns=["run", "trustworthiness", "alone", "aligned", "agreement", "median_move", "n"])


def check_moves(features: NDArray[Any]) -> list[tuple[str, float, float, int]]:
    """Checks (name, value, limit, n) of maps of one model's features (n, d) beside a copy whose moves are known.

    Equal features: the median move on the map of the features given twice, as a share of its width. Planted moves:
    ``PLANTED_SHARE`` of the images get another image's features in the copy; the AUC with which moves on the map find
    them.
    """
    equal = fit_joint_map([features, features])
    planted, is_planted = plant_moves(features)
    moved = fit_joint_map([features, planted])
    equal_move = float(np.median(measure_moves(equal, [features, features], 1).on_map))
    auc = find_auc(measure_moves(moved, [features, planted], 1).on_map, is_planted)
    return [
        (EQUAL_FEATURES, equal_move, EQUAL_LIMIT, len(features)),
        (PLANTED_MOVES, auc, PLANTED_LIMIT, int(is_planted.sum())),
    ]


def plant_moves(features: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Features (n, d) in which a seeded tenth of the images exchange theirs, and which these images are (n,)."""
    generator = np.random.default_rng(SEED)
    chosen = generator.permutation(len(features))[: max(2, round(PLANTED_SHARE * len(features)))]
    planted, is_planted = features.copy(), np.zeros(len(features), bool)
    planted[chosen], is_planted[chosen] = features[np.roll(chosen, 1)], True
    return planted, is_planted


def find_auc(values: NDArray[np.float64], is_sought: NDArray[np.bool_]) -> float:
    """The share of pairs of a sought and another item (n,) in which the sought one has the larger value; ties: half."""
    from scipy.stats import rankdata

    sought, others = int(is_sought.sum()), int((~is_sought).sum())
    ranks = rankdata(values)[is_sought].sum() - sought * (sought + 1) / 2
    return float(ranks / (sought * others)) if sought and others else float("nan")
