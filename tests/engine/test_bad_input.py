"""Bad input gets one clear sentence from the error tree, and nothing is written."""

from __future__ import annotations

import re
import time

import pytest
import tiny
import torch
from safetensors_header import container, entry

import merging
from merging.base.errors import CheckpointError, MergingError, NeedsError, RecipeError
from merging.models.architecture import Architecture
from merging.models.checkpoint import MappingCheckpoint
from merging.models.formats.model_sources import open_checkpoint
from merging.models.inspection.fit_check import check_fit
from merging.recipes.recipe import Recipe

MERGE = "merge: ties\n"
BOMB = "title: [&a [x, x, x, x, x, x, x, x, x], &b [*a, *a, *a, *a, *a, *a, *a, *a, *a], [*b, *b, *b]]\n"
BAD_RECIPES = {
    "aliases": (MERGE + BOMB, "anchors and aliases"),
    "depth": ("[" * 3000, "nested more than 20 deep"),
    "tag": (MERGE + "title: !!python/name:os.system x", "tags such as"),
    "bad int": (MERGE + "title: !!int abc", "cannot be parsed"),
    "digits": (MERGE + "title: " + "9" * 5000, "too many digits"),
    "twice": (MERGE + "experts: {a: x, a: y}", "'a' is written twice"),
    "surrogate": (MERGE + r'title: "\uD800x"', "title is a piece of text|not valid YAML"),
    "title": (MERGE + "title: [1, 2]", "title is a piece of text"),
    "file": (MERGE + "experts: {a: {b: c}}", "an expert's file is a piece of text"),
    "long": ("# " + "x" * 200_000, "at most 100,000 are read"),
}


@pytest.mark.parametrize("name", BAD_RECIPES)
def test_hostile_recipes_are_refused_at_once(name):
    text, says = BAD_RECIPES[name]
    started = time.monotonic()
    with pytest.raises(RecipeError, match=says) as caught:
        Recipe.from_yaml(text)
    assert len(str(caught.value)) < 1000 and time.monotonic() - started < 5


def test_a_date_is_a_title_like_any_other():
    assert Recipe.from_yaml(MERGE + "title: 2001-99-99").title == "2001-99-99"


@pytest.mark.parametrize("edit", [("lwptv",), ("lwptv", None), ("lwptv", {}, 3), (3, {})])
def test_odd_edits_are_refused(edit):
    with pytest.raises(RecipeError, match="An edit is a key"):
        Recipe.build("ties", edits=[edit])


def test_empty_tensors_pass_through():
    base, experts = tiny.family(("a", "b"))
    for state in (base, *experts.values()):
        state["visual.ln_post.bias"] = torch.empty(0)
    for merge in ("task_arithmetic", "ties", "weight_averaging"):
        for params in ({}, {"scope": "tensor"}) if merge == "ties" else ({},):
            result = merging.merge(base, experts, merge, params, edits=["lwptv"], device="cpu")
            assert result.state_dict["visual.ln_post.bias"].shape == (0,)


def test_a_result_that_overflows_is_refused():
    base, experts = tiny.family(("a",))
    half = {n: v.half() for n, v in base.items()}
    expert = {n: v.half() for n, v in experts["a"].items()}
    half["visual.ln_post.bias"][0], expert["visual.ln_post.bias"][0] = 6e4, 6.4e4
    with pytest.raises(MergingError, match=r"'visual\.ln_post\.bias' cannot be stored: its largest number is .*65504"):
        merging.merge(half, {"a": expert}, params={"scaling": 2.0})


def test_a_difference_that_overflows_is_named():
    base, experts = tiny.family(("a",))
    base["visual.proj"][0, 0], experts["a"]["visual.proj"][0, 0] = -3e38, 3e38
    with pytest.raises(CheckpointError, match=r"overflows in tensor 'visual\.proj'"):
        merging.merge(base, experts)


HEADERS = {
    "digits": b'{"a":{"dtype":"F32","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,4]}}',
    "dtype list": {"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}},
    "shape text": {"a": {"dtype": "F32", "shape": "", "data_offsets": [0, 4]}},
    "huge": {"a": entry(0, 0, [0, 10**30])},
    "surrogate": b'{"\\ud800":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
}


@pytest.mark.parametrize("name", HEADERS)
def test_odd_headers_are_refused(name, tmp_path):
    with pytest.raises(CheckpointError, match=r"bad\.safetensors"):
        open_checkpoint(container(tmp_path, HEADERS[name], b"x" * 4))


@pytest.mark.parametrize("source", ["a\0b", "~nobody-of-that-name/x", None, 3, "x" * 5000])
def test_odd_paths_are_refused(source):
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(source)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "tensors",
    [{"w": torch.eye(2).to_sparse()}, {"w": torch.eye(2).to_sparse_coo()}, {"w": torch.empty(2, device="meta")},
     {3: torch.ones(1)}, {"w": [1.0]}],
)  # fmt: skip
def test_odd_mappings_are_refused(tensors):
    with pytest.raises(CheckpointError):
        MappingCheckpoint(tensors, "odd")


