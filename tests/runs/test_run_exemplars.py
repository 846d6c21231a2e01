"""A run's exemplars are those that its recipe draws."""

from __future__ import annotations

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe


def test_number_and_seed_of_exemplars_are_the_recipes(run_it, tiny_benchmark, monkeypatch):
    draws = []
    whole = Benchmark.labeled_exemplars

    def counted(self, per_task, seed=0):
        draws.append((per_task, seed))
        return whole(self, per_task, seed)

    monkeypatch.setattr(Benchmark, "labeled_exemplars", counted)
    digests = set()
    for seed in (0, 5):
        recipe = Recipe.build(
            "lot", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts, exemplars={"per_task": 3, "seed": seed}
        )
        run = run_it(recipe, evaluate=False)
        digests.add(run.table("lot")["trace_kept"].to_string())
    assert draws == [(3, 0), (3, 5)] and len(digests) == 2
