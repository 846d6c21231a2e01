"""What consensus, PCB, Model Stock, EMR and SCE promise beyond the common checks."""

from __future__ import annotations

from itertools import pairwise, permutations
from statistics import pvariance

import common_checks
import pytest
import torch

import merging
from merging.methods import registry
from merging.methods.slot import Slot
from merging.models.families import Parameter, Role


@pytest.fixture(scope="module")
def family():
    return common_checks.family()


def _merge(base, experts, key, params=None, edits=()):
    return merging.merge(base, experts, key, params, edits, device="cpu")


def _change(base, state):
    """The merged task vector, flat."""
    return torch.cat([(state[n] - base[n]).flatten() for n in base])


def _task_vectors(base, experts):
    return torch.stack([_change(base, state) for state in experts.values()])


def _from_flat(base, flat):
    parts = flat.split([v.numel() for v in base.values()])
    return {n: base[n] + part.reshape(base[n].shape) for (n, part) in zip(base, parts, strict=True)}


def _close(found, expected):
    return float((found - expected).norm()) <= 1e-9 * max(float(expected.norm()), 1.0)


# --- consensus -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base_key,alone", [("task_arithmetic", {}), ("ties", {"density": 0.2, "aggregation": "sum"})])
@pytest.mark.full
def test_consensus_keeps_less_the_more_tasks_it_asks_for(family, base_key, alone):
    base, experts = family
    unmasked = _change(base, _merge(base, experts, base_key, {**alone, "scaling": 0.3}).state_dict)

    def merged(tasks):
        params = {"min_tasks": tasks, "base": base_key, "mask_scale": 0.9, "scaling": 0.3}
        return _change(base, _merge(base, experts, "consensus", params).state_dict)

    kept = [merged(tasks) for tasks in range(4)]
    assert torch.equal(kept[0], unmasked)
    assert torch.equal(merged(9), kept[3])
    sets = [change != 0 for change in kept]
    assert all((less <= more).all() and less.sum() < more.sum() for more, less in pairwise(sets))
    assert all(torch.equal(change[change != 0], unmasked[change != 0]) for change in kept)


def test_consensus_masks_shrink_as_the_mask_scale_grows(family):
    base, experts = family

    def kept(scale):
        return _change(base, _merge(base, experts, "consensus", {"mask_scale": scale}).state_dict) != 0

    sets = [kept(scale) for scale in (0.0, 0.2, 0.4, 0.8, 3.0)]
    assert all((less <= more).all() and less.sum() < more.sum() for more, less in pairwise(sets))


def test_consensus_compares_the_raw_task_vectors_with_the_ties_sum(family):
    base, experts = family
    vectors = _task_vectors(base, experts)
    ties = _change(base, _merge(base, experts, "ties", {"scaling": 1.0}).state_dict)
    needed = (vectors.abs() > 0.4 * (ties - vectors).abs()).sum(dim=0) >= 2
    found = _merge(base, experts, "consensus", {"base": "ties"})
    assert _close(_change(base, found.state_dict), 0.3 * ties * needed)
    assert "trim_thresholds" in found.tables


# --- PCB -------------------------------------------------------------------------------------------------------------


def _naive_pcb(vectors, density, scaling, clip, dead=0):
    """Full sorts of whole task vectors (K, d) and ``dead`` zeros: the merged vector (d,) and the winners (K, d)."""
    vectors = torch.cat([vectors, vectors.new_zeros(len(vectors), dead)], dim=1)
    experts, d = vectors.shape
    ordered = vectors.abs().sort(dim=1).values
    low, high = ordered[:, int(d * clip), None], ordered[:, int(d * (1 - clip) - 1), None]
    sizes = vectors.abs().clamp(low, high)
    level = ((sizes - low) / (high - low)).nan_to_num(0.0)
    scores = torch.exp(experts * level**2) * torch.tanh(vectors * (vectors.sign() * level).sum(dim=0))
    ordered = scores.sort(dim=1).values
    cut, top = ordered[:, int(d * (1 - density)), None], ordered[:, -1:]
    weights = ((scores - cut) / (top - cut)).nan_to_num(0.0).clamp(0, 1)
    merged = scaling * (weights * sizes * vectors.sign()).sum(dim=0) / weights.sum(dim=0).clamp(min=1e-12)
    return merged[: d - dead], weights[:, : d - dead] > 0


@pytest.mark.parametrize("density", [0.05, 0.3, 0.97])  # at 0.97 the limit lies among the negative scores
@pytest.mark.parametrize("clip", [0.0, 0.01, 0.2])
def test_pcb_equals_full_sorts(family, density, clip):
    base, experts = family
    expected, winners = _naive_pcb(_task_vectors(base, experts), density, 1.2, clip)
    found = _merge(base, experts, "pcb", {"density": density, "clip": clip})
    assert _close(_change(base, found.state_dict), expected)
    assert winners.double().mean(dim=1).sub(density).abs().max() < 1e-3
    assert ((found.tables["pcb_limits"]["cut"] < 0) == (density > 0.9)).all()


