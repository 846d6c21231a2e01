"""Query, key and value as three tensors: which methods it affects; a packed tensor then gives what three give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import common_checks
import pytest
import torch
from split_qkv_models import (
    PROJECTIONS,
    data_of,
    difference,
    merge_name_by_name,
    merge_states,
    to_open_clip_names,
    to_transformers_names,
    write,
)

import merging
from merging.methods import registry
from merging.methods.method import Adapt
from merging.methods.slot import Slot
from merging.methods.split_qkv import SPLIT_QKV, SplitBlend, find_packed_tensors, is_split
from merging.models.families import classify_parameters, qkv_parameters, stored_tensor_name

METHODS = {method.key: method for method in merging.list_methods() if not isinstance(method, Adapt)}
HAVING = [key for key, method in METHODS.items() if SPLIT_QKV in method.params.bounds()]
ROUNDING = 1e-5  # differences of results below it are those of gradients in single precision
DRAWS = {  # methods that give another result by name, and why they have no option for it
    "dare": "draws depend on tensors' names: other names give another draw of the same chances",
    "della": "draws depend on tensors' names: other names give another draw of the same chances",
    "random_mask": "draws depend on tensors' names: other names give another draw of the same chances",
}
IMAGES = {"cat", "adamerging"}  # that look at images: compared with the engine on three tensors alone
ATTENTION = "visual.transformer.resblocks.0.attn.in_proj_weight"


def variants(key: str) -> list[dict[str, Any]]:
    """Default parameters, and those with every other choice."""
    bounds = METHODS[key].params.bounds()
    return [{}, *({name: word} for name, bound in bounds.items() for word in bound.choices[1:])]


@pytest.mark.full
@pytest.mark.parametrize("key", METHODS)
def test_the_option_is_where_the_result_differs_and_gives_the_merge_of_three_tensors(key: str) -> None:
    method = METHODS[key]
    base, experts = common_checks.family_of(method)
    if method.several_checkpoints:  # a parameter may be about each task's own checkpoints
        first, *others = experts
        experts = {first: experts[first], **{f"{first}#{n}": experts[name] for n, name in enumerate(others, 2)}}
    split_base, split_experts = (
        to_transformers_names(base),
        {name: to_transformers_names(state) for name, state in experts.items()},
    )
    images, differing = data_of(method, experts), []
    for params in variants(key):
        recipe = common_checks.recipe(method, params)
        whole = common_checks.states(merge_states(recipe, base, experts, **images))
        three = [
            to_open_clip_names(s)
            for s in common_checks.states(merge_states(recipe, split_base, split_experts, **images))
        ]
        differs = max(difference(a, b, base) for a, b in zip(whole, three, strict=True)) > ROUNDING
        differing += [params] if differs else []
        if key in HAVING:
            chosen = common_checks.recipe(method, params | {SPLIT_QKV: True})
            (step,) = [step for step in chosen.steps if step.key == key]
            assert is_split(step.params) == differs, params
            (state,) = common_checks.states(merge_states(chosen, base, experts, **images))
            assert difference(state, three[0], base) < ROUNDING, params
    assert bool(differing) == (key in HAVING or key in DRAWS)
    assert not (key in HAVING and key in DRAWS)


def test_what_is_put_on_top_of_a_model_has_no_such_option() -> None:
    """Modules' files name tensors as the checkpoint does, and routers read the input of a packed layer by its name."""
    methods = [method for method in merging.list_methods() if isinstance(method, Adapt)]
    assert not any(SPLIT_QKV in method.params.bounds() for method in methods)


@pytest.mark.parametrize("key", [key for key in HAVING if key not in IMAGES])
def test_folders_of_transformers_merge_as_name_by_name(key: str, tmp_path: Any) -> None:
    method = METHODS[key]
    base, experts = common_checks.family_of(method, torch.float32)
    pretrained = to_transformers_names(base)
    plain = {
        name: {n: v for n, v in to_transformers_names(state).items() if n not in PROJECTIONS}
        for name, state in experts.items()
    }
    folders = {name: write(tmp_path / name, state) for name, state in plain.items()}
    params = {"scope": "tensor"} if key == "ties" else common_checks.short_params(method)
    recipe = common_checks.recipe(method, params | {SPLIT_QKV: True})
    edits = [(step.key, step.params.values()) for step in recipe.edits]
    result = merging.merge(
        write(tmp_path / "pretrained", pretrained), folders, recipe.merge.key, recipe.merge.params.values(), edits,
        device="cpu",
    )  # fmt: skip
    whole = {name: {PROJECTIONS[1]: pretrained[PROJECTIONS[1]]} | state for name, state in plain.items()}
    expected = merge_name_by_name(method, params, pretrained, whole)
    assert set(result.state_dict) == set(pretrained)
    for name, value in expected.items():
        change = float((value - pretrained[name]).norm())
        assert float((result.state_dict[name] - value).norm()) <= 1e-5 * max(change, 1.0), name


