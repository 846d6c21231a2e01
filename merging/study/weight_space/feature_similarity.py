"""How alike two models' features are, depth by depth: linear CKA of the same images, plain and debiased.

CKA (Kornblith et al. 2019) is 1 for features that agree up to a rotation and one factor. With fewer images than
dimensions the plain one is large for any two models; the debiased one (Nguyen et al. 2021, eq. 3) is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from merging.base.devices import choose_device, move_tensor
from merging.base.errors import TaskError
from merging.base.progress import Meter
from merging.engine.evaluation.image_features import HEAD_BATCH
from merging.images.batch_sizes import limit_batch
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.study.analysis.measurement_subject import MeasurementResult, Subject, SubjectKind
from merging.study.measurements.drift import TOKEN_KINDS, tokens_by_depth
from merging.study.measurements.features import SEED, SPLIT, open_single_model, sample_images
from merging.study.runs.run import split_run_ids
from merging.tasks.context import Context

IN_DOMAIN, OUT_OF_DOMAIN = "in domain", "out of domain"  # all images of the tasks with and without an expert
DIGITS = 4  # decimals of CKA
MAX_POOLED = 600  # images of a domain together, equally spaced among the sampled ones
OPENING_STAGE, READING_STAGE = "models", "reading images"  # stages
Floats = NDArray[np.float64]


class Similarity(NamedTuple):
    """Linear CKA (D, E) of D and E features of the same images, and its debiased form (D, E)."""

    linear: Floats
    debiased: Floats


def measure_similarity(subject: Subject, context: Context) -> MeasurementResult:
    """The table "cka" of two models, which may be runs or evaluated references, with a row for each pair of depths.

    Columns: over (a task, or ``IN_DOMAIN`` and ``OUT_OF_DOMAIN``: images of those tasks together), token (the class
    token, or the mean of all tokens), first and second (depth in each model: 0 before block 0, b after b blocks, the
    last one is the embedding), linear, debiased (to four decimals) and n (images). The note "runs" has the ids of both
    models in order.

    Raises:
        TaskError: these are not two single models without modules that read this benchmark's images.
    """
    run_ids = sorted(split_run_ids(subject.run_id))
    if len(run_ids) != 2:
        raise TaskError(f"Features of two models are compared; these are {len(run_ids)}.")
    benchmark, device = subject.benchmark, choose_device(context.device)
    stages = context.split({OPENING_STAGE: 1.0, READING_STAGE: 2.0})
    encoders = []
    parts = stages[OPENING_STAGE].split(dict.fromkeys(run_ids, 1.0))
    with ExitStack() as opened:
        for run_id in run_ids:
            one = replace(subject, run_id=run_id, kind=SubjectKind.RUN)
            one.refuse_modules()
            model = opened.enter_context(open_single_model(one, one.split_context(parts[run_id], {})))
            encoders.append(Encoder.from_checkpoint(model, device, fallback=benchmark.pretrained_tower))
    sampled = sample_images(benchmark, [task.key for task in benchmark.tasks if SPLIT in task.splits])
    meter = stages[READING_STAGE].meter(2 * sum(map(len, sampled.values())))
    features = {
        task: [read_features(encoder, benchmark, task, positions, meter) for encoder in encoders]
        for task, positions in sampled.items()
    }
    rows = []
    for scope, pair in (features | _pool_domains(benchmark, features)).items():
        for token in TOKEN_KINDS:
            similarity = compare_features(*([depth[token] for depth in model] for model in pair))
            n = len(pair[0][0][token])
            forms = np.stack(similarity, axis=-1).round(DIGITS)
            rows += [(scope, token, *depths, *forms[depths].tolist(), n) for depths in np.ndindex(forms.shape[:2])]
    columns = ["over", "token", "first", "second", "linear", "debiased", "n"]
    notes = {"runs": run_ids, "split": SPLIT, "seed": SEED, "pooled": MAX_POOLED}
    return MeasurementResult({"cka": pd.DataFrame(rows, columns=columns)}, notes)


Depths = list[dict[str, NDArray[np.float32]]]  # {kind of token: features (n, d)} of each depth


def read_features(
    encoder: Encoder, benchmark: Benchmark, task: str, positions: NDArray[np.intp], meter: Meter
) -> Depths:
    """The features of a task's images at these positions (n,), after the stem, every block and the head."""
    images, _ = benchmark.load_images(task, SPLIT)
    prepared, batches = benchmark.preprocess(images[positions]), list[list[list[NDArray[np.float32]]]]()
    with torch.inference_mode():
        for batch in prepared.split(limit_batch(HEAD_BATCH, encoder.architecture, encoder.device)):
            inputs = move_tensor(batch, encoder.device, batch.dtype)
            depths = tokens_by_depth(encoder, inputs)
            batches.append(
                [[one.cpu().float().numpy() for one in (tokens[:, 0], tokens.mean(dim=1))] for tokens in depths]
            )
            meter.advance(len(batch), "Comparing features", benchmark.find_task(task).title)
    return [
        {kind: np.concatenate([batch[depth][token] for batch in batches]) for token, kind in enumerate(TOKEN_KINDS)}
        for depth in range(encoder.sections)
    ]


