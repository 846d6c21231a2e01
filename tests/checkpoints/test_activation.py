"""The activation that a recipe or a command names: where nothing says it, and everywhere it counts."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import tiny
import torch
from namings import to_naming
from safetensors import safe_open
from safetensors.torch import save_file

import merging
from merging.base.errors import CompatibilityError, RecipeError
from merging.cli.main import main
from merging.engine.evaluation.evaluate import evaluate
from merging.images.image_encoder import Encoder
from merging.models.architecture import (
    Architecture,
    activation_in_metadata,
    add_stated_activation,
    architecture_in_metadata,
)
from merging.models.checkpoint import MappingCheckpoint
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.study.sweeps.points import PointSample
from merging.study.sweeps.sweep import SweepPoint
from merging.study.sweeps.sweep_session import SweepSession
from merging.tasks.context import Context

NAMES = ("circles", "digits")


@pytest.fixture
def silent(tmp_path):
    """Files of the tiny family that say how many heads they have, and nothing of their activation."""
    about = {"architecture": json.dumps({k: v for k, v in tiny.ARCHITECTURE.items() if k != "quick_gelu"})}
    base, tuned = tiny.family(NAMES)
    for name, tensors in {"pretrained": base, **tuned}.items():
        save_file(tensors, tmp_path / f"{name}.safetensors", about)
    return {name: str(tmp_path / f"{name}.safetensors") for name in ("pretrained", *NAMES)}


@pytest.fixture
def store(tmp_path, monkeypatch, tiny_folder):
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    return Store(tmp_path / "store", libraries=())


def recipe(files, activation, merge="lot"):
    experts = {name: files[name] for name in NAMES}
    return Recipe.build(merge, {}, [], files["pretrained"], experts, activation=activation)


def test_an_activation_is_stated_beside_what_is_known():
    known = tiny.checkpoint(tiny.pretrained())
    gelu = add_stated_activation(known, "gelu")
    assert (
        not Architecture.from_checkpoint(gelu).quick_gelu
        and Architecture.from_checkpoint(gelu).heads == Architecture.from_checkpoint(known).heads
    )
    assert Architecture.from_checkpoint(known).quick_gelu and add_stated_activation(known, "") is known
    assert (
        gelu.digest == known.digest and architecture_in_metadata(gelu)["vision_cfg"] == tiny.ARCHITECTURE["vision_cfg"]
    )
    bare = add_stated_activation(MappingCheckpoint(tiny.pretrained(), "bare"), "gelu")
    assert Architecture.from_checkpoint(bare, fallback=known) == Architecture.from_checkpoint(gelu)


def test_it_does_not_hide_the_heads_of_published_towers():
    """ViT-H/14 has heads of 80, which nothing but its width says."""
    shapes = {"class_embedding": (1280,), "positional_embedding": (5, 1280), "conv1.weight": (1280, 3, 2, 2)}
    bare = MappingCheckpoint({f"visual.{name}": torch.zeros(shape) for name, shape in shapes.items()}, "h14")
    assert (
        Architecture.from_checkpoint(add_stated_activation(bare, "gelu")).heads
        == Architecture.from_checkpoint(bare).heads
        == 16
    )


@pytest.mark.parametrize("naming", ["open_clip", "hf"])
def test_exemplars_go_through_the_named_activation(naming):
    base, tuned = tiny.family(NAMES)
    base, tuned = to_naming(base, naming), {name: to_naming(state, naming) for name, state in tuned.items()}
    shown = {name: torch.randn(6, 3, tiny.SIZE, tiny.SIZE) for name in NAMES}

    def merged(activation, quick):
        opened = MappingCheckpoint(base, "pretrained")
        opened.metadata = said = {"architecture": json.dumps(tiny.ARCHITECTURE | {"quick_gelu": quick})}
        found = merging.merge(opened, tuned, "lot", exemplars=shown, activation=activation, device="cpu")
        assert opened.metadata is said  # what the caller gave stays as it is
        return found.state_dict

    said, named, other = merged("", quick=False), merged("gelu", quick=True), merged("", quick=True)
    assert list(said) == list(named) == list(base)
    assert all(torch.equal(said[name], named[name]) for name in said)
    assert not all(torch.equal(said[name], other[name]) for name in said)


def test_a_recipe_keeps_it():
    named = Recipe.build("ties", activation="gelu")
    assert Recipe.from_yaml(named.to_yaml()) == named and "activation: gelu" in named.to_yaml()
    plain = Recipe.build("ties")
    assert "activation" not in plain.to_plain() and named.run_id("0", {}) != plain.run_id("0", {})
    with pytest.raises(RecipeError, match="activation is quick_gelu or gelu; got 'relu'"):
        Recipe.from_yaml("merge: ties\nactivation: relu")
    with pytest.raises(RecipeError, match=r"got \['gelu'\]"):
        Recipe.from_yaml("merge: ties\nactivation: [gelu]")


def test_runs_are_made_and_scored_with_it(silent, store, tiny_benchmark):
    runs = [
        execute(recipe(silent, named), store, benchmark=tiny_benchmark, context=Context(device="cpu"))
        for named in ("", "quick_gelu", "gelu")
    ]
    assert len({run.id for run in runs}) == 3
    assumed = ["states its activation; QuickGELU was assumed" in " ".join(run.warnings) for run in runs]
    assert assumed == [True, False, False]
    first, quick, gelu = (open_checkpoint(run.model_path) for run in runs)
    assert first.digest == quick.digest != gelu.digest  # nothing says it: QuickGELU is assumed
    assert not Architecture.from_checkpoint(gelu, fallback=tiny_benchmark.pretrained_tower).quick_gelu
    with safe_open(runs[2].model_path, "pt") as file:
        assert json.loads(file.metadata()["recipe"])["activation"] == "gelu"
    expected = evaluate(
        add_stated_activation(MappingCheckpoint(gelu.state_dict(), "m"), "gelu"), tiny_benchmark, context=Context("cpu")
    )
    assert runs[2].scores.equals(expected)
    images = torch.randn(3, 3, tiny.SIZE, tiny.SIZE)
    assert not torch.allclose(
        Encoder.from_checkpoint(gelu)(images),
        Encoder.from_checkpoint(add_stated_activation(gelu, "quick_gelu"))(images),
    )


def test_experts_tell_it_where_the_pretrained_model_does_not(silent, store, tiny_benchmark, tmp_path):
    about = {"architecture": json.dumps(tiny.ARCHITECTURE | {"quick_gelu": False})}
    save_file(tiny.expert(tiny.pretrained(), 0), tmp_path / "circles.safetensors", about)
    run = execute(recipe(silent, "", "ties"), store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    assert activation_in_metadata(open_checkpoint(run.model_path)) == "gelu" and "was assumed" not in " ".join(
        run.warnings
    )
    save_file(tiny.pretrained(), tmp_path / "pretrained.safetensors", {"architecture": json.dumps(tiny.ARCHITECTURE)})
    with pytest.raises(CompatibilityError, match="circles: activation: expected quick_gelu, found gelu"):
        execute(recipe(silent, "", "emr"), store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    run = execute(recipe(silent, "gelu", "emr"), store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    assert not [text for text in run.warnings if "activation" in text]


def test_points_of_sweeps_have_it_and_are_others(silent, tiny_benchmark):
    session = SweepSession(tiny_benchmark, PointSample("choosing", 4, 0, ()), Context("cpu"))
    names = set()
    for terms in (None, ((0.5, "circles"),)):
        for named in ("", "gelu"):
            place = SweepPoint(0, (), recipe(silent, named, "task_arithmetic"), terms)
            names.add(session.plan_point(place).name)
            opened = session.open_checkpoints(place.recipe)
            assert all(Architecture.from_checkpoint(checkpoint).quick_gelu == (not named) for checkpoint in opened)
    assert len(names) == 4


def test_the_command_line_names_it(silent, store, tmp_path, capsys):
    experts = [word for name in NAMES for word in ("--expert", f"{name}={silent[name]}")]
    words = ["merge", "--pretrained", silent["pretrained"], *experts, "--merge", "lot", "--out", str(tmp_path / "out")]
    assert main([*words, "--activation", "gelu", "--json", "--device", "cpu"]) == 0
    made = json.loads(capsys.readouterr().out)
    found = store.get_run(made["id"])
    assert found.recipe.activation == "gelu" and not made["export_warnings"]
    assert json.loads((tmp_path / "out" / "config.json").read_text())["hidden_act"] == "gelu"

    written = tmp_path / "recipe.yaml"
    written.write_text(recipe(silent, "").to_yaml())
    assert main(["run", str(written), "--activation", "gelu", "--json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == found.id


def test_evaluate_asks_the_model_with_it(silent, store, monkeypatch, capsys):
    seen = []

    def evaluated(checkpoint, benchmark, **options):
        seen.append(Architecture.from_checkpoint(checkpoint).quick_gelu)
        return pd.DataFrame({"task": []})

    monkeypatch.setattr("merging.engine.evaluation.evaluate.evaluate", evaluated)
    for named in ([], ["--activation", "gelu"], ["--activation", "quick_gelu"]):
        assert main(["evaluate", silent["circles"], "--json", *named]) == 0
    assert seen == [True, False, True]
