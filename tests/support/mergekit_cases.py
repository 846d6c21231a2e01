"""Configs of mergekit, the models that they merge, and mergekit's own results, which are stored as numbers.

``python tests/support/mergekit_cases.py`` writes the results anew, with mergekit 0.1.5 installed beside torch:
``pip install --target SOMEWHERE --no-deps mergekit==0.1.5 immutables sentencepiece`` and PYTHONPATH=SOMEWHERE. Tests do
not need mergekit.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import load_file, save_file

FILE = Path(__file__).resolve().parent.parent / "recipes" / "mergekit_cases.safetensors"
BLOCKS = 3
SHAPES = {
    "visual.class_embedding": (4,),
    "visual.conv1.weight": (4, 3, 2, 2),
    **{
        f"visual.transformer.resblocks.{block}.{name}": shape
        for block in range(BLOCKS)
        for name, shape in (
            ("ln_1.weight", (4,)), ("attn.in_proj_weight", (12, 4)),
            ("mlp.c_fc.weight", (6, 4)), ("mlp.c_fc.bias", (6,)),
        )
    },
    "visual.proj": (4, 3),
}  # fmt: skip
SIZES = [int(np.prod(shape)) for shape in SHAPES.values()]
MASK = "mask"
THREE = """
base_model: base
models: [{model: a}, {model: b}, {model: c}]
"""
WEIGHTED = """
base_model: base
models:
- {model: a, parameters: {weight: 0.5, density: 0.6}}
- {model: b, parameters: {weight: 1.25, density: 0.3}}
- {model: c, parameters: {weight: -0.25}}
"""
LAYERED = """
base_model: base
models:
- model: a
  parameters: {weight: [0.25, 1.0], density: [{filter: mlp, value: 0.5}, {filter: attn, value: [0.2, 0.9]}]}
- model: b
  parameters: {weight: [{filter: attn, value: 0.75}, {value: 0.5}]}
- {model: base}
"""
PAIR = "base_model: base\nmodels: [{model: a}]\n"
CONFIGS = {
    "linear": "merge_method: linear\nmodels: [{model: a, parameters: {weight: 0.5}}, {model: b, parameters: "
    "{weight: 1}}, {model: c, parameters: {weight: 0.25}}]",
    "linear_base": f"merge_method: linear{THREE}parameters: {{weight: [1.0, 3.0]}}",
    "linear_sum": "merge_method: linear\nbase_model: base\nmodels: [{model: a, parameters: {weight: 0.5}}, "
    "{model: base, parameters: {weight: 0.5}}]\nparameters: {normalize: false}",
    "task_arithmetic": f"merge_method: task_arithmetic{WEIGHTED}parameters: {{lambda: 0.75}}",
    "task_arithmetic_mean": f"merge_method: task_arithmetic{LAYERED}parameters: {{normalize: true, weight: 1}}",
    "ties": f"merge_method: ties{WEIGHTED}parameters: {{density: 0.5}}",
    "ties_equal": f"merge_method: ties{THREE}parameters: {{weight: 0.4, density: 0.4, lambda: 1.5, rescale: true}}",
    "ties_sum": f"merge_method: ties{WEIGHTED}parameters: {{normalize: false, int8_mask: true, lambda: [0.5, 1.5]}}",
    "ties_layers": f"merge_method: ties{LAYERED}parameters: {{weight: 1, density: 0.2}}",
    "dare_linear": f"merge_method: dare_linear{WEIGHTED}parameters: {{density: 0.5}}",
    "dare_ties": f"merge_method: dare_ties{THREE}parameters: {{weight: 0.5, density: 0.6}}",
    "dare_ties_mean": f"merge_method: dare_ties{WEIGHTED}parameters: {{rescale: false, normalize: true}}",
    "della": f"merge_method: della{THREE}parameters: {{weight: 0.5, density: 0.5, epsilon: 0.2}}",
    "della_linear": f"merge_method: della_linear{THREE}parameters: {{weight: 0.5, density: 0.7, rescale: false}}",
    "breadcrumbs": f"merge_method: breadcrumbs{WEIGHTED}parameters: {{density: 0.7, gamma: 0.1}}",
    "breadcrumbs_ties": f"merge_method: breadcrumbs_ties{LAYERED}parameters: {{weight: 1, gamma: 0.2, rescale: true}}",
    "model_stock": f"merge_method: model_stock{THREE}",
    "model_stock_two": "merge_method: model_stock\nbase_model: base\nmodels: [{model: a}, {model: opposite}]",
    "sce": f"merge_method: sce{THREE}",
    "sce_select": f"merge_method: sce{THREE}parameters: {{select_topk: 0.4}}",
    "slerp": f"merge_method: slerp\n{PAIR}parameters: {{t: 0.3}}",
    "slerp_layers": f"merge_method: slerp\n{PAIR}parameters: {{t: [{{filter: attn, value: [0, 0.5, 0.3, 0.7, 1]}}, "
    "{filter: mlp, value: [1, 0.5, 0]}, {value: 0.5}]}",
    "nuslerp": "merge_method: nuslerp\nmodels: [{model: a, parameters: {weight: 1}}, "
    "{model: b, parameters: {weight: 3}}]",
    "nuslerp_rows": "merge_method: nuslerp\nbase_model: base\nmodels: [{model: a, parameters: {weight: 1}}, "
    "{model: b, parameters: {weight: 1}}]\nparameters: {nuslerp_flatten: false}",
    "nuslerp_columns": "merge_method: nuslerp\nbase_model: base\nmodels: [{model: a, parameters: {weight: 2}}, "
    "{model: b, parameters: {weight: 1}}]\nparameters: {nuslerp_flatten: false, nuslerp_row_wise: true}",
    "karcher": "merge_method: karcher\nmodels: [{model: a}, {model: b}, {model: c}]",
    "karcher_base": f"merge_method: karcher{THREE}parameters: {{max_iter: 20, tol: 1e-6}}",
}


def make_models() -> dict[str, dict[str, torch.Tensor]]:
    """{model: its tensors}, float32; small changes in the biases, as of a gentle fine-tuning."""
    rng = np.random.default_rng(5)
    states: dict[str, dict[str, torch.Tensor]] = {}
    for model in ("base", "a", "b", "c"):
        scale = {name: 1.0 if model == "base" else 1e-4 if "bias" in name else 0.3 for name in SHAPES}
        changes = {name: rng.standard_normal(shape) * scale[name] for name, shape in SHAPES.items()}
        states[model] = {
            name: torch.from_numpy(value).float() + (states["base"][name] if states else 0)
            for name, value in changes.items()
        }
    # Partly against a, so that the cosines are negative.
    states["opposite"] = {
        name: base - 0.5 * (states["a"][name] - base) + 0.5 * (states["b"][name] - base)
        for name, base in states["base"].items()
    }
    return states


def load_results() -> dict[str, torch.Tensor]:
    """mergekit's results: {"case/tensor": (*S)} and, of random cases, {"case/mask/tensor/model": (*S)}."""
    return {
        key.replace("/", f"/{MASK}/{name}/", 1) if "/" in key else f"{key}/{name}": piece.reshape(SHAPES[name])
        for key, flat in load_file(FILE).items()
        for name, piece in zip(SHAPES, flat.split(SIZES), strict=True)
    }


