"""What each edit promises beyond the common checks and the invariants."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import common_checks
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import merging
from merging.base.errors import RecipeError
from merging.base.numerics import task_vector_overlap
from merging.methods import registry
from merging.methods.shared import random_masks
from merging.methods.slot import Slot
from merging.models.families import Parameter, Role

BLOCKS = "visual.transformer.resblocks."


@functools.cache
def family(experts=3):
    return common_checks.family(experts=experts)


def merged(base, experts, edits=(), merge="task_arithmetic", params=None, **options):
    return merging.merge(base, experts, merge, params, edits, device="cpu", **options)


def change(base, state):
    """The merged task vector, flat."""
    return torch.cat([(state[n] - base[n]).flatten() for n in base])


def task_vectors(base, experts):
    """All task vectors, flat: (K, P)."""
    return torch.stack([change(base, state) for state in experts.values()])


def slot(numel, start=0, experts=("a", "b"), name="visual.proj"):
    parameter = Parameter(name, Role.PROJECTION, "proj", "output", None, 0)
    return Slot(parameter, tuple(experts), torch.zeros(numel), torch.ones(len(experts), numel), start)


def bits(state):
    return {n: v.view(torch.int64) for n, v in state.items()}


# --- random masks ----------------------------------------------------------------------------------------------------


@settings(max_examples=30, derandomize=True, deadline=None)
@given(start=st.integers(0, 500), numel=st.integers(0, 300), rate=st.sampled_from([0.0, 0.25, 0.5, 0.7, 0.999, 1.0]))
def test_a_piece_draws_what_the_whole_tensor_would(start, numel, rate):
    whole = random_masks.sample_survivors("dare", 3, rate, slot(1000))
    assert torch.equal(
        random_masks.sample_survivors("dare", 3, rate, slot(numel, start)), whole[:, start : start + numel]
    )


def test_draws_never_change():
    """Stored runs are reproduced only while these numbers stay."""

    def drawn(rate):
        found = random_masks.sample_survivors("dare", 0, rate, slot(16, experts=("cars", "dtd")))
        return ["".join(map(str, row)) for row in found.tolist()]

    assert drawn(0.5) == ["0000111011111110", "1001111101101000"]
    assert drawn(0.7) == ["0000111011000000", "0001001101101000"]


@pytest.mark.parametrize("rate", [0.001, 0.25, 0.5, 0.7, 0.9])
def test_shares_are_as_told(rate):
    numel = 400_000
    stays = random_masks.sample_survivors("dare", 0, rate, slot(numel, experts="abcde")).double()
    spread = (rate * (1 - rate) / numel) ** 0.5
    assert ((stays.mean(dim=1) - (1 - rate)).abs() < 4 * spread).all()
    together = torch.corrcoef(torch.cat([stays, stays.roll(1, dims=1)]))  # experts and neighbors are independent
    assert (together - torch.eye(10)).abs().max() < 5 / numel**0.5


def test_a_rate_is_not_rounded_on_average():
    """Between two 16-bit limits, the share of streams with the higher limit makes up for it."""
    rate = 1000.25 / 2**16
    streams = [random_masks.RandomBytes.from_address(f"stream {number}") for number in range(4000)]
    limits = np.array([stream.limit(rate) for stream in streams])
    assert set(limits) == {1000, 1001} and abs(limits.mean() - 1000.25) < 4 * 0.433 / 4000**0.5
    assert {stream.limit(0.0) for stream in streams} == {0} and {stream.limit(1.0) for stream in streams} == {2**16}


def test_a_higher_rate_drops_more_of_the_same():
    kept = [random_masks.sample_survivors("dare", 0, rate, slot(5000)) for rate in (0.1, 0.3, 0.31, 0.5, 0.9)]
    assert all((more >= less).all() for more, less in itertools.pairwise(kept))


def test_what_draws_the_seed_and_the_names_all_matter():
    def draw(drawer="dare", seed=0, name="visual.proj", expert="a"):
        return random_masks.sample_survivors(drawer, seed, 0.5, slot(4000, experts=(expert,), name=name)).double()[0]

    one = draw()
    for other in (draw(drawer="random_mask"), draw(seed=1), draw(name="visual.conv1.weight"), draw(expert="b")):
        assert 0.45 < (one == other).double().mean() < 0.55


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("key", ["dare", "random_mask"])
def test_draws_are_the_same_on_a_gpu(key):
    base, experts = family()
    on_cpu = merged(base, experts, [key]).state_dict
    on_gpu = merging.merge(base, experts, edits=[key], device="cuda").state_dict
    assert all(torch.equal(value != base[n], on_gpu[n] != base[n]) for n, value in on_cpu.items())


@pytest.mark.parametrize("key", ["dare", "random_mask"])
@pytest.mark.full
def test_order_and_pieces_change_no_draw(key, monkeypatch):
    base, experts = family()
    plain = bits(merged(base, experts, [key], "ties", {"density": 1.0}).state_dict)
    backward = dict(reversed(base.items()))
    again = bits(merged(backward, experts, [key], "ties", {"density": 1.0}).state_dict)
    assert all(torch.equal(again[n], value) for n, value in plain.items())
    monkeypatch.setattr("merging.engine.run_inputs.PIECE_CPU", 5)
    monkeypatch.setattr("merging.engine.run_inputs.BLOCK_CPU", 77)
    pieces = bits(merged(base, experts, [key], "ties", {"density": 1.0}).state_dict)
    assert all(torch.equal(pieces[n], value) for n, value in plain.items())


# --- dare and random_mask --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.5, 0.8])
def test_dare_rescales_what_stays(rate):
    base, experts = family(1)
    (vector,) = task_vectors(base, experts)
    found = change(base, merged(base, experts, [("dare", {"drop_rate": rate})], params={"scaling": 1.0}).state_dict)
    stays = found != 0
    assert torch.allclose(found[stays], vector[stays] / (1 - rate), rtol=1e-9, atol=1e-12)
    plain = merged(base, experts, [("dare", {"drop_rate": rate, "rescale": False})], params={"scaling": 1.0}).state_dict
    assert torch.allclose(change(base, plain), vector * stays, rtol=1e-9, atol=1e-12)


@pytest.mark.full
def test_dare_keeps_the_expectation():
    """The mean over 30 seeds is as near to the task vector as 30 draws can be."""
    base, experts = family(1)
    (vector,) = task_vectors(base, experts)
    runs = [
        change(
            base, merged(base, experts, [("dare", {"drop_rate": 0.7, "seed": seed})], params={"scaling": 1}).state_dict
        )
        for seed in range(30)
    ]
    error = (torch.stack(runs).mean(dim=0) - vector).norm()
    assert error < 1.2 * vector.norm() * (0.7 / 0.3 / 30) ** 0.5


def test_one_seed_may_not_drop_the_same_twice():
    base, experts = family()
    for key, rate in (("dare", "drop_rate"), ("random_mask", "prune_ratio")):
        with pytest.raises(RecipeError, match="give the second another seed"):
            merged(base, experts, [(key, {rate: 0.2}), (key, {rate: 0.5})])
        merged(base, experts, [(key, {rate: 0.2}), (key, {rate: 0.5, "seed": 1})])


MOST = {"random_mask": {"prune_ratio": 0.9}, "magnitude": {"prune_ratio": 0.9}, "breadcrumbs": {"density": 0.1}}


@pytest.mark.parametrize(
    "key,merge",
    [
        *(("random_mask", m.key) for m in merging.list_methods() if m.role == "merge" and m.needs == "nothing"),
        ("magnitude", "ties"), ("magnitude", "iso_c"), ("breadcrumbs", "emr"), ("breadcrumbs", "iso_c"),
    ],
)  # fmt: skip
def test_what_nobody_keeps_stays_pretrained_bit_for_bit(key, merge):
    """After any merge, those that mix scalars included; -0.0 too."""
    edits = [(key, MOST[key])]
    method = registry.find_merge(merge)
    base, experts = common_checks.family_of(method)
    params = {"steps": 3} if "steps" in method.params.bounds() else {}
    if reason := method.refuses(method.params.build(params), [(key, registry.find_edit(key).params.build({}))]):
        pytest.skip(reason)
    lone = [merged(base, {n: e}, edits, params={"scaling": 1.0}).state_dict for n, e in experts.items()]
    free = {n: torch.stack([(state[n] == base[n]) for state in lone]).all(dim=0) for n in base}
    assert sum(int(mask.sum()) for mask in free.values()) > 1000
    for state in common_checks.states(merged(base, experts, edits, merge, params)):
        assert all(torch.equal(bits(state)[n][mask], bits(base)[n][mask]) for n, mask in free.items())


# --- magnitude -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [0.1, 0.29, 0.7, 0.999])
def test_magnitude_keeps_the_largest(ratio):
    base, experts = family()
    vectors = task_vectors(base, experts)
    limit = vectors.abs().sort(dim=1).values[:, math.ceil(vectors.shape[1] * ratio - 1e-9) - 1]
    found = merged(base, experts, [("magnitude", {"prune_ratio": ratio})], params={"scaling": 1.0})
    expected = (vectors * (vectors.abs() >= limit[:, None])).sum(dim=0)
    assert torch.allclose(change(base, found.state_dict), expected, rtol=0, atol=1e-12)
    assert np.allclose(found.tables["prune_thresholds"]["threshold"], limit)


def kept_of(numel, edits, merge, params):
    """Which scalars of one expert's task vector are in the merged one; no two are of the same size."""
    base = {"visual.proj": torch.zeros(numel, dtype=torch.float64)}
    vector = torch.randperm(numel, generator=torch.Generator().manual_seed(numel)).double() + 1
    expert = {"visual.proj": vector * torch.where(vector % 3 == 0, -1.0, 1.0)}
    return merged(base, {"a": expert}, edits, merge, params).state_dict["visual.proj"] != 0


