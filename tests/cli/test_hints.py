"""Hints in messages: names that other programs use, files that are no encoders, options that exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import tiny
import torch

import merging
from merging.base.errors import CheckpointError, ParameterError, UnknownMethodError
from merging.cli.main import main
from merging.methods import registry
from merging.methods.params import SYNONYMS
from merging.models.formats.model_sources import open_checkpoint
from merging.models.head_detection import is_head
from merging.models.tensor_info import TensorInfo
from merging.recipes.recipe import Recipe

ROOT = Path(__file__).resolve().parents[2]
HEAD = {"weight": torch.ones(5, tiny.EMBED), "bias": torch.zeros(5)}


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("TIES", "Did you mean 'ties'?"),
        ("Task-Arithmetic", "Did you mean 'task_arithmetic'?"),
        ("DARE", "'dare' is an edit."),
    ],
)
def test_methods_in_other_letters(key, hint):
    with pytest.raises(UnknownMethodError) as refused:
        Recipe.build(key)
    assert hint in str(refused.value)


@pytest.mark.parametrize(
    ("method", "name", "here"),
    [
        ("ties", "lambda", "scaling"), ("ties", "Alpha", "scaling"), ("ties", "k", "density"),
        ("ties", "topk", "density"), ("ties", "keep", "density"), ("ties", "Density", "density"),
        ("regmean", "aplha", "alpha"),
    ],
)  # fmt: skip
def test_parameters_by_other_names(method, name, here, capsys):
    with pytest.raises(ParameterError) as refused:
        Recipe.build(method, {name: 0.5})
    assert str(refused.value).endswith(f"Did you mean {here!r}?")
    words = ["merge", "--pretrained", "gone", "--expert", "a=gone", "--out", "x", "--merge", f"{method}:{name}=0.5"]
    assert main(words) == 2
    assert str(refused.value) in capsys.readouterr().err


def test_too_many_experts_are_named_before_any_file_is_read(capsys, tmp_path):
    empty = tmp_path / "empty.safetensors"  # no checkpoint
    empty.touch()
    words = [word for name in "abc" for word in ("--expert", f"{name}={empty}")]
    assert main(["merge", "--pretrained", str(empty), *words, "--out", str(tmp_path / "x"), "--merge", "nuslerp"]) == 1
    assert "NuSLERP merges at most 2 experts, and 3 are given. Choose 2 of them" in capsys.readouterr().err


def test_synonyms_are_of_parameters_that_exist():
    names = {name for method in registry.list_methods() for name in method.params.bounds()}
    assert {here for there in SYNONYMS.values() for here in there} <= names


def test_a_head_is_no_encoder(tmp_path, capsys):
    base, tuned = tiny.family(("a",))
    for name, tensors in (("zeroshot", base), ("a", tuned["a"]), ("head_Cars", HEAD)):
        torch.save(tensors, tmp_path / f"{name}.pt")
    (tmp_path / "Cars").mkdir()
    (tmp_path / "head_Cars.pt").rename(tmp_path / "Cars" / "head_Cars.pt")
    head, model = tmp_path / "Cars" / "head_Cars.pt", str(tmp_path / "zeroshot.pt")
    sentence = "cars: head_Cars.pt is a classification head of 5 classes and 8 features, not an image encoder. Give the"
    words = ["--pretrained", model, "--expert", f"cars={head}", "--architecture", "heads=2"]
    for command in (["fit"], ["merge", "--out", str(tmp_path / "x"), "--store", str(tmp_path / "store")]):
        assert main([*command, *words]) == 1
        assert sentence in capsys.readouterr().err
    pretrained = ["fit", "--pretrained", str(head), f"--expert=a={model}"]
    for words in (pretrained, ["evaluate", str(head)], ["convert", str(head)]):
        assert main(words) == 1
        assert "is a classification head" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="cars: Cars holds only a classification head"):
        merging.merge(model, {"cars": tmp_path / "Cars"})
    assert main(["inspect", str(head), "--no-digest"]) == 0
    assert "It is a classification head of 5 classes and 8 features, not an encoder." in capsys.readouterr().out
    torch.save(tuned["a"], tmp_path / "Cars" / "finetuned.pt")  # a head beside its encoder leaves no choice
    assert len(open_checkpoint(tmp_path / "Cars").infos) == len(base)


def test_a_layer_by_itself_is_no_head():
    matrix = TensorInfo((4, 4), torch.float32)
    assert is_head({"weight": matrix, "bias": matrix}) and is_head({"head.weight": matrix})
    assert not is_head({"visual.transformer.resblocks.0.mlp.c_fc.weight": matrix})
    assert not is_head({"a.weight": matrix, "b.weight": matrix}) and not is_head({})


def texts(path: Path):
    """Every piece of text in a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.full
def test_base_is_advised_with_the_command_that_has_it():
    """`run --base` is a folder of files and `convert --base` a model; other commands have no such option."""
    commands = ROOT / "merging" / "cli" / "commands"
    for path in (ROOT / "merging").rglob("*.py"):
        for text in texts(path):
            if "--base" in text and commands not in path.parents and text != "--base":
                assert "convert --base" in text or "run " in text or " --base FOLDER" in text, (path, text)


@pytest.mark.parametrize("words", [["run"], ["sweep", "--vary", "scaling=0,1"], ["tune", "--space", "ties.density"]])
@pytest.mark.parametrize(("models", "lacks"), [("", "no pretrained model"), ("pretrained: x\n", "no experts")])
def test_a_recipe_without_models_is_told_what_to_write(words, models, lacks, capsys, tmp_path):
    (tmp_path / "plain.yaml").write_text(f"version: 1\n{models}merge: ties\n")
    assert main([words[0], str(tmp_path / "plain.yaml"), *words[1:], "--store", str(tmp_path / "store")]) == 1
    assert f"plain.yaml names {lacks}. Add lines such as “pretrained: bundled:pretrained”" in capsys.readouterr().err
