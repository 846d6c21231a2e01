"""What LOT, RegMean and CAT promise beyond the common checks, against naive references on small layers."""

from __future__ import annotations

import dataclasses

import common_checks
import plain_tower
import pytest
import tiny
import torch

import merging
from merging.checkpoints.checkpoint import MappingCheckpoint
from merging.checkpoints.families import Parameter, Role
from merging.clip.image_encoder import Encoder
from merging.engine import run as engine
from merging.methods.moments import Moments
from merging.methods.registry import edit, merge
from merging.methods.shared import least_squares
from merging.methods.shared.cat_conflicts import LinearConflicts
from merging.methods.slot import Slot
from merging.recipes.recipe import Recipe

NAME = "visual.transformer.resblocks.0.mlp.c_fc.weight"
D_IN, D_OUT, EXPERTS = 12, 9, 3


def _draw(seed, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _slot(rows, seed=0, d_out=D_OUT, role=Role.LINEAR, **more):
    """A linear weight (d_out, d_in), or a norm scale, with the rows that enter it in every expert."""
    width = rows[0].shape[1]
    shape = (width,) if role == Role.NORM_SCALE else (d_out, width)
    inputs = tuple(Moments.of(x) for x in rows)
    parameter = Parameter(NAME, role, "mlp.c_fc", "block 0", 0, 0)
    vectors = _draw(seed + 1, len(rows), *shape)
    names = tuple(f"expert {k}" for k in range(len(rows)))
    return Slot(parameter, names, _draw(seed, *shape), vectors, read_inputs=lambda: inputs, **more)


def _rows(count, seed=10, width=D_IN, experts=EXPERTS):
    """Rows of the experts, of different numbers and each with other strong columns."""
    spread = 4 ** torch.linspace(-1, 1, width).double()
    return [_draw(seed + k, count + k, width) * spread.roll(k * width // experts) for k in range(experts)]


def _run(key, slot, **params):
    method = merge(key)
    return method.run(slot, method.params.build(params), None)


def _notes(slot):
    """The slot, and the rows of tables that it is told."""
    told = []
    return dataclasses.replace(slot, note=lambda table, **row: told.append(row | {"table": table})), told


def _drift(slot, rows, change):
    """Σ_k ‖X_k (change - τ_k)ᵀ‖²."""
    return sum(float((x @ (change - v).T).square().sum()) for x, v in zip(rows, slot.task_vectors, strict=True))


def _close(found, expected, tolerance=1e-9):
    return float((found - expected).norm()) <= tolerance * max(float(expected.norm()), 1.0)


# --- LOT -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count,rtol", [(40, None), (2, None), (40, 0.5)])  # full rank, rank-deficient, truncated
def test_lot_has_no_gradient_in_the_directions_it_keeps(count, rtol):
    rows = _rows(count)
    slot = _slot(rows)
    found = _run("lot", slot, scaling=1.0, rtol=rtol)
    gram = sum(x.T @ x for x in rows)
    target = sum(x.T @ x @ v.T for x, v in zip(rows, slot.task_vectors, strict=True))
    values, vectors = torch.linalg.eigh(gram)
    kept = vectors[:, values > (D_IN * 2**-23 if rtol is None else rtol) * values[-1]]
    assert (kept.shape[1] == D_IN) == (count == 40 and rtol is None)
    assert _close(kept.T @ (gram @ found.T - target), torch.zeros(kept.shape[1], D_OUT).double(), 1e-8)
    assert _close(found @ kept @ kept.T, found)  # nothing outside of them


def test_lots_drift_is_not_above_anything_elses():
    rows = _rows(40)
    slot = _slot(rows)
    found = _run("lot", slot, scaling=1.0)
    least = _drift(slot, rows, found)
    others = [slot.task_vectors.mean(dim=0), torch.zeros_like(found), *slot.task_vectors]
    nearby = [found + size * _draw(seed, *found.shape) for seed in range(20) for size in (1e-4, 1e-2, 1.0)]
    assert all(least < _drift(slot, rows, other) for other in (*others, *nearby))


def test_lot_on_orthogonal_features_has_no_drift():
    """The paper's ideal case: every task's vector in its own subspace, Σ_k V_k V_kᵀ T_k."""
    frame = torch.linalg.qr(_draw(0, D_IN, D_IN)).Q
    spaces = frame.split(D_IN // EXPERTS, dim=1)
    rows = [_draw(k, 20, space.shape[1]) @ space.T for k, space in enumerate(spaces)]
    slot, told = _notes(_slot(rows))
    found = _run("lot", slot, scaling=1.0)
    assert _close(found, sum(v @ space @ space.T for v, space in zip(slot.task_vectors, spaces, strict=True)))
    assert told[0]["drift"] < 1e-12 * told[0]["drift_zero"]


def test_lot_is_the_mean_on_equal_inputs():
    rows = [_draw(0, 30, D_IN)] * EXPERTS
    slot = _slot(rows)
    assert _close(_run("lot", slot, scaling=0.7), 0.7 * slot.task_vectors.mean(dim=0))


@pytest.mark.parametrize("count,rtol", [(40, None), (2, None), (40, 0.5)])
def test_lot_says_what_it_minimized(count, rtol):
    rows = _rows(count)
    slot, told = _notes(_slot(rows))
    found = _run("lot", slot, scaling=1.0, rtol=rtol)
    (row,) = told
    values = torch.linalg.eigvalsh(sum(x.T @ x for x in rows))
    kept = values[values > (D_IN * 2**-23 if rtol is None else rtol) * values[-1]]
    expected = {
        "rows": sum(map(len, rows)),
        "width": D_IN,
        "directions": len(kept),
        "trace_kept": float(kept.sum() / values.sum()),
        "smallest": float(kept[0] / values[-1]),
        "drift": _drift(slot, rows, found),
        "drift_mean": _drift(slot, rows, slot.task_vectors.mean(dim=0)),
        "drift_zero": _drift(slot, rows, torch.zeros_like(found)),
    }
    assert row.pop("table") == "lot" and row == pytest.approx(expected, rel=1e-8)


def test_lot_weighs_norm_scales_by_the_energy_of_their_inputs():
    rows = _rows(7)
    rows = [x.index_fill(1, torch.tensor([4]), 0.0) for x in rows]  # a channel that nothing enters
    for x in rows:
        x[:, 7] *= 1e-3  # and one that hardly anything enters
    slot, told = _notes(_slot(rows, role=Role.NORM_SCALE))
    found = _run("lot", slot, scaling=1.0)
    energy = torch.stack([x.square().sum(dim=0) for x in rows])
    energy[:, 4] = 0
    expected = (energy * slot.task_vectors).sum(dim=0) / energy.sum(dim=0).clamp(min=1e-10)
    assert _close(found, expected) and found[4] == 0
    mean = slot.task_vectors.mean(dim=0)
    for key, scale in (("drift", found), ("drift_mean", mean), ("drift_zero", torch.zeros_like(mean))):
        assert told[0][key] == pytest.approx(float((energy * (scale - slot.task_vectors).square()).sum()))
    assert told[0]["directions"] == D_IN - 1


def test_lot_tells_of_every_tensor_with_inputs():
    base, experts = common_checks.family()
    inputs = common_checks.layer_inputs(experts)
    table = merging.merge(base, experts, "lot", layer_inputs=inputs, device="cpu").tables["lot"]
    assert set(table["tensor"]) == set(inputs["expert 0"]) and table["order"].is_monotonic_increasing
    linear = table[table["role"] != "norm_scale"]
    assert (linear["drift"] <= linear["drift_mean"]).all() and (table["drift_mean"] <= table["drift_zero"]).all()


def test_an_eigen_decomposition_that_fails_is_tried_again(monkeypatch):
    calls, original = [], torch.linalg.eigh

    def eigh(matrix):
        calls.append(matrix)
        if len(calls) == 1:
            raise torch.linalg.LinAlgError("did not converge")
        return original(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", eigh)
    gram = _draw(0, 5, 5)
    gram = gram @ gram.T
    values, vectors = least_squares.spectrum(gram)
    assert len(calls) == 2 and torch.allclose((vectors * values) @ vectors.T, gram, rtol=1e-9)


# --- RegMean ---------------------------------------------------------------------------------------------------------


def _weights(slot):
    return slot.pretrained + slot.task_vectors


def _shrunk(x, alpha):
    gram = x.T @ x
    return alpha * gram + (1 - alpha) * torch.diag(gram.diagonal())


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.95, 1.0])
@pytest.mark.parametrize("count", [40, 2])
def test_regmean_is_stationary(alpha, count):
    """Σ_k Ĝ_k (θ - θ_k)ᵀ = 0, with as few exemplars as one likes."""
    rows = _rows(count)
    slot = _slot(rows)
    found = slot.pretrained + _run("regmean", slot, alpha=alpha)
    weights = _weights(slot)
    rest = sum(_shrunk(x, alpha) @ (found - w).T for x, w in zip(rows, weights, strict=True))
    assert float(rest.norm()) < 1e-9 * sum(float((x.T @ x).norm()) for x in rows)


def test_regmean_without_off_diagonals_is_a_mean_weighted_by_energy():
    rows = _rows(8)
    slot = _slot(rows)
    energy = torch.stack([x.square().sum(dim=0) for x in rows])[:, None]
    expected = (energy * slot.task_vectors).sum(dim=0) / energy.sum(dim=0)
    assert _close(_run("regmean", slot, alpha=0.0), expected)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_regmean_limits(alpha):
    same = _slot([_draw(0, 30, D_IN)] * EXPERTS)
    assert _close(_run("regmean", same, alpha=alpha), same.task_vectors.mean(dim=0))
    slot = _slot(_rows(30))
    identical = slot.with_task_vectors(slot.task_vectors[:1].expand(EXPERTS, -1, -1))
    assert _close(_run("regmean", identical, alpha=alpha), identical.task_vectors[0])


def test_regmean_with_whole_grams_is_lot_where_they_can_be_inverted():
    slot = _slot(_rows(40))
    assert _close(_run("regmean", slot, alpha=1.0), _run("lot", slot, scaling=1.0))


def test_regmean_with_few_exemplars_loses_pretrained_weights_at_alpha_one_only():
    """The literal pseudo-inverse of whole weights; the part that it loses is in the table. LOT keeps it."""
    rows = _rows(2)
    slot, told = _notes(_slot(rows))
    found = slot.pretrained + _run("regmean", slot, alpha=1.0)
    gram = sum(x.T @ x for x in rows)
    inverse = torch.linalg.pinv(gram, rtol=1e-12, hermitian=True)
    target = sum(x.T @ x @ w.T for x, w in zip(rows, _weights(slot), strict=True))
    assert _close(found, (inverse @ target).T)
    lost = slot.pretrained @ (torch.eye(D_IN).double() - gram @ inverse)
    assert _close(found, slot.pretrained + _run("lot", slot, scaling=1.0, rtol=1e-12) - lost)
    assert told[0]["rank"] == 9 and told[0]["rows"] == 9 and told[0]["width"] == D_IN
    assert told[0]["pretrained_lost"] == pytest.approx(float(lost.square().sum() / slot.pretrained.square().sum()))
    assert told[0]["pretrained_lost"] > 0.1
    told.clear()
    _run("regmean", slot, alpha=0.95)
    assert told[0]["rank"] == D_IN and told[0]["pretrained_lost"] == 0


@pytest.mark.parametrize("alpha", [0.9, 1.0])
def test_regmean_says_how_well_conditioned_its_equations_are(alpha):
    rows = _rows(60)
    slot, told = _notes(_slot(rows))
    _run("regmean", slot, alpha=alpha)
    values = torch.linalg.eigvalsh(sum(_shrunk(x, alpha) for x in rows))
    exact = float(values[-1] / values[0])
    assert 0.7 * exact < told[0]["condition"] <= exact * (1 + 1e-9)


def test_regmean_keeps_the_pretrained_weights_of_inputs_that_are_always_zero():
    rows = [x.index_fill(1, torch.tensor([2, 5]), 0.0) for x in _rows(30)]
    slot, told = _notes(_slot(rows))
    found = _run("regmean", slot, alpha=0.95)
    assert (found[:, [2, 5]] == 0).all() and told[0]["rank"] == D_IN - 2
    rest = [i for i in range(D_IN) if i not in (2, 5)]
    smaller = _slot([x[:, rest] for x in rows]).with_task_vectors(slot.task_vectors[:, :, rest])
    assert _close(found[:, rest], _run("regmean", smaller, alpha=0.95))
    nothing = _slot([torch.zeros(4, D_IN).double()] * EXPERTS)
    assert (_run("regmean", nothing, alpha=0.5) == 0).all()


def test_regmean_falls_back_when_rounding_spoils_the_factorization(monkeypatch):
    slot = _slot(_rows(40))
    expected = _run("regmean", slot, alpha=0.9)
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda gram: (gram, torch.tensor(3)))
    assert _close(_run("regmean", slot, alpha=0.9), expected)


def test_regmean_takes_the_mean_of_what_is_no_linear_weight():
    base, experts = common_checks.family()
    inputs = common_checks.layer_inputs(experts)
    result = merging.merge(base, experts, "regmean", layer_inputs=inputs, device="cpu")
    described = MappingCheckpoint(base, "base").parameters
    regressed = {p.name for p in described if p.role in {Role.LINEAR, Role.PROJECTION}}
    assert set(result.tables["regmean"]["tensor"]) == regressed
    for name in base:
        mean = torch.stack([e[name] for e in experts.values()]).mean(dim=0)
        assert _close(result.state_dict[name], mean) == (name not in regressed)


# --- both under either naming ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["lot", "regmean"])
def test_packed_and_separate_attention_weights_give_one_model(key):
    base, states = tiny.family()
    images = {n: torch.randn(4, 3, tiny.SIZE, tiny.SIZE) for n in states}

    def merged(opened):
        experts = {n: opened(s) for n, s in states.items()}
        return engine.run(Recipe.build(key), opened(base), experts, exemplars=images, device="cpu").state_dict

    def renamed(state):
        found = MappingCheckpoint(plain_tower.hugging_face(state), "hf")
        found.metadata = tiny.checkpoint(state).metadata
        return found

    packed = plain_tower.hugging_face(merged(tiny.checkpoint))
    common_checks.assert_close(merged(renamed), packed, plain_tower.hugging_face(base), 1e-4)


# --- CAT -------------------------------------------------------------------------------------------------------------


def _matrix(vectors, rows, task, tradeoff):
    """M_k = Σ_{i≠k} τ_i (G_k/n_k - α G_i/n_i) τ_iᵀ, term by term."""
    grams = [x.T @ x / len(x) for x in rows]
    others = [i for i in range(len(rows)) if i != task]
    return sum(vectors[i] @ (grams[task] - tradeoff * grams[i]) @ vectors[i].T for i in others)


def _top(matrix, count):
    values, vectors = torch.linalg.eigh(matrix)
    count = min(count, int((values > 1e-9 * values.abs().max()).sum()))
    return vectors[:, len(values) - count :]


def _cat(slot, **params):
    method = edit("cat")

    class Stream:
        experts = slot.experts

        def __iter__(self):
            return iter((slot,))

    chosen = method.params.build(params)
    found = method.survey(Stream(), chosen).statistics
    return method.run(slot, chosen, found), found.get(slot.name)


@pytest.mark.parametrize("count", [2, 40])  # few rows, which are kept; many, of which the Gram matrix is
@pytest.mark.parametrize("tradeoff", [0.0, 0.2, 1.0])
def test_cat_finds_the_most_disturbing_directions(count, tradeoff):
    rows = _rows(count, width=24)
    slot = _slot(rows, d_out=30)
    _, conflicts = _cat(slot, components=3, tradeoff=tradeoff)
    for task, conflict in enumerate(conflicts):
        matrix, basis = _matrix(slot.task_vectors, rows, task, tradeoff), conflict.where
        size = basis.shape[1]
        assert 1 <= size <= 3 and torch.allclose(basis.T @ basis, torch.eye(size).double(), atol=1e-10)
        reached = float((basis.T @ matrix @ basis).trace())
        assert reached == pytest.approx(float(conflict.scores.sum()))
        assert conflict.scores.tolist() == sorted(conflict.scores.tolist(), reverse=True) and conflict.scores[-1] > 0
        assert reached == pytest.approx(float(torch.linalg.eigvalsh(matrix)[-size:].sum()))
        for seed in range(20):
            other = torch.linalg.qr(_draw(seed, 30, size)).Q
            assert float((other.T @ matrix @ other).trace()) < reached


@pytest.mark.parametrize("tradeoff", [0.5, 5.0])
def test_cats_two_routes_are_one(tradeoff, monkeypatch):
    rows = _rows(3, width=10)
    slot = _slot(rows, d_out=40)
    grams = []
    for x in rows:
        moments = Moments(10)
        moments.add(x)
        moments._squares, moments._total, moments._rows = moments._products(x), x.sum(dim=0), []
        grams.append(moments)
    for task in range(EXPERTS):
        with monkeypatch.context() as patch:
            patch.delattr(Moments, "gram")  # few rows never need it
            few = LinearConflicts(slot.task_vectors, slot.inputs, tradeoff).top(task, 4)
        many = LinearConflicts(slot.task_vectors, tuple(grams), tradeoff).top(task, 4)
        assert torch.allclose(few.scores, many.scores)
        assert torch.allclose(few.where @ few.where.T, many.where @ many.where.T, atol=1e-8)


def test_cat_removes_all_directions_in_one_projection():
    rows = _rows(20)
    slot, told = _notes(_slot(rows))
    trimmed, conflicts = _cat(slot, components=2, tradeoff=0.5)
    for i, (before, after) in enumerate(zip(slot.task_vectors, trimmed, strict=True)):
        bases = [_top(_matrix(slot.task_vectors, rows, k, 0.5), 2) for k in range(EXPERTS) if k != i]
        together = torch.cat(bases, dim=1)
        assert _close(after, before - together @ torch.linalg.pinv(together) @ before)
        assert all(_close(basis.T @ after, torch.zeros(2, D_IN).double()) for basis in bases)
        assert told[i]["removed"] == pytest.approx(1 - float(after.square().sum() / before.square().sum()))
        assert told[i]["conflicts"] == 2 and told[i]["expert"] == f"expert {i}"
        assert told[i]["conflict_sum"] == pytest.approx(float(conflicts[i].scores.sum()))
        assert told[i]["conflict_top"] == pytest.approx(float(conflicts[i].scores[0]))


def test_cat_sequential_is_the_literal_algorithm():
    rows = _rows(20)
    slot = _slot(rows)
    expected = slot.task_vectors.clone()
    for k in range(EXPERTS):
        basis = _top(_matrix(expected, rows, k, 0.5), 2)
        for i in range(EXPERTS):
            if i != k:
                expected[i] = expected[i] - basis @ basis.T @ expected[i]
    found, _ = _cat(slot, components=2, tradeoff=0.5, mode="sequential")
    joint, _ = _cat(slot, components=2, tradeoff=0.5)
    assert _close(found, expected) and not _close(joint, expected, 1e-3)


@pytest.mark.parametrize("mode", ["joint", "sequential"])
def test_cat_drops_norm_scales_and_shifts_that_disturb_most(mode):
    rows = _rows(9)
    rows[0] = rows[0].repeat(6, 1)  # more exemplars of a task do not make it count more
    slot = _slot(rows, role=Role.NORM_SCALE)
    shift = dataclasses.replace(slot, parameter=dataclasses.replace(slot.parameter, role=Role.SHIFT))
    energies = [x.square().mean(dim=0) for x in rows]
    for one, tradeoff in ((slot, 0.5), (shift, 0.0)):
        weights = energies if one is slot else [torch.ones(D_IN).double()] * EXPERTS
        now, expected = one.task_vectors.clone(), one.task_vectors.clone()
        for k in range(EXPERTS):
            others = [i for i in range(EXPERTS) if i != k]
            scores = sum((weights[k] - tradeoff * weights[i]) * now[i] ** 2 for i in others)
            worst = [int(at) for at in scores.argsort(descending=True)[:5] if scores[at] > 0]
            for i in others:
                expected[i, worst] = 0
            if mode == "sequential":
                now = expected.clone()
        found, _ = _cat(one, norm_components=5, norm_tradeoff=0.5, shift_components=5, mode=mode)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("mode", ["joint", "sequential"])
def test_cat_limits(mode):
    base, experts = common_checks.family()
    inputs = common_checks.layer_inputs(experts)
    plain = merging.merge(base, experts, device="cpu").state_dict

    def trimmed(**params):
        chain = [("cat", {"mode": mode, **params})]
        return merging.merge(base, experts, edits=chain, layer_inputs=inputs, device="cpu").state_dict

    nothing = trimmed(components=0, norm_components=0, shift_components=0)
    assert all(torch.equal(nothing[n], plain[n]) for n in base)
    cautious = trimmed(tradeoff=1e9, norm_tradeoff=1e9, shift_components=0)
    assert all(torch.equal(cautious[n], plain[n]) for n in base)
    everything = trimmed(components=99, tradeoff=0.0, norm_components=99, norm_tradeoff=0.0, shift_components=99999)
    common_checks.assert_close(everything, base, base)


def test_cat_takes_no_directions_from_rounding():
    """Identical experts at a trade-off of 1 disturb each other exactly as much as they serve themselves: M is zero."""
    x = _draw(0, 30, D_IN)
    for rows in ([x] * EXPERTS, [x[:2]] * EXPERTS):
        slot = _slot(rows)
        same = slot.with_task_vectors(slot.task_vectors[:1].expand(EXPERTS, -1, -1))
        found, conflicts = _cat(same, tradeoff=1.0)
        assert torch.equal(found, same.task_vectors) and not any(len(c.scores) for c in conflicts)


def test_cat_takes_no_directions_from_rounding_of_what_others_need():
    """A task without inputs is not disturbed at all; a large trade-off must not turn the others' rounding into that."""
    x = _draw(0, 2, D_IN)
    slot = _slot([torch.zeros(20, D_IN).double(), x, x])
    slot.task_vectors[0] = 0
    conflict = LinearConflicts(slot.task_vectors, slot.inputs, 1e6).top(0, 4)
    assert len(conflict.scores) == 0


def test_cat_with_one_expert_says_that_it_does_nothing():
    base, experts = common_checks.family(experts=1)
    inputs = common_checks.layer_inputs(experts)
    result = merging.merge(base, experts, edits=["cat"], layer_inputs=inputs, device="cpu")
    plain = merging.merge(base, experts, device="cpu").state_dict
    assert all(torch.equal(result.state_dict[n], plain[n]) for n in base)
    assert "cat with one expert changes nothing" in result.warnings[0]


def test_cat_depends_on_the_order_of_experts_only_when_sequential():
    base, experts = common_checks.family()
    inputs = common_checks.layer_inputs(experts)

    def both(mode):
        chain = [("cat", {"tradeoff": 0.5, "mode": mode})]
        orders = (experts, dict(reversed(experts.items())))
        return [merging.merge(base, e, edits=chain, layer_inputs=inputs, device="cpu").state_dict for e in orders]

    common_checks.assert_close(*both("joint"), base)
    with pytest.raises(AssertionError):
        common_checks.assert_close(*both("sequential"), base, 1e-3)


def test_cat_looks_at_the_exemplars_once_however_often_its_result_is_streamed(monkeypatch):
    """Ties streams the trimmed task vectors several times; the network runs only in cat's own survey."""
    base, states = tiny.family()
    experts, ran, original = {n: tiny.checkpoint(s) for n, s in states.items()}, [], Encoder.run

    def run(self, section, x, record=None):
        ran.append(section)
        return original(self, section, x, record)

    monkeypatch.setattr(Encoder, "run", run)
    images = {n: torch.randn(2, 3, tiny.SIZE, tiny.SIZE) for n in states}
    chain = Recipe.build("ties", edits=["cat"])
    result = engine.run(chain, tiny.checkpoint(base), experts, exemplars=images, device="cpu")
    assert ran == [section for section in range(4) for _ in experts]
    assert len(result.tables["cat"]) == len(base) * len(states)


def test_cat_leaves_weights_without_known_inputs_alone():
    """Conv1, proj and norm scales as they are; shifts and embeddings need no inputs."""
    base, experts = common_checks.family()
    inputs = {n: {NAME: r[NAME]} for n, r in common_checks.layer_inputs(experts).items()}
    chain = [("cat", {"tradeoff": 0.5})]
    found = merging.merge(base, experts, edits=chain, layer_inputs=inputs, device="cpu")
    plain = merging.merge(base, experts, device="cpu").state_dict
    changed = {n for n in base if not torch.equal(found.state_dict[n], plain[n])}
    alone = {p.name for p in MappingCheckpoint(base, "base").parameters if p.role in {Role.SHIFT, Role.EMBEDDING}}
    assert changed == alone | {NAME}
