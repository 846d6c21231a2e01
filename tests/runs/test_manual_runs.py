"""Runs of factors set by hand: the id is of the factors, the recipe keeps the rules, the table is stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from merging.base.errors import ParameterError
from merging.cli.main import main
from merging.recipes.chain_text import parse_chain
from merging.recipes.recipe import Recipe
from merging.study.runs import edit_pairs
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


@pytest.fixture
def painted(tiny_benchmark: Any) -> Callable[..., Recipe]:
    def recipe(rules: str, **params: Any) -> Recipe:
        edits = [("manual", {"rules": rules, **params})]
        return Recipe.build("ties", {}, edits, tiny_benchmark.pretrained, tiny_benchmark.experts)

    return recipe


def test_two_ways_of_painting_one_table_are_one_run(painted: Any) -> None:
    def run_id(rules: str, **params: Any) -> str:
        return open_inputs(painted(rules, **params)).run_id()

    assert run_id("b0=0+b1=0.5") == run_id("b1=0.5+b0=0") == run_id("b0-1=0+b1=0.5")
    assert run_id("all=0") == run_id("", default=0.0) == run_id("all=-0")
    ids = [run_id(""), run_id("b0=0"), run_id("b0=0.5"), run_id("b0=0", when="after"), run_id("b0-1=0+b0=0.5")]
    expert = next(name for name, _ in painted("").experts)
    assert len({*ids, run_id(f"b0/e.{expert}=0")}) == 6


def test_a_run_keeps_its_rules_and_its_factors(painted: Any, tiny_benchmark: Any, tmp_path: Path) -> None:
    store = Store(tmp_path / "store", libraries=())
    run = execute(painted("b0=0+b1=0.5"), store, benchmark=tiny_benchmark, evaluate=False, context=Context("cpu"))
    assert run.title == "manual(block 0 × 0; block 1 × 0.5) → ties"
    assert run.recipe == painted("b0=0+b1=0.5")
    factors = run.table("factors")
    assert set(factors["factor"]) == {0.0, 0.5, 1.0} and set(factors["rule"]) == {0, 1, 2}
    assert len(factors) == len(run.experts) * len(run.table("tensors"))
    again = execute(painted("b1=0.5+b0=0"), store, benchmark=tiny_benchmark, evaluate=False, context=Context("cpu"))
    assert (again.id, again.created) == (run.id, run.created)


def test_a_run_that_changes_nothing_is_made_with_a_caution(painted: Any, tiny_benchmark: Any, tmp_path: Path) -> None:
    store = Store(tmp_path / "store", libraries=())
    run = execute(painted("b0=1"), store, benchmark=tiny_benchmark, evaluate=False, context=Context(device="cpu"))
    assert run.cautions == ("manual changes nothing: every factor is 1.",)


def test_a_recipe_that_names_what_there_is_not_is_refused_when_its_files_are_opened(painted: Any) -> None:
    for rules in ("b0=0+b99=0", "b0=0+e.nobody=0"):
        with pytest.raises(ParameterError, match="Rule 2"):
            open_inputs(painted(rules))


@pytest.mark.parametrize(
    "step",
    ["manual:b0-1=0+r.norm_scale=0", "manual:rules=b0-1=0+r.norm_scale=0", "manual:b0-1=0+r.norm_scale=0,default=1"],
)
def test_a_step_in_a_line_may_leave_the_name_of_its_table_out(step: str) -> None:
    chain = parse_chain(f"{step};ties")
    assert chain.text() == "manual:b0-1=0+r.norm_scale=0;ties"


def test_links_hold_rules_with_any_name() -> None:
    rules = [{"experts": "a,b;c:d=e+f", "tensors": ["*.ln_[12].*", "x y"], "factor": 1 / 3}]
    chain = parse_chain("manual:default=0.1,when=before;ties")
    chain.edits[0][1]["rules"] = rules
    again = parse_chain(chain.text())
    (rule,) = again.edits[0][1]["rules"]
    assert rule.to_plain() == rules[0] and again.edits[0][1]["default"] == 0.1


@pytest.mark.parametrize(
    "step,problem",
    [
        ("manual:b0-1=0+r.norm=0", "manual.rules must be a list of at most 200 rules"),
        ("manual:b0", "manual: write parameters as name=value; got 'b0'"),
        ("manual:wehn=after", "manual has no parameter 'wehn'.* Did you mean 'when'"),
        ("manual:b0=0,b1=0", "manual.rules appears twice; join its rules by '[+]'"),
        ("pcb:b0=0", "pcb has no parameter 'b0'"),
    ],
)
def test_wrong_lines_say_what_is_wrong(step: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_chain(f"{step};ties" if step.startswith("manual") else step)


def test_the_command_line_takes_rules(tiny_benchmark: Any, tmp_path: Path, capsys: Any) -> None:
    experts = [word for name, file in tiny_benchmark.experts.items() for word in ("--expert", f"{name}={file}")]
    files = ["merge", "--pretrained", tiny_benchmark.pretrained, *experts, "--out", str(tmp_path / "m.safetensors")]
    assert main([*files, "--edit", "manual:b0=0,when=after", "--merge", "ties", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "manual(block 0 × 0, when=after) → ties"
    assert main([*files, "--edit", "manual:b99=0", "--merge", "ties", "--overwrite"]) != 0
    assert "Rule 1 (b99=0) matches no tensor" in capsys.readouterr().err


def test_rules_that_give_the_same_factors_are_one_edit_in_pairs(tiny_benchmark: Any, tmp_path: Path) -> None:
    """Two ways of writing block 0 put back; the chains behind differ, so that ids do not join them."""
    store = Store(tmp_path, libraries=())

    def run(merge: str, *rules: str, when: str = "before") -> Any:
        edits = [("manual", {"rules": one, "when": when}) for one in rules]
        recipe = Recipe.build(merge, {}, edits, tiny_benchmark.pretrained, tiny_benchmark.experts)
        return execute(recipe, store, benchmark=tiny_benchmark, evaluate=False, context=Context(device="cpu"))

    runs = [run("ties"), run("ties", "b1=0.5+b0=0"), run("task_arithmetic"), run("task_arithmetic", "b0-1=0+b1=0.5")]
    first, other = edit_pairs.find_pairs(runs)
    assert first.leading_edit == other.leading_edit and edit_pairs.list_leading_edits([first, other]) == [
        first.leading_edit
    ]
    assert other.belongs_to(first.leading_edit)
    again = Recipe.build("ties", {}, [("manual", {"rules": "b0=0+b1=0.5"})], "elsewhere", tiny_benchmark.experts)
    assert edit_pairs.find_run(again, runs) is runs[1]
    rows = edit_pairs.build_plugin_matrix(runs, first.leading_edit, "Manual")
    assert {row.plugged.id for row in rows if row.plugged} == {runs[1].id, runs[3].id}
    for rules, when in (("b0-1=0", "before"), ("b0=0+b1=0.5", "after")):
        different = edit_pairs.find_pairs([*runs[:3], run("task_arithmetic", rules, when=when)])
        assert len(edit_pairs.list_leading_edits(different)) == 2
