"""Pages on a benchmark whose images stay in parquet files: they are shown, and files that were moved are named."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_data
from page_harness import press, words

from merging.images.benchmarks import benchmark_folders
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.build.benchmark_description import Description
from merging.images.benchmarks.build.benchmark_folder import write_benchmark
from merging.recipes.presets import find_preset
from merging.study import measure
from merging.study.runs.execute import execute
from merging.study.runs.reference_models import find_references
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

ON = "own:mine"
HELPED = ("button", "multiselect", "selectbox", "segmented_control", "number_input", "toggle")
DRAWN = "10 of 60 images of each test set, drawn with seed 0, class-balanced"


@pytest.fixture
def ids(tmp_path: Path) -> dict[str, str]:
    """Runs by title on a benchmark made here that refers to files in ``tmp_path``/images, everything measured."""
    return computed(tmp_path)


def computed(tmp_path: Path, *measured: str, **options: Any) -> dict[str, str]:
    """Runs by title on such a benchmark, with these measurements."""
    experts = tiny.write_family(tmp_path / "experts", experts=("fruit", "cars")).experts
    tiny_data.whole_model(tmp_path / "clip.safetensors")
    tasks: dict[str, Any] = {}
    for number, name in enumerate(("fruit", "cars", "beasts")):
        parts = {"train": tiny_data.rows(4, 1000 * number), "test": tiny_data.rows(20, 1000 * number + 100)}
        images = tiny_data.parquet(tmp_path / "images" / name, parts)
        tasks[name] = {"images": str(images)} | ({"expert": str(experts[name])} if name in experts else {})
    plain = {"pretrained": "clip.safetensors", "images": 10, "by_reference": True, "balanced": True, "tasks": tasks}
    plain |= options
    folder = benchmark_folders.own_folder("mine", tmp_path / "store")
    folder.parent.mkdir(parents=True)
    benchmark = write_benchmark(Description.from_plain(plain, tmp_path), folder, tokenize=tiny_data.letters)
    store = Store(tmp_path / "store", libraries=())
    find_references(store, benchmark)
    runs = {}
    for key in ("task_arithmetic", "ties"):
        run = execute(find_preset(key).recipe(benchmark.pretrained, benchmark.experts), store, benchmark=benchmark)
        runs[key] = run.id
        for measurement in measured or ("features",):
            measure.measure(measurement, store, benchmark, run.id, context=Context(device="cpu"))
    return runs


def test_pages_show_images_that_stay_in_their_files(open_app: Any, library: Path, ids: dict[str, str]) -> None:
    at = open_app("image", library, benchmark=ON, image="fruit:reporting:3")
    assert not at.exception and not at.error and not at.warning
    assert "one of 10 images" in words(at)
    at = open_app(
        "compare",
        library,
        benchmark=ON,
        run=ids["ties"],
        run_b=ids["task_arithmetic"],
        compare_view="images",
        right_runs="both wrong",
    )
    assert not at.exception and not at.error and DRAWN in words(at)
    at.switch_page("screens/features.py").run()
    assert not at.exception and not at.error
    at.switch_page("screens/scores.py").run()
    assert not at.exception and not at.error and DRAWN in words(at)
    at.switch_page("screens/home.py").run()
    assert not at.exception and DRAWN in words(at)


@pytest.mark.full
def test_pages_on_whole_test_sets_speak_of_no_half(open_app: Any, library: Path, tmp_path: Path) -> None:
    ids = computed(tmp_path, "signs", whole=True)
    compared = {"run": ids["ties"], "run_b": ids["task_arithmetic"]}
    visits: list[tuple[str, dict[str, str]]] = [
        ("home", {}),
        ("scores", {"runs": ",".join(ids.values())}),
        ("compare", compared),
        ("compare", {**compared, "compare_view": "images", "right_runs": "both wrong"}),
        ("image", {"image": "fruit:reporting:3"}),
        ("merge", {}),
        ("methods", {"word": "interval", "method": "ties"}),  # not the definitions of both halves
        ("sweeps", {}),
        ("models", {"models_view": "data"}),
    ]
    shown = []
    for page, query in visits:
        at = open_app(page, library, benchmark=ON, **query)
        assert not at.exception and not at.error, page
        shown.append(said := words(at))
        parts = [*said.split("\n"), *(widget.help or "" for kind in HELPED for widget in at.get(kind))]
        assert not [part for part in parts if re.search(r"\bhal(?:f|ves)\b", part)], page
    together = "\n".join(shown)
    assert "on the test set, and the H-score" in together and "measured by this program on the test set of" in together
    assert "one of 10 images of the test set" in together and "No previews: this benchmark" in together


@pytest.mark.full
def test_files_that_were_moved_are_named_and_found_again(
    open_app: Any, library: Path, ids: dict[str, str], tmp_path: Path
) -> None:
    open_app("image", library, benchmark=ON, image="fruit:reporting:3")
    shutil.move(tmp_path / "images" / "fruit", tmp_path / "elsewhere")
    at = open_app("image", library, benchmark=ON, image="fruit:reporting:3")
    assert not at.exception
    problem = at.error[0].value.replace("\\", "")
    assert "The images of fruit" in problem and "test-00000-of-00002.parquet" in problem
    assert "on Models & runs under data or with: mergescope benchmark find /" in problem and "/mine FOLDER" in problem
    for page in ("scores", "compare", "features", "home"):
        at.switch_page(f"screens/{page}.py").run()
        assert not at.exception, page
    at = open_app("models", library, benchmark=ON, models_view="data")
    assert not at.exception and "The images of fruit" in at.warning[0].value
    at.text_input(key="benchmark_moved").set_value(str(tmp_path / "images"))
    press(at, "Find them")
    assert not at.exception and "cannot be used" in at.error[0].value  # it is not there
    at.text_input(key="benchmark_moved").set_value(str(tmp_path))
    press(at, "Find them")
    assert not at.exception and not at.error and not at.warning
    assert "All files were found" in at.info[0].value
    at = open_app("image", library, benchmark=ON, image="fruit:reporting:3")
    assert not at.exception and not at.error and "one of 10 images" in words(at)
    assert (
        Benchmark.load(benchmark_folders.own_folder("mine", tmp_path / "store"))
        .load_unlabeled("fruit", "reporting")[0]
        .shape[2]
        == 3
    )
