"""The files from which a browser merges and scores a benchmark's experts, and the engine's chain for a desk.

A desk is the state of the page's sliders, as ``merge.js`` describes it: {edit, experts, merge, places}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import merging
from app.live.graph import build_graph
from merging.images.benchmarks.benchmark import Benchmark, sample_indices
from merging.methods.shared.random_masks import RandomBytes
from merging.models.architecture import Architecture
from merging.models.checkpoint import Checkpoint
from merging.models.families import EMBEDDINGS, OUTPUT, UNMERGED, Parameter
from merging.models.tower_names import VISUAL

STAGES = (4, 16, 64)  # images of a task that are answered before the next task's more
SEEDS = 4  # of DARE, from 0 on
SPLIT = "choosing"
Chain = tuple[list[tuple[str, Mapping[str, Any]]], str, dict[str, Any]]  # edits, merge, its parameters


def write_desk(folder: Path, benchmark: Benchmark) -> None:
    """Write the files that ``worker.js`` reads: weights, the network's graph, images, heads, and desk.json.

    Raises:
        CheckpointError: the tower has too many weights for a browser, or its tensors are not those of a CLIP tower.
        TaskError: images or heads of the benchmark cannot be read.
    """
    from safetensors.torch import save_file

    pretrained = benchmark.open_pretrained()
    merged = [parameter for parameter in pretrained.parameters if parameter.role not in UNMERGED]
    shapes = {_short_name(p.name): pretrained.infos[p.name].shape for p in merged}
    (folder / "tower.onnx").write_bytes(build_graph(Architecture.from_checkpoint(pretrained), shapes))
    experts = {name: benchmark.models()[name].open(name) for name in benchmark.experts}
    for name, model in {"pretrained": pretrained, **experts}.items():
        save_file(
            {_short_name(p.name): model.read(p.name).contiguous() for p in merged}, folder / f"{name}.safetensors"
        )
    heads = {task.key: benchmark.load_head(task.key) for task in benchmark.tasks}
    save_file(heads, folder / "heads.safetensors")
    (folder / "streams.bin").write_bytes(_pack_streams(list(experts), merged))
    samples = {task.key: _sample(benchmark, task.key) for task in benchmark.tasks if SPLIT in task.splits}
    (folder / "images.bin").write_bytes(b"".join(images.tobytes() for images, _ in samples.values()))
    facts = {
        "experts": list(experts),
        "tensors": [
            {"name": _short_name(p.name), "shape": pretrained.infos[p.name].shape, "section": p.section} for p in merged
        ],
        "half": pretrained.infos[merged[0].name].dtype == torch.float16,
        "saliency": _saliency(pretrained, experts),
        "preprocess": {"side": benchmark.image_size, "mean": benchmark.mean, "std": benchmark.std},
        "stages": STAGES,
        "tasks": [
            {"key": key, "labels": labels.tolist(), "has_expert": benchmark.find_task(key).has_expert}
            for key, (_, labels) in samples.items()
        ],
    }
    (folder / "desk.json").write_text(json.dumps(facts), "utf-8")


def build_chain(desk: Mapping[str, Any]) -> Chain:
    """The edits, the merge and its parameters with which the engine computes a desk.

    Experts' factors apply after the edit and before the merge, factors of sections after the merge.
    """
    edits: list[tuple[str, Mapping[str, Any]]] = []
    if desk["edit"] is not None:
        params = dict(desk["edit"])
        edits.append((params.pop("key"), params))
    experts = [{"experts": [name], "factor": factor} for name, factor in desk["experts"].items() if factor != 1]
    if experts:
        edits.append(("manual", {"rules": experts}))
    places = [_rule(section, factor) for section, factor in desk["places"].items() if factor != 1]
    if places:
        edits.append(("manual", {"rules": places, "when": "after"}))
    merge = dict(desk["merge"])
    return edits, merge.pop("key"), merge


def _rule(section: str, factor: float) -> dict[str, Any]:
    selector = (
        {"sections": [section]} if section in (EMBEDDINGS, OUTPUT) else {"blocks": [section.removeprefix("block ")]}
    )
    return {**selector, "factor": factor}


def _sample(benchmark: Benchmark, task: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (n, h, w, 3) and labels (n,) of a task, so ordered that the first of every stage are a seeded sample."""
    images, labels = benchmark.load_images(task, SPLIT)
    order = dict.fromkeys(int(i) for stage in STAGES for i in sample_indices(len(images), stage, 0))
    return images[list(order)], labels[list(order)]


def _saliency(pretrained: Checkpoint, experts: Mapping[str, Checkpoint]) -> list[list[float]]:
    """LwPTV's scores of the experts' tensors, [expert][tensor]."""
    table = merging.merge(pretrained, experts, "weight_averaging", edits=["lwptv"]).tables["saliency"]
    scores: list[list[float]] = np.asarray(table["saliency"]).reshape(len(experts), -1).tolist()
    return scores


def _pack_streams(experts: list[str], parameters: list[Parameter]) -> bytes:
    """The random streams of DARE for the first seeds: 38 bytes by seed, expert and tensor."""
    addresses = [["dare", seed, expert, p.name] for seed in range(SEEDS) for expert in experts for p in parameters]
    streams = [RandomBytes.from_address(json.dumps(address)) for address in addresses]
    return b"".join(
        stream.start.to_bytes(16, "little")
        + stream.increment.to_bytes(16, "little")
        + int(stream.rounding * 2**48).to_bytes(6, "little")
        for stream in streams
    )


def _short_name(name: str) -> str:
    return name.removeprefix(VISUAL)