def test_tensors_in_memory_are_thirds_by_the_ends_of_their_names() -> None:
    base, experts = common_checks.family()
    one = merging.merge(base, experts, "iso_c", {SPLIT_QKV: True}, device="cpu").state_dict
    bare = merging.merge(
        {n.removeprefix("visual."): v for n, v in base.items()},
        {name: {n.removeprefix("visual."): v for n, v in state.items()} for name, state in experts.items()},
        "iso_c", {SPLIT_QKV: True}, device="cpu",
    ).state_dict  # fmt: skip
    assert all(torch.equal(bare[n.removeprefix("visual.")], value) for n, value in one.items())
    # Tensors under Transformers' names are merged as they are, with and without the option.
    for params in ({}, {SPLIT_QKV: True}):
        names = {name: to_transformers_names(state) for name, state in experts.items()}
        three = merging.merge(to_transformers_names(base), names, "iso_c", params, device="cpu").state_dict
        assert difference(to_open_clip_names(three), one, base) < ROUNDING


# --- thirds ----------------------------------------------------------------------------------------------------------


def slot_of(height: int = 6, width: int = 2, **more: Any) -> tuple[Slot, Any]:
    values = torch.arange(height * width, dtype=torch.float64).reshape(height, width)
    (parameter,) = classify_parameters(["visual.transformer.resblocks.3.attn.in_proj_weight"])
    checkpoint = common_checks.MappingCheckpoint({parameter.name: values}, "x")
    slot = Slot(parameter, ("a", "b"), values, torch.stack([values, -values]), **more)
    return slot, find_packed_tensors([parameter], checkpoint.infos).get(parameter.name)


def test_thirds_are_rows_with_names_of_their_own() -> None:
    ticks: list[float] = []
    notes: list[tuple[str, dict[str, Any]]] = []
    slot, whole = slot_of(report_share=ticks.append, note=lambda table, **row: notes.append((table, row)))
    parts = whole.split_slot(slot)
    stem = "visual.transformer.resblocks.3.attn.in_proj_weight"
    assert [part.name for part in parts] == [f"{stem}[query]", f"{stem}[key]", f"{stem}[value]"]
    assert [part.parameter.part for part in parts] == ["attn.q_proj", "attn.k_proj", "attn.v_proj"]
    assert {(part.block, part.role, part.parameter.order) for part in parts} == {(3, slot.role, slot.parameter.order)}
    assert torch.equal(torch.cat([part.pretrained for part in parts]), slot.pretrained)
    assert torch.equal(torch.cat([part.task_vectors for part in parts], dim=1), slot.task_vectors)
    parts[2].report_share(0.5)
    parts[2].note("table", share=1)
    assert ticks == [2.5 / 3]
    assert notes == [("table", {"tensor": parts[2].name, "part": "attn.v_proj", "numel": 4, "share": 1})]
    assert {stored_tensor_name(part.name) for part in parts} == {stem}
    assert (
        stored_tensor_name("x[1]") == "x[1]"
        and stored_tensor_name("[query") == "[query"
        and stored_tensor_name("query]") == "query]"
    )
    assert qkv_parameters(replace(slot.parameter, part="mlp.c_fc")) == ()


@pytest.mark.parametrize(("start", "stop"), [(0, 12), (0, 3), (3, 9), (5, 6), (4, 8), (7, 12)])
def test_a_flat_piece_is_cut_where_the_thirds_meet(start: int, stop: int) -> None:
    slot, whole = slot_of()
    flat = slot.pretrained.flatten()[start:stop]
    vectors = slot.task_vectors.flatten(1)[:, start:stop]
    parts = whole.split_slot(replace(slot, pretrained=flat, task_vectors=vectors, start=start))
    names = [part.name for part in whole.split_slot(slot)]
    found = [(names.index(p.name) * 4 + p.start + i, float(v)) for p in parts for i, v in enumerate(p.pretrained)]
    assert found == [(at, float(at)) for at in range(start, stop)]
    assert torch.equal(torch.cat([p.task_vectors for p in parts], dim=1), vectors)


@pytest.mark.parametrize("height", [0, 4])
def test_rows_that_are_no_three_equal_parts_stay_one_tensor(height: int) -> None:
    assert slot_of(height)[1] is None


# --- masks -----------------------------------------------------------------------------------------------------------


