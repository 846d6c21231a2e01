"""A parameter that recipes did not always have: at its default it is in no recipe, digest, id, link or card."""

from __future__ import annotations

import hashlib

import pytest

import merging
from merging.methods.apart import APART
from merging.methods.method import Adapt, Edit
from merging.recipes.chain_text import WrittenChain, parse_chain
from merging.recipes.recipe import Recipe

HAVING = [method for method in merging.list_methods() if APART in method.params.bounds()]
# Of the chains of all methods at their defaults, as they were before any method had the parameter.
DIGESTS = "9813bbbb3d6213c8c0fca64422d16a92cbfa4f1281fae1ba625dc1af05ad95dd"


def recipe(method: object, **params: object) -> Recipe:
    experts = {"a": "a.safetensors", "b": "b.safetensors"}
    if isinstance(method, Edit):
        return Recipe.build("task_arithmetic", edits=[(method.key, params)], experts=experts)
    return Recipe.build(method.key, params, experts=experts)  # type: ignore[attr-defined]


def run_id(of: Recipe) -> str:
    return of.run_id("0" * 64, {"a": "1" * 64, "b": "2" * 64}, "x")


def test_digests_of_chains_without_it_stay() -> None:
    chains = [
        Recipe.of_method(method).chain_digest for method in merging.list_methods() if not isinstance(method, Adapt)
    ]
    assert hashlib.sha256("".join(chains).encode()).hexdigest() == DIGESTS


@pytest.mark.parametrize("method", HAVING, ids=lambda method: method.key)
def test_it_is_written_only_where_it_is_on(method: object) -> None:
    off, written_off, on = recipe(method), recipe(method, apart=False), recipe(method, apart=True)
    assert off == written_off and run_id(off) == run_id(written_off) != run_id(on)
    assert APART not in off.to_yaml() and f"{APART}: true" in on.to_yaml()
    for one in (off, on):
        assert Recipe.from_yaml(one.to_yaml()) == one
        steps = [(step.key, step.params.values()) for step in one.steps]
        written = WrittenChain(steps[:-1], steps[-1])
        assert (APART in written.text()) == (one is on)
        again = parse_chain(written.text())
        assert [*again.edits, again.merge] == [(key, dict(values)) for key, values in steps]


def test_its_name_is_in_titles_only_where_it_counts() -> None:
    ties = Recipe.build("ties", {APART: True})
    assert ties.text() == "ties" and Recipe.build("ties", {APART: True, "scope": "tensor"}).text() == (
        "ties(scope=tensor, apart=True)"
    )
