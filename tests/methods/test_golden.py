"""Golden vectors: small float64 checkpoints and the exact merged result of each case, through the public API."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import devices
import pytest
import torch
from safetensors.torch import load_file

import merging
from merging.base.numerics import eigen
from merging.methods import registry
from merging.study.measurements.signs import count_votes, mean_agreement

GOLDEN = Path(__file__).parents[1] / "golden"
MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())
CASES = {case["name"]: case for case in MANIFEST["cases"]}
# Every case and its chain, written once more: one that is lost, or whose method is no longer registered, fails by name.
CHAINS = {
    "weight_average": "weight_average",
    "task_arithmetic": "task_arithmetic",
    "ties_sum": "ties",
    "ties_mean": "ties",
    "ties_tensor": "ties",
    "ties_dense": "ties",
    "consensus": "consensus",
    "pcb": "pcb",
    "model_stock": "model_stock",
    "emr": "emr",
    "regmean": "regmean",
    "lot": "lot",
    "drm_horizontal": "drm",
    "drm_vertical": "drm",
    "drm_no_renorm": "drm",
    "lwptv_ta": "lwptv > task_arithmetic",
    "lwptv_own_masks_ta": "lwptv > task_arithmetic",
    "lwptv_mean_abs_ta": "lwptv > task_arithmetic",
    "lwptv_ties": "lwptv > ties",
    "lwptv_pcb": "lwptv > pcb",
    "pwptv_ta": "lwptv > task_arithmetic",
    "magnitude_ta": "magnitude > task_arithmetic",
    "wise_ft_ta": "wise_ft > task_arithmetic",
    "lines_ta": "lines > task_arithmetic",
    "cat_ta": "cat > task_arithmetic",
    "cat_ties": "cat > ties",
    "awd_ta": "awd > task_arithmetic",
    "tsv_m": "tsv_m",
    "tsv_m_half_rank": "tsv_m",
    "iso_c": "iso_c",
    "iso_cts": "iso_cts",
    "iso_cts_half": "iso_cts",
    "wudi": "wudi",
    "wudi_far": "wudi",
    "lwptv_tsv_m": "lwptv > tsv_m",
    "lwptv_wudi": "lwptv > wudi",
}
DIGEST = "c4d6605b96aeb0c4305200cfe4b9b40734884c08d0f4b350d103a5c02976af40"  # of all files
NONE = {  # methods without a case, and what holds them
    "dare": "draws: test_edits.py",
    "random_mask": "draws: test_edits.py",
    "tatr": "gradients: test_tatr.py",
    "breadcrumbs": "test_breadcrumbs.py",
    "trim": "test_trim.py",
    "fisher": "gradients: test_fisher.py",
    "adamerging": "test_golden_adapt.py",
    "localize_and_stitch": "test_golden_adapt.py",
    "regmean_pp": "test_regmean_pp.py",
    "sce": "test_merges_elementwise.py",
    "slerp": "test_arcs.py",
    "nuslerp": "test_arcs.py",
    "karcher": "test_arcs.py",
    "knots": "test_joint_bases.py",
    "core_space": "test_joint_bases.py",
    "della": "test_della.py",
    "manual": "our own: test_manual.py",
    "mass": "test_mass.py",
    "surgery": "learns: test_golden_modules.py",
    "wemoe": "learns: test_golden_modules.py",
    "twin": "learns: test_golden_modules.py",
}


def _load(name: str) -> dict[str, torch.Tensor]:
    return load_file(GOLDEN / f"{name}.safetensors")


@pytest.fixture(scope="module")
def inputs():
    experts = MANIFEST["experts"]
    return _load("pretrained"), {e: _load(f"expert_{e}") for e in experts}, {e: _load(f"inputs_{e}") for e in experts}


def test_every_expected_result_belongs_to_a_case():
    assert {name: chain(case) for name, case in CASES.items()} == CHAINS
    expected = sorted(file for case in CASES.values() for file in case["expect"])
    assert expected == sorted(path.name for path in GOLDEN.glob("expect_*"))


def chain(case: dict[str, Any]) -> str:
    return " > ".join([*(key for key, _ in case["edits"]), case["merge"]])


def test_no_file_has_changed():
    whole = hashlib.sha256()
    for path in sorted(GOLDEN.glob("*.*")):
        whole.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    assert whole.hexdigest() == DIGEST


def test_every_method_has_a_case_or_a_reason():
    """By the files of methods, which are there even where a registration is not."""
    rooms = [Path(merging.__file__).parent / "methods" / room for room in ("edits", "merges", "adapts")]
    keys = {path.stem for room in rooms for path in room.glob("*.py")} - {"__init__"}
    having = {registry.ALIASES.get(key, key) for text in CHAINS.values() for key in text.split(" > ")}
    assert keys - having == set(NONE)


@pytest.mark.parametrize("device,rounding", devices.cross_with_devices((torch.float64, 1e-9), (torch.float32, 1e-4)))
@pytest.mark.parametrize("name", CHAINS)
def test_golden(name, device, rounding, inputs):
    dtype, tolerance = rounding
    check(name, merged(name, inputs, dtype, device), tolerance, inputs)


@pytest.mark.full
@pytest.mark.parametrize("name", CHAINS)
def test_golden_by_lapack_with_one_thread_and_with_several_layers_at_once(name, inputs, monkeypatch):
    monkeypatch.setattr(eigen, "LAPACK_MIN_SIDE", 4)  # of which these small matrices are left out otherwise
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append(merged(name, inputs))
    finally:
        torch.set_num_threads(before)
    for result in results:
        check(name, result, 1e-9, inputs)
        states = result.task_state_dicts or {"merged": result.state_dict}
        first = results[0].task_state_dicts or {"merged": results[0].state_dict}
        assert all(torch.equal(state[n], first[key][n]) for key, state in states.items() for n in state)


def merged(name, inputs, dtype=torch.float64, device="cpu"):
    """A case's chain on its inputs."""
    case, (pretrained, experts, layer_inputs) = CASES[name], inputs
    cast = {name: {n: t.to(dtype) for n, t in expert.items()} for name, expert in experts.items()}
    return merging.merge(
        {n: t.to(dtype) for n, t in pretrained.items()},
        cast,
        merge=case["merge"],
        params=case["params"],
        edits=[(key, params) for key, params in case["edits"]],
        layer_inputs=layer_inputs if case["needs_layer_inputs"] else None,
        device=device,
    )