DECIMALS = (0.01, 0.05, 0.1, 0.14, 0.2, 0.25, 0.29, 0.3, 0.35, 0.5, 0.57, 0.58, 0.7, 0.9, 0.999)
DENSITIES = {  # prune ratio: density; as typed, and as a subtraction of binary fractions gives it
    **{round(1 - density, 3): density for density in DECIMALS},
    **{1 - density: density for density in (*DECIMALS, 1 / 3, 1 / 6, 2 / 7)},
}


@pytest.mark.parametrize("numel", [1, 10, 100, 180])
def test_magnitude_keeps_what_the_trim_of_ties_keeps(numel):
    """Where the product of ratio and size is whole, too."""
    for ratio, density in DENSITIES.items():
        by_ties = kept_of(numel, [], "ties", {"density": density, "scaling": 1.0})
        by_magnitude = kept_of(numel, [("magnitude", {"prune_ratio": ratio})], "task_arithmetic", {"scaling": 1.0})
        assert torch.equal(by_magnitude, by_ties), (ratio, density)
        assert int(by_ties.sum()) == min(int(numel * density) + 1, numel)


def test_magnitude_counts_an_unused_text_tower_if_told():
    base, experts = family()
    dead = {"text_projection": torch.ones(100, 100, dtype=torch.float64)}
    carrying, tuned = base | dead, {n: e | dead for n, e in experts.items()}
    numel = sum(v.numel() for v in base.values())
    edits = [("magnitude", {"prune_ratio": 0.7})]
    counted = merged(carrying, tuned, edits, count_dead_params=True).state_dict
    ratio = (math.ceil((numel + 10_000) * 0.7) - 10_000) / numel
    expected = merged(base, experts, [("magnitude", {"prune_ratio": ratio})]).state_dict
    assert all(torch.equal(counted[n], value) for n, value in expected.items())


