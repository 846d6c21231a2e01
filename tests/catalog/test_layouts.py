"""A folder of experts in one option: what is taken, what is left out, and which choices are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
import torch
from shelf_folders import transformers

from merging.base.errors import CheckpointError
from merging.cli.main import main
from merging.sharing.catalog.model_layout import ModelLayout, read_layout

HEAD = {"weight": torch.ones(5, tiny.EMBED), "bias": torch.zeros(5)}
NAMES = ("Cars", "DTD", "SVHN")


def save(path: Path, tensors: tiny.StateDict) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(tensors, path)
    return path


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The layout of the published task vectors, with their heads."""
    base, tuned = tiny.family(NAMES)
    model = tmp_path / "checkpoints" / "ViT-B-32"
    save(model / "zeroshot.pt", base)
    for name, state in tuned.items():
        save(model / name / "finetuned.pt", state)
        save(model / f"head_{name}.pt", HEAD)
    return model


def files(layout: ModelLayout) -> dict[str, str]:
    """What the experts are called, and the last two parts of their paths."""
    return {name: "/".join(Path(reference).parts[-2:]) for name, reference in layout.experts.items()}


def test_the_published_layout(published: Path) -> None:
    layout = read_layout(str(published))
    assert layout.pretrained == str(published / "zeroshot.pt") and not layout.is_guessed
    assert files(layout) == {name: f"{name}/finetuned.pt" for name in NAMES}
    assert layout.left_out == {"classification heads": [f"head_{name}.pt" for name in NAMES]}
    assert files(read_layout(str(published.parent))) == files(layout)  # the only group in the folder above
    layout = read_layout(str(published), ["dtd", "Cars"])
    assert list(files(layout)) == ["DTD", "Cars"] and layout.left_out["not chosen"] == ["SVHN/finetuned.pt"]
    with pytest.raises(CheckpointError, match=r"no expert 'Carz'. Did you mean 'Cars'\? There are Cars, DTD, SVHN"):
        read_layout(str(published), ["Carz"])


def test_linearized_models_and_steps_are_left_out_beside_the_model_that_they_belong_to(tmp_path: Path) -> None:
    base, tuned = tiny.family(NAMES)
    for name, state in tuned.items():
        for file, tensors in (("finetuned", state), ("zeroshot", base), ("checkpoint_500", state)):
            save(tmp_path / f"{name}Val" / f"{file}.pt", tensors)
        for file in ("linear_finetuned", "linear_zeroshot"):
            save(tmp_path / f"{name}Val" / f"{file}.pt", base)
    layout = read_layout(str(tmp_path))
    assert files(layout) == {name: f"{name}Val/finetuned.pt" for name in NAMES}
    assert "CarsVal/linear_finetuned.pt" in layout.left_out["linearized, beside models that are not linearized"]
    assert "DTDVal/checkpoint_500.pt" in layout.left_out["beside finetuned.pt"]
    assert Path(layout.pretrained).name == "zeroshot.pt"


def test_choices_are_refused_with_the_choices(published: Path) -> None:
    base, tuned = tiny.family(("Cars", "CarsVal"))
    save(published / "CarsVal" / "finetuned.pt", tuned["CarsVal"])
    with pytest.raises(CheckpointError, match=r"leaves a choice: Cars and CarsVal. Name the experts with --experts"):
        read_layout(str(published))
    assert files(read_layout(str(published), ["Cars", "DTD"]))["Cars"] == "Cars/finetuned.pt"
    assert files(read_layout(str(published), ["CarsVal"])) == {"CarsVal": "CarsVal/finetuned.pt"}
    (published / "Cars" / "finetuned.pt").unlink()
    assert files(read_layout(str(published), ["Cars"])) == {"Cars": "CarsVal/finetuned.pt"}
    save(published / "DTD" / "nonlinear_finetuned.pt", tiny.expert(base, 7))
    with pytest.raises(CheckpointError, match=r"a choice: DTD \(finetuned.pt, nonlinear_finetuned.pt\)"):
        read_layout(str(published))
    with pytest.raises(CheckpointError, match=r"DTD holds several models, finetuned.pt, nonlinear_finetuned.pt; name"):
        read_layout(str(published), ["DTD"])
    assert "DTD" not in read_layout(str(published), known_names=["DTD"]).experts
    other = published.parent / "ViT-L-14"
    save(other / "zeroshot.pt", tiny.pretrained(3))
    for number, name in enumerate(NAMES):
        save(other / name / "finetuned.pt", tiny.expert(tiny.pretrained(3), number))
    with pytest.raises(
        CheckpointError, match=r"several groups of models; name the folder of one of them: .*B-32, .*L-14"
    ):
        read_layout(str(published.parent))