def test_pcb_counts_dead_scalars(family):
    base, experts = family
    text = {"ln_final.weight": torch.ones(3000, dtype=torch.float64)}
    carrying = {name: state | text for name, state in experts.items()}
    found = merging.merge(base | text, carrying, "pcb", {"clip": 0.1}, device="cpu", count_dead_params=True)
    expected, _ = _naive_pcb(_task_vectors(base, experts), 0.05, 1.2, 0.1, dead=3000)
    assert _close(_change(base, found.state_dict), expected)


def test_pcb_with_one_expert_keeps_its_clipped_largest_scalars(family):
    base, experts = family
    name = next(iter(experts))
    vector = _task_vectors(base, {name: experts[name]})[0]
    change = _change(base, _merge(base, {name: experts[name]}, "pcb", {"scaling": 1.0}).state_dict)
    ordered = vector.abs().sort().values
    limit = ordered[int(len(vector) * 0.99 - 1)]
    largest = vector.abs() > ordered[int(len(vector) * 0.95)]
    assert _close(change, vector.clamp(-limit, limit) * largest)


def test_pcb_ignores_an_expert_that_never_left_pretrained(family):
    """It has no winners; it still counts as a competitor, which only sharpens the others' scores."""
    base, experts = family
    expected, _ = _naive_pcb(_task_vectors(base, {**experts, "still": base}), 0.05, 1.2, 0.01)
    assert expected.count_nonzero() > 100
    assert _close(_change(base, _merge(base, {**experts, "still": base}, "pcb").state_dict), expected)


def test_pcb_finds_no_winners_among_sizes_that_are_all_one(family):
    base, experts = family
    zero = {n: torch.zeros_like(v) for n, v in base.items()}
    vector = _task_vectors(base, experts)[0]
    models = {"any": _from_flat(zero, vector), "flat": _from_flat(zero, 0.125 * vector.sign() + 0.125 * (vector == 0))}
    result = _merge(zero, models, "pcb", {"clip": 0.0})
    limits = result.tables["pcb_limits"].set_index("expert")
    assert limits.loc["flat", "cut"] == limits.loc["flat", "top"] == 0 < limits.loc["any", "cut"]
    change = _change(zero, result.state_dict)
    assert _close(change, 1.2 * vector * (change != 0)) and change.any()


@pytest.mark.full
def test_pcb_takes_a_hundred_experts_in_single_precision(family):
    base, experts = family
    base = {n: v.float() for n, v in base.items()}
    many = {f"{name} {i}": {n: v.float() for n, v in e.items()} for i in range(34) for name, e in experts.items()}
    change = _change(base, _merge(base, many, "pcb").state_dict)
    assert torch.isfinite(change).all() and change.count_nonzero() > 100


# --- Model Stock -----------------------------------------------------------------------------------------------------


def test_model_stock_follows_its_formula_per_tensor(family):
    base, experts = family
    result = _merge(base, experts, "model_stock")
    table = result.tables["coefficients"].set_index("tensor")
    for n in base:
        vectors = torch.stack([e[n] - base[n] for e in experts.values()]).flatten(1)
        pairs = [torch.cosine_similarity(vectors[i], vectors[j], dim=0) for i, j in ((0, 1), (0, 2), (1, 2))]
        cosine = float(sum(pairs) / 3)
        t = 3 * max(cosine, 0) / (1 + 2 * max(cosine, 0))
        assert table.loc[n, "cosine"] == pytest.approx(cosine, abs=1e-12)
        assert table.loc[n, "coefficient"] == pytest.approx(t, abs=1e-12)
        assert _close((result.state_dict[n] - base[n]).flatten(), t * vectors.mean(dim=0))
    assert (table["cosine"] < 0).any() and (table["cosine"] > 0).any()  # the family has both cases


def test_model_stock_between_pretrained_and_the_mean(family):
    base, experts = family
    name, expert = next(iter(experts.items()))
    alone = _merge(base, {name: expert}, "model_stock").state_dict
    same = _merge(base, {"a": expert, "b": expert, "c": expert}, "model_stock").state_dict
    for state in (alone, same):
        assert _close(_change(base, state), _change(base, expert))

    vector = torch.zeros(2, sum(v.numel() for v in base.values()), dtype=torch.float64)
    vector[0, ::2], vector[1, 1::2] = 0.5, 0.25
    zero = {n: torch.zeros_like(v) for n, v in base.items()}
    orthogonal = {name: _from_flat(zero, v) for name, v in zip("ab", vector, strict=True)}
    assert not _change(zero, _merge(zero, orthogonal, "model_stock").state_dict).any()


def test_model_stock_counts_a_zero_task_vector_as_orthogonal(family):
    base, experts = family
    expert = next(iter(experts.values()))
    table = _merge(base, {"a": expert, "b": expert, "still": base}, "model_stock").tables["coefficients"]
    assert table["cosine"].to_numpy() == pytest.approx(1 / 3) and table["coefficient"].to_numpy() == pytest.approx(0.6)


# --- EMR -------------------------------------------------------------------------------------------------------------


