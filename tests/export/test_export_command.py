"""The commands that write and look at models: convert, inspect, export, and merge and run with --out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import peers
import pytest
import torch
from peers import alike, by_transformers, ours, random_images
from safetensors.torch import save_file

from merging.cli import output
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.sharing.export.destination import why_not_writable
from merging.sharing.export.model_export import export
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

ROOT = Path(__file__).resolve().parents[2]


def contents(folder):
    """{file: bytes} of everything in a folder."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def image_only(file):
    """What is said of a model without a text tower."""
    reason = f"The export holds the image tower alone, without a text tower: there is none in {file}."
    return f"{reason} --text-tower takes the text tower of another model."


def said(capsys):
    return json.loads(capsys.readouterr().out, parse_constant=lambda token: pytest.fail(f"{token} in JSON"))


def test_convert_takes_every_format(small, tmp_path, capsys):
    class ImageEncoder(torch.nn.Module):
        """As released with task vectors."""

        def __init__(self, model):
            super().__init__()
            self.model = model

    images = random_images(32)
    expected = ours(small, images)
    model = peers.clip(peers.FAMILIES["B/32"][0], peers.EMBED)
    model.load_state_dict(small.state_dict(), strict=False)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    sys.modules["__main__"].ImageEncoder, ImageEncoder.__module__ = ImageEncoder, "__main__"
    ImageEncoder.__qualname__ = "ImageEncoder"
    torch.save(ImageEncoder(model), tmp_path / "module.pt")
    torch.save(model.state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    export(small, tmp_path / "shards", shard_bytes=50_000)
    formats = {"state.pt": "torch file (zip archive)", "module.pt": "torch file (zip archive)",
               "old.pt": "torch file from before 1.6"}  # fmt: skip
    base = str(export(small, tmp_path / "base").folder)
    for name in (*formats, "shards"):
        out = tmp_path / f"{name}-hf"
        assert main(["convert", str(tmp_path / name), "--base", base, "--out", str(out), "--json"]) == 0
        told = said(capsys)
        assert told["out"] == str(out) and "config.json" in told["files"] and told["export_warnings"] == []
        assert alike(by_transformers(out, images), expected)
        assert main(["inspect", str(tmp_path / name), "--json"]) == 0
        assert said(capsys)["format"] == formats.get(name) or name == "shards"


def test_convert_names_its_folder_and_says_what_is_wrong(small, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export(small, tmp_path / "model")
    assert main(["convert", "model", "--to", "open_clip"]) == 0
    out, progress = capsys.readouterr()
    assert (
        out
        == "Written to model-open_clip: README.md, export.json, open_clip_config.json, open_clip_model.safetensors\n"
    )
    assert progress.splitlines() == [image_only("model"), "Reading checkpoints", "Writing the model"]
    assert main(["convert", "model", "--to", "open_clip"]) == 2
    assert "replace it with --overwrite" in capsys.readouterr().err
    assert main(["convert", "model", "--to", "open_clip", "--overwrite"]) == 0
    capsys.readouterr()
    assert main(["convert", "gone.pt", "--base", "away", "--hub-id", "x", "--json"]) == 2
    assert said(capsys)["error"].splitlines() == [
        "The file of the checkpoint was not found: gone.pt.",
        "The file of the pretrained model was not found: away.",
        "Write a repository as NAME=ID; got 'x'.",
    ]
    assert main(["convert", "model", "--hub-id", "x"]) == 2
    assert capsys.readouterr().err == "Write a repository as NAME=ID; got 'x'.\n"
    assert main(["convert", "model", "--to", "timm"]) == 2
    assert main(["convert", "model", "--out", "whole.safetensors"]) == 2
    assert "named like a file, and convert writes a folder" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["sub", "deep/sub", "m.safetensors"])
def test_a_place_below_a_file_is_refused_before_anything_is_computed(
    tiny_benchmark, tmp_path, capsys, monkeypatch, out
):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x")
    model = ["--pretrained", tiny_benchmark.pretrained, "--expert", f"a={tiny_benchmark.pretrained}"]
    assert main(["merge", *model, "--out", f"file/{out}", "--no-evaluate"]) == 2
    assert capsys.readouterr().err.endswith("file is a file, so no file can be written in it. Choose another path.\n")
    assert not (tmp_path / "store").exists()


def test_a_place_in_a_read_only_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.F_OK)
    assert why_not_writable(tmp_path / "new") == f"{tmp_path} cannot be written to. Choose another path."


@pytest.mark.filterwarnings("ignore")  # PEFT's, about Transformers
def test_an_adapter_needs_its_base(tmp_path, capsys):
    transformers = peers.transformers()  # prepares torchvision, which peft imports, too
    import peft

    config = transformers.CLIPVisionConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=1, image_size=32, patch_size=16,
        projection_dim=peers.EMBED,
    )  # fmt: skip
    model = transformers.CLIPVisionModelWithProjection(config).eval()
    model.save_pretrained(tmp_path / "base")
    settings = peft.LoraConfig(r=4, target_modules=["q_proj", "fc1"], init_lora_weights=False)
    wrapped = peft.get_peft_model(model, settings)
    wrapped.save_pretrained(tmp_path / "lora")
    images = random_images(32)
    with torch.inference_mode():
        expected = wrapped.merge_and_unload()(pixel_values=images).image_embeds
    arguments = ["convert", str(tmp_path / "lora"), "--out", str(tmp_path / "out")]
    assert main(arguments) == 1
    assert "name the model that it changes as the base (convert --base)" in capsys.readouterr().err
    assert main([*arguments, "--base", str(tmp_path / "base")]) == 0
    assert alike(by_transformers(tmp_path / "out", images), expected)
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "lora"), "--json"]) == 0
    told = said(capsys)
    assert told["format"] == "safetensors of a LoRA adapter"
    assert (told["adapter"]["rank"], told["adapter"]["layers"], told["architecture"]) == ("4", 2, None)
    assert main(["inspect", str(tmp_path / "lora")]) == 0
    assert "rank 4, layers 2" in capsys.readouterr().out


