"""The published CLIP models in miniature, as they lie on the Hub: two layers, a text tower, experts in every layout.

The pretrained model is a whole CLIP as ``pytorch_model.bin``; experts are ``CLIPVisionModel`` folders, but for one in
shards, one adapter, and one pickled ``ImageEncoder``. Their repositories have the names of the catalogue.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import plain_tower
import published_layouts
import pytest
import random_towers
import torch
from loopback_hub import LoopbackHub
from safetensors.torch import load, save
from torch import Tensor

from merging.sharing.published.catalogue_parts import MODEL, ListedFile, ListedPart, read_shared_parts
from merging.sharing.published.experiment_catalogue import Experiment

WIDTH, LAYERS, EMBED, TEXT, WORDS, CONTEXT = 64, 2, 32, 32, 49408, 77
SIZES = {"width": WIDTH, "layers": LAYERS, "patch": 16, "side": 2, "embed": EMBED}
VISION = {
    "model_type": "clip_vision_model", "hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "hidden_act": "quick_gelu",
    "num_hidden_layers": LAYERS, "num_attention_heads": 2, "image_size": 32, "patch_size": 16, "projection_dim": EMBED,
}  # fmt: skip
WORDS_CONFIG = {
    "model_type": "clip_text_model", "hidden_size": TEXT, "intermediate_size": 4 * TEXT, "hidden_act": "quick_gelu",
    "num_hidden_layers": LAYERS, "num_attention_heads": 2, "vocab_size": WORDS, "max_position_embeddings": CONTEXT,
    "projection_dim": EMBED,
}  # fmt: skip
SHARDED, ADAPTER, PICKLED = "svhn", "gtsrb", "dtd"  # the experts of these tasks have layouts of their own
LAYOUTS = {
    SHARDED: ("config.json", "model.safetensors.index.json", "model-*.safetensors"),
    ADAPTER: ("adapter_config.json", "adapter_model.safetensors"),
    PICKLED: ("finetuned.pt",),
}
Files = dict[str, bytes]
State = dict[str, Tensor]


class ImageEncoder(torch.nn.Module):
    """The class of which published task vectors are pickled."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.model = torch.nn.Module()
        self.model.visual = torch.nn.Module()
        for name, value in state.items():
            self.model.visual.register_buffer(name.removeprefix("visual.").replace(".", "__"), value)


def _saved(content: object) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


@cache
def tower() -> State:
    """The pretrained tower under open_clip's names."""
    return random_towers.tower(0, **SIZES)


def changed(seed: int, size: float = 0.02) -> State:
    """An expert: the pretrained tower and some noise; the projection stays."""
    draw = torch.Generator().manual_seed(seed)
    return {
        name: value if name.endswith("proj") else value + size * torch.randn(value.shape, generator=draw)
        for name, value in tower().items()
    }


def _text() -> State:
    draw = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw) * TEXT**-0.5

    state = {"embeddings.token_embedding.weight": random(WORDS, TEXT)}
    state["embeddings.position_embedding.weight"] = random(CONTEXT, TEXT)
    for layer in range(LAYERS):
        at = f"encoder.layers.{layer}."
        sizes = {f"self_attn.{part}_proj": (TEXT, TEXT) for part in ("q", "k", "v", "out")}
        sizes |= {"mlp.fc1": (4 * TEXT, TEXT), "mlp.fc2": (TEXT, 4 * TEXT)}
        for part, shape in sizes.items():
            state |= {f"{at}{part}.weight": random(*shape), f"{at}{part}.bias": torch.zeros(shape[0])}
        for norm in ("layer_norm1", "layer_norm2"):
            state |= {f"{at}{norm}.weight": torch.ones(TEXT), f"{at}{norm}.bias": torch.zeros(TEXT)}
    state |= {"final_layer_norm.weight": torch.ones(TEXT), "final_layer_norm.bias": torch.zeros(TEXT)}
    whole = {f"text_model.{name}": value for name, value in state.items()}
    return whole | {"text_projection.weight": random(EMBED, TEXT), "logit_scale": torch.tensor(4.6052)}


@cache
def whole_clip() -> Mapping[str, bytes]:
    """The pretrained model's repository."""
    config = {"model_type": "clip", "projection_dim": EMBED, "vision_config": VISION, "text_config": WORDS_CONFIG}
    state = plain_tower.hugging_face(tower()) | _text()
    return {
        "config.json": json.dumps(config).encode(), "pytorch_model.bin": _saved(state), "tf_model.h5": b"not fetched",
        "README.md": b"---\n---\n",
    }  # fmt: skip


