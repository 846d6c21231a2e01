"""Exact cases of the merges that learn, through the public API: states, coefficients, entropies, losses and masks."""

from __future__ import annotations

import hashlib

import devices
import golden_adapt
import pandas as pd
import pytest
import torch
from golden_adapt import CASES, TASKS

LEARNED = [name for name, case in CASES.items() if case["adapt"] is None and case["merge"] != "task_arithmetic"]
CHAINS = {  # written once more: a case that is lost fails by name
    "adamerging_tensor", "adamerging_task", "adamerging_paper_lr", "adamerging_zero_steps", "adamerging_batches",
    "adamerging_clamped", "adamerging_projected", "adamerging_free", "adamerging_pp", "lwptv_adamerging",
    "lwptv_adamerging_task", "lwptv_adamerging_pp", "localize_magnitude", "localize_learned", "localize_released",
    "magnitude_localize",
}  # fmt: skip
DIGEST = "952d65c98472d95b1b611def7e467493fdaf629fbb3c858327c392e3f082b8b2"  # of all files of these cases
FLOAT64, FLOAT32 = (torch.float64, 1e-8, 1e-8), (torch.float32, 2e-4, 5e-4)  # tolerances of states and of what is seen


def test_no_case_is_lost_and_no_file_has_changed() -> None:
    assert set(LEARNED) == CHAINS
    files = {file for name in LEARNED for file in CASES[name]["expect"].values()}
    models = {"pretrained.safetensors", *(f"expert_{task}.safetensors" for task in TASKS)}
    files |= models | {f"data_{task}.safetensors" for task in TASKS}
    whole = hashlib.sha256()
    for file in sorted(files):
        whole.update(f"{file} {hashlib.sha256((golden_adapt.GOLDEN / file).read_bytes()).hexdigest()}\n".encode())
    assert whole.hexdigest() == DIGEST


@pytest.mark.parametrize("device,tolerances", devices.cross_with_devices(FLOAT64, FLOAT32))
@pytest.mark.parametrize("name", LEARNED)
def test_exact_cases(name: str, device: str, tolerances: tuple[torch.dtype, float, float]) -> None:
    dtype, of_state, of_trace = tolerances
    result, expected = golden_adapt.run(name, dtype, device=device), golden_adapt.trace(name)
    assert golden_adapt.distance(result.state_dict, name) <= of_state
    if "coefficients" in expected:
        _check_coefficients(result.tables, expected, CASES[name]["params"], of_trace)
    if "losses" in expected:
        assert golden_adapt.relative_distance(_by_task(result.tables["learning"]), expected["losses"]) <= of_trace
    if "masks" in expected:
        kept = result.tables["localization"].pivot(index="expert", columns="tensor", values="kept")
        counts = torch.stack([piece.sum(dim=1) for piece in expected["masks"].split(_numels(), dim=1)], dim=1)
        found = torch.tensor(kept.loc[TASKS, golden_adapt.MANIFEST["tensor_order"]].to_numpy())
        assert int((found - counts).abs().sum()) <= (0 if dtype == torch.float64 else 5)


def _numels() -> list[int]:
    base = golden_adapt.load("pretrained")
    return [base[name].numel() for name in golden_adapt.MANIFEST["tensor_order"]]


def _by_task(learning: pd.DataFrame) -> torch.Tensor:
    """Losses (K, steps)."""
    return torch.tensor(learning.pivot(index="expert", columns="step", values="loss").loc[TASKS].to_numpy())


def _check_coefficients(tables: dict[str, pd.DataFrame], expected: dict, params: dict, tolerance: float) -> None:
    """Of every tenth step and of the last, and those of the merge, which are shrunk; a pruned tensor has none."""
    coefficients, steps = expected["coefficients"], params["steps"]
    names = golden_adapt.MANIFEST["tensor_order"] if coefficients.shape[2] > 1 else [""]
    final, history = tables["coefficients"], tables["coefficient_steps"]
    assert list(final.columns) == ["expert", "tensor", "order", "part", "coefficient", "pruned"]
    assert list(final["expert"].unique()) == TASKS and len(final) == len(TASKS) * len(names)
    shape = (len(TASKS), -1)
    pruned = torch.tensor(final["pruned"].to_numpy()).reshape(shape)[0]
    order = [names.index(name) for name in final["tensor"][: len(names)]]
    live = [at for at, gone in zip(order, pruned.tolist(), strict=True) if not gone]
    assert final["coefficient"].isna().tolist() == final["pruned"].tolist()
    shrunk = torch.tensor(final["coefficient"].to_numpy()).reshape(shape)[:, ~pruned]
    assert golden_adapt.relative_distance(shrunk, params.get("shrink", 1.0) * coefficients[-1][:, live]) <= tolerance
    assert sorted(history["step"].unique()) == sorted({*range(0, steps, 10), steps})
    for step, rows in history.groupby("step"):
        values = torch.tensor(rows["coefficient"].to_numpy()).reshape(shape)
        assert golden_adapt.relative_distance(values, coefficients[step][:, live]) <= tolerance
    if steps:
        assert golden_adapt.relative_distance(_by_task(tables["learning"]).T, expected["entropy"]) <= tolerance


def test_pruned_tensors_keep_the_pretrained_bits() -> None:
    base, result = golden_adapt.load("pretrained"), golden_adapt.run("lwptv_adamerging")
    table = result.tables["coefficients"]
    pruned, used = set(table.query("pruned")["tensor"]), set(table.query("coefficient > 0")["tensor"])
    assert len(pruned) == 20 and used
    assert {name for name, value in base.items() if not torch.equal(result.state_dict[name], value)} == used
