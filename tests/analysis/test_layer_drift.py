"""Drift layer by layer of networks other than CLIP, from files of layer inputs, against forward hooks."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from small_networks import batches, small
from torch import Tensor, nn

import merging
from merging.base.errors import NeedsError, TaskError
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study import measure
from merging.study.analysis import measurement_store
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

DATA = {"a": slice(0, 2), "b": slice(1, 4)}  # which batches an expert saw


def made(kind: str, folder: Path) -> tuple[dict[str, nn.Module], dict[str, str]]:
    """A pretrained network and two experts, in files, with files of their layer inputs."""
    models, files, draw = {"base": small(kind).eval()}, {}, torch.Generator().manual_seed(3)
    for name in DATA:
        models[name] = small(kind).eval()
        with torch.no_grad():
            for weight in models[name].parameters():
                weight.add_(0.1 * torch.randn(weight.shape, generator=draw))
    for name, model in models.items():
        files[name] = str(folder / f"{name}.safetensors")
        own = {key for key, _ in model.named_parameters()}  # tied ones once
        save_file({key: value.contiguous() for key, value in model.state_dict().items() if key in own}, files[name])
    for name, some in DATA.items():
        # few rows stay rows, all of them become Gram matrices
        rows = merging.capture(models[name], batches(kind, 4)[some], like=files[name], tokens=None)
        files[f"{name} rows"] = str(folder / f"{name}.rows.safetensors")
        merging.save_layer_inputs(files[f"{name} rows"], rows)
    return models, files


def given(files: dict[str, str]) -> dict[str, str]:
    return {name: files[f"{name} rows"] for name in DATA}


def merged_run(files: dict[str, str], store: Store, merge: str, keep_model: bool = True) -> Run:
    rows = given(files) if merge == "lot" else {}
    recipe = Recipe.build(merge, pretrained=files["base"], experts={name: files[name] for name in DATA},
                          **({"layer_inputs": rows} if rows else {}))  # fmt: skip
    return execute(recipe, store, evaluate=False, keep_model=keep_model, context=Context(device="cpu"))


def by_hooks(expert: nn.Module, merged: dict[str, Tensor], given: list[dict[str, Tensor]]) -> dict[str, Any]:
    """{tensor: (squared drift, squared output, size)} for every layer with a weight, from hooks on an expert."""
    found: dict[str, Any] = {}

    def hook(name: str, layer: nn.Module, inputs: tuple[Tensor, ...], y: Tensor) -> None:
        own = {part: value for part, value in layer.named_parameters(recurse=False) if f"{name}.{part}" in merged}
        if busy or not own:
            return
        busy.append(name)  # what follows calls the hook once more
        for part, value in own.items():
            moved = torch.func.functional_call(layer, {part: merged[f"{name}.{part}"].to(value)}, (inputs[0],))
            sums = np.array([(moved - y).double().square().sum(), y.double().square().sum(), y.numel()], float)
            found[f"{name}.{part}"] = found.get(f"{name}.{part}", 0) + sums
        busy.clear()

    busy: list[str] = []
    layers = {name: m for name, m in expert.named_modules() if type(m).__name__ in {"Linear", "Conv1D", "LayerNorm"}}
    handles = [layer.register_forward_hook(partial(hook, name)) for name, layer in layers.items()]
    with torch.no_grad():
        for batch in given:
            expert(**batch)
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.full
@pytest.mark.parametrize("kind", ["t5", "bert", "gpt2"])
def test_it_is_what_hooks_see(kind: str, tmp_path: Path) -> None:
    models, files = made(kind, tmp_path)
    store = Store(tmp_path / "store", libraries=())
    run = merged_run(files, store, "lot", keep_model=kind != "t5")
    merged = merging.merge(files["base"], {name: files[name] for name in DATA}, "lot", layer_inputs=given(files),
                           device="cpu").state_dict  # fmt: skip
    found = measure.measure("layer_drift", store, Benchmark.load(), run.id, context=Context(device="cpu"))
    isolated = found.table("isolated").set_index(["tensor", "task"])
    seen = {name: by_hooks(models[name], merged, batches(kind, 4)[some]) for name, some in DATA.items()}
    compared = [name for name in seen["a"] if (name, "a") in isolated.index]
    linear = [name for name, layer in models["a"].named_modules() if type(layer).__name__ in {"Linear", "Conv1D"}]
    assert {f"{name}.weight" for name in linear if "lm_head" not in name} <= set(compared)
    assert kind == "t5" or any(name.endswith("bias") for name in compared)
    for name in compared:
        for task, hooks in seen.items():
            squared, output, size = hooks[name]
            row = isolated.loc[name, task]
            np.testing.assert_allclose(row["relative"], np.sqrt(squared / output), rtol=2e-3, atol=1e-6)
            np.testing.assert_allclose(row["mean_square"], squared / size, rtol=4e-3, atol=1e-9)
    lot = store.get_run(run.id).table("lot").set_index("tensor")
    objective = found.table("objective").set_index("tensor").loc[lot.index]
    np.testing.assert_allclose(objective["least"], lot["drift"], rtol=1e-5)
    np.testing.assert_allclose(objective["pretrained"], lot["drift_zero"], rtol=1e-5)
    total = sum(hooks[compared[0]][0] for hooks in seen.values())
    np.testing.assert_allclose(
        found.table("objective").set_index("tensor").loc[compared[0], "merged"], total, rtol=4e-3
    )


def test_files_can_be_given_for_a_run_whose_recipe_names_none(tmp_path: Path, capsys: Any) -> None:
    _, files = made("bert", tmp_path)
    store = Store(tmp_path / "store", libraries=())
    run, benchmark = merged_run(files, store, "ties"), Benchmark.load()
    with pytest.raises(TaskError, match="The recipe of this run names no layer inputs"):
        measure.measure("layer_drift", store, benchmark, run.id)
    with pytest.raises(TaskError, match="needed of every expert; there are none of b"):
        measure.measure("layer_drift", store, benchmark, run.id, layer_inputs={"a": files["a rows"]})
    with pytest.raises(NeedsError, match=r"a: .* is not a file of layer inputs"):
        measure.measure("layer_drift", store, benchmark, run.id, layer_inputs=given(files) | {"a": files["a"]})
    words = ["measure", "layer_drift", run.id, "--store", str(store.root), "--json"]
    swapped = [f"--layer-inputs=a={files['b rows']}", f"--layer-inputs=b={files['a rows']}"]
    assert main([*words, *swapped]) == 0
    other = json.loads(capsys.readouterr().out)
    assert [text.split(":")[0] for text in other["notes"]["doubts"]] == ["a", "b"]
    assert main([*words, *(f"--layer-inputs={name}={file}" for name, file in given(files).items())]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["notes"]["doubts"] == [] and facts["notes"]["files"] == {
        "a": "a.rows.safetensors",
        "b": "b.rows.safetensors",
    }
    found = measurement_store.find_measurement_result("layer_drift", store, benchmark, run.id)
    assert found is not None and found.table("objective").to_dict("records") == facts["tables"]["objective"]
    assert facts["tables"]["objective"] != other["tables"]["objective"]
    assert main(["measure", "drift", run.id, "--store", str(store.root), swapped[0]]) == 2