def test_lwptv_masks_thirds_by_themselves_and_says_so() -> None:
    base, experts = common_checks.family()
    for state in experts.values():  # the key of this layer is what no expert moved
        state[ATTENTION][16:32] = base[ATTENTION][16:32]
    chosen = {"prune_ratio": 0.02, SPLIT_QKV: True}  # each expert drops its least tensor
    result = merging.merge(base, experts, "iso_c", edits=[("lwptv", chosen)], device="cpu")
    table = result.tables["saliency"].set_index(["expert", "tensor"])
    assert len(table) == len(experts) * (len(base) + 2 * 2 * 2)
    assert not table.loc[("expert 0", f"{ATTENTION}[key]"), "final"]
    assert table.loc[("expert 0", f"{ATTENTION}[value]"), "final"]
    assert ATTENTION not in table.loc["expert 0"].index
    rows = result.state_dict[ATTENTION].split(16)
    before = base[ATTENTION].split(16)
    assert torch.equal(rows[1], before[1])  # although iso_c lifts all directions of the packed tensor
    assert not torch.equal(rows[0], before[0]) and not torch.equal(rows[2], before[2])
    assert list(result.tables["tensors"]["tensor"]) == [p.name for p in classify_parameters(base)]


@pytest.mark.parametrize("key", [key for key in HAVING if key not in IMAGES])
def test_pieces_of_thirds_equal_whole_tensors(key: str) -> None:
    method = METHODS[key]
    base, experts = common_checks.family()
    if not method.is_elementwise(method.params.build({SPLIT_QKV: True})):
        return
    whole = common_checks.merge(method, base, experts, {SPLIT_QKV: True}).state_dict
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("merging.engine.run_inputs.PIECE_CPU", 29)
        patch.setattr("merging.engine.run_inputs.BLOCK_CPU", 131)
        pieces = common_checks.merge(method, base, experts, {SPLIT_QKV: True}).state_dict
    assert difference(pieces, whole, base) < 1e-9


def test_a_tensor_whose_thirds_are_all_dropped_is_not_read() -> None:
    base, experts = common_checks.family()
    method = registry.find_edit("lwptv")
    merged_all = common_checks.merge(method, base, experts, {"prune_ratio": 1.0, SPLIT_QKV: True}).state_dict
    assert all(torch.equal(merged_all[name], base[name]) for name in base)


def test_cat_notes_what_it_removes_of_every_third() -> None:
    base, experts = common_checks.family()
    method = registry.find_edit("cat")
    recipe = common_checks.recipe(method, {SPLIT_QKV: True})
    table = merge_states(recipe, base, experts, **data_of(method, experts)).tables["cat"]
    rows = table[table["tensor"] == f"{ATTENTION}[query]"]
    assert len(rows) == len(experts) and set(rows["numel"]) == {256} and set(rows["part"]) == {"attn.q_proj"}
    assert ATTENTION not in set(table["tensor"])


def test_a_learned_coefficient_belongs_to_a_third() -> None:
    base, experts = common_checks.family()
    method = registry.find_merge("adamerging")
    recipe = common_checks.recipe(method, {SPLIT_QKV: True})
    tables = merge_states(recipe, base, experts, **data_of(method, experts)).tables
    learned = tables["coefficients"].set_index(["expert", "tensor"])["coefficient"]
    values = [learned["expert 0", f"{ATTENTION}[{word}]"] for word in ("query", "key", "value")]
    assert len(set(values)) == 3
    assert ATTENTION not in set(tables["coefficients"]["tensor"]) | set(tables["coefficient_steps"]["tensor"])


def test_a_blend_of_thirds_is_the_blend_for_all_but_tensors() -> None:
    class Recorded:
        def __getattr__(self, name: str) -> Any:
            return lambda *given: (name, given)

    blend = SplitBlend(Recorded(), {})  # type: ignore[arg-type]
    assert blend.compute_entropies(1, 2, 3) == ("compute_entropies", (1, 2, 3))
    assert blend.compute_cross_entropy("a") == ("compute_cross_entropy", ("a",))
    assert blend.create_masks() == ("create_masks", ()) and blend.load_state() == ("load_state", ())


def test_votes_for_ties_are_those_of_the_thirds() -> None:
    """Trimmed whole, the packed tensor keeps only the query's large numbers; by thirds the small ones outvote it."""
    size = 4
    thirds = [torch.full((size, size), value) for value in (9.0, -1.0, -1.0)]
    changes = {"visual.transformer.resblocks.0.attn.in_proj_weight": torch.cat(thirds)}
    tied = "visual.transformer.resblocks.0.mlp.c_fc.weight"
    base = {name: torch.ones_like(value) for name, value in changes.items()} | {tied: torch.ones(1, 1)}
    experts = {
        key: {name: base[name] + value for name, value in changes.items()} | {tied: base[tied] + side}
        for key, side in (("a", 0.5), ("b", -0.5))
    }
    parameters = {"scope": "tensor", "density": 0.25, "scaling": 1.0, "aggregation": "mean", "split_qkv": True}
    merged = merging.merge(base, experts, "ties", parameters)
    assert float(merged.state_dict[tied]) == 0.5
