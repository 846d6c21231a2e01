"""The command line: what it prints, how it ends, what it says when something is wrong."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from safetensors.torch import load_file

import merging
from merging.base.progress import Progress
from merging.base.text import percent_with_interval
from merging.cli import output, run_and_export
from merging.cli.main import main
from merging.cli.output import Bar, Events, encode_json, format_columns
from merging.methods import registry
from merging.recipes.recipe import Recipe
from merging.study.runs.run_store import Store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch, tiny_folder):
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))


@pytest.fixture
def inputs(tiny_folder):
    """--pretrained and two experts."""
    models = tiny_folder / "models"
    pairs = [f"{name}={models / name}.safetensors" for name in ("circles", "digits")]
    return ["--pretrained", f"{models / 'pretrained'}.safetensors", "--expert", pairs[0], "--expert", pairs[1]]


@pytest.fixture
def recipe_file(tmp_path, tiny_benchmark):
    experts = {name: Path(path).name for name, path in tiny_benchmark.experts.items()}
    recipe = Recipe.build("ties", {}, ["lwptv"], "pretrained.safetensors", experts, "Mine")
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe.to_yaml())
    return path


def _json(capsys):
    return json.loads(capsys.readouterr().out, parse_constant=lambda token: pytest.fail(f"{token} in JSON"))


def test_help_loads_neither_torch_nor_pandas():
    code = "import sys; from merging.cli.main import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Usage: mergescope" in done.stdout
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"torch", "pandas", "numpy", "yaml"}


def test_methods_lists_every_method_and_parameter(capsys):
    assert main(["methods"]) == 0
    text = capsys.readouterr().out
    for method in registry.list_methods():
        assert f"{method.role}  {method.key}  {method.title}" in text
        for name, bound in method.params.bounds().items():
            assert name in text
            assert bound.describe() in text
    assert main(["methods", "--json"]) == 0
    listed = _json(capsys)
    assert [entry["key"] for entry in listed] == [method.key for method in registry.list_methods()]
    ties = next(entry for entry in listed if entry["key"] == "ties")
    assert ties["params"]["density"]["default"] == 0.2
    assert ties["work"]["passes"] == 3 and ties["work"]["matrix_flops"] == 0 < ties["work"]["reads"]


def test_run_counts_paths_from_the_recipe(recipe_file, tiny_folder, capsys):
    for name in ("pretrained", *tiny.EXPERTS):
        shutil.copy(tiny_folder / "models" / f"{name}.safetensors", recipe_file.parent)
    assert main(["run", str(recipe_file), "--device", "cpu"]) == 0
    out, progress = capsys.readouterr()
    assert "Mine: run " in out and " s on this machine" in out.splitlines()[0]
    assert "In domain " in out
    assert "over 4 tasks, 120 images" in out
    assert progress.splitlines()[-1] == "Evaluating"
    assert main(["run", str(recipe_file), "--json"]) == 0
    said = _json(capsys)
    run = Store().get_run(said["id"])
    assert said["models"] == {"merged": str(run.model_path)}
    assert {row["task"] for row in said["scores"]} == {*tiny.EXPERTS, *tiny.OUTSIDE}
    assert said["summary"]["tasks_in"] == 4
    assert said["work"]["passes"] == 4 and said["work"]["experts"] == 4


def test_run_writes_events(recipe_file, tiny_folder, tmp_path, capsys):
    events = tmp_path / "events.jsonl"
    arguments = ["run", str(recipe_file), "--base", str(tiny_folder / "models"), "--no-evaluate"]
    assert main([*arguments, "--events", str(events)]) == 0
    assert capsys.readouterr().err == ""
    first, *lines, last = [json.loads(line) for line in events.read_text().splitlines()]
    assert (first["worker"]["pid"], last) == (os.getpid(), {"code": 0})
    assert lines[0]["phase"] == "Reading checkpoints"
    assert all(set(line) == {"phase", "fraction", "detail", "seconds_left"} for line in lines)
    assert Store().list_runs()[0].scores is None


def test_a_failure_is_one_sentence_everywhere(recipe_file, tmp_path, capsys):
    events = tmp_path / "events.jsonl"
    assert main(["run", str(recipe_file), "--events", str(events), "--json"]) == 1
    out, err = capsys.readouterr()
    sentence = "pretrained.safetensors: not found."
    assert err == sentence + "\n"
    assert json.loads(out) == {"error": sentence, "code": 1}
    assert json.loads(events.read_text().splitlines()[-1]) == {"error": sentence, "code": 1}


def fails(args, stop):
    raise ZeroDivisionError("a secret of the inside")


def test_an_unexpected_failure_has_its_traceback_and_a_short_cause(recipe_file, capsys, monkeypatch):
    def fail(*arguments, **options):
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr(run_and_export, "execute", fail)
    assert main(["run", str(recipe_file)]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1] == "Unexpected ZeroDivisionError: a secret of the inside"


def test_ctrl_c_ends_with_130(recipe_file, tiny_folder, capsys, monkeypatch):
    class Interrupting(Bar):
        def __call__(self, progress):
            if progress.phase.startswith("Merging"):
                os.kill(os.getpid(), 2)

    monkeypatch.setattr(output, "Bar", Interrupting)
    assert main(["run", str(recipe_file), "--base", str(tiny_folder / "models")]) == 130
    assert capsys.readouterr().err == "Cancelled; nothing was kept.\n"
    assert Store(libraries=()).list_runs() == []


def test_merge_to_a_file(inputs, tmp_path, capsys):
    out = tmp_path / "new" / "merged.safetensors"
    arguments = ["merge", *inputs, "--edit", "lwptv:prune_ratio=0.5, shared=no", "--merge", "ties:density=0.3"]
    assert main([*arguments, "--out", str(out), "--json"]) == 0
    said = _json(capsys)
    assert said["out"] == str(out)
    assert said["title"] == "lwptv(prune_ratio=0.5, shared=False) → ties(density=0.3)"
    experts = {name: inputs[i].partition("=")[2] for name, i in (("circles", 3), ("digits", 5))}
    edits = [("lwptv", {"prune_ratio": 0.5, "shared": False})]
    expected = merging.merge(inputs[1], experts, "ties", {"density": 0.3}, edits, device="cpu").state_dict
    got = load_file(out)
    assert all(got[name].equal(tensor) for name, tensor in expected.items())
    assert list(out.parent.iterdir()) == [out]
    assert main([*arguments, "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main([*arguments, "--out", str(out), "--force"]) == 0


def test_merge_to_a_folder(inputs, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["merge", *inputs, "--out", str(out), "--no-evaluate"]) == 0
    assert {path.name for path in out.iterdir()} == {
        "model.safetensors", "config.json", "preprocessor_config.json", "recipe.yaml", "tables", "README.md",
        "export.json",
    }  # fmt: skip
    assert main(["merge", *inputs, "--out", str(out)]) == 2
    assert "replace it with --overwrite" in capsys.readouterr().err
    assert main(["merge", *inputs, "--out", str(out), "--overwrite"]) == 0
    assert (out / "scores.csv").is_file()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("x")
    assert main(["merge", *inputs, "--out", str(tmp_path / "precious"), "--force"]) == 2
    assert "is not replaced" in capsys.readouterr().err
    assert (tmp_path / "precious" / "thesis.tex").read_text() == "x"


def test_every_problem_of_the_arguments_is_said(inputs, tmp_path, capsys):
    arguments = ["merge", "--pretrained", "nowhere.safetensors", *inputs[2:], inputs[-2], inputs[-1]]
    arguments += ["--expert", "x=gone.safetensors", "--expert", "=y"]
    arguments += ["--edit", "lwptv:prune_rato=0.5,shared=maybe,score=rms", "--edit", "ties", "--edit", "lwptv:0.5"]
    arguments += ["--merge", "ties:density=0,scaling=big,scaling=nan"]
    assert main([*arguments, "--out", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "The file of the pretrained model was not found: nowhere.safetensors.",
        "Two experts are called 'digits'; give them different names.",
        "The file of expert x was not found: gone.safetensors.",
        "Write an expert as NAME=FILE; got '=y'.",
        "lwptv has no parameter 'prune_rato'; it takes prune_ratio, shared, score, granularity, split_qkv."
        " Did you mean 'prune_ratio'?",
        "lwptv.shared must be true or false. Got 'maybe' instead.",
        "lwptv.score must be one of 'deviation', 'mean_abs'. Got 'rms' instead.",
        _message_of_no_edit("ties"),
        "lwptv: write parameters as name=value; got '0.5'.",
        "ties.density must be a number in (0, 1]. Got '0' instead.",
        "ties.scaling must be a number in [0, 1000]. Got 'big' instead.",
        "ties.scaling must be a number in [0, 1000]. Got 'nan' instead.",
    ]


def _message_of_no_edit(key):
    """What the registry says of an edit that is none."""
    with pytest.raises(KeyError) as caught:
        registry.find_edit(key)
    return str(caught.value)


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["merge"], ["run"], ["run", "x", "--no-such-option"]])
def test_wrong_use_ends_with_2(arguments, capsys):
    assert main(arguments) == 2
    assert "Usage:" in capsys.readouterr().err


def test_evaluate(tiny_folder, capsys):
    checkpoint = str(tiny_folder / "models" / "digits.safetensors")
    assert main(["evaluate", checkpoint, "--device", "cpu"]) == 0
    assert "digits" in capsys.readouterr().out
    assert main(["evaluate", checkpoint, "--json"]) == 0
    rows = _json(capsys)
    assert len(rows) == 12
    assert all(row["low"] <= row["accuracy"] <= row["high"] for row in rows)


def test_evaluate_says_why_it_cannot(tmp_path, capsys):
    other = tiny.write(tmp_path / "other.safetensors", {"visual.ln_post.weight": tiny.torch.ones(4)})
    assert main(["evaluate", str(other)]) == 1
    assert "other cannot be evaluated: other is not a visual tower" in capsys.readouterr().err


def test_fit(inputs, tmp_path, capsys):
    assert main(["fit", *inputs, "--values"]) == 0
    assert capsys.readouterr().out == (
        "All 32 tensors fit.\ncircles: a change of 13.24% of the weights and a cosine of 0.9913.\n"
        "digits: a change of 16.93% of the weights and a cosine of 0.9860.\n"
        "32 tensors with 9,920 numbers are merged.\nEvery number of every checkpoint was read.\n"
    )
    base = tiny.pretrained()
    base["visual.proj"] = base["visual.proj"][:, :3].contiguous()
    odd = tiny.write(tmp_path / "odd.safetensors", base)
    assert main(["fit", *inputs, "--expert", str(odd)]) == 1
    assert "odd: shape: visual.proj (expected (16, 8), found (16, 3))" in capsys.readouterr().out
    assert main(["fit", *inputs, "--expert", str(odd), "--json"]) == 1
    said = _json(capsys)
    assert said["verdict"] == "does not fit"
    assert [row["tensor"] for row in said["problems"] if row["severity"] == "error"] == ["visual.proj"]


def test_the_bar_moves_on_a_terminal_only():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    steps = [Progress("Merging", done, 100, 75.0 if done else None) for done in (0, 50, 100)]
    for stream, expected in ((io.StringIO(), "Merging\n"), (Terminal(), None)):
        bar = Bar(stream)
        for step in steps:
            bar(step)
        bar.end()
        if expected is not None:
            assert stream.getvalue() == expected
        else:
            assert "100%  Merging  1 min 15 s left" in stream.getvalue()
            assert stream.getvalue().endswith("\r\x1b[2K")


def test_phases_that_take_turns_are_told_once():
    stream = io.StringIO()
    bar = Bar(stream)
    for phase in ("Reading", "Running", "Merging", "Running", "Merging", "Writing"):
        bar(Progress(phase, 0, 1, None))
    assert stream.getvalue().split() == ["Reading", "Running", "Merging", "Writing"]


def test_events_are_throttled(tmp_path):
    events = Events(tmp_path / "events.jsonl")
    for done in range(10_000):
        events(Progress("Merging", done, 10_000, None))
    events(Progress("Evaluating", 0, 1, None))
    events.end()
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert 2 <= len(lines) < 10
    assert json.loads(lines[-1])["phase"] == "Evaluating"


def test_small_things():
    assert (
        encode_json({"a": float("nan"), "b": (1, 2.5), "c": Path("x")}, indent=None)
        == '{"a": null, "b": [1, 2.5], "c": "x"}'
    )
    assert format_columns([("a", "b"), ("ccc", "d")]) == "a    b\nccc  d"
    assert percent_with_interval(0.7277, 0.7, 0.75) == "72.8 % [70.0, 75.0]"
    assert percent_with_interval(float("nan"), 0, 0) == "–"


def test_the_help_names_every_measurement(capsys):
    from merging.study.analysis.measurement_registry import MEASUREMENTS

    assert main(["measure", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(key in said for key in MEASUREMENTS)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--shard-size", "nan"], "Invalid value for '--shard-size': a number of gigabytes above 0"),
        (["--shard-size", "-1"], "Invalid value for '--shard-size': a number of gigabytes above 0"),
        (["--nonsense"], "No such option '--nonsense'"),
        (["--hub-id", "x"], "Write a repository as NAME=ID"),
        (["--hub-id", "nobody=a/b"], "There is no 'nobody' among the merged models"),
        (["--hub-id", "circles=a b"], "'a b' is not the name of a repository"),
    ],
)
def test_wrong_use_is_told_to_programs_before_anything_is_computed(words, says, inputs, tmp_path, capsys):
    assert main(["merge", *inputs, "--out", str(tmp_path / "out"), "--json", *words]) == 2
    told = _json(capsys)
    assert told["code"] == 2 and says in told["error"] and not Store(libraries=()).list_runs()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a: [1", "not valid YAML in line 1: did not find expected ',' or ']'"),
        (b"\xff\xfe\0", "it is not text"),
        (None, "No such file"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_one_line(text, says, tmp_path, capsys):
    if text is not None:
        (tmp_path / "r.yaml").write_bytes(text)
    assert main(["run", str(tmp_path / "r.yaml")]) == 1
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1 and says in err


@pytest.mark.parametrize("reference", ["a\0b", "x" * 5000, "gone", "out"])
def test_odd_paths_are_one_sentence(reference, tmp_path, monkeypatch, capsys):
    """A link that leads out says so whether or not its target is there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").symlink_to("/nowhere/x.safetensors")
    (tmp_path / "gone").symlink_to("nothing")
    assert main(["inspect", reference]) in {1, 2}
    out, err = capsys.readouterr()
    assert not out and len(err.splitlines()) == 1 and err.strip().isprintable() and len(err) < 500
    assert ("outside of its folder" if reference == "out" else "not found") in err