def check(name, result, tolerance, inputs):
    """Compare a result with what is expected, as a share of the change to the pretrained model."""
    states, pretrained = result.task_state_dicts or {"merged": result.state_dict}, inputs[0]
    for state, file in zip(states.values(), CASES[name]["expect"], strict=True):
        expect = _load(file.removesuffix(".safetensors"))
        assert list(state) == list(pretrained)
        difference = sum(((state[n].double() - expect[n]) ** 2).sum() for n in expect) ** 0.5
        change = sum(((expect[n] - pretrained[n]) ** 2).sum() for n in expect) ** 0.5
        assert difference <= tolerance * max(change, 1e-12)


def test_golden_tables_of_lwptv(inputs):
    """Scores (K, L), each expert's mask and the shared one, in the order of the manifest."""
    pretrained, experts, _ = inputs
    expect, order = _load("lwptv_tables"), MANIFEST["tensor_order"]
    result = merging.merge(pretrained, experts, "task_arithmetic", edits=["lwptv"], device="cpu")
    rows = result.tables["saliency"].set_index(["expert", "tensor"])
    for k, expert in enumerate(experts):
        own = rows.loc[[(expert, tensor) for tensor in order]]
        torch.testing.assert_close(torch.tensor(own["saliency"].to_numpy()), expect["scores"][k], rtol=1e-9, atol=0)
        assert own["kept"].tolist() == expect["masks"][k].bool().tolist()
        assert own["final"].tolist() == expect["shared"].bool().tolist()


def test_golden_agreement_of_signs(inputs):
    """Over all positions of all tensors."""
    pretrained, experts, _ = inputs
    vectors = [torch.cat([(expert[n] - pretrained[n]).flatten() for n in pretrained]) for expert in experts.values()]
    mean = mean_agreement(count_votes(torch.stack(vectors))).mean
    assert mean == pytest.approx(MANIFEST["sign_agreement_mean"], rel=1e-12)
