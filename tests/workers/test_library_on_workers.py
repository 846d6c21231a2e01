"""The builder of the precomputed library, and the check of lessons, with workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from merging.base import settings
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.study.runs.run_store import Store
from merging.study.trials import drm_ablations
from merging.tasks.workers.pools import open_processes
from merging.teaching.skeleton import make_skeleton
from sample_data import library

RUN_ONLY = ("threads", "work", "seconds")  # what a run's facts say of who computed


def built(folder: Path, benchmark: Benchmark, count: int) -> dict[str, Any]:
    """Every file of a library that so many workers built; the manifests and what says who computed are left out."""
    folder.mkdir()
    workers = open_processes([""] * count, f"{count} processes") if count else None
    with pytest.MonkeyPatch.context() as patch:
        for name, place in (("LIBRARY_FOLDER", folder / "runs"), ("BUNDLED_FOLDER", folder)):
            patch.setattr(settings, name, place)
        library.rebuild_library(benchmark, library.plan_library(benchmark), keep=False, workers=workers)
    if workers is not None:
        workers.close(workers.executor)
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.name == "run.json":
            facts = json.loads(path.read_bytes())
            found[name] = {key: value for key, value in facts.items() if key not in RUN_ONLY}
        elif path.is_file() and path.name != "manifest.json":
            found[name] = path.read_bytes()
    return found


@pytest.mark.full
def test_a_library_is_the_same_bytes_whoever_computes(
    tiny_benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ("task_arithmetic", "ties")
    monkeypatch.setattr(library, "RUNS", tuple(map(find_preset, keys)))
    kinds = (("drift", "ties"), ("signs", "ties"), ("drm_ablations", None))
    monkeypatch.setattr(library, "MEASUREMENTS", kinds)
    monkeypatch.setattr(library, "SWEEPS", ((("ties",), {"ties.scaling": (0.5, 1.0)}, "two"),))
    monkeypatch.setattr(library, "JOINT_MAPS", ())
    monkeypatch.setattr(library, "LAMBDAS", ())
    monkeypatch.setattr(drm_ablations, "CUTS", (0.0,))
    monkeypatch.setattr(drm_ablations, "VARIANTS", drm_ablations.VARIANTS[:1])
    here = built(tmp_path / "0", tiny_benchmark, 0)
    without = capsys.readouterr().out
    assert len([name for name in here if name.endswith("run.json")]) == 2 + 2 + len(tiny_benchmark.experts)
    assert built(tmp_path / "2", tiny_benchmark, 2) == here
    said = capsys.readouterr().out
    assert "Run 2 of 2, on 2 workers\n" in said and "Measurement 2 of 2, on 2 workers\n" in said
    assert "Trial 1 of " in said and printed(said) == printed(without), "in the same order"


def printed(said: str) -> list[str]:
    """What was made, without how long it took."""
    lines = [line.partition(":")[0] for line in said.splitlines()]
    return [line for line in lines if line.startswith(("[", "Measuring", "Sweeping"))]


@pytest.mark.full
def test_what_lessons_lack_is_computed_on_workers(
    tiny_benchmark: Benchmark, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_benchmark.folder))
    file, other = tmp_path / "own.yaml", Store(tmp_path / "other", libraries=())
    file.write_text(make_skeleton("own"), "utf-8")
    words = ["lessons", "check", str(file), "--device", "cpu", "--compute", "--store"]
    main([*words, str(store.root), "--workers", ""])
    assert "Run 2 of 2: " in capsys.readouterr().err
    main([*words, str(other.root), "--workers", "2"])
    said = capsys.readouterr().err
    assert "Run 2 of 2, on 2 workers" in said
    assert {run.id for run in other.list_runs()} == {run.id for run in store.list_runs()} and len(
        other.list_runs()
    ) == 2
