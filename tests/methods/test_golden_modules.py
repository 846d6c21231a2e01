"""Exact cases of the adapts, through the public API: merged states, learned modules, features, routing and losses."""

from __future__ import annotations

import hashlib

import devices
import golden_adapt
import pytest
import torch
from golden_adapt import CASES, TASKS

ADAPTED = {name for name, case in CASES.items() if case["adapt"]}
CHAINS = {  # written once more: a case that is lost fails by name
    "ta_surgery", "ta_surgery_batches", "adamerging_surgery", "ta_wemoe", "ta_wemoe_image", "ta_wemoe_one_layer",
    "ta_wemoe_constant", "lwptv_ta_wemoe_efficient", "ta_twin", "ties_twin",
}  # fmt: skip
DIGEST = "36436b4436c02d6c6443132219fd9e00b5f45a973228e7b641084ea76be894b0"  # of all files of these cases
# Tolerances of states, of losses and outputs, and of modules.
FLOAT64, FLOAT32 = (torch.float64, 1e-8, 1e-8, 1e-6), (torch.float32, 2e-4, 5e-4, 5e-3)


def test_no_case_is_lost_and_no_file_has_changed() -> None:
    assert ADAPTED == CHAINS
    whole = hashlib.sha256()
    for file in sorted({file for name in ADAPTED for file in CASES[name]["expect"].values()}):
        whole.update(f"{file} {hashlib.sha256((golden_adapt.GOLDEN / file).read_bytes()).hexdigest()}\n".encode())
    assert whole.hexdigest() == DIGEST


@pytest.mark.parametrize("device,tolerances", devices.cross_with_devices(FLOAT64, FLOAT32))
@pytest.mark.parametrize("name", sorted(CHAINS))
def test_exact_cases(name: str, device: str, tolerances: tuple[torch.dtype, float, float, float]) -> None:
    dtype, of_state, of_outputs, of_modules = tolerances
    result, images = golden_adapt.run(name, dtype, device=device), golden_adapt.images(dtype)
    modules, outputs = result.modules, golden_adapt.load(f"expect_{name}.outputs")
    assert golden_adapt.distance(result.state_dict, name) <= of_state
    learned = golden_adapt.load(f"expect_{name}.modules")
    assert {key: tuple(modules.tensors[key].shape) for key in learned} == {
        k: tuple(v.shape) for k, v in learned.items()
    }
    assert all(
        golden_adapt.relative_distance(modules.tensors[key].double(), value) <= of_modules
        for key, value in learned.items()
    )
    for k, task in enumerate(TASKS):
        found = {
            "features": modules.features(images[task].images, task),
            "routing": modules.routing(images[task].images),
        }
        if f"own.{task}" in outputs:
            one_hot = torch.eye(len(TASKS))[k].expand(len(images[task].images), -1)
            found["own"] = modules.mixed_features(images[task].images, one_hot)
        for what, value in found.items():
            assert (value is None) == (f"{what}.{task}" not in outputs)
            if value is not None:
                assert value.dtype == dtype
                assert golden_adapt.relative_distance(value.double(), outputs[f"{what}.{task}"]) <= of_outputs
    _check_losses(result.tables, golden_adapt.trace(name), of_outputs)


def _check_losses(tables, expected, tolerance: float) -> None:
    """The loss of every step: of each task, or of the one router."""
    own = tables["learning_adapt"] if "coefficients" in expected else tables["learning"]
    rows = {expert: torch.tensor(rows["loss"].to_numpy()) for expert, rows in own.groupby("expert")}
    if "losses" in expected:
        assert golden_adapt.relative_distance(rows["router"], expected["losses"]) <= tolerance
        return
    for k, task in enumerate(TASKS):
        of_task = expected.get(f"losses.{task}")
        of_task = expected["entropy"][:, k] if of_task is None else of_task
        assert golden_adapt.relative_distance(rows[task], of_task) <= tolerance
