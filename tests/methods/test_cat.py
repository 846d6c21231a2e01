"""What CAT promises beyond the common checks, against naive references on small layers."""

from __future__ import annotations

import dataclasses

import common_checks
import pytest
import tiny
import torch
from layer_slots import D_IN, EXPERTS, NAME, assert_near, draw, record_notes, rows_of, slot_of

import merging
from merging.engine import run as engine
from merging.images.image_encoder import Encoder
from merging.methods.moments import Moments
from merging.methods.registry import find_edit
from merging.methods.shared.cat_conflicts import Conflict, LinearConflicts, join_conflicts
from merging.models.checkpoint import MappingCheckpoint
from merging.models.families import Role
from merging.recipes.recipe import Recipe
from merging.tasks.context import Context


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
    method = find_edit("cat")

    class Stream:
        experts = slot.experts

        def map(self, work):
            return iter((work(slot),))

    chosen = method.params.build(params)
    found = method.survey(Stream(), chosen).statistics
    return method.run(slot, chosen, found), found.get(slot.name)


# Fewer rows in all than outputs; fewer of each expert than inputs; more, of which the Gram matrix is taken.
@pytest.mark.parametrize("count,outputs", [(2, 30), (8, 20), (40, 30)])
@pytest.mark.parametrize("tradeoff", [0.0, 0.2, 1.0])
def test_cat_finds_the_most_disturbing_directions(count, outputs, tradeoff):
    rows = rows_of(count, width=24)
    slot = slot_of(rows, d_out=outputs)
    _, conflicts = _cat(slot, components=3, tradeoff=tradeoff)
    for task, conflict in enumerate(conflicts):
        matrix, basis = _matrix(slot.task_vectors, rows, task, tradeoff), conflict.positions
        size = basis.shape[1]
        assert 1 <= size <= 3 and torch.allclose(basis.T @ basis, torch.eye(size).double(), atol=1e-10)
        reached = float((basis.T @ matrix @ basis).trace())
        assert reached == pytest.approx(float(conflict.scores.sum()))
        assert conflict.scores.tolist() == sorted(conflict.scores.tolist(), reverse=True) and conflict.scores[-1] > 0
        assert reached == pytest.approx(float(torch.linalg.eigvalsh(matrix)[-size:].sum()))
        for seed in range(20):
            other = torch.linalg.qr(draw(seed, outputs, size)).Q
            assert float((other.T @ matrix @ other).trace()) < reached


@pytest.mark.parametrize("tradeoff", [0.5, 5.0])
def test_cats_two_routes_are_one(tradeoff, monkeypatch):
    rows = rows_of(3, width=10)
    slot = slot_of(rows, d_out=40)
    grams = []
    for x in rows:
        moments = Moments(10)
        for part in (x, 0 * rows_of(10, width=10)[0]):  # so many that only sums are kept
            moments.add(part)
        moments.count = len(x)
        assert moments.rows is None
        grams.append(moments)
    for task in range(EXPERTS):
        with monkeypatch.context() as patch:
            patch.delattr(Moments, "gram")  # few rows never need it
            few = LinearConflicts(slot.task_vectors, slot.inputs, tradeoff).find_top(task, 4)
        many = LinearConflicts(slot.task_vectors, tuple(grams), tradeoff).find_top(task, 4)
        assert torch.allclose(few.scores, many.scores)
        assert torch.allclose(few.positions @ few.positions.T, many.positions @ many.positions.T, atol=1e-8)


def test_cat_removes_all_directions_in_one_projection():
    rows = rows_of(20)
    slot, told = record_notes(slot_of(rows))
    trimmed, conflicts = _cat(slot, components=2, tradeoff=0.5)
    for i, (before, after) in enumerate(zip(slot.task_vectors, trimmed, strict=True)):
        bases = [_top(_matrix(slot.task_vectors, rows, k, 0.5), 2) for k in range(EXPERTS) if k != i]
        together = torch.cat(bases, dim=1)
        assert assert_near(after, before - together @ torch.linalg.pinv(together) @ before)
        assert all(assert_near(basis.T @ after, torch.zeros(2, D_IN).double()) for basis in bases)
        assert told[i]["removed"] == pytest.approx(1 - float(after.square().sum() / before.square().sum()))
        assert told[i]["conflicts"] == 2 and told[i]["expert"] == f"expert {i}"
        assert told[i]["conflict_sum"] == pytest.approx(float(conflicts[i].scores.sum()))
        assert told[i]["conflict_top"] == pytest.approx(float(conflicts[i].scores[0]))


def test_conflicts_that_share_directions_remove_them_once_and_nothing_else():
    basis, other = torch.linalg.qr(draw(1, 8, 3)).Q.split((2, 1), dim=1)
    turned = torch.stack([basis.sum(dim=1), basis[:, 0] - basis[:, 1]], dim=1) / 2**0.5  # the same plane
    vector, scores = draw(2, 8, 5), torch.ones(2).double()
    both = join_conflicts([Conflict(basis, scores), Conflict(turned, scores), Conflict(other, scores[:1])])
    assert both.positions.shape == (8, 3) and len(both.scores) == 5
    spanned = torch.cat([basis, other], dim=1)
    assert assert_near(both.remove_from(vector), vector - spanned @ spanned.T @ vector)


def test_cat_sequential_is_the_literal_algorithm():
    rows = rows_of(20)
    slot = slot_of(rows)
    expected = slot.task_vectors.clone()
    for k in range(EXPERTS):
        basis = _top(_matrix(expected, rows, k, 0.5), 2)
        for i in range(EXPERTS):
            if i != k:
                expected[i] = expected[i] - basis @ basis.T @ expected[i]
    found, _ = _cat(slot, components=2, tradeoff=0.5, mode="sequential")
    joint, _ = _cat(slot, components=2, tradeoff=0.5)
    assert assert_near(found, expected) and not assert_near(joint, expected, 1e-3)


@pytest.mark.parametrize("mode", ["joint", "sequential"])
def test_cat_drops_norm_scales_and_shifts_that_disturb_most(mode):
    rows = rows_of(9)
    rows[0] = rows[0].repeat(6, 1)  # more exemplars of a task do not make it count more
    slot = slot_of(rows, role=Role.NORM_SCALE)
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
    x = draw(0, 30, D_IN)
    for rows in ([x] * EXPERTS, [x[:2]] * EXPERTS):
        slot = slot_of(rows)
        same = slot.with_task_vectors(slot.task_vectors[:1].expand(EXPERTS, -1, -1))
        found, conflicts = _cat(same, tradeoff=1.0)
        assert torch.equal(found, same.task_vectors) and not any(len(c.scores) for c in conflicts)


def test_cat_takes_no_directions_from_rounding_of_what_others_need():
    """A task without inputs is not disturbed at all; a large trade-off must not turn the others' rounding into that."""
    x = draw(0, 2, D_IN)
    slot = slot_of([torch.zeros(20, D_IN).double(), x, x])
    slot.task_vectors[0] = 0
    conflict = LinearConflicts(slot.task_vectors, slot.inputs, 1e6).find_top(0, 4)
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
    experts, ran, original = {n: tiny.checkpoint(s) for n, s in states.items()}, [], Encoder.run_section

    def run(self, section, x, record=None):
        ran.append(section)
        return original(self, section, x, record)

    monkeypatch.setattr(Encoder, "run_section", run)
    images = {n: torch.randn(2, 3, tiny.SIZE, tiny.SIZE) for n in states}
    chain = Recipe.build("ties", edits=["cat"])
    result = engine.run_recipe(chain, tiny.checkpoint(base), experts, exemplars=images, context=Context(device="cpu"))
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