def test_folders_of_transformers_and_plain_files(tmp_path: Path) -> None:
    base, tuned = tiny.family(NAMES)
    transformers(tmp_path / "hub" / "clip-vit-tiny", base)
    for name, state in tuned.items():
        transformers(tmp_path / "hub" / f"clip-vit-tiny_{name}", state)
        save(tmp_path / "plain" / f"{name}.pt", state)
    assert set(read_layout(str(tmp_path / "hub")).experts) == set(NAMES)
    with pytest.raises(CheckpointError, match=r"recognized as the pretrained one. Name it with --pretrained"):
        read_layout(str(tmp_path / "plain"))
    given = save(tmp_path / "elsewhere.pt", base)
    layout = read_layout(str(tmp_path / "plain"), pretrained=str(given))
    assert layout.pretrained == str(given) and set(layout.experts) == set(NAMES)
    (tmp_path / "empty").mkdir()
    for folder, problem in (("gone", "is not a folder"), ("elsewhere.pt", "is not a folder"), ("empty", "No models")):
        with pytest.raises(CheckpointError, match=problem):
            read_layout(str(tmp_path / folder))


def test_a_pretrained_model_that_is_recognized_by_its_numbers_is_said(tmp_path: Path) -> None:
    base, tuned = tiny.family()
    for name, state in {**tuned, "x": base, "stranger": tiny.pretrained(9)}.items():
        save(tmp_path / f"{name}.pt", state)
    (tmp_path / "broken.pt").write_text("<html>")
    layout = read_layout(str(tmp_path))
    assert Path(layout.pretrained).name == "x.pt" and layout.is_guessed and set(layout.experts) == set(tuned)
    assert (
        "by its weights" in layout.describe()[0]
        and "not trained from the pretrained model, judged by its weights" in layout.left_out
    )
    assert any("broken.pt" in places for places in layout.left_out.values())
    with pytest.raises(CheckpointError, match="stranger was not trained from the pretrained model"):
        read_layout(str(tmp_path), ["stranger"])


def test_the_command_line_takes_it_and_says_what_it_took(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stated = ["--architecture", "heads=2"]
    assert main(["fit", "--layout", str(published), *stated]) == 0
    out, err = capsys.readouterr()
    assert "All 32 tensors fit." in out
    assert err.splitlines()[:3] == [
        "ViT-B-32: layout of the published task vectors. The pretrained model is ViT-B-32/zeroshot.pt.",
        "Experts: Cars (Cars/finetuned.pt), DTD (DTD/finetuned.pt), SVHN (SVHN/finetuned.pt).",
        "Left out, classification heads: head_Cars.pt, head_DTD.pt, head_SVHN.pt.",
    ]
    words = ["merge", "--layout", str(published), "--experts", "Cars,SVHN", "--no-evaluate", *stated]
    words += ["--expert", f"more={published / 'DTD' / 'finetuned.pt'}", "--store", str(published.parent / "store")]
    assert main([*words, "--out", str(published.parent / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["out"] and "more:" in (published.parent / "out/recipe.yaml").read_text()
    assert main(["fit", "--experts", "a"]) == 2
    err = capsys.readouterr().err
    assert "Missing option '--pretrained'" in err and "give it with --layout" in err


def test_a_folder_without_models_is_said_to_be_one(tmp_path):
    with pytest.raises(CheckpointError, match=r"recognized in .*\. It holds no model files\.$"):
        read_layout(str(tmp_path))
