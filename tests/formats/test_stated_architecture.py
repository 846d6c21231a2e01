"""Architectures that files do not state: by fields, a model's name or a configuration; refused where files differ."""

from __future__ import annotations

import json

import peers
import pytest
import tiny
import torch

import merging
from merging.base.errors import CheckpointError, RecipeError
from merging.cli.main import main
from merging.models.architecture import Architecture, add_stated_architecture, architecture_in_metadata
from merging.models.checkpoint import MappingCheckpoint
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.named_architecture import named_architecture
from merging.models.stated_architecture import NOTHING_STATED, StatedArchitecture
from merging.recipes.chain_text import parse_chain
from merging.recipes.recipe import Recipe
from merging.sharing.export.model_export import export

HEADS = "heads=2,activation=gelu"


@pytest.fixture
def bare(tmp_path):
    """State dicts of the tiny family, of whose heads nothing speaks."""
    base, tuned = tiny.family(("a", "b"))
    for name, state in {"pretrained": base, **tuned}.items():
        torch.save(state, tmp_path / f"{name}.pt")
    return tmp_path


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch, tiny_folder):
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))


def test_fields_are_read_and_written():
    given = StatedArchitecture.parse(" heads=2, activation = gelu,")
    assert given == StatedArchitecture(heads=2, activation="gelu") and given.text() == HEADS
    assert StatedArchitecture.parse(given.text()) == given and StatedArchitecture.parse("") == NOTHING_STATED
    for text, problem in {
        "head=2": "no 'head'. Did you mean 'heads'?",
        "heads": "no 'heads'",
        "heads=0": "heads is a whole number from 1",
        "heads=²": "heads is a whole number",
        "activation=relu": "quick_gelu or gelu; got 'relu'",
    }.items():
        with pytest.raises(CheckpointError) as refused:
            StatedArchitecture.parse(text)
        assert problem in str(refused.value)


def test_models_of_open_clip_and_configurations_are_known_by_name(tmp_path, small_configs):
    assert named_architecture("ViT-B-32").text() == (
        "image_size=224,patch_size=32,width=768,layers=12,heads=12,embed_dim=512,text_heads=8"
    )  # without the activation: OpenAI's weights of that name have another one than the others
    assert named_architecture("ViT-B-32-quickgelu").activation == "quick_gelu"
    assert named_architecture("ViT-H-14").heads == 16  # of width 80
    for path in small_configs:
        given = named_architecture(str(path))
        assert (given.width, given.heads, given.embed_dim, given.activation) == (64, 1, peers.EMBED, "quick_gelu")
    for text, problem in {
        "ViT-B-33": "no model 'ViT-B-33'. Did you mean 'ViT-B-32'?",
        "vit-b-32": "Did you mean 'ViT-B-32'?",
        "RN50": "is not a vision transformer",
        "gone/config.json": "There is no configuration at gone/config.json",
        str(tmp_path): "is not a configuration of a CLIP model",
    }.items():
        with pytest.raises(CheckpointError) as refused:
            named_architecture(text)
        assert problem in str(refused.value)


@pytest.fixture
def small_configs(tmp_path):
    """Configurations of both libraries: files and folders."""
    small = peers.whole()
    export(small, tmp_path / "hf")
    export(small, tmp_path / "oc", to="open_clip")
    return [tmp_path / place for place in ("hf", "oc", "hf/config.json", "oc/open_clip_config.json")]


def test_a_folder_of_experts_that_is_called_like_a_model_is_not_a_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ViT-B-32").mkdir()
    assert named_architecture("ViT-B-32").heads == 12


def test_what_a_file_states_stays_and_what_it_contradicts_is_refused_with_both_values():
    known = tiny.checkpoint(tiny.pretrained())
    same = add_stated_architecture(known, StatedArchitecture(heads=2, width=16, activation="quick_gelu", text_heads=4))
    assert Architecture.from_checkpoint(same) == Architecture.from_checkpoint(known) and architecture_in_metadata(same)[
        "text_cfg"
    ] == {"heads": 4}
    assert same.digest == known.digest and add_stated_architecture(known, NOTHING_STATED) is known
    with pytest.raises(CheckpointError) as refused:
        add_stated_architecture(known, StatedArchitecture(heads=4, patch_size=16, activation="gelu"))
    for given, own in (("heads=4", "heads=2"), ("patch_size=16", "patch_size=8"),
                       ("activation=gelu", "activation=quick_gelu")):  # fmt: skip
        assert f"{given} was stated, and its file has {own}" in str(refused.value)
    bare = MappingCheckpoint(tiny.pretrained(), "bare")
    with pytest.raises(CheckpointError, match="width 16, which 3 heads cannot share"):
        add_stated_architecture(bare, StatedArchitecture(heads=3))
    assert Architecture.from_checkpoint(add_stated_architecture(bare, StatedArchitecture(heads=4))).heads == 4
    odd = tiny.checkpoint(tiny.pretrained())
    odd.metadata = {"architecture": json.dumps({"vision_cfg": {"head_width": "8"}, "text_cfg": [], "embed_dim": None})}
    add_stated_architecture(odd, StatedArchitecture(text_heads=2))


