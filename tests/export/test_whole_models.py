"""Whole CLIP models: the pretrained text tower goes with every export; where there is none, that is said."""

from __future__ import annotations

import json
import shutil

import peers
import pytest
import tiny
import tiny_data
import torch
from peers import alike, front, ours, random_images
from safetensors.torch import load_file, save_file

from merging.base.errors import CheckpointError
from merging.cli.main import main
from merging.models.checkpoint import MappingCheckpoint
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.recipe import Recipe
from merging.sharing.export.model_export import describe_limits, export
from merging.study.runs.execute import execute
from merging.tasks.context import Context

TOKENS = torch.arange(16).reshape(2, 8) % 20
ABOUT = {"heads": 1, "text_heads": 2, "activation": "quick_gelu"}
STATED = ",".join(f"{name}={value}" for name, value in ABOUT.items())


def features(model, tokens=TOKENS, side=32):
    """(text, images) by a model of open_clip or Transformers."""
    images = random_images(side)
    with torch.inference_mode():
        if hasattr(model, "encode_text"):
            return model.encode_text(tokens), model.encode_image(images)
        text = model.text_projection(model.text_model(input_ids=tokens).pooler_output)
        return text, model.visual_projection(model.vision_model(pixel_values=images).pooler_output)


def loaded(folder):
    """The model as its library loads a whole one."""
    if (folder / "open_clip_config.json").is_file():
        return peers.open_clip().create_model(f"local-dir:{folder}").eval()
    model, report = peers.transformers().CLIPModel.from_pretrained(folder, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


def open_clip_names(folder):
    torch.save(peers.whole().state_dict(), folder / "pretrained.pt")
    return folder / "pretrained.pt"


def transformers_names(folder):
    export(peers.whole(), folder / "pretrained")
    return folder / "pretrained"


NAMINGS = {"open_clip": open_clip_names, "transformers": transformers_names}


def merged(pretrained, folder, store, **stated):
    """A run of two experts that hold the visual tower alone."""
    visual = {name: value for name, value in peers.whole().state_dict().items() if name.startswith("visual.")}
    for number, name in enumerate("ab"):
        torch.save(tiny.expert(visual, number, 0.02), folder / f"{name}.pt")
    recipe = Recipe.build(
        "task_arithmetic", {}, [], str(pretrained), {name: str(folder / f"{name}.pt") for name in "ab"}, **stated
    )
    return execute(recipe, store, evaluate=False, context=Context(device="cpu"))


@pytest.mark.parametrize("naming", NAMINGS)
def test_an_export_of_a_run_is_a_whole_model_with_the_pretrained_text_tower(naming, tmp_path, store):
    stated = {} if naming == "transformers" else {"architecture": STATED}
    run = merged(NAMINGS[naming](tmp_path), tmp_path, store, **stated)
    pretrained = peers.clip(peers.FAMILIES["B/32"][0], peers.EMBED)
    expected = features(pretrained)[0], ours(open_checkpoint(run.model_path), random_images(32))
    for to in ("open_clip", "hf"):
        done = export(run, tmp_path / to, to=to)
        assert done.missing_parts == ()
        for got, wanted in zip(features(loaded(done.folder)), expected, strict=True):
            assert alike(got, wanted)
        head, text = front(done.folder)
        assert head["pipeline_tag"] == "zero-shot-image-classification" and "merging does not change it" in text
    config = json.loads((tmp_path / "open_clip" / "open_clip_config.json").read_text())
    assert config["model_cfg"]["text_cfg"] == peers.TEXT
    again = export(tmp_path / "hf", tmp_path / "again", to="open_clip")  # a whole model of Transformers stays whole
    assert alike(features(loaded(again.folder))[0], expected[0])


def test_without_its_pretrained_model_a_run_is_exported_as_an_image_tower(tmp_path, store, capsys):
    pretrained = transformers_names(tmp_path)
    run = merged(pretrained, tmp_path, store)
    pretrained.rename(tmp_path / "moved")
    done = export(run, tmp_path / "gone", to="open_clip")
    (note,) = done.missing_parts
    assert "image tower alone" in note and "pretrained model pretrained cannot be opened on this machine" in note
    assert "cannot be opened on this machine" in front(done.folder)[1].replace("\\", "")
    with pytest.raises(RuntimeError, match="Missing key"):
        loaded(done.folder)
    assert export(run, tmp_path / "given", base=tmp_path / "moved").missing_parts == ()
    shutil.copytree(tmp_path / "moved", pretrained)
    state = load_file(pretrained / "model.safetensors")
    state["visual_projection.weight"] += 1
    save_file(state, pretrained / "model.safetensors", {"format": "pt"})
    assert "is no longer the pretrained model that was merged" in export(run, tmp_path / "changed").missing_parts[0]
    with pytest.raises(CheckpointError, match="pretrained is not the pretrained model of run"):
        export(run, tmp_path / "wrong", base=pretrained)
    words = ["export", run.id, "--store", str(store.root), "--out"]
    assert main([*words, str(tmp_path / "a")]) == 0
    assert "image tower alone" in capsys.readouterr().out  # the file that was changed is seen only when it is read
    assert main([*words, str(tmp_path / "b"), "--text-tower", str(tmp_path / "moved")]) == 0
    assert "image tower" not in "".join(capsys.readouterr())
    assert loaded(tmp_path / "b").config.text_config.num_attention_heads == 2


def test_a_text_tower_is_taken_where_it_is_asked_for_and_left_out_where_it_is_not_wanted(tmp_path, small):
    whole = open_clip_names(tmp_path)
    done = export(small, tmp_path / "with", to="open_clip", text_tower=whole, architecture="text_heads=2")
    assert alike(features(loaded(done.folder))[1], ours(small, random_images(32)))
    state = peers.whole().state_dict()  # as newer models of open_clip have it, from parallel training
    custom = {n if n.startswith(("visual.", "logit")) else f"text.{n}": value for n, value in state.items()}
    torch.save({f"module.{name}": value for name, value in custom.items()}, tmp_path / "custom.pt")
    other = export(small, tmp_path / "c", text_tower=tmp_path / "custom.pt", architecture="text_heads=2")
    assert alike(features(loaded(other.folder))[0], features(loaded(done.folder))[0])
    done = export(whole, tmp_path / "without", text_tower="none", architecture=STATED)
    assert "left out, as requested" in done.missing_parts[0]
    assert json.loads((tmp_path / "without" / "config.json").read_text())["model_type"] == "clip_vision_model"
    wide = peers.clip(peers.FAMILIES["B/32"][0], 16).state_dict()
    with pytest.raises(CheckpointError, match="has 16 output features, the visual tower 12"):
        export(small, tmp_path / "x", text_tower=MappingCheckpoint(dict(wide), "wide"), architecture="text_heads=2")
    with pytest.raises(CheckpointError, match="model holds no text tower"):
        export(small, tmp_path / "x", text_tower=small)
    with pytest.raises(CheckpointError, match="nothing says how many heads a text tower of width 16"):
        export(small, tmp_path / "x", text_tower=whole)
    with pytest.raises(CheckpointError, match="model has 2 heads by its file, but 4 were stated"):
        export(small, tmp_path / "x", text_tower=peers.whole(), architecture="text_heads=4")


def test_what_transformers_cannot_have_is_left_out_and_said(tmp_path):
    source = peers.whole()
    stated = json.loads(source.metadata["architecture"])
    stated["text_cfg"]["no_causal_mask"] = True
    source.metadata = {"architecture": json.dumps(stated)}
    assert "has no_causal_mask, which Transformers does not support" in export(source, tmp_path / "hf").missing_parts[0]
    assert export(source, tmp_path / "oc", to="open_clip").missing_parts == ()
    config = json.loads((tmp_path / "oc" / "open_clip_config.json").read_text())
    assert config["model_cfg"]["text_cfg"]["no_causal_mask"] is True


def test_models_of_a_benchmark_are_exported_with_the_text_tower_that_it_keeps(tiny_folder, tmp_path, store):
    folder = tmp_path / "bench"
    shutil.copytree(tiny_folder, folder)
    about = {"architecture": json.dumps(tiny.ARCHITECTURE | {"text_cfg": {"heads": tiny_data.HEADS}})}
    save_file(tiny_data.text_state(), folder / "text_tower.safetensors", about)
    models = folder / "models"
    experts = {name: str(models / f"{name}.safetensors") for name in tiny.EXPERTS[:2]}
    recipe = Recipe.build("ties", {}, [], str(models / "pretrained.safetensors"), experts)
    run = execute(recipe, store, evaluate=False, context=Context(device="cpu"))
    for to in ("hf", "open_clip"):
        done = export(run, tmp_path / to, to=to)
        assert done.missing_parts == ()
        tokens = torch.arange(24).reshape(2, 12) % 300
        assert all(torch.isfinite(got).all() for got in features(loaded(done.folder), tokens, tiny.SIZE))
    assert export(models / "digits.safetensors", tmp_path / "one", to="open_clip").missing_parts == ()
    assert describe_limits(models / "digits.safetensors", to="hf") == ""
    assert "there is none in" in describe_limits(tiny_folder / "models" / "digits.safetensors", to="hf")


def test_the_command_says_it_before_anything_is_computed(tmp_path, capsys):
    visual = {name: value for name, value in peers.whole().state_dict().items() if name.startswith("visual.")}
    for name, state in (("pretrained", visual), ("a", tiny.expert(visual, 0, 0.02))):
        torch.save(state, tmp_path / f"{name}.pt")
    words = ["merge", "--pretrained", str(tmp_path / "pretrained.pt"), f"--expert=a={tmp_path / 'a.pt'}"]
    assert main([*words, "--out", str(tmp_path / "x")]) == 1
    assert "nothing says how many heads" in capsys.readouterr().err.splitlines()[0]
    assert main([*words, "--out", str(tmp_path / "x"), "--architecture", STATED, "--json"]) == 0
    out, err = capsys.readouterr()
    assert "image tower alone" in err.splitlines()[0] and json.loads(out)["export_notes"]
    words += ["--architecture", STATED, "--overwrite", "--out", str(tmp_path / "x")]
    assert main([*words, "--text-tower", "none"]) == 0
    assert "image tower" not in capsys.readouterr().err
    assert main([*words, "--text-tower", str(open_clip_names(tmp_path)), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["export_notes"] == []
    assert main([*words, "--text-tower", "gone.pt"]) == 2
    assert "The file of the text tower was not found: gone.pt." in capsys.readouterr().err
