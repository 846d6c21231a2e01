"""The files from which a browser merges and scores a benchmark's experts, and the engine's chain for a desk.

A desk is the state of the page's sliders, as ``merge.js`` describes it: {edit, experts, merge, sections}.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import merging
from app.live.fetch import VENDOR_FOLDER, read_list
from app.live.graph import build_graph
from app.page_text import correct_titles
from merging.base.errors import CheckpointError
from merging.images.benchmarks.benchmark import Benchmark, sample_indices
from merging.methods import registry
from merging.methods.method import Method
from merging.methods.params import Bound
from merging.methods.shared.random_masks import RandomBytes
from merging.models.architecture import Architecture
from merging.models.checkpoint import Checkpoint
from merging.models.families import EMBEDDINGS, OUTPUT, UNMERGED, Parameter
from merging.models.formats.integer_changes import IntegerChanges, round_change
from merging.models.tower_names import VISUAL

MAX_NUMBERS = 120_000_000  # weights of all models together, which a browser has in memory as float32
STAGES = (4, 16, 64)  # images of a task that are answered before the next task's more
SEEDS = 4  # of DARE, from 0 on
SPLIT = "choosing"
RUNTIME = VENDOR_FOLDER / "ort-wasm-simd-threaded.wasm.gz"
PACKED = ".gz"  # the ending of files that are stored compressed, which a server then sends as they are
# The methods that a browser computes as the engine does, with the parameters that a desk may set.
EDITS = {"lwptv": ("prune_ratio", "shared"), "magnitude": ("prune_ratio",), "dare": ("drop_rate", "rescale", "seed")}
MERGES = {
    "task_arithmetic": ("scaling",),
    "ties": ("scaling", "density", "aggregation"),
    "weight_averaging": (),
}  # fmt: skip
ChangeReader = Callable[[str], tuple[Tensor, Tensor]]
Chain = tuple[list[tuple[str, Mapping[str, Any]]], str, dict[str, Any]]  # edits, merge, its parameters


def write_desk(folder: Path, benchmark: Benchmark, small: bool = False) -> None:
    """Write the files that ``worker.js`` reads: weights, the network's graph, images and heads, and desk.json.

    With ``small`` the task vectors are rounded to int8 with one scale a row, half the size of float16; those of files
    that store whole-number changes are written as they are, in any case.

    Raises:
        CheckpointError: the tower has too many weights for a browser, its tensors are not those of a CLIP tower, or
            their numbers are not float16 or float32.
        TaskError: images or heads of the benchmark cannot be read.
    """
    from safetensors.torch import save

    pretrained = benchmark.open_pretrained()
    merged = [parameter for parameter in pretrained.parameters if parameter.role not in UNMERGED]
    shapes = {_short_name(p.name): pretrained.infos[p.name].shape for p in merged}
    dtypes = {pretrained.infos[p.name].dtype for p in merged}
    if dtypes not in ({torch.float16}, {torch.float32}):
        raise CheckpointError("A browser merges towers in float16 or float32; this one mixes kinds or has another.")
    models = (1 + len(benchmark.experts)) * sum(pretrained.infos[p.name].numel for p in merged)
    if models > MAX_NUMBERS:
        raise CheckpointError(f"These models have {models:,} weights; a browser takes at most {MAX_NUMBERS:,} in all.")
    graph = build_graph(Architecture.from_checkpoint(pretrained), shapes)
    experts = {name: benchmark.models()[name].open(name) for name in benchmark.experts}
    samples = {task.key: _sample(benchmark, task.key) for task in benchmark.tasks if SPLIT in task.splits}
    files = {
        "tower.onnx": graph,
        "heads.safetensors": save({task.key: benchmark.load_head(task.key) for task in benchmark.tasks}),
        "streams.bin": _pack_streams(list(experts), merged),
        "images.bin": b"".join(images.tobytes() for images, _ in samples.values()),
    }
    # Files are numbered, because names of experts may be anything.
    files["weights_0.safetensors"] = save(_read_weights(pretrained, merged))
    for number, expert in enumerate(experts.values(), 1):
        read_change = _find_change_reader(expert, pretrained, small)
        weights = _read_changes(read_change, merged) if read_change else _read_weights(expert, merged)
        files[f"weights_{number}.safetensors"] = save(weights)
    stored = all(_find_change_reader(expert, pretrained, small=False) for expert in experts.values())
    facts: dict[str, Any] = {
        "experts": list(experts),
        "tensors": [
            {"name": _short_name(p.name), "shape": pretrained.infos[p.name].shape, "section": p.section} for p in merged
        ],
        "half": torch.float16 in dtypes,
        "rounded": small and not stored,
        "saliency": _saliency(pretrained, experts),
        "preprocess": {"side": benchmark.image_size, "mean": benchmark.mean, "std": benchmark.std},
        "stages": STAGES,
        "tasks": [_describe_task(benchmark, key, labels) for key, (_, labels) in samples.items()],
        "edits": [_describe_method(registry.find_edit(key), names) for key, names in EDITS.items()],
        "merges": [_describe_method(registry.find_merge(key), names) for key, names in MERGES.items()],
        "bytes": {},
        "runtime": {"bytes": RUNTIME.stat().st_size, "digest": read_list()[RUNTIME.name]},
    }
    for name, content in files.items():
        packed = gzip.compress(content, 1, mtime=0)
        facts["bytes"][name + PACKED] = len(packed)
        (folder / (name + PACKED)).write_bytes(packed)
    (folder / "desk.json").write_text(json.dumps(facts), "utf-8")


def _read_weights(model: Checkpoint, merged: Sequence[Parameter]) -> dict[str, Tensor]:
    """{short name: tensor}, in float16 or else float32."""
    tensors = {_short_name(p.name): model.read(p.name).contiguous() for p in merged}
    return {name: value if value.dtype == torch.float16 else value.float() for name, value in tensors.items()}


def _find_change_reader(expert: Checkpoint, pretrained: Checkpoint, small: bool) -> ChangeReader | None:
    """What reads or rounds the expert's change of a tensor as (codes, scales); None if its weights are written."""
    if isinstance(expert, IntegerChanges) and expert.pretrained_digest == pretrained.digest:
        return expert.read_codes
    return (lambda name: round_change(expert.read(name).float() - pretrained.read(name).float())) if small else None