def test_a_recipe_keeps_it_and_it_names_another_run():
    recipe = Recipe.build("ties", architecture=" activation=gelu,heads=2")
    assert recipe.architecture == HEADS and Recipe.from_yaml(recipe.to_yaml()) == recipe
    plain = Recipe.build("ties")
    assert "architecture" not in plain.to_plain() and plain.run_id("0", {}) != recipe.run_id("0", {})
    chain = parse_chain(f"architecture:{HEADS};lwptv;ties")
    assert chain.architecture == HEADS and parse_chain(chain.text()) == chain
    wrong = ((HEADS, "the architecture states gelu"), ("ViT-B-32", "has no 'ViT-B-32'"), (3, "a text such as"))
    for text, problem in wrong:
        with pytest.raises(RecipeError, match=problem):
            Recipe.from_plain({"merge": "ties", "activation": "quick_gelu", "architecture": text})


def test_python_takes_it(bare):
    files = {name: bare / f"{name}.pt" for name in "ab"}
    shown = {name: torch.randn(6, 3, tiny.SIZE, tiny.SIZE) for name in "ab"}
    with pytest.raises(CheckpointError, match="architecture='heads=N' in Python"):
        merging.merge(bare / "pretrained.pt", files, "lot", exemplars=shown, device="cpu")
    two, four = (
        merging.merge(bare / "pretrained.pt", files, "lot", exemplars=shown, architecture=text, device="cpu").state_dict
        for text in ("heads=2", "heads=4")
    )
    assert not all(torch.equal(two[name], four[name]) for name in two)
    done = export(bare / "a.pt", bare / "out", architecture=HEADS)
    assert json.loads((done.folder / "config.json").read_text())["num_attention_heads"] == 2
    with pytest.raises(CheckpointError, match="heads=4 was stated, and its file has heads=2"):
        export(done.folder, bare / "x", architecture="heads=4")


def test_every_command_that_opens_models_takes_it(bare, capsys):
    models = ["--pretrained", str(bare / "pretrained.pt"), f"--expert=a={bare / 'a.pt'}", f"--expert=b={bare / 'b.pt'}"]
    stated = ["--architecture", HEADS]
    assert main(["merge", *models, *stated, "--out", str(bare / "out"), "--device", "cpu", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["scores"] and f"architecture: {HEADS}" in (bare / "out" / "recipe.yaml").read_text()
    config = json.loads((bare / "out" / "config.json").read_text())
    assert (config["num_attention_heads"], config["hidden_act"]) == (2, "gelu")
    again = ["run", str(bare / "out" / "recipe.yaml"), "--base", str(bare), "--json", "--device", "cpu"]
    assert main(again) == 0
    assert json.loads(capsys.readouterr().out)["id"] == made["id"]
    assert main([*again, "--activation", "quick_gelu"]) == 1
    assert "The activation is quick_gelu, but the architecture states gelu" in capsys.readouterr().err
    assert main(["export", made["id"], "--out", str(bare / "again")]) == 0
    assert Architecture.from_checkpoint(open_checkpoint(bare / "again")).heads == 2
    file = str(bare / "a.pt")
    for words in (["convert", file, "--out", str(bare / "c")], ["evaluate", file], ["inspect", file], ["fit", *models]):
        assert main([*words, *stated]) == 0
    assert "16, 2 heads" in capsys.readouterr().out
    assert main(["fit", *models, "--architecture", "width=32"]) == 1
    assert "width=32 was stated, and its file has width=16" in capsys.readouterr().err
    assert main(["fit", *models, "--architecture", "heads=x"]) == 2
    assert capsys.readouterr().err == "heads is a whole number from 1 to 1,000,000; got 'x'.\n"
