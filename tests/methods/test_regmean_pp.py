"""RegMean++ against a plain pass in float64, layer by layer, and what its evidence promises."""

from __future__ import annotations

from typing import Any

import common_checks
import pytest
import tiny
import torch
from common_checks import State, assert_close
from held_tensors import find_tensors

import merging
from merging.base.errors import NeedsError
from merging.engine.merged_inputs import MergedInputs
from merging.images import batch_sizes
from merging.methods import registry
from merging.models.checkpoint import MappingCheckpoint
from merging.models.families import EMBEDDINGS, OUTPUT
from merging.recipes.recipe import Recipe
from merging.study.previews import moments_in_memory
from merging.study.runs.opened_recipe import open_inputs

V, AT = "visual.", "visual.transformer.resblocks.{}."
HEADS = 2


def images_of(experts: State, count: int = 6) -> State:
    draws = {name: torch.Generator().manual_seed(k) for k, name in enumerate(experts)}
    return {
        name: torch.randn(count, 3, tiny.SIZE, tiny.SIZE, generator=d, dtype=torch.float64) for name, d in draws.items()
    }


def norm(state: State, at: str, x: torch.Tensor) -> torch.Tensor:
    center = x - x.mean(dim=-1, keepdim=True)
    return (
        center / (center.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * state[at + "weight"] + state[at + "bias"]
    )


def stem(state: State, images: torch.Tensor) -> torch.Tensor:
    p = tiny.PATCH
    squares = [
        images[:, :, i : i + p, j : j + p].flatten(1) for i in range(0, tiny.SIZE, p) for j in range(0, tiny.SIZE, p)
    ]
    patches = torch.stack(squares, dim=1) @ state[V + "conv1.weight"].flatten(1).T
    first = state[V + "class_embedding"].expand(len(images), 1, -1)
    return norm(state, V + "ln_pre.", torch.cat([first, patches], dim=1) + state[V + "positional_embedding"])


def block(state: State, index: int, x: torch.Tensor) -> tuple[torch.Tensor, State]:
    """Tokens after a block, and the rows that enter its linear weights."""
    at, rows = AT.format(index), {}

    def linear(name: str, bias: str, y: torch.Tensor) -> torch.Tensor:
        rows[at + name] = y.flatten(0, 1)
        return y @ state[at + name].T + state[at + bias]

    q, k, v = linear("attn.in_proj_weight", "attn.in_proj_bias", norm(state, at + "ln_1.", x)).chunk(3, dim=-1)
    mixed = []
    for q_, k_, v_ in zip(*(t.chunk(HEADS, dim=-1) for t in (q, k, v)), strict=True):
        mixed.append((q_ @ k_.mT / q_.shape[-1] ** 0.5).softmax(dim=-1) @ v_)
    x = x + linear("attn.out_proj.weight", "attn.out_proj.bias", torch.cat(mixed, dim=-1))
    hidden = linear("mlp.c_fc.weight", "mlp.c_fc.bias", norm(state, at + "ln_2.", x))
    return x + linear("mlp.c_proj.weight", "mlp.c_proj.bias", hidden / (1 + (-1.702 * hidden).exp())), rows


def plain(
    base: State,
    experts: dict[str, State],
    images: State,
    alpha: float,
) -> State:
    """Merged section by section."""
    merged = {n: torch.stack([e[n] for e in experts.values()]).mean(dim=0) for n in base}

    def regress(name: str, rows: dict[str, torch.Tensor], transposed: bool) -> None:
        grams = [alpha * x.T @ x + (1 - alpha) * torch.diag((x.T @ x).diagonal()) for x in rows.values()]
        weights = [experts[k][name] if transposed else experts[k][name].T for k in rows]
        solution = torch.linalg.solve(sum(grams), sum(g @ w for g, w in zip(grams, weights, strict=True)))
        merged[name] = solution if transposed else solution.T

    tokens = {k: stem(merged, x) for k, x in images.items()}
    for index in range(tiny.LAYERS):
        at = AT.format(index)
        merged.update({n: torch.stack([e[n] for e in experts.values()]).mean(dim=0) for n in base if n.startswith(at)})
        rows = {k: block(experts[k], index, x)[1] for k, x in tokens.items()}
        for name in next(iter(rows.values())):
            regress(name, {k: own[name] for k, own in rows.items()}, transposed=False)
        tokens = {k: block(merged, index, x)[0] for k, x in tokens.items()}
    ends = {k: norm(experts[k], V + "ln_post.", x[:, 0]) for k, x in tokens.items()}
    regress(V + "proj", ends, transposed=True)
    return merged


def merge(base: State, experts: dict[str, State], images: Any, **options: Any) -> merging.MergeResult:
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    return merging.merge(tiny.checkpoint(base), opened, "regmean_pp", exemplars=images, device="cpu", **options)


@pytest.mark.parametrize("alpha", [0.95, 0.5])
@pytest.mark.parametrize("batch", [1, 10, 1000])  # tokens: one image, two images, all
def test_it_is_the_plain_pass(alpha: float, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sizes, "CPU_TOKENS", batch)
    base, experts = common_checks.family()
    images = images_of(experts)
    found = merge(base, experts, images, params={"alpha": alpha}).state_dict
    expected = plain(base, experts, images, alpha)
    assert_close(found, expected, base)
    by_regmean = merging.merge(
        tiny.checkpoint(base), {n: MappingCheckpoint(s, n) for n, s in experts.items()}, "regmean", {"alpha": alpha},
        exemplars=images, device="cpu",
    ).state_dict  # fmt: skip
    with pytest.raises(AssertionError, match="differs"):
        assert_close(by_regmean, expected, base, 1e-2)


def test_later_layers_see_what_is_merged_and_not_what_an_edit_makes_of_it() -> None:
    """The first block is put back to pretrained after it is merged; nothing else moves."""
    base, experts = common_checks.family()
    images = images_of(experts)
    first = AT.format(0)
    edits = [("manual", {"rules": "b0=0", "when": "after"})]
    edited, plain_merge = (merge(base, experts, images, edits=some).state_dict for some in (edits, []))
    for name, values in edited.items():
        assert torch.equal(values, base[name] if name.startswith(first) else plain_merge[name])


def test_where_experts_share_the_stem_the_first_block_is_regmeans() -> None:
    base, experts = common_checks.family()
    stem_names = [n for n in base if "resblocks" not in n and "ln_post" not in n and not n.endswith(".proj")]
    experts = {name: state | {n: base[n] for n in stem_names} for name, state in experts.items()}
    images = {n: v.float() for n, v in images_of(experts).items()}
    found = merge(base, experts, images).state_dict
    opened = {n: MappingCheckpoint(s, n) for n, s in experts.items()}
    other = merging.merge(tiny.checkpoint(base), opened, "regmean", exemplars=images, device="cpu").state_dict
    first = [n for n in base if n.startswith(AT.format(0))]
    assert_close({n: found[n] for n in first}, {n: other[n] for n in first}, base, 1e-5)
    second = AT.format(1) + "mlp.c_fc.weight"
    assert float((found[second] - other[second]).norm()) > 1e-3 * float((found[second] - base[second]).norm())


def test_memory_holds_one_merged_section_and_one_set_of_tokens() -> None:
    _, states = tiny.family(("a", "b"))
    experts = {n: tiny.checkpoint(s) for n, s in states.items()}
    inputs = MergedInputs(experts["a"], experts, images_of(states), torch.device("cpu"), torch.float32)
    numel = {p.name: experts["a"].infos[p.name].numel for p in experts["a"].parameters}
    parameters = sorted(experts["a"].parameters, key=lambda p: p.section == OUTPUT)
    block = sum(numel[p.name] for p in parameters if p.block == 0)
    for parameter in parameters:
        inputs.moments(parameter)
        inputs.add(parameter.name, torch.zeros(experts["a"].infos[parameter.name].shape))
        merged = [t for _, t in find_tensors(inputs._merged)]
        tokens = [t for _, t in find_tensors(inputs._tokens)]
        assert sum(t.numel() for t in merged) <= block  # larger than the stem
        assert [t.shape for t in tokens] == [(6, tiny.TOKENS, tiny.WIDTH)] * (
            2 if parameter.section != EMBEDDINGS else 0
        )


def test_layer_inputs_are_refused_and_experts_without_images_named() -> None:
    base, experts = common_checks.family()
    with pytest.raises(NeedsError, match="regmean_pp needs unlabeled exemplars"):
        merge(base, experts, None, layer_inputs=common_checks.layer_inputs(experts))
    images = images_of(experts)
    del images["expert 1"]
    with pytest.raises(NeedsError, match="expert 1"):
        merge(base, experts, images)


def test_the_preview_says_why_there_is_none(tiny_benchmark: Any) -> None:
    chain = Recipe.from_method(
        registry.find_merge("regmean_pp"),
        pretrained=tiny_benchmark.pretrained,
        experts=tiny_benchmark.experts,
    )
    with pytest.raises(NeedsError, match="runs the exemplars through every layer"):
        moments_in_memory.refuse_uncacheable(open_inputs(chain, benchmark=tiny_benchmark))
