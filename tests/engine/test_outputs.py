"""What is written and counted: tables against plain norms, hard masks bit for bit, buffers left alone."""

from __future__ import annotations

import pytest
import tiny
import torch

import merging

NAME = "visual.transformer.resblocks.1.mlp.c_fc.weight"


def family() -> tuple[tiny.StateDict, dict[str, tiny.StateDict]]:
    base, experts = tiny.family(("a", "b"))
    return {n: v.double() for n, v in base.items()}, {
        name: {n: v.double() for n, v in state.items()} for name, state in experts.items()
    }


def test_the_table_of_tensors_is_plain_arithmetic() -> None:
    base, experts = family()
    carried = {"logit_scale": torch.tensor(4.6, dtype=torch.float64)}
    result = merging.merge(
        base | carried, {name: state | carried for name, state in experts.items()}, "ties", device="cpu"
    )
    table = result.tables["tensors"].set_index("tensor")
    assert set(table.index) == set(base)
    for name, row in table.iterrows():
        change = result.state_dict[str(name)] - base[str(name)]
        assert row["kept_numel"] == int((change.abs() > 1e-12).sum()) < row["numel"] == change.numel()
        assert row["change_norm"] == pytest.approx(float(change.norm()), rel=1e-9)
        assert row["pretrained_norm"] == pytest.approx(float(base[str(name)].norm()), rel=1e-9)


def test_with_a_model_per_task_any_of_them_counts_and_each_has_its_norm() -> None:
    base, experts = family()
    result = merging.merge(base, experts, "emr", device="cpu")
    assert result.task_state_dicts is not None
    changes = {expert: state[NAME] - base[NAME] for expert, state in result.task_state_dicts.items()}
    by_task = result.tables["task_tensors"].set_index(["tensor", "expert"]).loc[NAME]
    for expert, change in changes.items():
        assert by_task.loc[expert, "change_norm"] == pytest.approx(float(change.norm()), rel=1e-9)
        assert by_task.loc[expert, "kept_numel"] == int((change.abs() > 1e-12).sum())
    whole = result.tables["tensors"].set_index("tensor").loc[NAME]
    stacked = torch.stack(list(changes.values()))
    assert whole["kept_numel"] == int((stacked.abs() > 1e-12).any(dim=0).sum())
    assert whole["change_norm"] == pytest.approx(float(stacked.norm() / 2**0.5), rel=1e-9)


@pytest.mark.parametrize("granularity", ["tensor", "parameter"])
@pytest.mark.parametrize("order", [("lwptv", "magnitude"), ("magnitude", "lwptv")])
def test_what_any_edit_of_a_chain_drops_stays_pretrained_bit_for_bit(order: tuple[str, str], granularity: str) -> None:
    """The pretrained model is -0.0 throughout, to which adding nothing gives 0.0."""
    base, experts = family()
    moved = {name: {n: v - base[n] for n, v in state.items()} for name, state in experts.items()}
    zeros = {n: torch.full_like(v, -0.0) for n, v in base.items()}
    params = {"lwptv": {"prune_ratio": 0.5, "granularity": granularity}, "magnitude": {"prune_ratio": 0.8}}
    edits = [(key, params[key]) for key in order]
    state = merging.merge(zeros, moved, "task_arithmetic", {"scaling": 1.0}, edits, device="cpu").state_dict
    for name, value in state.items():
        assert torch.signbit(value[value == 0]).all(), name
    assert any((value == 0).any() and value.any() for value in state.values())  # dropped within a tensor