# --- awd -------------------------------------------------------------------------------------------------------------


def correlated(experts=4, shared=0.5):
    """Experts whose task vectors overlap."""
    base, tuned = family(experts)
    common = next(iter(tuned.values()))
    return base, {n: {k: v + shared * (common[k] - base[k]) for k, v in e.items()} for n, e in tuned.items()}


def test_awd_steps_as_the_full_vector_would():
    """Descent on the redundant vector itself, by automatic differentiation over all its scalars."""
    base, experts = correlated()
    vectors = task_vectors(base, experts)
    redundant = torch.zeros(vectors.shape[1], dtype=torch.float64)
    for _ in range(25):
        at = redundant.clone().requires_grad_()
        left = torch.nn.functional.normalize(vectors - at)
        cos = left @ left.T
        loss = (cos.abs().sum() - cos.diagonal().abs().sum()) / 12 + (0.1 * at.norm() if redundant.any() else 0)
        redundant = redundant - 0.5 * torch.autograd.grad(loss, at)[0]
    edits = [("awd", {"penalty": 0.1, "lr": 0.5, "steps": 25})]
    found = change(base, merged(base, experts, edits, params={"scaling": 1.0}).state_dict)
    expected = (vectors - redundant).sum(dim=0)
    assert redundant.norm() > 0.1 and (found - expected).norm() < 1e-9 * expected.norm()


