"""Recipes: YAML there and back, digests that stay, errors that help; and every preset."""

from __future__ import annotations

import pytest
from drawn_rules import TABLES
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from merging.base.errors import ParameterError, RecipeError, UnknownMethodError
from merging.methods import registry
from merging.recipes.presets import PRESETS, find_preset
from merging.recipes.recipe import Recipe
from merging.recipes.unlabeled_images import TestData

EXPERTS = {"a": "a.safetensors", "b": "b.safetensors"}
DIGESTS = {"a": "1" * 64, "b": "2" * 64}


def _values(bound):
    """A strategy for the admitted values of a parameter."""
    if bound.kind == "flag":
        return st.booleans()
    if bound.kind == "choice":
        return st.sampled_from(bound.choices)
    if bound.kind == "table":
        return TABLES
    low, high = max(bound.low, -1000.0), min(bound.high, 1000.0)
    if bound.kind == "integer":
        found = st.integers(int(low), int(high))
    else:
        found = st.floats(low, high, exclude_min=bound.open_low)
    return st.none() | found if bound.optional else found


def _steps(methods):
    return st.one_of(
        [
            st.tuples(st.just(m.key), st.fixed_dictionaries({n: _values(b) for n, b in m.params.bounds().items()}))
            for m in methods
        ]
    )


EDITS = [m for m in registry.list_methods() if m.role == "edit"]
MERGES = [m for m in registry.list_methods() if m.role == "merge"]
ADAPTS = [m for m in registry.list_methods() if m.role == "adapt"]
TEST_DATA = st.fixed_dictionaries({}, optional={n: _values(b) for n, b in TestData.bounds().items()})
# Every character that YAML can carry at all.
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\t\n"), max_size=30)


@given(
    edits=st.lists(_steps(EDITS), max_size=3),
    merge=_steps(MERGES),
    experts=st.dictionaries(TEXT, TEXT, max_size=4),
    pretrained=TEXT,
    title=TEXT,
    dead=st.booleans(),
    top=st.none() | _steps(ADAPTS),
    test_data=TEST_DATA,
)
@settings(max_examples=60, deadline=None)
def test_yaml_round_trip(edits, merge, experts, pretrained, title, dead, top, test_data):
    more = {"adapt": top, "test_data": test_data}
    try:
        recipe = Recipe.build(merge[0], merge[1], edits, pretrained, experts, title, count_dead_params=dead, **more)
    except RecipeError:  # a chain that makes no sense is refused as a whole
        reject()
    again = Recipe.from_yaml(recipe.to_yaml())
    assert again == recipe
    assert again.chain_digest == recipe.chain_digest
    assert list(again.experts) == list(recipe.experts)


def test_digest_is_stable():
    """A change of this value orphans every stored run: raise a method's version instead, and say so."""
    recipe = Recipe.build("ties", edits=["lwptv"], pretrained="p", experts=EXPERTS)
    versions = [m.version for m in recipe.methods]
    assert versions == [1, 1]
    assert recipe.chain_digest[:16] == "e52801997b4c563b"
    assert recipe.run_id("0" * 64, DIGESTS) == "167f5281a0ca"


def test_digest_depends_on_what_matters_only():
    recipe = Recipe.build("ties", {"density": 0.2}, ["lwptv"], "p", EXPERTS)
    same = Recipe.build("ties", {}, [("lwptv", {"prune_ratio": 0.7})], "elsewhere", {"a": "x", "b": "y"}, "a title")
    assert same.run_id("0" * 64, DIGESTS) == recipe.run_id("0" * 64, DIGESTS)
    others = [
        Recipe.build("ties", {"density": 0.3}, ["lwptv"], "p", EXPERTS),
        Recipe.build("ties", {}, [], "p", EXPERTS),
        Recipe.build("ties", {}, ["lwptv", "lwptv"], "p", EXPERTS),
        Recipe.build("task_arithmetic", {}, ["lwptv"], "p", EXPERTS),
        Recipe.build("ties", {}, ["lwptv"], "p", {"b": "b", "a": "a"}),  # order may matter to a method
    ]
    ids = {other.run_id("0" * 64, DIGESTS) for other in others}
    assert len(ids) == len(others)
    assert recipe.run_id("0" * 64, DIGESTS) not in ids
    assert recipe.run_id("1" * 64, DIGESTS) != recipe.run_id("0" * 64, DIGESTS)
    assert recipe.run_id("0" * 64, DIGESTS | {"a": "3" * 64}) != recipe.run_id("0" * 64, DIGESTS)


def test_whole_numbers_and_decimals_are_one_recipe():
    one = Recipe.from_yaml("merge: {task_arithmetic: {scaling: 1}}")
    other = Recipe.from_yaml("merge: {task_arithmetic: {scaling: 1.0}}")
    assert one.chain_digest == other.chain_digest


