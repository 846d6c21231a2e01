"""Models & runs, data: seeing what own images are, making a benchmark of them, and working on it for a session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import published_layouts
import pytest
import tiny
import tiny_data
import torch
from page_harness import open_page, press, run_until_idle, serve_several, words
from streamlit.testing.v1 import AppTest

from app.reading import page_data
from app.views.models import benchmark_form, benchmark_plan
from merging.base.files.plain_yaml import read_plain_yaml
from merging.images.benchmarks import benchmark_folders
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.sharing.catalog.model_set_store import make_model_set, store_model_set
from merging.study.run_queue import RunQueue
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

EXPERTS = ("fruit", "cars")
HOSTILE = "<img src=x onerror=alert(1)> **b**"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A set of models, with images for its experts in listed folders; gives its id."""
    models, images = tmp_path / "models", tmp_path / "images"
    models.mkdir()
    tiny_data.open_clip_folder(models / "clip")
    for name, state in tiny.family(EXPERTS)[1].items():
        tiny.write(models / f"{name}.safetensors", state, torch.float32)
    parts = {"train": tiny_data.rows(3), "test": tiny_data.rows(6, 100)}
    tiny_data.folder(images / "fruit", parts)
    tiny_data.arrow(images / "cars", parts)
    tiny_data.folder(images / HOSTILE, parts)
    np.savez(images / "numbers.npz", images=tiny_data.same_size(parts["test"]), labels=np.arange(18) % 3)
    np.savez(images / "features.npz", features=np.zeros((3, 4)), labels=np.zeros(3, int))
    monkeypatch.setenv("MERGESCOPE_MODELS", f"{models}:{images}")
    made = make_model_set(
        "Fruit & cars", "models:models/clip", {name: f"models:models/{name}.safetensors" for name in EXPERTS}
    )
    store_model_set(tmp_path / "store", made)
    return made.id


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Commands that would have been run."""
    found: list[tuple[str, ...]] = []
    monkeypatch.setattr(
        RunQueue, "submit_command", lambda self, key, subject, title, words, *more: found.append(tuple(words))
    )
    return found


def chosen(open_app: Any, library: Path, mine: str, *names: str) -> AppTest:
    """The page with data sets chosen."""
    at = open_app("models", library, models_view="data")
    at.selectbox(key="build_models").select(mine).run()
    at.multiselect(key="build_data").set_value([f"models:images/{name}" for name in names]).run()
    assert not at.exception
    return at


def recognized(at: AppTest) -> Any:
    return at.dataframe[0].value.set_index("Task")


def test_the_bundled_state(open_app: Any, library: Path) -> None:
    at = open_app("models", library, models_view="data")
    assert not at.exception and not at.error
    said = words(at)
    assert "With an expert" in said and "Out of domain for every merge" in said
    assert "No data set was found" in said
    bundled = ["Bundled benchmark", "Bundled benchmark, gentle team"]
    assert at.selectbox(key="benchmark_picked").options == [library.name, *bundled]


def test_without_a_benchmark_one_can_be_made(open_app: Any, mine: str, tmp_path: Path) -> None:
    at = open_app("models", tmp_path / "nothing", models_view="data")
    assert not at.exception
    assert "There is no benchmark here" in at.error[0].value
    assert at.selectbox(key="build_models").options == ["Fruit & cars"]


def test_what_was_recognized_is_seen_before_anything_is_computed(
    open_app: Any, library: Path, mine: str, asked: list[tuple[str, ...]], tmp_path: Path
) -> None:
    at = chosen(open_app, library, mine, "fruit", "cars", HOSTILE)
    assert not at.error
    rows = recognized(at)
    assert rows["For merges"].tolist() == ["in domain", "in domain", "out of domain"]
    assert rows.loc["fruit", "Class names"] == "apple tree, bear, cat" and (rows["Classes"] == 3).all()
    assert rows["Head"].tolist() == ["built, 1 prompt"] * 3
    said = words(at)
    assert "train 9, test 18" in said and "Hugging Face data set" in said
    assert "Up to **81 images**" in said and "9 prompts" in said
    assert HOSTILE not in said
    at.number_input(key="build_images").set_value(2).run()
    assert "Up to **39 images**" in words(at)
    press(at, "Make the benchmark")
    (words_run,) = asked
    out = tmp_path / "store" / "benchmarks" / "mine"
    assert words_run[:5] == ("benchmark", "make", str(out), "--from", f"{out}.yaml") and "--evaluate" in words_run
    plain: Any = read_plain_yaml(Path(f"{out}.yaml").read_text())
    assert plain["tasks"]["fruit"] == {"images": "models:images/fruit", "expert": "models:models/fruit.safetensors"}
    assert plain["pretrained"] == "models:models/clip" and plain["images"] == 2


def test_options_are_offered_where_they_apply(
    open_app: Any, library: Path, mine: str, asked: list[tuple[str, ...]], tmp_path: Path
) -> None:
    at = chosen(open_app, library, mine, "fruit", "cars")
    assert [box.key for box in at.toggle if str(box.key).startswith("build_")] == ["build_whole", "build_balanced"]
    at.multiselect(key="build_data").set_value(["models:images/fruit"]).run()
    at.toggle(key="build_by_reference").set_value(True)
    at.toggle(key="build_whole").set_value(True).run()
    assert not at.exception and "they stay in their files" in words(at)
    at.number_input(key="build_images").set_value(0).run()
    assert "build_balanced" not in [box.key for box in at.toggle]  # all images are taken
    press(at, "Make the benchmark")
    plain: Any = read_plain_yaml((tmp_path / "store" / "benchmarks" / "mine.yaml").read_text())
    assert plain["by_reference"] is True and plain["whole"] is True and "balanced" not in plain and asked


def test_a_configuration_and_a_wording_are_asked_for(open_app: Any, library: Path, mine: str, tmp_path: Path) -> None:
    place = tmp_path / "images" / "two"
    place.mkdir()
    for name in ("one", "other"):
        (tiny_data.parquet(tmp_path / name, {"test": tiny_data.rows(6, 100)}) / "data").rename(place / name)
    published_layouts.kmnist(tmp_path / "images")
    assert benchmark_plan.list_configuration_names(str(place)) == ("one", "other")
    assert benchmark_plan.list_configuration_names(str(tmp_path / "images" / "fruit")) == ()
    facts = benchmark_plan.inspect_data_set(str(place), "other")
    assert not facts.problem and facts.referable and facts.class_names == tiny_data.NAMES
    at = chosen(open_app, library, mine, "tanganke/kmnist")
    wording = next(box for box in at.selectbox if str(box.key).startswith("wording_"))
    names = recognized(at).loc["kmnist", "Class names"]
    wording.select("hub").run()
    assert not at.exception and not at.error and recognized(at).loc["kmnist", "Class names"] != names


@pytest.mark.full
def test_what_cannot_be_used_says_why(open_app: Any, library: Path, mine: str) -> None:
    at = chosen(open_app, library, mine, "features.npz")
    assert "features of one model" in at.error[0].value and not at.dataframe
    assert not [button for button in at.button if button.key == "build_start"]
    at.multiselect(key="build_data").set_value(["models:images/numbers.npz"]).run()
    assert "their meaning is not stated" in at.error[0].value
    at.text_area[0].set_value("a\nb\nc").run()
    assert not at.error and recognized(at).loc["numbers", "Class names"] == "a, b, c"
    assert "No data set has an expert" in words(at)
    at.text_area[0].set_value("a\nb").run()
    assert "2 class names are given" in at.error[0].value
    at.text_area[0].set_value("a\nb\nc").run()
    for name in ("../x", "Mine", ""):
        at.text_input(key="build_name").set_value(name).run()
        assert "lowercase letters" in at.error[0].value
    at.text_input(key="build_name").set_value("fine").run()
    task = next(field for field in at.text_input if str(field.key).startswith("task_"))
    task.set_value("Not A Key").run()
    assert "cannot name a task" in at.error[0].value


def test_published_names_are_proposed_where_they_fit(open_app: Any, library: Path, mine: str, tmp_path: Path) -> None:
    tiny_data.folder(tmp_path / "images" / "EuroSAT", {"": tiny_data.rows(2)})
    tiny_data.folder(tmp_path / "images" / "MNIST", {"": tiny_data.rows(2)})
    for number, name in enumerate(("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")):
        place = tmp_path / "images" / "MNIST" / str(number)
        place.mkdir()
        (place / f"{name}.png").write_bytes(tiny_data.png(number))
    for name in tiny_data.NAMES:
        for path in (tmp_path / "images" / "MNIST" / name).iterdir():
            path.unlink()
        (tmp_path / "images" / "MNIST" / name).rmdir()
    at = chosen(open_app, library, mine, "EuroSAT", "MNIST")
    assert [box.value for box in at.selectbox if str(box.key).startswith("names_")] == ["own", "prompts:mnist"]


@pytest.mark.parametrize("how", ["switch", "address"])
def test_where_several_people_work_no_path_is_typed(
    open_app: Any, library: Path, mine: str, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_several(monkeypatch, how)
    tiny_data.folder(tmp_path / "secret", {"": tiny_data.rows(2)})
    tiny.write_benchmark(benchmark_folders.own_folder("made", tmp_path / "store"))
    at = open_app("models", library, models_view="data")
    at.session_state[benchmark_form.TYPED_PATH_KEY] = str(tmp_path)  # as a forged message would have it
    at.run()
    assert not [field for field in at.text_input if field.key == benchmark_form.TYPED_PATH_KEY]
    assert not any("secret" in option for option in at.multiselect(key="build_data").options)
    assert "Delete a benchmark of your own" not in [expander.label for expander in at.expander]
    assert not [button for button in at.button if str(button.key).startswith("unmake_")]
    assert str(tmp_path) not in words(at)
    at.selectbox(key="benchmark_picked").select("own:made").run()
    assert not at.exception and at.query_params["benchmark"] == "own:made"
    at.switch_page("screens/merge.py").run()
    assert not at.exception and not at.error
    assert "own:made/models/pretrained.safetensors" in "".join(block.value for block in at.code)
    assert str(tmp_path) not in words(at) + "".join(block.value for block in at.code)


# Switching


@pytest.fixture
def two(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """A second benchmark, made here, and the id of a run that is scored on the first."""
    made = tiny.write_benchmark(benchmark_folders.own_folder("made", tmp_path / "store"))
    (made / "tasks.json").write_text(json.dumps({**json.loads((made / "tasks.json").read_text()), "more": 1}))
    first = Benchmark.load(library)
    recipe = Recipe.build("task_arithmetic", {"scaling": 0.7}, [], first.pretrained, first.experts)
    run = execute(recipe, Store(tmp_path / "store", libraries=()), benchmark=first, context=Context(device="cpu"))
    return made, run.id


@pytest.mark.full
def test_runs_of_two_benchmarks_never_stand_side_by_side(open_app: Any, library: Path, two: tuple[Path, str]) -> None:
    run_id = two[1]
    at = open_app("models", library, models_view="data")
    at.selectbox(key="benchmark_picked").select("own:made").run()
    assert at.query_params["benchmark"] == "own:made"
    assert "have not been evaluated on it" in words(at)
    at.segmented_control(key="models_view").set_value("runs").run()
    assert "There is no run yet" in words(at)
    for page in ("home", "scores", "masks", "drift", "features", "sweeps", "compare", "merge"):
        at.switch_page(f"screens/{page}.py").run()
        assert not at.exception, page
        assert at.query_params["benchmark"] == "own:made"
        assert run_id not in words(at) and "On the benchmark **made**" in words(at)
    at.switch_page("screens/models.py")
    at.query_params["models_view"] = "data"
    at.run()
    at.selectbox(key="benchmark_picked").select("default").run()
    assert "benchmark" not in at.query_params
    at.segmented_control(key="models_view").set_value("runs").run()
    assert run_id in set(at.dataframe[0].value["id"])


@pytest.mark.full
def test_a_link_says_which_benchmark_it_is_on(open_app: Any, library: Path, two: tuple[Path, str]) -> None:
    made, run_id = two
    at = open_app("masks", library, run=run_id)
    assert not at.exception and not at.warning
    at = open_app("masks", library, run=run_id, benchmark="own:made")
    assert not at.exception
    assert "another benchmark than the current one" in at.warning[0].value
    for gone in ("own:gone", str(made), HOSTILE):
        at = open_app("scores", library, benchmark=gone)
        assert not at.exception
        assert "does not have" in at.warning[0].value and HOSTILE not in at.warning[0].value
        press(at, f"Switch to {library.name}")
        assert not at.exception and not at.warning and "benchmark" not in at.query_params


def test_another_session_goes_on_with_its_own(open_app: Any, library: Path, two: tuple[Path, str]) -> None:
    at = open_app("models", library, models_view="data", benchmark="own:made")
    other = open_page("scores", {})
    assert "On the benchmark" in words(at) and "On the benchmark" not in words(other)
    at.run()
    assert at.selectbox(key="benchmark_picked").value == "own:made"


def test_a_listed_benchmark_is_one_click_away(
    open_app: Any, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write_benchmark(tmp_path / "shelf" / "bench")
    monkeypatch.setenv("MERGESCOPE_MODELS", str(tmp_path / "shelf"))
    at = open_app("models", library)
    press(at, "Switch to it")
    assert at.query_params["benchmark"] == "models:shelf/bench"


def test_a_benchmark_that_was_made_here_can_be_deleted(open_app: Any, library: Path, two: tuple[Path, str]) -> None:
    at = open_app("models", library, models_view="data")
    press(at, "Delete made")
    assert not at.exception and not two[0].exists()
    assert "made was deleted" in at.info[0].value


@pytest.mark.full
def test_from_images_to_scores(open_app: Any, library: Path, mine: str) -> None:
    at = chosen(open_app, library, mine, "fruit", "cars", "numbers.npz")
    at.text_area[0].set_value("a\nb\nc").run()
    press(at, "Make the benchmark")
    at = run_until_idle(at)
    press(at, "Switch to it")
    assert at.query_params["benchmark"] == "own:mine" and "fruit, cars" in words(at)
    at.switch_page("screens/merge.py").run()
    assert at.multiselect(key="experts_chosen").value == list(EXPERTS)
    press(at, "Run")
    at = run_until_idle(at)
    assert not at.error and not at.exception
    at.switch_page("screens/scores.py").run()
    assert not at.exception and not at.error
    run = next(run for run in Store(page_data.store().root, libraries=()).list_runs() if run.kind == "merge")
    assert (
        run.experts == EXPERTS
        and run.benchmark == Benchmark.load(benchmark_folders.own_folder("mine", page_data.store().root)).digest
    )
    assert set(run.scores["task"]) == {"fruit", "cars", "numbers"}  # type: ignore[index]
