"""The sign that TIES gives scalars whose votes cancel exactly: the majority of the elected signs of the whole model."""

from __future__ import annotations

import pytest
import tiny
import torch

import merging

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
