"""Layer inputs captured from exemplars, against plain forward passes and against inputs that are given."""

from __future__ import annotations

import dataclasses

import common_checks
import plain_tower
import pytest
import tiny
import torch
from held_tensors import find_tensors

import merging
from merging.base.errors import Cancelled, NeedsError
from merging.engine import run as engine
from merging.engine.layer_inputs import CallerInputs, CapturedInputs
from merging.engine.outputs import Notes
from merging.images import batch_sizes
from merging.images.image_encoder import Encoder
from merging.methods import registry
from merging.methods.method import REGISTERED
from merging.methods.moments import Moments
from merging.methods.slot import Slot
from merging.models.checkpoint import MappingCheckpoint
from merging.models.families import Parameter, Role
from merging.recipes.recipe import Recipe
from merging.tasks.context import Context

CPU = torch.device("cpu")
CHAINS = {"lot": Recipe.build("lot"), "regmean": Recipe.build("regmean"),
          "cat": Recipe.build("task_arithmetic", edits=["cat"])}  # fmt: skip


def _images(experts, count=5):
    return {n: torch.randn(count, 3, tiny.SIZE, tiny.SIZE, generator=torch.Generator().manual_seed(k))
            for k, n in enumerate(experts)}  # fmt: skip


def _hugging_face(state):
    found = MappingCheckpoint(plain_tower.hugging_face(state), "hf")
    found.metadata = tiny.checkpoint(state).metadata
    return found


def _rows(experts, images):
    """What the whole towers record in one go."""
    found = {n: {} for n in experts}
    with torch.inference_mode():
        for name, checkpoint in experts.items():
            Encoder.from_checkpoint(checkpoint)(images[name], record=found[name].__setitem__)
    return found


def _same(found, rows, diagonal=False):
    rows = rows.double()
    assert found.count == len(rows) and found.width == rows.shape[1]
    assert torch.allclose(found.energy(), rows.square().sum(dim=0), atol=1e-4)
    assert torch.allclose(found.total(), rows.sum(dim=0), atol=1e-4)
    assert diagonal or torch.allclose(found.gram(), rows.T @ rows, atol=1e-4)
    assert diagonal or torch.equal(found.gram(), found.gram().T)


