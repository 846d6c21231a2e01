"""Weights, densities and rates by expert and tensor, and the rules of mergekit that methods take as options."""

from __future__ import annotations

from typing import Any

import common_checks
import numpy as np
import pytest
import torch

import merging
from merging.base.errors import ParameterError, RecipeError
from merging.methods import registry
from merging.methods.factor_rules import find_factors, parse_rules, resolve
from merging.methods.merges.model_stock import mean_cosine, merge_coefficient
from merging.models.families import classify_parameters
from merging.recipes.recipe import Recipe

NAME, OTHER = "visual.proj", "visual.ln_post.bias"


def change(experts: dict[str, list[float]], merge: str, params: Any = None, edits: Any = ()) -> list[float]:
    """What a chain adds to zeros, for experts with these task vectors; also for a second tensor of ones."""
    base = {NAME: torch.zeros(len(next(iter(experts.values()))), dtype=torch.float64), OTHER: torch.ones(2).double()}
    tuned = {key: {NAME: torch.tensor(row).double(), OTHER: base[OTHER] + 1} for key, row in experts.items()}
    return merging.merge(base, tuned, merge, params or {}, edits, device="cpu").state_dict[NAME].tolist()


SUM = ("task_arithmetic", {"scaling": 1.0})
TWO = {"a": [4.0, -3.0, 2.0, 1.0], "b": [-1.0, -2.0, 3.0, 0.0]}


def test_the_factors_of_one_tensor_are_those_of_the_table() -> None:
    base, experts = common_checks.family()
    parameters = classify_parameters(list(base))
    rules = parse_rules("all=0.5+b0/e.expert%200=2+t.*attn*/b1=3+r.shift/e.expert%201=-1+s.output=0.25")
    names = tuple(experts)
    table = resolve(rules, 1.0, names, parameters)
    found = [find_factors(rules, 1.0, names, p) for p in parameters if p.name in table.tensors]
    assert np.array_equal(np.array(found).T, table.values) and len(np.unique(table.values)) > 4


def test_ties_weighs_the_election_the_sum_and_the_mean() -> None:
    params = {"density": 1.0, "scaling": 1.0, "weights": "e.a=0.25+e.b=3"}
    # Weighted: a (1, -0.75, 0.5, 0.25), b (-3, -6, 9, 0).
    assert change(TWO, "ties", params) == [-3.0, -6.75, 9.5, 0.25]
    mean = change(TWO, "ties", {**params, "aggregation": "mean"})
    assert mean == pytest.approx([-1.0, -6.75 / 3.25, 9.5 / 3.25, 1.0])
    opposite = {**params, "weights": "e.b=-1", "aggregation": "mean"}  # b (1, 2, -3, 0); weights that add up to 0
    assert change(TWO, "ties", opposite) == [5.0, -3.0, 3.0, 1.0]


def test_a_vote_of_zero_elects_plus_if_asked() -> None:
    experts = {"a": [0.5, -0.25, -1.0, -1.0], "b": [-0.5, 0.25, -1.0, -1.0]}
    params = {"density": 1.0, "scaling": 1.0}
    assert change(experts, "ties", {**params, "zero_votes": "plus"}) == [0.5, 0.25, -2.0, -2.0]


def test_breadcrumbs_with_densities_at_least_one_and_a_former_size() -> None:
    assert change({"a": TWO["a"]}, *SUM, [("breadcrumbs", {"density": 0.5, "gamma": 0.0})]) == [4.0, -3.0, 0.0, 0.0]
    edits = [("breadcrumbs", {"density": 1.0, "gamma": 0.0, "densities": "e.a=0.25+e.b=0"})]
    assert change(TWO, *SUM, edits) == [4.0, 0.0, 0.0, 0.0]
    edits = [("breadcrumbs", {"density": 0.2, "gamma": 0.0, "at_least_one": True})]  # int(0.8) is 0
    assert change(TWO, *SUM, edits) == [4.0, 0.0, 3.0, 0.0]
    assert change(TWO, *SUM, [("breadcrumbs", {**edits[0][1], "at_least_one": False})]) == [0.0] * 4
    edits = [("breadcrumbs", {"density": 0.5, "gamma": 0.0, "rescale_by": "l1"})]
    assert change({"a": TWO["a"]}, *SUM, edits) == pytest.approx([40 / 7, -30 / 7, 0.0, 0.0])
    tiny = {"a": [2.0**-30, 2.0**-31, 2.0**-32, 2.0**-33]}
    assert change(tiny, *SUM, edits) == [2.0**-30, 2.0**-31, 0.0, 0.0]  # too small to be rescaled