def test_inspect(run, tmp_path, capsys):
    export(run, tmp_path / "hf")
    assert main(["inspect", str(tmp_path / "hf"), "--json"]) == 0
    told = said(capsys)
    assert (told["file"], told["format"], told["names"]) == ("hf", "safetensors", "Transformers, after 'vision_model.'")
    assert told["architecture"] == {
        "like": "", "image_size": 16, "patch_size": 8, "width": 16, "layers": 2, "heads": 2, "embed_dim": 8,
        "projected": True,
    }  # fmt: skip
    assert told["activation"] == {"name": "quick_gelu", "known": True}
    assert (told["tensors"], told["numbers"], told["dtypes"]) == (40, 9920, {"float16": 40})
    assert sum(row["tensors"] for row in told["roles"]) == 32 and told["metadata"]["merge_method"] == "ties"
    assert main(["inspect", str(tmp_path / "hf"), "--no-digest"]) == 0
    text, progress = capsys.readouterr()
    assert not progress
    assert main(["inspect", str(tmp_path / "hf")]) == 0
    assert capsys.readouterr().err == "Reading checkpoints\n"
    assert "2 layers of width 16, 2 heads" in text and "metadata merge_method: ties" in text and "sha-256" not in text
    save_file({"visual.ln_post.weight\x1b[31m": torch.ones(2)}, tmp_path / "odd.safetensors")
    assert main(["inspect", str(tmp_path / "odd.safetensors")]) == 0
    out = capsys.readouterr().out
    assert "of no known model family" in out and "\x1b" not in out
    (tmp_path / "text.bin").write_text("<html>")
    assert main(["inspect", str(tmp_path / "text.bin")]) == 1
    assert "it is a web page" in capsys.readouterr().err


@pytest.mark.full
def test_export_and_run_and_merge_write_the_same(tiny_benchmark, tiny_folder, tmp_path, capsys):
    experts = dict(list(tiny_benchmark.experts.items())[:2])
    arguments = ["--pretrained", tiny_benchmark.pretrained, *(f"--expert={n}={p}" for n, p in experts.items())]
    more = ["--device", "cpu", "--json", "--hub-id", "pretrained=me/base"]
    assert main(["merge", *arguments, "--merge", "ties", *more, "--out", str(tmp_path / "a")]) == 0
    told = said(capsys)
    assert told["out"] == str(tmp_path / "a") and told["scores"] and "recipe.yaml" in told["files"]
    assert main(["export", told["id"], *more, "--out", str(tmp_path / "b")]) == 0
    capsys.readouterr()
    recipe = tmp_path / "a" / "recipe.yaml"
    base = ["--base", str(tiny_folder / "models")]
    assert main(["run", str(recipe), *base, *more, "--out", str(tmp_path / "c")]) == 0
    capsys.readouterr()
    assert contents(tmp_path / "a") == contents(tmp_path / "b") == contents(tmp_path / "c")
    assert main(["run", str(recipe), *base, "--out", str(tmp_path / "c")]) == 2
    capsys.readouterr()
    assert main(["export", "0" * 12, "--out", str(tmp_path / "d")]) == 1
    assert "There is no run" in capsys.readouterr().err


@pytest.mark.full
def test_a_run_of_which_tables_are_kept_is_computed_again(run, tmp_path, capsys, tiny_folder, monkeypatch):
    library = tmp_path / "bench"
    shutil.copytree(tiny_folder, library)
    keeping = Store(library / "runs", libraries=())
    bench = Benchmark.load(tiny_folder)
    kept = execute(run.recipe, keeping, benchmark=bench, keep_model=False, context=Context(device="cpu"))
    (library / "runs" / kept.id).mkdir(exist_ok=True)
    shutil.copytree(kept.path, library / "runs" / kept.id, dirs_exist_ok=True)
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(library))
    assert main(["export", kept.id, "--device", "cpu", "--out", str(tmp_path / "out")]) == 0
    export(run, tmp_path / "direct")
    assert contents(tmp_path / "out") == contents(tmp_path / "direct")


def test_ctrl_c_leaves_nothing(small, tmp_path, capsys, monkeypatch):
    class Interrupting(output.Bar):
        def __call__(self, progress):
            if progress.done:
                os.kill(os.getpid(), 2)

    export(small, tmp_path / "model")
    monkeypatch.setattr(output, "Bar", Interrupting)
    out = tmp_path / "new" / "out"
    assert main(["convert", str(tmp_path / "model"), "--out", str(out), "--json"]) == 130
    assert said(capsys) == {"error": "Cancelled; nothing was kept.", "code": 130}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.full
def test_a_process_of_its_own(small, tmp_path):
    """What a shell sees: JSON alone on stdout, progress on stderr, exit codes."""
    export(small, tmp_path / "model")

    def call(*words):
        return subprocess.run(
            [sys.executable, "-m", "merging", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )

    done = call("convert", str(tmp_path / "model"), "--to", "open_clip", "--out", str(tmp_path / "oc"), "--json")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [image_only("model"), "Reading checkpoints", "Writing the model"]
    assert json.loads(done.stdout)["to"] == "open_clip"
    done = call("inspect", str(tmp_path / "gone"), "--json")
    assert done.returncode == 2 and json.loads(done.stdout)["code"] == 2
