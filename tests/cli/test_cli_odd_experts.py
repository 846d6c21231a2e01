"""What the command line says of experts that probably do not belong, and that --strict refuses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import odd_experts
import pytest
import tiny

from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Path) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))


@pytest.fixture
def odd(tmp_path: Path) -> tiny.Family:
    return odd_experts.write(tmp_path / "odd")


def options(odd: tiny.Family) -> list[str]:
    experts = [word for name, path in odd.experts.items() for word in ("--expert", f"{name}={path}")]
    return ["--pretrained", str(odd.pretrained), *experts]


def recipe_file(odd: tiny.Family) -> str:
    recipe = Recipe.build("ties", {}, [], odd.pretrained.name, {name: path.name for name, path in odd.experts.items()})
    path = odd.pretrained.parent / "recipe.yaml"
    path.write_text(recipe.to_yaml())
    return str(path)


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_merge_warns_on_stderr_and_in_json(odd: tiny.Family, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    assert main(["merge", *options(odd), "--out", str(out), "--no-evaluate", "--json"]) == 0
    printed, err = capsys.readouterr()
    warnings = json.loads(printed)["warnings"]
    lines = [line.removeprefix("Warning: ") for line in err.splitlines() if line.startswith("Warning: ")]
    assert lines == warnings and not odd_experts.list_unwarned(err) and len(lines) == 3
    assert "Warning" not in printed
    card = (out / "README.md").read_text()
    assert card.index("**Warning:**") < card.index("## How to load it") and card.count("**Warning:**") == 3


def test_a_stored_run_says_it_again(odd: tiny.Family, capsys: Any) -> None:
    for _ in range(2):
        assert main(["run", recipe_file(odd), "--no-evaluate"]) == 0
        out, err = capsys.readouterr()
        assert not odd_experts.list_unwarned(err) and err.count("Warning: ") == 3
        assert "Warning" not in out and len(odd_experts.list_unwarned(out)) == 3


@pytest.mark.parametrize("command", ["merge", "run"])
def test_strict_refuses_and_leaves_nothing(command: str, odd: tiny.Family, tmp_path: Path, capsys: Any) -> None:
    words = ["merge", *options(odd)] if command == "merge" else ["run", recipe_file(odd)]
    assert main([*words, "--out", str(tmp_path / "out"), "--strict", "--json"]) == 1
    out, err = capsys.readouterr()
    failure = json.loads(out)
    assert (
        failure["code"] == 1 and not odd_experts.list_unwarned(failure["error"]) and not odd_experts.list_unwarned(err)
    )
    assert not files_in(tmp_path / "store") and not (tmp_path / "out").exists()


def test_strict_does_not_disturb_experts_that_belong(tiny_family: tiny.Family, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "merged.safetensors"
    assert main(["merge", *options(tiny_family), "--out", str(out), "--no-evaluate", "--strict"]) == 0
    assert out.is_file() and "Warning" not in capsys.readouterr().err


def test_the_help_names_the_option(capsys: Any) -> None:
    for command in ("merge", "run"):
        assert main([command, "--help"]) == 0
        assert "--strict" in capsys.readouterr().out


def test_a_sweep_warns_once_before_its_points(odd: tiny.Family, tiny_folder: Path, tmp_path: Path, capsys: Any) -> None:
    benchmark = Benchmark.load(tiny_folder)
    stranger = {"circles": str(odd.experts["stranger"]), "digits": str(benchmark.experts["digits"])}
    recipe = Recipe.build("task_arithmetic", {}, [], str(benchmark.pretrained), stranger)
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe.to_yaml())
    for warned in (1, 0):  # the second time all points are stored
        assert main(["sweep", str(path), "--vary", "scaling=0.1,0.3", "--images", "4"]) == 0
        assert capsys.readouterr().err.count("Warning: circles does not look fine-tuned") == warned


def test_a_recipe_that_cannot_be_merged_stops_no_other(
    odd: tiny.Family, tiny_folder: Path, tmp_path: Path, capsys: Any
) -> None:
    """The sweep's look at the models before it begins is no reason to end it."""
    benchmark, base = Benchmark.load(tiny_folder), tiny.pretrained()
    short = {name: value for name, value in base.items() if name != "visual.proj"}
    broken = tiny.write(tmp_path / "short.safetensors", short)
    recipes = []
    for name, expert in (("whole", benchmark.experts["digits"]), ("broken", broken)):
        recipe = Recipe.build("task_arithmetic", {}, [], str(benchmark.pretrained), {"digits": str(expert)})
        (tmp_path / f"{name}.yaml").write_text(recipe.to_yaml())
        recipes.append(str(tmp_path / f"{name}.yaml"))
    assert main(["sweep", *recipes, "--vary", "scaling=0.1,0.3", "--images", "4"]) == 1
    assert "2 of 4 points could not be computed; the others are stored" in capsys.readouterr().err