def _pool_domains(benchmark: Benchmark, features: Mapping[str, Sequence[Depths]]) -> dict[str, list[Depths]]:
    """The features of both models on the images of all tasks of a domain, at most ``MAX_POOLED``."""
    pooled = {}
    for domain in (IN_DOMAIN, OUT_OF_DOMAIN):
        tasks = [key for key in features if benchmark.find_task(key).has_expert == (domain == IN_DOMAIN)]
        if len(tasks) > 1:
            pooled[domain] = [_join_depths([features[task][model] for task in tasks]) for model in range(2)]
    return pooled


def _join_depths(parts: Sequence[Depths]) -> Depths:
    every = max(1, -(-sum(len(part[0][TOKEN_KINDS[0]]) for part in parts) // MAX_POOLED))
    return [
        {kind: np.concatenate([part[depth][kind] for part in parts])[::every] for kind in TOKEN_KINDS}
        for depth in range(len(parts[0]))
    ]


def compare_features(first: Sequence[NDArray[Any]], second: Sequence[NDArray[Any]]) -> Similarity:
    """CKA of every two of D and E features (n, d) of the same n images; NaN where features do not vary, or n < 4."""
    grams = [np.stack([_center(one.astype(np.float64)) for one in side]) for side in (first, second)]
    n = grams[0].shape[1]
    plain = _normalize_products(*(gram.reshape(len(gram), -1) for gram in grams))
    for gram in grams:
        gram[:, range(n), range(n)] = 0
    if n < 4:
        return Similarity(plain, np.full_like(plain, np.nan))
    own = [_unbiased_products(gram, gram).diagonal() for gram in grams]
    with np.errstate(invalid="ignore", divide="ignore"):
        debiased = _unbiased_products(*grams) / np.sqrt(np.outer(*own))
    return Similarity(plain, debiased)


def _center(features: Floats) -> Floats:
    """The products (n, n) of centered features (n, d)."""
    centered = features - features.mean(axis=0)
    products: Floats = centered @ centered.T
    return products


def _normalize_products(first: Floats, second: Floats) -> Floats:
    """Cosines (D, E) of rows (D, m) and (E, m)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines: Floats = first @ second.T / np.outer(np.linalg.norm(first, axis=1), np.linalg.norm(second, axis=1))
    return cosines


def _unbiased_products(first: Floats, second: Floats) -> Floats:
    """HSIC₁ (D, E) (Song et al. 2012, eq. 5) of products (D, n, n) and (E, n, n) whose diagonals are zero."""
    n = first.shape[1]
    traces = first.reshape(len(first), -1) @ second.reshape(len(second), -1).T
    sums = [gram.sum(axis=2) for gram in (first, second)]  # (D, n) and (E, n)
    totals = np.outer(*(rows.sum(axis=1) for rows in sums))
    crossed = 2 * (sums[0] @ sums[1].T) / (n - 2)
    products: Floats = (traces + totals / ((n - 1) * (n - 2)) - crossed) / (n * (n - 3))
    return products
