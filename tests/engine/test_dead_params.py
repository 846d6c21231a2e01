"""Counting the unused text tensors of published image encoders in global quantiles, as their authors' code does."""

from __future__ import annotations

import common_checks
import pytest
import torch

import merging
from merging.base.numerics.quantile import kth_smallest
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.recipe import Recipe

WIDTH = 8
TEXT = {
    "token_embedding.weight": (50, WIDTH),
    "positional_embedding": (7, WIDTH),
    "text_projection": (WIDTH, WIDTH),
    "ln_final.weight": (WIDTH,),
    "ln_final.bias": (WIDTH,),
    "logit_scale": (),
}
DEAD = 50 * WIDTH + 7 * WIDTH + WIDTH * WIDTH + 2 * WIDTH + 1


def _with_text(state):
    generator = torch.Generator().manual_seed(3)
    return state | {n: torch.randn(shape, generator=generator, dtype=torch.float64) for n, shape in TEXT.items()}


@pytest.fixture(scope="module")
def plain():
    return common_checks.family()


@pytest.fixture(scope="module")
def carrying(plain):
    base, experts = plain
    return _with_text(base), {name: _with_text(state) for name, state in experts.items()}


def _merge(models, merge, params=None, edits=(), **options):
    return merging.merge(*models, merge, params, edits, device="cpu", **options)


def test_a_checkpoint_knows_what_it_carries(plain, carrying):
    assert (
        open_checkpoint(carrying[0]).unused_text.numel == DEAD and open_checkpoint(carrying[0]).unused_text.tensors == 6
    )
    assert open_checkpoint(plain[0]).unused_text.numel == 0
    full = carrying[0] | {"transformer.resblocks.0.ln_1.weight": torch.ones(WIDTH), "attn_mask": torch.zeros(7, 7)}
    assert open_checkpoint(full).unused_text.numel == DEAD


def test_ties_keeps_more_of_the_visual_scalars(plain, carrying):
    """int(ρ·(d + dead)) + 1 survive in place of int(ρ·d) + 1; the text tensors themselves are copied."""
    name, expert = next(iter(plain[1].items()))
    numel = sum(v.numel() for v in plain[0].values())
    one = (carrying[0], {name: carrying[1][name]})
    for dead, counted in ((False, numel), (True, numel + DEAD)):
        state = _merge(one, "ties", {"scaling": 1.0}, count_dead_params=dead).state_dict
        changed = sum(int((state[n] != plain[0][n]).sum()) for n in expert)
        assert changed == int(0.2 * counted) + 1
        assert all(torch.equal(state[n], carrying[0][n]) for n in TEXT)


def test_lwptv_counts_six_more_layers(plain, carrying):
    layers = len(plain[0])
    edits = [("lwptv", {"prune_ratio": 0.7, "shared": False})]
    for dead, counted in ((False, layers), (True, layers + 6)):
        result = _merge(carrying, "task_arithmetic", edits=edits, count_dead_params=dead)
        kept = result.tables["saliency"].groupby("expert")["kept"].sum()
        assert set(kept) == {counted - int(0.7 * counted) - 1}


def test_pwptv_counts_dead_scalars(plain, carrying):
    name, expert = next(iter(plain[1].items()))
    numel = sum(v.numel() for v in plain[0].values())
    edits = [("lwptv", {"granularity": "parameter", "score": "mean_abs"})]
    one = (carrying[0], {name: carrying[1][name]})
    state = _merge(one, "task_arithmetic", edits=edits, count_dead_params=True).state_dict
    assert sum(int((state[n] != plain[0][n]).sum()) for n in expert) == numel + DEAD - int(0.7 * (numel + DEAD)) - 1


def test_nothing_changes_where_nothing_is_carried(plain):
    found = [_merge(plain, "ties", count_dead_params=dead).state_dict for dead in (False, True)]
    assert all(torch.equal(found[0][n], found[1][n]) for n in found[0])
    recipes = [Recipe.build("ties", count_dead_params=dead) for dead in (False, True)]
    assert recipes[0].run_id("0", {}) == recipes[1].run_id("0", {})
    assert recipes[0].run_id("0", {}, carries_dead=True) != recipes[1].run_id("0", {}, carries_dead=True)


def test_zeros_that_are_not_streamed():
    rows = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    for rank in range(7):
        expect = torch.cat([torch.zeros(2, 4), rows], dim=1).sort(dim=1).values[:, rank]
        assert kth_smallest(lambda: [rows], [rank, rank], zero_count=4) == expect.tolist()
