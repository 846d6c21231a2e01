"""Unused text tensors: one chain gives the same weights and run in the app, on the command line and in Python."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from page_harness import press, run_until_idle, words
from safetensors.torch import load_file
from torch import Tensor

import merging
from app.page_text import run_in_words
from app.reading import page_data
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

PRESET = "ties_lwptv"
TEXT = {
    "token_embedding.weight": (300, 8), "positional_embedding": (7, 8), "text_projection": (8, 8),
    "ln_final.weight": (8,), "ln_final.bias": (8,), "logit_scale": (),
}  # fmt: skip


@pytest.fixture(scope="module")
def carrying(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny benchmark with models that carry the unused text tensors of published image encoders."""
    folder = tmp_path_factory.mktemp("carrying") / "benchmark"
    shutil.copytree(tiny_folder, folder)
    draw = torch.Generator().manual_seed(3)
    text = {name: torch.randn(shape, generator=draw).half() for name, shape in TEXT.items()}
    for path in (folder / "models").iterdir():
        tiny.write(path, load_file(path) | text)
    return folder


@contextmanager
def empty_store(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Store]:
    """A store of its own, so that nothing is found that another way in has computed."""
    with monkeypatch.context() as patch:
        patch.setenv("MERGESCOPE_STORE", str(folder))
        yield Store(folder, libraries=())


def weights(run: Run) -> dict[str, Tensor]:
    assert run.model_path is not None
    return load_file(run.model_path)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def merged_in_app(at: Any) -> Run:
    press(at, "Run")
    at = run_until_idle(at)
    assert not at.exception and not at.error
    run = page_data.store().get_run(page_data.job_queue().list_jobs()[0].subject)
    assert run.has_model
    return run


def on_command_line(line: str, store: Store, tmp_path: Path) -> Run:
    """The run that a command line of the app computes, in another store."""
    program, *arguments = shlex.split(line)
    assert program == "mergescope"
    arguments[arguments.index("--out") + 1] = str(tmp_path / "merged.safetensors")
    assert main([*arguments, "--no-evaluate"]) == 0
    (run,) = store.list_runs()
    return run


@pytest.mark.full
@pytest.mark.parametrize("counted", [False, True], ids=["by hand", "preset"])
def test_three_ways_in_give_the_same_bytes(
    counted: bool, open_app: Any, carrying: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain that was put together by hand does not count them, a paper's combination does, wherever it is run."""
    chain = find_preset(PRESET)
    at = open_app("merge", carrying, **({} if counted else {"chain": "lwptv;ties"}))
    if counted:
        at.selectbox(key="preset").select(PRESET).run()
    (toggle,) = [toggle for toggle in at.toggle if toggle.label == "Count the unused text tensors"]
    assert toggle.value is counted and "combinations from the papers turn it on" in words(at)
    in_app = merged_in_app(at)
    recipe = in_app.recipe
    assert recipe is not None and recipe.count_dead_params is counted
    assert f"count_dead_params: {str(counted).lower()}" in in_app.recipe_yaml

    assert ("counting the unused text tensors" in run_in_words(in_app)) is counted

    line = next(block.value for block in at.code if block.value.startswith("mergescope run")).splitlines()[-1]
    with empty_store(monkeypatch, tmp_path / "cli") as store:
        on_command = on_command_line(line, store, tmp_path)
        benchmark = Benchmark.load(carrying)
        if counted:
            by_code = chain.recipe(benchmark.pretrained, benchmark.experts)
        else:
            by_code = Recipe.build("ties", {}, ["lwptv"], benchmark.pretrained, benchmark.experts)
    in_python = execute(by_code, Store(tmp_path / "python", libraries=()), evaluate=False, context=Context("cpu"))
    options = {"count_dead_params": True} if counted else {}
    edits, params = (chain.edits, chain.params) if counted else (["lwptv"], {})
    in_memory = merging.merge(
        benchmark.pretrained, benchmark.experts, "ties", params, edits, device="cpu", **options
    ).state_dict
    assert in_app.id == on_command.id == in_python.id
    assert in_app.model_path and on_command.model_path and in_python.model_path
    assert in_app.model_path.read_bytes() == on_command.model_path.read_bytes() == in_python.model_path.read_bytes()
    assert same(weights(in_app), in_memory)

    other = merging.merge(
        benchmark.pretrained, benchmark.experts, "ties", params, edits, device="cpu", count_dead_params=not counted
    )
    assert not same(weights(in_app), other.state_dict)  # the setting makes a difference here


def test_the_page_opens_on_a_chain_of_ones_own(open_app: Any, carrying: Path) -> None:
    """Its merge may be changed by hand, and the result then is that of the same chain elsewhere."""
    at = open_app("merge", carrying)
    next(box for box in at.selectbox if box.label == "Then merge with").select("ties").run()
    assert at.query_params["chain"] == "lwptv;ties"
    assert [toggle.value for toggle in at.toggle if toggle.label == "Count the unused text tensors"] == [False]


def test_a_recipe_from_before_the_field_was_written_means_what_it_meant() -> None:
    old = "pretrained: p\nexperts: {a: x}\nedits: []\nmerge: {ties: {}}\n"
    recipe = Recipe.from_yaml(old)
    assert not recipe.count_dead_params and "count_dead_params: false" in recipe.to_yaml()
    digests = ("0", {"a": "1"})
    assert recipe.run_id(*digests, carries_dead=True) == Recipe.from_yaml(recipe.to_yaml()).run_id(
        *digests, carries_dead=True
    )
    counting = Recipe.from_yaml(old + "count_dead_params: true\n")
    assert counting.run_id(*digests, carries_dead=True) != recipe.run_id(*digests, carries_dead=True)