def _read_changes(read_change: ChangeReader, merged: Sequence[Parameter]) -> dict[str, Tensor]:
    """{short name: codes int8 (rows, n), and the name with ".scales": scales (rows,)}."""
    changes: dict[str, Tensor] = {}
    for parameter in merged:
        name = _short_name(parameter.name)
        codes, scales = read_change(parameter.name)
        changes |= {name: codes.contiguous(), f"{name}.scales": scales.contiguous()}
    return changes


def _describe_task(benchmark: Benchmark, key: str, labels: NDArray[np.int64]) -> dict[str, Any]:
    task = benchmark.find_task(key)
    return {
        "key": key, "title": correct_titles(task.title), "has_expert": task.has_expert, "classes": task.class_names,
        "labels": labels.tolist(),
    }  # fmt: skip


def _describe_method(method: Method, names: tuple[str, ...]) -> dict[str, Any]:
    """A method with the parameters of a desk and the range of each."""
    bounds = method.params.bounds()
    return {
        "key": method.key, "title": method.title, "summary": method.summary,
        "params": [{"name": name, **_describe_bound(name, bounds[name])} for name in names],
    }  # fmt: skip


def _describe_bound(name: str, bound: Bound) -> dict[str, Any]:
    words = {"kind": bound.kind, "label": bound.label, "help": bound.help, "default": bound.default}
    if bound.choices or bound.kind == "flag":
        return {**words, "choices": bound.choices}
    (low, high), step = bound.slider or (bound.low, bound.high), bound.step or 1
    high = SEEDS - 1 if name == "seed" else high
    return {**words, "low": step if bound.open_low else low, "high": high, "step": step}


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
    sections = [_rule(section, factor) for section, factor in desk["sections"].items() if factor != 1]
    if sections:
        edits.append(("manual", {"rules": sections, "when": "after"}))
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
