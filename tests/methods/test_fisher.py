"""What Fisher merging makes of gradients, and that recipes draw labels with the images."""

from __future__ import annotations

from dataclasses import replace

import common_checks
import pytest
import tiny
import torch
from plain_gradients import gather_plain, make_slot

import merging
from merging.engine import run as engine
from merging.methods import registry
from merging.methods.merges.fisher import FisherParams, FisherWeights, fisher
from merging.methods.slot import Gradients
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

# --- Fisher ----------------------------------------------------------------------------------------------------------

FISHER = registry.find_merge("fisher")


def _states(family):
    return torch.stack([torch.cat([v.flatten() for v in state.values()]) for state in family[1].values()])


def _flat(state):
    return torch.cat([value.flatten() for value in state.values()])


def test_fisher_is_the_weighted_mean_of_the_experts(family, shown):
    base, experts = family
    information = gather_plain(base, experts, shown, Gradients.FISHER)
    flat = torch.cat([rows.flatten(1) for rows in information.values()], dim=1)
    for normalize in (True, False):
        scaled = flat / flat.norm(dim=1, keepdim=True) if normalize else flat
        weights = scaled + 1e-3 * scaled.mean()
        expected = (weights * _states(family)).sum(dim=0) / weights.sum(dim=0)
        found = common_checks.merge(FISHER, base, experts, {"floor": 1e-3, "normalize": normalize})
        assert torch.allclose(_flat(found.state_dict), expected, rtol=1e-9, atol=1e-12)
    assert found.tables["fisher"]["fisher_norm"].tolist() == pytest.approx(flat.norm(dim=1).tolist())
    assert found.tables["fisher"]["fisher_mean"].tolist() == pytest.approx(flat.mean(dim=1).tolist())


def test_fisher_stays_between_the_experts_and_a_large_floor_averages(family):
    states = _states(family)
    found = _flat(common_checks.merge(FISHER, *family).state_dict)
    slack = 1e-12
    assert ((found >= states.min(dim=0).values - slack) & (found <= states.max(dim=0).values + slack)).all()
    mean = states.mean(dim=0)
    assert (found - mean).norm() > 0.1 * (states[0] - mean).norm()
    averaged = _flat(common_checks.merge(FISHER, *family, {"floor": 1e9}).state_dict)
    assert torch.allclose(averaged, mean, atol=1e-6)


def test_fisher_of_equal_experts_is_the_expert(family):
    base, experts = family
    found = common_checks.merge(FISHER, base, dict.fromkeys(experts, experts["expert 0"])).state_dict
    common_checks.assert_close(found, experts["expert 0"], base)


def test_fisher_of_constant_endless_and_no_information():
    vectors = [[1.0, 2.0, -3.0], [5.0, 0.0, 1.0]]
    even = FisherWeights((1.0, 1.0), 0.0)

    def merged(information):
        return fisher(make_slot(vectors, Gradients.FISHER, information), FisherParams(), even).tolist()

    assert merged([[0.7] * 3] * 2) == pytest.approx([3.0, 1.0, -1.0])
    assert merged([[1e30] * 3, [1.0] * 3]) == pytest.approx(vectors[0])
    assert merged([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]) == [3.0, 0.0, -3.0]


def test_an_expert_that_is_sure_of_everything_is_named(family, shown):
    one_class = replace(shown["expert 1"], head=shown["expert 1"].head[:1], labels=None)
    found = common_checks.merge(FISHER, *family, exemplars=shown | {"expert 1": one_class})
    assert found.warnings == ("fisher almost ignores expert 1: its predictions depend on no parameter.",)


def test_after_an_edit_the_information_is_still_the_experts(family, shown):
    """A tensor that LwPTV drops stays pretrained; all others come out as without LwPTV."""
    base, experts = family
    plain = common_checks.merge(FISHER, base, experts).state_dict
    edits = [("lwptv", {"prune_ratio": 0.8})]
    result = merging.merge(tiny.checkpoint(base), experts, "fisher", edits=edits, exemplars=shown, device="cpu")
    kept = result.tables["saliency"].groupby("tensor")["final"].any()
    assert 0 < kept.sum() < len(kept)
    for name, value in result.state_dict.items():
        assert torch.equal(value, plain[name] if kept[name] else base[name]), name


# --- from a recipe ---------------------------------------------------------------------------------------------------


def test_labels_belong_to_the_images_that_unlabeled_methods_see(tiny_benchmark):
    images, drawn = tiny_benchmark.exemplars(5, seed=3), tiny_benchmark.labeled_exemplars(5, seed=3)
    for key, task in drawn.items():
        assert torch.equal(task.images, images[key]) and torch.equal(task.head, tiny_benchmark.load_head(key))
        everything, labels = tiny_benchmark.load_images(key, "exemplars")
        pool = tiny_benchmark.preprocess(everything)
        at = [int((pool == image).flatten(1).all(dim=1).nonzero()) for image in task.images]
        assert task.labels.tolist() == labels[at].tolist() and task.logit_scale == 100.0


@pytest.mark.parametrize("merge,edits", [("fisher", []), ("task_arithmetic", ["tatr"])])
def test_a_recipe_draws_labeled_exemplars(tmp_path, tiny_benchmark, merge, edits):
    sources = tiny_benchmark.pretrained, tiny_benchmark.experts
    recipe = Recipe.build(merge, {}, edits, *sources, exemplars={"per_task": 4, "seed": 2})
    run = execute(recipe, Store(tmp_path, libraries=()), benchmark=tiny_benchmark, context=Context(device="cpu"))
    assert run.scores is not None and run.seed == 2
    stored = open_checkpoint(run.model_path)
    again = engine.run_recipe(
        recipe,
        open_checkpoint(sources[0]),
        {name: open_checkpoint(path) for name, path in sources[1].items()},
        exemplars=tiny_benchmark.labeled_exemplars(4, 2),
        context=Context(device="cpu"),
    )
    assert all(torch.equal(value, stored.read(n)) for n, value in again.state_dict.items())
