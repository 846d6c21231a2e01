"""The command ``sweep`` names the best point, of all or of those with a required accuracy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_sweeps import recipe

from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.study.sweeps import sweep_session


@pytest.fixture
def call(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Sweeps the prune ratio of a recipe of the tiny benchmark, with further options."""
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe(Benchmark.load(tiny_folder)).to_yaml())
    options = ["--vary", "lwptv.prune_ratio=0,0.5,1", "--images", "6"]
    return lambda *more: main(["sweep", str(path), *options, *more])


@pytest.mark.full
def test_the_best_point_under_a_requirement(call: Callable[..., int], capsys: Any) -> None:
    assert call("--json") == 0
    plain = json.loads(capsys.readouterr().out)
    top = max(plain["points"], key=lambda point: point["h_score"])
    assert plain["subject_to"] is None
    best = plain["best"]
    assert (best["point"], best["by"], best["meets"]) == (top["point"], "h_score", True)
    assert best["value"] == pytest.approx(top["h_score"])
    leads = {other["point"]: other["lead"] for other in best["others"]}
    assert leads == {
        point["point"]: pytest.approx(top["h_score"] - point["h_score"])
        for point in plain["points"]
        if point["point"] != top["point"]
    }
    assert best["ties"] == [other["point"] for other in best["others"] if other["lead_low"] <= 0 <= other["lead_high"]]

    least = max(point["out_of_domain"] for point in plain["points"])
    assert call("--json", "--subject-to", f"out={least}", "--best-by", "in") == 0
    bound = json.loads(capsys.readouterr().out)
    meeting = [point for point in bound["points"] if point["out_of_domain"] >= least]
    assert [point["meets"] for point in bound["points"]].count(True) == len(meeting)
    inside = max(meeting, key=lambda point: point["in_domain"])
    assert (bound["best"]["point"], bound["best"]["by"], bound["best"]["meets"]) == (inside["point"], "in_domain", True)
    assert len(bound["best"]["others"]) == len(meeting) - 1
    assert bound["subject_to"] == {"of": "out", "at_least": least, "draws": 10_000, "seed": 0}

    assert call("--subject-to", "out=1") == 0
    out = capsys.readouterr().out
    assert "No point meets it. The nearest: " in out and "of 10,000 resamples of the images (seed 0)" in out
    assert "best by" not in out
    assert call() == 0
    assert (
        " is best by H-score, " in (out := capsys.readouterr().out)
        and "of 2 other points cannot be distinguished" in out
    )


def test_a_requirement_is_checked_before_anything_is_computed(call: Callable[..., int], capsys: Any) -> None:
    assert call("--subject-to", "nothing=0.5") == 1
    assert "neither in, out nor a task" in capsys.readouterr().err


@pytest.mark.full
def test_subsets_of_a_team(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    benchmark, path = Benchmark.load(tiny_folder), tmp_path / "recipe.yaml"
    path.write_text(recipe(benchmark, edits=[]).to_yaml())
    assert main(["sweep", str(path), "--subsets", "--images", "6", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    names = list(benchmark.experts)
    assert len(plain["subsets"]) == 2 ** len(names) and plain["subsets"][0]["subset"] == []
    last = plain["subsets"][-1]
    gain = last["accuracy"][names[0]] - plain["subsets"][0]["accuracy"][names[0]]
    assert last["subset"] == names
    assert sum(row["value"] for row in plain["shapley"] if row["task"] == names[0]) == pytest.approx(gain)
    assert len(plain["losses"]["in pairs"]) == len(names) ** 2, "of every other task, and out of domain"

    assert main(["sweep", "--stored", plain["id"][:6]]) == 0
    out = capsys.readouterr().out
    assert "by which the subsets are chosen" in out and " + ".join(names) in out
    assert "subsets, 16 of them stored" in out


def test_the_table_of_a_line_has_losses_with_intervals(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe(Benchmark.load(tiny_folder)).to_yaml())
    assert main(["sweep", str(path), "--line", "0,1", "--through", "pretrained,circles", "--images", "6"]) == 0
    out = capsys.readouterr().out
    assert "loss in [95 %]" in out and "loss out [95 %]" in out
    assert main(["sweep", "--stored", out.split("Sweep ")[1].split()[0], "--json"]) == 0
    for point in json.loads(capsys.readouterr().out)["points"]:
        for name in ("loss_in", "loss_out"):
            assert f"  {point[name]:.3f} [{point[f'{name}_low']:.3f}, {point[f'{name}_high']:.3f}]" in out


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ("--vary experts=1,2 --subsets", "--vary and --subsets exclude each other; keep one"),
        ("--line --plane 0,1 --through a,b,c", "--line and --plane exclude each other; keep one"),
        ("--vary experts=1,2 --through a,b", "add --line or --plane"),
        ("--subsets --through a,b", "add --line or --plane"),
        ("--plane", "name them with --through A,B,C"),
        ("--subsets --subject-to in=0.5", "leave --subject-to and --best-by out"),
        ("--subsets --best-by in", "leave --subject-to and --best-by out"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, options: str, remedy: str
) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe(Benchmark.load(tiny_folder), edits=[]).to_yaml())
    assert main(["sweep", str(path), *options.split(), "--describe"]) == 2
    assert remedy in capsys.readouterr().err


@pytest.mark.full
def test_bundled_subsets_are_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(sweep_session, "run_sweep", lambda *_, **__: pytest.fail("nothing may be computed"))
    benchmark = Benchmark.load()
    path = tmp_path / "recipe.yaml"
    path.write_text(find_preset("task_arithmetic").recipe(benchmark.pretrained, benchmark.experts).to_yaml())
    assert main(["sweep", str(path), "--subsets"]) == 0
    out = capsys.readouterr().out
    assert "n = " in out and "about" not in out and " + ".join(benchmark.experts) in out