@cache
def expert(task: str, number: int) -> Mapping[str, bytes]:
    """The repository of a task's expert, in the layout that this one has."""
    state = changed(10 + number)
    plain = plain_tower.hugging_face(state)
    plain.pop("visual_projection.weight")
    config = json.dumps(VISION | {"architectures": ["CLIPVisionModel"]}).encode()
    if task == SHARDED:
        return {"config.json": config, **_shards(plain)}
    if task == ADAPTER:
        return _adapter()
    if task == PICKLED:
        own = {f"model.{name}": value for name, value in state.items()}
        return {"finetuned.pt": _saved(own)}
    return {"config.json": config, "model.safetensors": save(plain), "README.md": b"---\n---\n"}


def in_other_format(files: Mapping[str, bytes]) -> Files:
    """A repository whose pickled weights are safetensors, or whose safetensors are a pickle."""
    files = dict(files)
    if pickled := files.pop("pytorch_model.bin", b""):
        return files | {"model.safetensors": save(torch.load(io.BytesIO(pickled), weights_only=True))}
    if plain := files.pop("model.safetensors", b""):
        return files | {"pytorch_model.bin": _saved(load(plain))}
    return files


def _shards(state: State) -> Files:
    names = sorted(state)
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    files = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    index = {name: file for file, half in zip(files, halves, strict=True) for name in half}
    shards = {file: save({name: state[name] for name in half}) for file, half in zip(files, halves, strict=True)}
    return {"model.safetensors.index.json": json.dumps({"weight_map": index}).encode(), **shards}


def _adapter(rank: int = 4) -> Files:
    draw, tensors = torch.Generator().manual_seed(7), {}
    for layer in range(LAYERS):
        for part in ("q_proj", "v_proj"):
            at = f"base_model.model.vision_model.encoder.layers.{layer}.self_attn.{part}"
            tensors[f"{at}.lora_A.weight"] = torch.randn((rank, WIDTH), generator=draw) * 0.1
            tensors[f"{at}.lora_B.weight"] = torch.randn((WIDTH, rank), generator=draw) * 0.1
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": ["q_proj", "v_proj"]}
    return {"adapter_config.json": json.dumps(config).encode(), "adapter_model.safetensors": save(tensors)}


def folder_of_experts(root: Path, tasks: Sequence[str], size: float = 0.02) -> Path:
    """A folder like those of the published task vectors: ``zeroshot.pt``, and ``TASK/finetuned.pt`` of each task."""
    vision = {"image_size": 32, "layers": LAYERS, "width": WIDTH, "head_width": WIDTH // 2, "patch_size": 16}
    stated = {"embed_dim": EMBED, "quick_gelu": True, "vision_cfg": vision}  # which a tower of the usual width need not
    root.mkdir(parents=True)
    (root / "zeroshot.pt").write_bytes(save(tower(), {"architecture": json.dumps(stated)}))
    for number, task in enumerate(tasks):
        (root / task).mkdir()
        own = {f"model.{name}": value for name, value in changed(50 + number, size).items()}
        (root / task / "finetuned.pt").write_bytes(_saved(own))
    return root


def listed(patch: pytest.MonkeyPatch, experiment: Experiment) -> None:
    """Let the catalogue list the files of the experts that have layouts of their own."""
    known = read_shared_parts().repositories
    for task, names in LAYOUTS.items():
        if task in (experts := next(iter(experiment.models.values())).experts):
            one = known[experts[task].repository]
            files = ListedPart(tuple(map(ListedFile, names)), None, None)
            patch.setitem(known, one.name, replace(one, parts={MODEL: files}))


def fill(hub: LoopbackHub, experiment: Experiment, data: Mapping[str, object]) -> None:
    """Put what an experiment needs on a Hub; ``data`` are the folders of the data sets by the keys of their prompts."""
    models = next(iter(experiment.models.values()))
    hub.add("model", models.pretrained.repository, whole_clip(), license="mit")
    for number, one in enumerate(experiment.tasks):
        hub.add("model", models.experts[one.key].repository, expert(one.key, number))
    for one in (*experiment.tasks, *experiment.outside):
        if one.prompts in data:
            hub.add("dataset", one.repository, data[one.prompts], license="mit" if one.key == "mnist" else None)


def data_sets(root, keys: Iterator[str]) -> dict[str, object]:  # type: ignore[no-untyped-def]
    """The folders of miniature data sets, written once."""
    return {key: published_layouts.WRITERS[key](root) for key in keys}
