"""The task "score": a merged model's features of the images of one split of a data set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from merging.base import settings
from merging.engine.evaluation.evaluate import EvaluatedModel, predict_splits
from merging.engine.outputs import MERGED
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.benchmark_folders import is_benchmark
from merging.models.checkpoint import Checkpoint
from merging.models.digest_cache import DIGESTS
from merging.models.formats.files_on_workers import remember_received_digest
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.safetensors import encode_tensor
from merging.tasks.context import Context
from merging.tasks.kinds import Request, TaskKind

FEATURES, FACTS = "features", "facts"


class ModelOnBenchmark(NamedTuple):
    """A merged model, and the benchmark that it is evaluated on."""

    model: Checkpoint
    benchmark: Benchmark


def open_model(request: Request) -> ModelOnBenchmark:
    """The model and the benchmark of a request. Raises CheckpointError if this process does not see the model."""
    folder, model = Path(str(request["benchmark"])), open_checkpoint(str(request["model"]), MERGED)
    remember_received_digest(model, request["digest"])
    return ModelOnBenchmark(model, Benchmark.load(folder if is_benchmark(folder) else settings.benchmark_folder()))


def name_score(inputs: ModelOnBenchmark, request: Request) -> str:
    """The name in the request; empty if this process sees another model, or other images."""
    has_same_model = DIGESTS.digest(inputs.model) == request["digest"]["digest"]
    return str(request["name"]) if has_same_model and inputs.benchmark.digest == request["images"] else ""


def compute_score(inputs: ModelOnBenchmark, request: Request, context: Context) -> bytes:
    """The features (n, embed_dim) as a file, with the predicted classes and margins (n,) as metadata."""
    work = EvaluatedModel("", inputs.model, [str(request["task"])])
    (answer,) = predict_splits([work], inputs.benchmark, (str(request["split"]),), context)
    facts = {"predicted": answer.predicted.tolist(), "margins": answer.margins.tolist()}
    return encode_tensor(FEATURES, answer.features, {FACTS: json.dumps(facts)})


KIND = TaskKind("evaluation", open_model, compute_score, name_score)