# --- making the results, with mergekit -------------------------------------------------------------------------------


class _Stand(types.ModuleType):
    """Any module that mergekit imports and merging tensors does not need."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return {} if name.endswith("MAPPING_NAMES") else _Empty(name, (), {})


class _Empty(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: {}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in ("transformers", "peft", "datasets", "tokenizers"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Stand(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def merge_by_mergekit(text: str, states: dict[str, dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """{"": the result of mergekit's own functions for a config, "/model": the masks that it drew}, as in the file."""
    from mergekit import merge_methods
    from mergekit.config import (
        ConfigReader,
        InputSliceDefinition,
        MergeConfiguration,
        OutputModuleDefinition,
        OutputSliceDefinition,
    )
    from mergekit.merge_methods.api import merge_tensors
    from mergekit.parameter_resolver import resolve_parameters

    config = MergeConfiguration.model_validate(yaml.safe_load(text))
    method, base = merge_methods.get(config.merge_method), config.base_model
    sources = [
        InputSliceDefinition(layer_range=[0, BLOCKS], model=m.model, parameters=m.parameters) for m in config.models
    ]
    if base and base not in [source.model for source in sources]:
        sources.append(InputSliceDefinition(layer_range=[0, BLOCKS], model=base))
    models = [source.model for source in sources]
    method.validate_inputs(models, base)
    piece = OutputSliceDefinition(sources=sources)
    reader = ConfigReader(config=config, t=0, slice_out=piece, module=OutputModuleDefinition(slices=[piece]))
    pieces: dict[str, list[torch.Tensor]] = {}
    for name in SHAPES:
        block = name.split(".")[3] if ".resblocks." in name else ""
        shared, by_model = resolve_parameters(
            method.spec, tensor_name=name, inputs=dict.fromkeys(models, name), sources=reader.parameter_sources,
            base_model=base, t=int(block) / (BLOCKS - 1) if block else 0,
        )  # fmt: skip
        per_input: dict[str, dict[Any, Any]] = {}
        for model, values in by_model.items():
            for parameter, value in values.items():
                per_input.setdefault(parameter, {})[model] = value
        draws: list[torch.Tensor] = []
        with_draws = _recorded(draws)
        tensors = [states[str(model)][name].clone() for model in models]
        index = models.index(base) if base else None
        try:
            merged = merge_tensors(
                tensors, method, parameters={**shared, **per_input}, ids=models, base_index=index, name=name
            )
        finally:
            torch.bernoulli = with_draws
        pieces.setdefault("", []).append(merged)
        drawn = [m for m in models if m != base and per_input.get("density", {}).get(m, 1) < 1] if draws else []
        for model, mask in zip(drawn, draws, strict=True):
            pieces.setdefault(f"/{model}", []).append(mask.to(torch.uint8))
    return {key: torch.cat([piece.flatten() for piece in rows]) for key, rows in pieces.items()}


def _recorded(draws: list[torch.Tensor]) -> Any:
    """Let torch.bernoulli add its masks to ``draws``; returns the function to put back."""
    original = torch.bernoulli

    def draw(probabilities: torch.Tensor) -> torch.Tensor:
        mask = original(probabilities)
        draws.append(mask.clone())
        return mask

    torch.bernoulli = draw
    return original


if __name__ == "__main__":
    sys.meta_path.insert(0, _Finder())
    torch.manual_seed(7)
    found = {
        f"{case}{key}": value.contiguous()
        for case, text in CONFIGS.items()
        for key, value in merge_by_mergekit(text, make_models()).items()
    }
    save_file(found, FILE)
    print(len(found), "tensors,", FILE.stat().st_size, "bytes")
