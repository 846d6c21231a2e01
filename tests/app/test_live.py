"""What a browser needs to merge without a server: the tower as a graph, the engine's chain of a desk, the runtime."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from app.live import fetch
from app.live.desk import build_chain
from app.live.graph import MAX_WEIGHTS, build_graph
from merging.base.errors import CheckpointError
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder


@pytest.mark.parametrize("kind", ["as bundled", "with GELU", "without a projection"])
def test_the_graph_gives_the_features_of_the_encoder(kind: str) -> None:
    encoder = Encoder.from_checkpoint(Benchmark.load().open_pretrained())
    if kind == "with GELU":
        encoder = replace(encoder, architecture=replace(encoder.architecture, quick_gelu=False))
    if kind == "without a projection":
        tensors = {name: value for name, value in encoder.tensors.items() if name != "proj"}
        encoder = replace(encoder, tensors=tensors, architecture=replace(encoder.architecture, embed_dim=192))
    graph = build_graph(encoder.architecture, {name: value.shape for name, value in encoder.tensors.items()})
    images = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    inputs = {"images": images, **encoder.tensors}
    (features,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
    assert np.abs(features - encoder(images).numpy()).max() < 1e-5


def test_a_tower_that_is_too_large_is_refused() -> None:
    tower = Encoder.from_checkpoint(Benchmark.load().open_pretrained()).architecture
    with pytest.raises(CheckpointError, match="12,000,001 weights; a browser takes at most 12,000,000"):
        build_graph(tower, {"proj": (MAX_WEIGHTS + 1,)})


def test_a_desk_is_a_chain_of_the_engine() -> None:
    desk = {
        "edit": {"key": "lwptv", "prune_ratio": 0.6},
        "experts": {"digits": 0, "signs": 1},
        "merge": {"key": "ties", "density": 0.2},
        "sections": {"block 3": 0.5, "output": 2, "embeddings": 1},
    }
    edits, merge, params = build_chain(desk)
    assert (merge, params) == ("ties", {"density": 0.2})
    assert edits == [
        ("lwptv", {"prune_ratio": 0.6}),
        ("manual", {"rules": [{"experts": ["digits"], "factor": 0}]}),
        (
            "manual",
            {"rules": [{"blocks": ["3"], "factor": 0.5}, {"sections": ["output"], "factor": 2}], "when": "after"},
        ),
    ]
    assert build_chain({"edit": None, "experts": {}, "merge": {"key": "ties"}, "sections": {}}) == ([], "ties", {})


def test_the_runtime_is_as_listed(tmp_path: Path) -> None:
    listed = fetch.read_list()
    assert {path.name for path in fetch.VENDOR_FOLDER.iterdir()} == {*listed, "README.md", "LICENSE.onnxruntime"}
    assert fetch.find_differences() == []
    for name in listed:
        (tmp_path / name).write_bytes(gzip.compress(b"other") if name.endswith(".gz") else b"other")
    assert fetch.find_differences(tmp_path) == list(listed)
    assert fetch.find_differences(tmp_path / "missing") == list(listed)