@pytest.mark.parametrize(
    "text,error,message",
    [
        ("merge: ties\nmrege: 1", RecipeError, "unknown field 'mrege'. Did you mean 'merge'?"),
        ("merge: {tise: {}}", UnknownMethodError, "no merge called 'tise'. Did you mean 'ties'?"),
        ("merge: lwptv", UnknownMethodError, "'lwptv' is an edit."),
        ("merge: {ties: {densty: 0.1}}", ParameterError, "ties has no parameter 'densty'"),
        ("merge: {emr: {x: 0.1}}", ParameterError, "emr has no parameter 'x'; it takes no parameters."),
        ("merge: {ties: {densty: 0.1}}", ParameterError, "Did you mean 'density'?"),
        ("merge: {ties: {density: 0}}", ParameterError, r"ties.density must be a number in \(0, 1\]. Got 0 instead."),
        ("merge: {ties: {density: .nan}}", ParameterError, "Got nan instead."),
        ("merge: {ties: {density: '0.2'}}", ParameterError, "Got '0.2' instead."),
        ("merge: {ties: {density: true}}", ParameterError, "Got True instead."),
        ("merge: {ties: 3}", RecipeError, "merge is written as `ties`"),
        ("{}", RecipeError, "merge is written as"),
        ("- a list", RecipeError, "A recipe is a mapping"),
        ("merge: [", RecipeError, "not valid YAML"),
        ("merge: !!python/object/apply:os.system [id]", RecipeError, "tags such as"),
        ("merge: ties\nversion: 2", RecipeError, "version 2; this program reads version 1"),
        ("merge: ties\nedits: lwptv", RecipeError, "edits is a list"),
        ("merge: ties\nexperts: [a, b]", RecipeError, "experts a mapping"),
    ],
)
def test_bad_recipes_say_what_is_wrong(text, error, message):
    with pytest.raises(error, match=message):
        Recipe.from_yaml(text)


def test_a_bad_file_is_named(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("merge: {tise: {}}")
    with pytest.raises(UnknownMethodError, match=r"mine\.yaml: There is no merge called 'tise'"):
        Recipe.load(path)
    with pytest.raises(RecipeError, match=r"gone\.yaml cannot be read"):
        Recipe.load(tmp_path / "gone.yaml")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match=r"mine\.yaml"):
        Recipe.load(path)


def test_text_shows_what_differs_from_the_defaults():
    recipe = Recipe.build("ties", {"density": 0.1}, ["lwptv", ("lwptv", {"shared": False})])
    assert recipe.text() == "lwptv → lwptv(shared=False) → ties(density=0.1)"


@pytest.mark.parametrize("entry", PRESETS, ids=lambda entry: entry.key)
def test_every_preset_builds(entry):
    recipe = entry.recipe("p", EXPERTS)
    assert recipe.title == entry.title
    assert entry.source
    assert find_preset(entry.key) is entry


def test_presets_know_what_papers_set_otherwise_for_large_models():
    small, large = (find_preset("ties").recipe("p", EXPERTS, large=large) for large in (False, True))
    assert small.merge.params.values()["scaling"] == 0.3 and large.merge.params.values()["scaling"] == 0.4


def test_presets_are_distinct():
    assert len({entry.key for entry in PRESETS}) == len(PRESETS)
    assert len({entry.title for entry in PRESETS}) == len(PRESETS)
    assert len({entry.recipe("p", EXPERTS).chain_digest for entry in PRESETS}) == len(PRESETS)
    with pytest.raises(RecipeError, match="Did you mean 'ties_mean'"):
        find_preset("ties_meen")


def test_exemplars_enter_the_recipe_of_chains_that_need_them():
    plain, few = Recipe.build("lot"), Recipe.build("lot", exemplars={"per_task": 4})
    assert plain.exemplars is not None and plain.exemplars.per_task == 64
    assert Recipe.from_yaml(few.to_yaml()) == few != plain
    assert few.chain_digest != plain.chain_digest
    assert Recipe.build("ties").exemplars is None


@pytest.mark.parametrize(
    "edits,merge,reason",
    [
        (["dare"], "model_stock", "are random after"),
        ([("dare", {"drop_rate": 0.2}), "dare"], "ties", "give the second another seed"),
        (["dare", ("dare", {"seed": 1}), "dare"], "ties", "give the second another seed"),
        (["random_mask", ("random_mask", {"prune_ratio": 0.1})], "ties", "give the second another seed"),
    ],
)
def test_chains_that_make_no_sense_are_refused_with_a_reason(edits, merge, reason):
    with pytest.raises(RecipeError, match=reason):
        Recipe.build(merge, edits=edits)
    Recipe.build(merge, edits=["lwptv"])
    Recipe.build("ties", edits=["dare", ("dare", {"seed": 1}), "random_mask"])