def test_experts_are_a_mapping():
    with pytest.raises(RecipeError, match="mapping of name to checkpoint; got list"):
        merging.merge(tiny.pretrained(), [tiny.pretrained()])


ROWS = {
    "width": ({"visual.ln_post.weight": torch.ones(3, 5)}, r"must be a tensor \(n, 16\); got \(3, 5\)"),
    "rank": ({"visual.ln_post.weight": torch.ones(3, 4, 16)}, r"must be a tensor \(n, 16\)"),
    "nan": ({"visual.ln_post.weight": torch.full((3, 16), torch.nan)}, "NaN or infinity"),
    "list": ({"visual.ln_post.weight": [1.0]}, "got list"),
    "name": ({"visual.ln_post.wieght": torch.ones(3, 16)}, "does not have: visual.ln_post.wieght"),
    "nothing": ({}, "no rows for any of a"),
}


@pytest.mark.parametrize("name", ROWS)
def test_odd_layer_inputs_are_refused(name):
    rows, says = ROWS[name]
    base, experts = tiny.family(("a",))
    with pytest.raises(NeedsError, match=says):
        merging.merge(base, experts, "lot", layer_inputs={"a": rows})


@pytest.mark.parametrize(
    "text", ['{"vision_cfg": {"head_width": 0}}', '{"vision_cfg": {"head_width": true}}', "[" * 9999]
)
def test_odd_architectures_are_refused(text):
    checkpoint = MappingCheckpoint(tiny.pretrained(), "odd")
    checkpoint.metadata = {"architecture": text}
    with pytest.raises(CheckpointError, match="odd"):
        Architecture.from_checkpoint(checkpoint)


def test_one_prefix_for_all_names_is_recognized():
    base, experts = tiny.family(("a",))
    wrapped = {f"module.{n}": v for n, v in experts["a"].items()}
    report = check_fit(MappingCheckpoint(base, "p"), {"a": MappingCheckpoint(wrapped, "a")})
    assert len(report.problems) == 1
    first = re.escape(next(iter(base)))
    assert re.search(rf"other names.*expected {first}, found module\.{first}.*by this prefix", report.text())


def test_a_head_is_no_model_under_other_names():
    base = tiny.pretrained()
    head = {"weight": torch.ones(3, 8), "bias": torch.zeros(3)}
    for pretrained, expert in ((base, head), (head, base)):
        with pytest.raises(CheckpointError, match="is a classification head of 3 classes and 8 features, not an image"):
            check_fit(MappingCheckpoint(pretrained, "p"), {"a": MappingCheckpoint(expert, "a")})
    layers = {f"layer{number}.weight": torch.ones(3, 8) for number in range(5)}
    report = check_fit(MappingCheckpoint(base, "p"), {"a": MappingCheckpoint(layers, "a")})
    assert [problem.problem for problem in report.problems] == ["no name in common"]
    assert "found layer0.weight" in report.text() and "another kind of model" in report.text()


def test_names_in_capitals_are_guessed():
    base, experts = tiny.family(("a",))
    loud = {name.upper(): value for name, value in experts["a"].items()}
    report = check_fit(base, {"a": loud})
    assert [problem.problem for problem in report.problems] == ["letter case"]
    assert "found VISUAL.CLASS_EMBEDDING" in report.text() and "small and capital letters only" in report.text()


def test_the_report_takes_files_and_looks_at_every_number_unless_told_otherwise(tmp_path):
    family = tiny.write_family(tmp_path, experts=("a",))
    broken = tiny.expert(tiny.pretrained(), 1)
    broken["visual.proj"][-1, -1] = float("nan")
    assert check_fit(family.pretrained, family.experts).ok
    assert [p.problem for p in check_fit(family.pretrained, {"b": broken}).errors] == ["not finite"]
    assert check_fit(family.pretrained, {"b": broken}, values=False).ok


def test_repeated_files_are_noticed():
    base, experts = tiny.family(("a", "b", "c"))
    experts |= {"b": experts["a"], "c": base}
    report = check_fit(
        MappingCheckpoint(base, "p"), {n: MappingCheckpoint(s, n) for n, s in experts.items()}, values=True
    )
    assert {(p.checkpoint, p.problem) for p in report.warnings} == {("b", "same file twice"), ("c", "not changed")}
    assert report.ok
