"""The unit ``score``: a worker lets the images of one split of a data set go through a merged model.

It refuses images of another benchmark, and another file than the model that the program wrote.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from merging import settings
from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.evaluate import EvaluatedModel, answers
from merging.benchmarks.folders import is_benchmark
from merging.checkpoints.digests import DIGESTS
from merging.engine.outputs import MERGED
from merging.errors import WorkerError
from merging.formats.handed_out import believe
from merging.formats.one_tensor import file_bytes
from merging.formats.opening import open_checkpoint
from merging.tasks.context import Context

FEATURES, FACTS = "features", "facts"
_one_at_a_time = threading.Lock()


def score(request: Mapping[str, Any]) -> bytes:
    """The features (n, embed_dim) as a file, whose metadata holds the classes and margins that they give.

    Raises:
        WorkerError: this worker sees other files. CheckpointError: it does not see the model.
    """
    with _one_at_a_time:  # memory is for one model
        folder = Path(str(request["benchmark"]))
        benchmark = Benchmark.load(folder if is_benchmark(folder) else settings.benchmark_folder())
        model, given = open_checkpoint(str(request["model"]), MERGED), request["digest"]
        believe(model, given)
        if benchmark.digest != request["images"] or DIGESTS.digest(model) != given["digest"]:
            raise WorkerError("A worker sees other images, or another model, than the program that asked for scores.")
        work = EvaluatedModel("", model, [str(request["task"])])
        (answer,) = answers([work], benchmark, (str(request["split"]),), Context(device=str(request["device"])))
    facts = {"predicted": answer.predicted.tolist(), "margins": answer.margins.tolist()}
    return file_bytes(FEATURES, answer.features, {FACTS: json.dumps(facts)})