def test_emr_keeps_each_experts_l1_norm_and_signs(family):
    base, experts = family
    result = _merge(base, {**experts, "still": base}, "emr")
    vectors = _task_vectors(base, {**experts, "still": base})
    unified = vectors.sum(dim=0).sign()
    rescalers = result.tables["rescalers"].set_index("expert")["rescaler"]
    for vector, (name, state) in zip(vectors, result.task_state_dicts.items(), strict=True):
        change = _change(base, state)
        assert float(change.abs().sum()) == pytest.approx(float(vector.abs().sum()), rel=1e-12)
        moved = change.abs() > 1e-12
        assert torch.equal(change.sign()[moved], vector.sign()[moved])
        assert torch.equal(moved, vector * unified > 0)
        largest = (vectors * unified).relu().amax(dim=0)
        assert _close(change.abs(), rescalers[name] * largest * moved)
    assert all(torch.equal(result.task_state_dicts["still"][n], base[n]) for n in base)


def test_emr_gives_a_single_expert_back(family):
    base, experts = family
    name, expert = next(iter(experts.items()))
    exact = _merge(base, {name: expert}, "task_arithmetic", {"scaling": 1.0}).state_dict
    found = _merge(base, {name: expert}, "emr").task_state_dicts[name]
    assert all(torch.equal(found[n], exact[n]) for n in base)


def test_emr_takes_the_sign_of_an_even_vote_to_be_minus(family):
    zero = {n: torch.zeros_like(v) for n, v in family[0].items()}
    plus, minus = ({n: torch.full_like(v, x) for n, v in zero.items()} for x in (0.5, -0.5))
    found = _merge(zero, {"plus": plus, "minus": minus}, "emr").task_state_dicts
    assert not _change(zero, found["plus"]).any()  # an empty mask: nothing to rescale, and nothing that is not finite
    assert torch.equal(_change(zero, found["minus"]), _change(zero, minus))


# --- SCE -------------------------------------------------------------------------------------------------------------


def _naive_sce(vectors, density):
    """One tensor (K, n), scalar by scalar; with equal variances the first scalars are kept."""
    columns = vectors.T.tolist()
    if density < 1:
        spread = [pvariance(column) for column in columns]
        count = int(sum(s > 0 for s in spread) * density)
        kept = set(sorted(range(len(columns)), key=lambda i: -spread[i])[:count])
        columns = [column if i in kept else [0.0] * len(column) for i, column in enumerate(columns)]
    means = [sum(x * x for x in row) / len(row) for row in zip(*columns, strict=True)]
    shares = [mean / sum(means) if sum(means) else 1 / len(means) for mean in means]

    def merged(column):
        sign = 1 if sum(column) >= 0 else -1
        won = [(share, x) for share, x in zip(shares, column, strict=True) if x * sign > 0]
        return sum(share * x for share, x in won) / max(sum(share for share, _ in won), 1e-6)

    return torch.tensor([merged(column) for column in columns], dtype=torch.float64)


@pytest.mark.parametrize("density", [0.1, 0.5, 1.0])
def test_sce_follows_plain_arithmetic_per_tensor(family, density):
    base, experts = family
    found = _merge(base, experts, "sce", {"density": density}).state_dict
    for n in base:
        vectors = torch.stack([e[n] - base[n] for e in experts.values()]).flatten(1)
        assert _close((found[n] - base[n]).flatten(), _naive_sce(vectors, density))


def _sce(rows, **params):
    """SCE of one vector with these task vectors."""
    vectors = torch.tensor(rows, dtype=torch.float64)
    slot = Slot(Parameter("visual.ln_post.bias", Role.SHIFT, "", "", None, 0), ("",) * len(rows), vectors[0], vectors)
    method = registry.find_merge("sce")
    return method.run(slot, method.params.build(params), None).tolist()


def test_sce_decides_ties():
    # Scalars 0, 1 and 3 vary alike, 2 not at all: int(3 · 0.7) are kept, the first ones, in any order of experts.
    rows = [[0.1, 0.7, 0.5, 0.3], [0.3, 0.1, 0.5, 0.7], [0.7, 0.3, 0.5, 0.1]]
    for some in permutations(rows):
        first, second, *others = _sce(some, density=0.7)
        assert first > 0 and second > 0 and others == [0, 0]
    assert _sce(rows, density=0.3) == [0, 0, 0, 0]  # int(0.9)
    assert _sce([[0.5, 0.0], [-0.5, 0.0]]) == [0.5, 0]  # an exactly zero sum elects plus


def test_sce_of_one_expert_of_equal_ones_and_of_short_ones():
    assert _sce([[0.5, -0.0, -0.25]], density=0.1) == [0.5, 0, -0.25]
    assert _sce([[0.5, -0.25]] * 3, density=0.9) == [0, 0] and _sce([[0.5, -0.25]] * 4) == [0.5, -0.25]
    assert _sce([[0.0, 0.0]] * 2) == [0, 0]
    long, short = _sce([[4.0, 0.0], [8.0, 1.0]]), _sce([[4e-9, 0.0], [8e-9, 1e-9]])
    assert long == pytest.approx([(16 * 4 + 65 * 8) / 81, 1.0]) and short == pytest.approx([x * 1e-9 for x in long])