@pytest.mark.parametrize("opened", [tiny.checkpoint, _hugging_face])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("batch", [1, 10, 1000])  # tokens: one image, two images, all
def test_captured_moments_equal_those_of_a_plain_forward_pass(opened, backwards, batch, monkeypatch):
    monkeypatch.setattr(batch_sizes, "CPU_TOKENS", batch)
    _, states = tiny.family()
    experts, images = {n: opened(s) for n, s in states.items()}, _images(states)
    expected = _rows(experts, images)
    captured = CapturedInputs(experts, images, CPU)
    parameters = next(iter(experts.values())).parameters
    for parameter in reversed(parameters) if backwards else parameters:
        moments = captured.moments(parameter)
        assert (moments is None) == (parameter.name not in expected["digits"])
        for name, one in zip(experts, moments or (), strict=moments is not None):
            _same(one, expected[name][parameter.name], parameter.role == Role.NORM_SCALE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("diagonal", [False, True])
def test_rows_are_kept_only_while_they_are_smaller_than_their_products(dtype, diagonal):
    """7 columns: a row takes 28 bytes (56 in float64), their Gram matrix 392, its diagonal 56."""
    rows = torch.randn(30, 7, dtype=dtype)
    found = Moments(7, diagonal)
    for count, row in enumerate(rows, 1):
        found.add(row[None])
        assert (found.rows is None) == (count * dtype.itemsize >= 8 * (1 if diagonal else 7))
        assert found.rows is None or torch.equal(found.rows, rows[:count])
        _same(found, rows[:count], diagonal)


@pytest.mark.parametrize("count", [40, 160])  # of either so many that no rows are kept, but norms' few columns
def test_memory_does_not_grow_with_the_number_of_exemplars(count, monkeypatch):
    """What is held beyond the exemplars themselves and their tokens at one place, which are as many."""
    monkeypatch.setattr(batch_sizes, "CPU_TOKENS", 4 * tiny.TOKENS)
    _, states = tiny.family(("a", "b"))
    experts, images = {n: tiny.checkpoint(s) for n, s in states.items()}, _images(states, count)
    captured, seen = CapturedInputs(experts, images, CPU), []
    for parameter in next(iter(experts.values())).parameters:
        captured.moments(parameter)
        tensors = list(find_tensors(captured))
        seen.append(sum(t.untyped_storage().nbytes() for holder, t in tensors if isinstance(holder, Moments)))
        tokens = [t for _, t in tensors if t.shape == (count, tiny.TOKENS, tiny.WIDTH)]
        assert len(tokens) == len(experts)
        most = sum(i.nbytes for i in images.values()) + sum(t.untyped_storage().nbytes() for t in tokens)
        assert sum(t.untyped_storage().nbytes() for _, t in tensors if len(t) == count) == most
    widths = [tiny.WIDTH, 4 * tiny.WIDTH]
    block = 3 * (widths[0] ** 2 + widths[0]) + widths[1] ** 2 + widths[1] + 2 * 2 * widths[0]
    assert max(seen) <= len(experts) * 8 * max(block, 192**2 + 192 + 2 * widths[0])
    assert len(set(seen)) == 3  # stem, blocks, head


def test_a_batch_of_exemplars_is_all_that_runs_at_a_time(monkeypatch):
    monkeypatch.setattr(batch_sizes, "CPU_TOKENS", 4 * tiny.TOKENS)
    base, states = tiny.family(("a", "b"))
    experts, ran, original = {n: tiny.checkpoint(s) for n, s in states.items()}, [], Encoder.run_section

    def run(self, section, x, record=None):
        ran.append(len(x))
        return original(self, section, x, record)

    monkeypatch.setattr(Encoder, "run_section", run)
    engine.run_recipe(
        CHAINS["lot"], tiny.checkpoint(base), experts, exemplars=_images(states, 10), context=Context("cpu")
    )
    assert set(ran) == {4, 2}


def test_every_section_runs_once_per_expert_and_pass(monkeypatch):
    base, states = tiny.family()
    experts, ran, original = {n: tiny.checkpoint(s) for n, s in states.items()}, [], Encoder.run_section

    def run(self, section, x, record=None):
        ran.append((section, record is not None))
        return original(self, section, x, record)

    monkeypatch.setattr(Encoder, "run_section", run)
    engine.run_recipe(
        Recipe.build("lot"), tiny.checkpoint(base), experts, exemplars=_images(states), context=Context("cpu")
    )
    assert ran == [(section, True) for section in range(4) for _ in experts]
    ran.clear()
    chain = Recipe.build("weight_averaging", edits=["lwptv"])
    engine.run_recipe(chain, tiny.checkpoint(base), experts, exemplars=_images(states), context=Context(device="cpu"))
    assert not ran


@pytest.mark.parametrize("calls", [5, 6, 7, 8])  # in the second section, in which each of four experts reports once
def test_moments_after_a_cancelled_question_are_those_of_a_plain_forward_pass(calls):
    _, states = tiny.family()
    experts, images = {n: tiny.checkpoint(s) for n, s in states.items()}, _images(states)
    captured, reports = CapturedInputs(experts, images, CPU), []
    parameter = next(p for p in next(iter(experts.values())).parameters if p.block == 1 and p.role == Role.LINEAR)

    def report(detail):
        reports.append(detail)
        if len(reports) == calls:
            raise Cancelled("enough")

    threads = torch.get_num_threads()
    with pytest.raises(Cancelled):
        captured.moments(parameter, report)
    assert torch.get_num_threads() == threads
    expected = _rows(experts, images)
    for name, one in zip(experts, captured.moments(parameter), strict=True):
        _same(one, expected[name][parameter.name], False)


def test_query_key_and_value_share_their_moments():
    _, states = tiny.family(("a",))
    checkpoint = _hugging_face(states["a"])
    captured = CapturedInputs({"a": checkpoint}, _images(states), CPU)
    q, k, v = (captured.moments(p)[0] for p in checkpoint.parameters
               if p.block == 1 and p.role == Role.LINEAR and p.part[5:] in ("q_proj", "k_proj", "v_proj"))  # fmt: skip
    distinct = {id(holder) for holder, _ in find_tensors(captured) if isinstance(holder, Moments)}
    assert q is k is v and len(distinct) == 6  # two norms, attention's inputs, three more matrices


@pytest.mark.parametrize("opened", [tiny.checkpoint, _hugging_face])
@pytest.mark.parametrize("recipe", CHAINS.values(), ids=CHAINS.keys())
def test_exemplars_and_their_layer_inputs_give_one_result(recipe, opened):
    base, states = tiny.family()
    experts, images = {n: opened(s) for n, s in states.items()}, _images(states)
    pretrained = opened(base)
    from_images = engine.run_recipe(recipe, pretrained, experts, exemplars=images, context=Context("cpu"))
    from_rows = engine.run_recipe(
        recipe, pretrained, experts, layer_inputs=_rows(experts, images), context=Context("cpu")
    )
    common_checks.assert_close(from_images.state_dict, from_rows.state_dict, pretrained.state_dict(), 1e-4)


def test_an_expert_without_exemplars_is_named():
    base, states = tiny.family()
    experts, images = {n: tiny.checkpoint(s) for n, s in states.items()}, _images(states)
    del images["flags"]
    with pytest.raises(NeedsError, match="no exemplars for flags"):
        engine.run_recipe(Recipe.build("lot"), tiny.checkpoint(base), experts, exemplars=images)


@pytest.mark.parametrize(
    "wrong,says",
    [
        (torch.randn(2, 3, 8, 8), r"of 'leaves' must be a tensor \(n, 3, 16, 16\); got \(2, 3, 8, 8\)"),
        (torch.full((1, 3, 16, 16), torch.nan), "of 'leaves' hold NaN"),
        (torch.randint(256, (2, 3, 16, 16), dtype=torch.uint8), "of 'leaves': Exemplars are preprocessed images of fl"),
        (["a.png"], "got list"),
    ],
)
@pytest.mark.parametrize("recipe", CHAINS.values(), ids=CHAINS.keys())
def test_odd_exemplars_are_refused(recipe, wrong, says):
    base, states = tiny.family()
    experts, images = {n: tiny.checkpoint(s) for n, s in states.items()}, _images(states)
    with pytest.raises(NeedsError, match=says):
        engine.run_recipe(recipe, tiny.checkpoint(base), experts, exemplars=images | {"leaves": wrong})


@pytest.mark.parametrize("wrong", [torch.ones(2, 3, 16, 16), [torch.ones(2, 3, 16, 16)]])
@pytest.mark.parametrize("key", ["lot", "fisher"])
def test_exemplars_without_names_are_refused(key, wrong):
    base, states = tiny.family()
    with pytest.raises(NeedsError, match=r"Exemplars are a mapping \{expert: images\}; got"):
        merging.merge(tiny.checkpoint(base), states, key, exemplars=wrong, device="cpu")


NAME, BIAS = (f"visual.transformer.resblocks.0.attn.in_proj_{kind}" for kind in ("weight", "bias"))


@pytest.mark.parametrize(
    "inputs,says",
    [
        ({"a": {NAME: torch.ones(3, 16)}}, f"of '{NAME}' for 'a' but not for 'b'"),
        ({"a": {NAME: torch.ones(3, 16)}, "b": {NAME: torch.ones(3, 48)}}, r"for 'b' must be a tensor \(n, 16\); got"),
        ({"a": {NAME: torch.ones(3, 16)}, "b": {NAME: torch.ones(3, 16) * torch.inf}}, "for 'b' hold NaN or infinity"),
        ({"a": {"visual.nothing": torch.ones(3, 16)}}, "name tensors that the model does not have: visual.nothing"),
        ({"c": {NAME: torch.ones(3, 16)}}, "hold no rows for any of a, b; they name c"),
        ({}, "hold no rows for any of a, b[.]"),
        ({"a": {NAME: torch.ones(3, 16)}, "b": {NAME: torch.ones(0, 16)}}, "for 'b' hold no rows"),
        ({"a": {BIAS: torch.ones(3, 48)}, "b": {BIAS: torch.ones(3, 48)}}, f"No rows enter {BIAS}"),
        ({"a": torch.ones(3, 16)}, "a mapping {expert: {parameter name: rows}}"),
        ([torch.ones(3, 16)], "a mapping {expert: {parameter name: rows}}"),
    ],
)
@pytest.mark.parametrize("chain", CHAINS)
def test_layer_inputs_that_cannot_be_used_are_refused(chain, inputs, says):
    base, states = tiny.family(("a", "b"))
    merge, edits = CHAINS[chain].merge.key, [step.key for step in CHAINS[chain].edits]
    with pytest.raises(NeedsError, match=says):
        merging.merge(base, states, merge, edits=edits, layer_inputs=inputs, device="cpu")


@pytest.mark.parametrize("opened,name", [(tiny.checkpoint, "visual.proj"), (_hugging_face, "visual_projection.weight")])
def test_rows_of_the_projection_are_as_wide_as_its_inputs(opened, name):
    base = tiny.pretrained()
    given = CallerInputs({"a": {name: torch.ones(3, tiny.WIDTH)}}, ("a",), opened(base), CPU)
    parameter = next(p for p in opened(base).parameters if p.name == name)
    (moments,) = given.moments(parameter)
    assert moments.width == tiny.WIDTH != tiny.EMBED


def test_cancel_stops_between_batches_of_exemplars(monkeypatch):
    monkeypatch.setattr(batch_sizes, "CPU_TOKENS", 1)
    base, states = tiny.family()
    experts, told = {n: tiny.checkpoint(s) for n, s in states.items()}, []

    def progress(report):
        told.append((report.phase, report.detail))

    def cancel():
        return len([phase for phase, _ in told if phase == "Running exemplars"]) >= 7

    with pytest.raises(Cancelled):
        engine.run_recipe(
            Recipe.build("lot"), tiny.checkpoint(base), experts, exemplars=_images(states),
            context=Context("cpu", progress, cancel),
        )  # fmt: skip
    running = [detail for phase, detail in told if phase == "Running exemplars"]
    assert running == ["circles"] * 5 + ["digits"] * 2  # five images each, one at a time


def test_notes_of_a_tensor_stay_in_the_order_in_which_they_came():
    notes = Notes()
    for order in [5, 6, 2, 3, 4, *range(7, 90), 0, 1]:  # as stored; a sort that is not stable shuffles the experts
        parameter = Parameter(f"tensor {order}", Role.SHIFT, "part", "section", None, order)
        slot = Slot(parameter, (), torch.zeros(1), torch.zeros(0, 1))
        for expert in range(8):
            notes.add("some", slot, {"expert": expert})
    table = notes.tables()["some"]
    assert list(table["expert"]) == 90 * list(range(8))
    assert table["order"].is_monotonic_increasing


def test_notes_are_of_the_merging_pass_only_and_in_forward_order(monkeypatch):
    """Ties surveys the task vectors as the edit leaves them, in several passes; the edit's notes must not repeat."""

    def run(slot, params, found):
        slot.note("seen", size=slot.task_vectors.numel())
        return slot.task_vectors

    edit = dataclasses.replace(registry.find_edit("lwptv"), key="noting", run=run, survey=None,
                               elementwise=lambda params, parameter: False,
                               drops=lambda parameter, found: False, kept=lambda slot, params, found: None)  # fmt: skip
    monkeypatch.setitem(REGISTERED, ("edit", "noting"), edit)
    base, states = tiny.family()
    table = merging.merge(base, states, "ties", edits=["noting"], device="cpu").tables["seen"]
    assert list(table["tensor"]) == [p.name for p in tiny.checkpoint(base).parameters]
    assert list(table.columns) == ["tensor", "order", "section", "role", "part", "numel", "size"]
    assert (table["size"] == len(states) * table["numel"]).all()