def test_dare_with_rates_and_a_former_size() -> None:
    draw = torch.Generator().manual_seed(3)
    experts = {key: torch.randn(4000, generator=draw).tolist() for key in "abc"}
    kept = [("dare", {"drop_rate": 1.0, "rates": "e.a=0.25+e.b=0", "rescale": False})]
    alone = {
        key: change({key: experts[key]}, *SUM, [("dare", {"drop_rate": rate, "rescale": False})])
        for key, rate in (("a", 0.25), ("b", 0.0), ("c", 1.0))
    }
    shares = {key: np.mean(np.array(alone[key]) == 0) for key in "abc"}
    assert (
        abs(shares["a"] - 0.25) < 0.03
        and shares["b"] == 0
        and shares["c"] == 1
        and alone["b"] == pytest.approx(experts["b"], rel=1e-6)
    )
    together = np.array(change(experts, *SUM, kept))
    assert together == pytest.approx(np.array(alone["a"]) + np.array(alone["b"]))  # c drops all
    by_rate = np.array(change({"a": experts["a"]}, *SUM, [("dare", {"drop_rate": 1.0, "rates": "all=0.25"})]))
    assert by_rate == pytest.approx(np.array(alone["a"]) / 0.75)
    by_size = np.array(change({"a": experts["a"]}, *SUM, [("dare", {"drop_rate": 0.25, "rescale_by": "l1"})]))
    factor = np.abs(experts["a"]).sum() / np.abs(alone["a"]).sum()
    assert by_size == pytest.approx(np.array(alone["a"]) * factor)


def test_sce_weighs_small_changes_alike_if_asked() -> None:
    experts = {"a": [1e-4, 2e-4], "b": [3e-4, 1e-4]}
    assert change(experts, "sce", {"equal_below": 1e-6}) == pytest.approx([2e-4, 1.5e-4])
    assert change(experts, "sce") == pytest.approx([(1e-4 * 5 + 3e-4 * 10) / 15, (2e-4 * 5 + 1e-4 * 10) / 15])
    large = {key: [1e2 * x for x in row] for key, row in experts.items()}
    assert change(large, "sce", {"equal_below": 1e-6}) == pytest.approx(change(large, "sce"))


def test_model_stock_with_signed_cosines_and_a_least_product_of_norms() -> None:
    assert merge_coefficient(-0.25, 3) == 0.0
    assert merge_coefficient(-0.25, 3, signed=True) == pytest.approx(-0.75 / 0.5)
    assert merge_coefficient(-0.5, 3, signed=True) == 0.0  # the formula divides by zero
    gram = torch.tensor([[4e-8, 1e-8], [1e-8, 1e-8]], dtype=torch.float64)
    assert mean_cosine(gram) == pytest.approx(0.5) and mean_cosine(gram, 1e-6) == pytest.approx(0.01)
    opposed = {"a": [1.0, 0.0], "b": [-0.5, 1.0]}
    cosine = -0.5 / 1.25**0.5
    expected = 2 * cosine / (1 + cosine) * np.array([0.25, 0.5])
    assert change(opposed, "model_stock", {"signed": True}) == pytest.approx(expected)
    assert change(opposed, "model_stock") == [0.0, 0.0]


def test_slerp_with_positions_by_tensor() -> None:
    state = {"a": [1.0, 2.0], "b": [3.0, 1.0]}
    assert change(state, "slerp", {"t": 1.0, "positions": f"t.{NAME}=0.25"}) == pytest.approx(
        change(state, "slerp", {"t": 0.25})
    )
    with pytest.raises(RecipeError, match="let the rules of its positions name no experts"):
        Recipe.build("slerp", {"positions": "e.a=0.5"}, experts={"a": "a", "b": "b"})


@pytest.mark.parametrize(
    "merge,edits,name",
    [("ties", [], "weights"), ("ties", ["dare"], "rates"), ("ties", ["breadcrumbs"], "densities"),
     ("slerp", [], "positions")],
)  # fmt: skip
def test_ids_depend_on_the_factors_and_not_on_how_they_are_written(merge: str, edits: list[str], name: str) -> None:
    base, experts = common_checks.family(experts=2)
    parameters = classify_parameters(list(base))

    def run_id(rules: str) -> str:
        own = {name: rules} if rules else {}
        recipe = Recipe.build(
            merge, {} if edits else own, [(key, own) for key in edits], experts=dict.fromkeys(experts, "x")
        )
        return recipe.run_id("0" * 64, dict.fromkeys(experts, "1" * 64), parameters=parameters)

    assert run_id("all=0.5") == run_id("b0-1=0.75+all=0.5") != run_id("all=0.25")
    assert run_id("all=0.5") != run_id("")
    with pytest.raises(ParameterError, match="the model has blocks 0 to 1"):
        run_id("b7=0.5")


def test_every_method_with_factors_states_what_they_come_to() -> None:
    tables = {m.key for m in merging.list_methods() for b in m.params.bounds().values() if b.kind == "table"}
    assert tables == {"manual", "dare", "breadcrumbs", "ties", "slerp"}
    assert all(registry.find_method("edit" if key in {"manual", "dare", "breadcrumbs"} else "merge", key).content
               for key in tables)  # fmt: skip