def test_awd_gradient_is_that_of_its_loss():
    base, experts = correlated()
    vectors = task_vectors(base, experts)
    gram = (vectors @ vectors.T).numpy()
    at = np.array([0.05, -0.02, 0.1, 0.03])
    found = gram @ task_vector_overlap.overlap_gradient(
        gram, at, 0.3
    )  # by coefficients, from the combination that it is
    for k, step in enumerate(1e-6 * np.eye(4)):
        slope = (
            task_vector_overlap.overlap_loss(gram, at + step, 0.3)
            - task_vector_overlap.overlap_loss(gram, at - step, 0.3)
        ) / 2e-6
        assert abs(slope - found[k]) < 1e-6 * np.abs(found).max()


def test_awd_lowers_overlap_and_is_a_weight_per_expert():
    base, experts = correlated()
    vectors = task_vectors(base, experts)
    result = merged(base, experts, [("awd", {"lr": 0.2, "steps": 200})], params={"scaling": 1.0})
    table = result.tables["coefficients"]
    assert list(table["expert"]) == list(experts) and not result.warnings
    assert (table["overlap_after"] < table["overlap_before"]).all()
    expected = torch.tensor(table["weight"].to_numpy()) @ vectors
    assert (change(base, result.state_dict) - expected).norm() < 1e-9 * expected.norm()


def test_an_expert_that_never_moved_takes_no_part_in_awd():
    base, experts = correlated()
    edits = [("awd", {"lr": 0.3})]
    plain = change(base, merged(base, experts, edits, "ties").state_dict)
    idle = change(base, merged(base, experts | {"idle": base}, edits, "ties").state_dict)
    assert plain.norm() > 0 and (plain - idle).norm() < 1e-9 * plain.norm()


def test_awd_says_when_steps_are_too_long():
    base, experts = family()
    assert "lower lr" in merged(base, experts, [("awd", {"lr": 500.0})]).warnings[0]


# --- lines and wise_ft -----------------------------------------------------------------------------------------------


def test_lines_rises_from_the_first_block_to_the_last():
    base, experts = family()
    result = merged(base, experts, [("lines", {"base": 0.2, "slope": 0.6})], params={"scaling": 1.0})
    assert list(result.tables["block_factors"]["factor"]) == [0.2, 0.8]
    for name, value in base.items():
        factor = 0.8 if name.startswith(BLOCKS + "1.") else 0.2
        expected = factor * sum(e[name] - value for e in experts.values())
        assert torch.allclose(result.state_dict[name] - value, expected, rtol=0, atol=1e-12), name


def test_lines_starts_at_one_over_the_number_of_experts():
    base, experts = family()
    unset = merged(base, experts, ["lines"]).state_dict
    given_ = merged(base, experts, [("lines", {"base": 1 / 3})]).state_dict
    assert all(torch.equal(value, given_[n]) for n, value in unset.items())


def test_lines_counts_the_blocks_that_there_are():
    """A single block takes the base; gaps in the numbering do not stretch the line."""
    base, experts = family()

    def factors(rename):
        chosen = {n: n if ".resblocks." not in n else rename(n) for n in base}
        new = {chosen[n]: v for n, v in base.items() if chosen[n]}
        tuned = {k: {chosen[n]: v for n, v in e.items() if chosen[n]} for k, e in experts.items()}
        table = merged(new, tuned, [("lines", {"base": 0.5, "slope": 1.0})]).tables["block_factors"]
        return dict(zip(table["block"], table["factor"], strict=True))

    assert factors(lambda n: n if ".resblocks.0." in n else "") == {0: 0.5}
    assert factors(lambda n: n.replace(".resblocks.1.", ".resblocks.7.")) == {0: 0.5, 7: 1.5}


@pytest.mark.parametrize("merge", ["task_arithmetic", "ties"])
def test_wise_ft_is_another_scaling(merge):
    base, experts = family()
    wise = change(base, merged(base, experts, [("wise_ft", {"alpha": 0.4})], merge, {"scaling": 0.5}).state_dict)
    less = change(base, merged(base, experts, (), merge, {"scaling": 0.2}).state_dict)
    assert (wise - less).norm() < 1e-9 * less.norm()


def test_random_steps_are_refused_only_for_the_same_seed():
    dare = registry.find_edit("dare")
    first = dare.params.build({"seed": 4})
    assert dare.refuses(first, [("dare", first)]) and not dare.refuses(first, [])
    assert not dare.refuses(first, [("dare", dataclasses.replace(first, seed=5))])
