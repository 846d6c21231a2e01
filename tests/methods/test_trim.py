"""The edit "trim": exact cases, what it gives before task arithmetic, and its election by plain arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import common_checks
import pytest
import torch
from safetensors.torch import load_file

import merging

GOLDEN = Path(__file__).parents[1] / "golden" / "adapt"
MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())
State = dict[str, torch.Tensor]


def merged(base: State, experts: dict[str, State], edits: list[Any], merge: str = "task_arithmetic", **params: Any):
    return merging.merge(base, experts, merge, params, edits, device="cpu")


def flat(base: State, state: State) -> torch.Tensor:
    return torch.cat([(state[n] - base[n]).flatten() for n in base])


@pytest.mark.parametrize("name,trim", [("trim_ta", {"density": 0.2}), ("trim_unelected_ta", {"density": 0.4})])
@pytest.mark.parametrize("dtype,tolerance", [(torch.float64, 1e-9), (torch.float32, 2e-4)])
def test_exact_cases(name: str, trim: dict[str, Any], dtype: torch.dtype, tolerance: float) -> None:
    (case,) = (case for case in MANIFEST["cases"] if case["name"] == name)
    base, expect = load_file(GOLDEN / "pretrained.safetensors"), load_file(GOLDEN / f"expect_{name}.safetensors")
    experts = {task: load_file(GOLDEN / f"expert_{task}.safetensors") for task in MANIFEST["experts"]}
    assert case["edits"][0][1]["density"] == trim["density"]
    cast = {task: {n: v.to(dtype) for n, v in state.items()} for task, state in experts.items()}
    low = {n: v.to(dtype) for n, v in base.items()}
    state = merged(low, cast, [tuple(edit) for edit in case["edits"]], case["merge"], **case["params"]).state_dict
    difference = torch.cat([(state[n].double() - v).flatten() for n, v in expect.items()]).norm()
    assert difference <= tolerance * flat(base, expect).norm()


@pytest.mark.parametrize("density", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("scaling", [0.3, 1.0])
@pytest.mark.parametrize("experts", [1, 2, 3])
def test_before_task_arithmetic_it_is_ties(density: float, scaling: float, experts: int) -> None:
    """Bit for bit."""
    base, tuned = common_checks.family(experts=experts)
    edited = merged(base, tuned, [("trim", {"density": density})], scaling=scaling).state_dict
    ties = merged(base, tuned, [], "ties", density=density, scaling=scaling).state_dict
    assert all(torch.equal(edited[n], ties[n]) for n in base)


@pytest.mark.parametrize("way", [1, -1])
def test_ties_of_signs_go_as_in_ties(way: int) -> None:
    """Equal scalars of opposite signs take the majority sign of the whole model, whichever it is."""
    base, tuned = common_checks.family(experts=1)
    (expert,) = tuned.values()
    half = {
        n: torch.where(torch.arange(v.numel()).reshape(v.shape) % 3 == 0, 2 * base[n] - v, v) for n, v in expert.items()
    }
    grid = {
        e: {n: base[n] + way * ((s[n] - base[n]) * 64).round() / 64 for n in base}
        for e, s in {"a": expert, "b": half}.items()
    }
    edited = merged(base, grid, [("trim", {"density": 0.7})], scaling=1.0).state_dict
    ties = merged(base, grid, [], "ties", density=0.7, scaling=1.0).state_dict
    assert flat(base, edited).norm() > 0 and all(torch.equal(edited[n], ties[n]) for n in base)


@pytest.mark.parametrize("elect", [True, False])
def test_every_expert_keeps_its_own_scalars(elect: bool) -> None:
    """By the plain rule, each expert alone read off a merge per task: no mean, no sum."""
    base, tuned = common_checks.family()
    vectors = torch.stack([flat(base, state) for state in tuned.values()])
    limits = vectors.abs().sort(dim=1).values[:, vectors.shape[1] - int(vectors.shape[1] * 0.3) - 1]
    kept = vectors * (vectors.abs() >= limits[:, None])
    expected = kept * (kept * kept.sum(dim=0).sign() > 0) if elect else kept
    edits = [("trim", {"density": 0.3, "elect": elect})]
    result = merged(base, tuned, edits, "weight_averaging")
    assert torch.allclose(flat(base, result.state_dict), expected.mean(dim=0), rtol=0, atol=1e-12)
    if elect:  # no signs differ any more, so EMR's masks are those of the edited task vectors
        own = merged(base, tuned, edits, "emr").task_state_dicts
        assert own is not None
        for row, state in zip(expected, own.values(), strict=True):
            assert torch.equal(flat(base, state).sign(), row.sign())
    table = result.tables["trim_thresholds"]
    assert table["threshold"].to_numpy() == pytest.approx(limits.numpy(), rel=1e-12)


def test_what_nobody_keeps_stays_pretrained_bit_for_bit() -> None:
    """After a merge that mixes scalars, -0.0 included."""
    base, tuned = common_checks.family()
    nobody = flat(base, merged(base, tuned, ["trim"], "consensus", mask_scale=0.0, min_tasks=0).state_dict) == 0
    mixed = merged(base, tuned, ["trim"], "tsv_m").state_dict
    parts = nobody.split([v.numel() for v in base.values()])
    assert 0.2 < nobody.double().mean() < 1
    for part, (name, value) in zip(parts, base.items(), strict=True):
        mask = part.reshape(value.shape)
        assert torch.equal(mixed[name].view(torch.int64)[mask], value.view(torch.int64)[mask]), name


def test_density_one_without_election_is_nothing() -> None:
    base, tuned = common_checks.family()
    plain = merged(base, tuned, [], "tsv_m")
    same = merged(base, tuned, [("trim", {"density": 1.0, "elect": False})], "tsv_m")
    assert "trim_thresholds" not in same.tables
    assert all(torch.equal(same.state_dict[n], v) for n, v in plain.state_dict.items())


def test_after_lwptv_masked_scalars_count() -> None:
    """The threshold's rank is of all scalars, so that with many masked ones it keeps all that LwPTV leaves."""
    base, tuned = common_checks.family()
    edits = [("lwptv", {"prune_ratio": 0.9}), ("trim", {"density": 0.9, "elect": False})]
    only = merged(base, tuned, edits[:1]).state_dict
    both = merged(base, tuned, edits).state_dict
    assert all(torch.equal(both[n], v) for n, v in only.items())
