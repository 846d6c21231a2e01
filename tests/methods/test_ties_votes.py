"""The sign that TIES gives scalars whose votes cancel exactly: the majority of the elected signs of the whole model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import tiny
import torch

import merging
from merging.engine import run_inputs
from merging.methods import registry
from merging.methods.merges import ties
from merging.methods.slot import Slot

NAME, OTHER = "visual.ln_post.bias", "visual.transformer.resblocks.0.mlp.c_fc.bias"


def merged(first: list[float], second: list[float], elsewhere: float, **params: object) -> list[float]:
    """What TIES adds to the first scalars of one tensor; ``elsewhere`` is in another tensor, in both experts."""
    base = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in tiny.pretrained().items()}
    experts = {}
    for key, values in {"one": first, "other": second}.items():
        experts[key] = {name: value.clone() for name, value in base.items()}
        experts[key][NAME][: len(values)] = torch.tensor(values, dtype=torch.float64)
        experts[key][OTHER][:5] = elsewhere
    params = {"density": 1.0, "scaling": 1.0, **params}
    state = merging.merge(tiny.checkpoint(base), experts, "ties", params, device="cpu").state_dict
    return state[NAME][: len(first)].tolist()


@pytest.mark.parametrize("aggregation", ["sum", "mean"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_exact_tie_takes_the_majority_sign_of_the_whole_model(aggregation: str, sign: float) -> None:
    change = merged([0.5, -0.25, 0.75], [-0.5, 0.25, 0.25], sign, aggregation=aggregation)
    # The third scalar is no tie; with it three votes are plus, so that five others decide.
    agreed = 1.0 if aggregation == "sum" else 0.5
    assert change == [sign * 0.5, sign * 0.25, agreed]


def test_a_tie_of_the_whole_model_keeps_nothing() -> None:
    assert merged([0.5, 0.25], [-0.5, 0.125], 0.0)[1] == 0.375  # one vote for plus
    assert merged([0.5, 0.25, -0.25], [-0.5, 0.0, 0.0], 0.0) == [0.0, 0.25, -0.25]  # one for each


def test_only_what_survives_the_trim_votes() -> None:
    """The five equal scalars and the tie are the largest; the small ones, which outnumber them, have no say."""
    first, second = [0.5, *[-0.01] * 11], [-0.5, *[-0.01] * 11]
    dense = merged(first, second, 1.0)
    assert dense[0] == -0.5 and dense[1] == pytest.approx(-0.02)  # eleven votes against five
    total = sum(value.numel() for value in tiny.pretrained().values())
    trimmed = merged(first, second, 1.0, density=5.5 / total)  # int(5.5) + 1 scalars
    assert trimmed == [0.5, *[0.0] * 11]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_only_pieces_in_which_the_majority_decides_are_merged_twice(
    sign: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tie of one piece, and weights of -0.0, to which nothing is added with the sign of the majority."""
    monkeypatch.setattr(run_inputs, "BLOCK_CPU", 8)
    monkeypatch.setattr(run_inputs, "PIECE_CPU", 8)
    merged_slots: list[str] = []
    plain, decided = ties.ties, registry.find_method("merge", "ties")

    def counted(slot: Slot, *rest: Any) -> torch.Tensor:
        merged_slots.append(f"{slot.name} {slot.start}")
        return plain(slot, *rest)

    monkeypatch.setitem(registry.REGISTERED, ("merge", "ties"), replace(decided, run=counted))
    base = {name: torch.ones_like(value) for name, value in tiny.pretrained().items()}
    base[OTHER][20] = -0.0
    experts = {name: {n: v.clone() for n, v in base.items()} for name in ("one", "other")}
    experts["one"][NAME][9], experts["other"][NAME][9] = 1.5, 0.5
    for state in experts.values():
        state["visual.proj"] += sign
    change = merging.merge(base, experts, "ties", {"density": 1.0, "scaling": 1.0}, device="cpu").state_dict
    assert sorted(merged_slots) == sorted([f"{NAME} 8", f"{OTHER} 16"])
    assert change[NAME][9] == 1 + sign * 0.5
    assert bool(change[OTHER][20].signbit()) == (sign < 0)
