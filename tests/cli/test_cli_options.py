"""How the command line reads a call: the table of commands, problems told together, completion, signals, pipes."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from merging.cli.call import Call
from merging.cli.command_table import COMMANDS
from merging.cli.main import COMPLETION_VARIABLE, main, program
from merging.cli.options import Command

ROOT = Path(__file__).resolve().parents[2]


def commands():
    """(words, command) of everything that can be called, the actions of groups included."""
    context = click.Context(program)
    for name in program.list_commands(context):
        command = program.get_command(context, name)
        if isinstance(command, click.Group):
            yield from (([name, action], inner) for action, inner in command.commands.items())
        else:
            yield [name], command


def failure(capsys):
    """The error that was printed for programs."""
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_entry_of_the_table_is_a_command_that_says_the_same(name):
    command = program.get_command(click.Context(program), name)
    assert command is not None and command.name == name
    assert command.help == COMMANDS[name][1]


def test_every_command_tells_its_problems_together_and_takes_json():
    for words, command in commands():
        assert isinstance(command, Command), words
        assert "--json" in [option for param in command.params for option in param.opts], words


def test_no_help_loads_torch_or_pandas(capsys):
    calls = [[*words, flag] for words, _ in commands() for flag in ("-h", "--help")]
    code = f"""if True:
        import sys
        from merging.cli.main import main
        assert all(main(words) == 0 for words in [["--version"], ["benchmark", "-h"], *{calls!r}])
        print(*sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not set(done.stdout.splitlines()[-1].split()) & {"torch", "pandas", "numpy"}
    for words, _ in commands():
        assert main([*words, "-h"]) == 0
        short = capsys.readouterr().out
        assert main([*words, "--help"]) == 0
        assert capsys.readouterr().out == short and short.startswith(f"Usage: mergescope {' '.join(words)} ")


def test_what_click_and_what_we_find_is_told_together_in_the_order_of_the_help(tmp_path, capsys):
    events = tmp_path / "events.jsonl"
    words = ["fit", "--values=1", "--nice", "x", "stray", "--expert", "a=gone", "--expert", "=b"]
    assert main([*words[:1], *words[2:], "--events", str(events), "--json"]) == 2
    out, err = capsys.readouterr()
    problems = [
        "Missing option '--pretrained'.",
        "The file of expert a was not found: gone.",
        "Write an expert as NAME=FILE; got '=b'.",
        "Invalid value for '--nice': 'x' is not a valid integer.",
        "Got unexpected extra argument (stray)",
    ]
    assert json.loads(out) == json.loads(events.read_text()) == {"error": "\n".join(problems), "code": 2}
    usage = "Usage: mergescope fit [OPTIONS]\nTry 'mergescope fit -h' for help."
    assert err == "\n".join([usage, "", *problems, ""])


def test_usage_is_shown_only_where_it_helps(capsys):
    assert main(["inspect", "gone"]) == 2
    assert capsys.readouterr().err == "The file of the checkpoint was not found: gone.\n"
    assert main(["run", "recipe.yaml", "--out"]) == 2
    usage, hint, _, problem = capsys.readouterr().err.splitlines()
    assert usage.startswith("Usage: mergescope run ") and hint.startswith("Try ")
    assert problem == "Option '--out' requires an argument."


def test_a_failure_while_the_call_is_read_is_reported_where_programs_look(tmp_path, capsys):
    events = tmp_path / "events.jsonl"
    assert main(["fit", "--pretrained", "models:nowhere/x", "--events", str(events), "--json"]) == 1
    sentence = "There is no models folder 'nowhere' here; set MERGESCOPE_MODELS to where it is."
    assert failure(capsys) == json.loads(events.read_text()) == {"error": sentence, "code": 1}


def test_a_call_that_is_not_complete_waits_for_no_torch():
    code = (
        "import sys; from merging.cli.main import main; main(['merge', '--edit']); main(['merge']); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Missing option '--out'." in done.stderr and "torch" not in done.stdout.split()


@pytest.mark.parametrize(
    ("words", "problems"),
    [
        (["digest", "a", "b"], [f"The file of the checkpoint was not found: {name}." for name in "ab"]),
        (
            ["benchmark", "make", "x", "--task", "a", "--task", "b="],
            [
                f"Write a task as NAME=PATH,option=value; got {text!r}. Paths with commas need a file of --from."
                for text in ("a", "b=")
            ],
        ),
        (
            ["benchmark", "make", "x", "--from", "f", "--task", "a=b", "--text", "t", "--multitask", "m"],
            [
                "Tasks are described in the file of --from, or by --task, not both.",
                "--text belongs into the file of --from.",
                "--multitask belongs into the file of --from.",
            ],
        ),
        (["benchmark", "make", "x", "--task", "a=b"], ["Give --pretrained and at least one --task NAME=PATH, or a "
                                                       "description with --from FILE."]),
        (
            ["run", "r", "--hub-id", "x", "--hub-id", "=y", "--out", "o"],
            [f"Write a repository as NAME=ID; got {text!r}." for text in ("x", "=y")],
        ),
        (["run", "r", "--nonsense"], ["No such option '--nonsense'."]),
        (["nonsense"], ["No such command 'nonsense'."]),
        (["benchmark", "nonsense"], ["No such command 'nonsense'."]),
    ],
)  # fmt: skip
def test_each_of_several_values_is_checked(words, problems, capsys):
    assert main([*words, "--json"]) == 2
    assert failure(capsys) == {"error": "\n".join(problems), "code": 2}


def test_repositories_are_checked_only_where_something_is_exported(tmp_path, capsys):
    words = ["run", str(tmp_path / "gone.yaml"), "--hub-id", "x"]
    assert main(words) == 1
    assert "NAME=ID" not in capsys.readouterr().err
    for more in (["--out", "o"], ["--out=o", "--hub-id=a=b"]):
        assert main([*words, *more]) == 2
        assert capsys.readouterr().err == "Write a repository as NAME=ID; got 'x'.\n"


def test_convert_looks_at_its_default_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone-open_clip").mkdir()
    (tmp_path / "gone-open_clip" / "thesis.tex").touch()
    assert main(["convert", "gone.pt", "--force", "--to", "open_clip"]) == 2
    missing, taken = capsys.readouterr().err.splitlines()
    assert missing == "The file of the checkpoint was not found: gone.pt." and "is not replaced" in taken


@pytest.mark.parametrize(("words", "line"), [([], None), (["--line"], ""), (["--line", "0,1"], "0,1")])
def test_the_values_of_a_line_may_be_left_out(words, line):
    sweep = program.get_command(click.Context(program), "sweep")
    context = sweep.make_context("sweep", ["a.yaml", *words, "--title", "T"], obj=Call())
    assert (context.params["line"], context.params["recipes"]) == (line, ("a.yaml",))


def test_a_path_is_not_looked_at_while_the_call_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *arguments: False)
    run = program.get_command(click.Context(program), "run")
    for path in (tmp_path, Path("a\0b")):
        assert run.make_context("run", [str(path)], obj=Call()).params["recipes"] == (path,)


def test_the_priority_is_lowered_once(monkeypatch):
    steps = []
    monkeypatch.setattr(os, "nice", steps.append)
    assert main(["run", "gone.yaml", "--nice", "3"]) == 1
    assert main(["run", "gone.yaml"]) == 1
    assert steps == [3]


@pytest.mark.parametrize(
    ("words", "last", "completions"),
    [
        ([], "me", {"merge", "measure", "methods"}),
        (["export", "--to"], "", {"hf", "open_clip", "peft"}),
        (["merge", "--edit"], "lw", {"lwptv"}),
        (["merge", "--merge"], "tie", {"ties"}),
        (["benchmark"], "ma", {"make"}),
        (["sweep"], "--st", {"--stored", "--store"}),
    ],
)
def test_the_shell_completes(words, last, completions, monkeypatch, capsys):
    monkeypatch.setenv(COMPLETION_VARIABLE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(["mergescope", *words, last]))
    monkeypatch.setenv("COMP_CWORD", str(len(words) + 1))
    assert main([]) == 0
    assert {line.partition(",")[2] for line in capsys.readouterr().out.splitlines()} == completions


@pytest.mark.full
def test_the_second_signal_ends_at_once(tmp_path):
    code = f"""if True:
        import time
        from merging.cli import run_and_export as exporting, main
        def busy(*arguments, context, **options):
            print("ready", flush=True)
            while not context.cancel.is_set():
                time.sleep(0.01)
            print("asked to stop", flush=True)
            time.sleep(60)
        exporting.execute = busy
        main.main(["run", {str(tmp_path / "recipe.yaml")!r}])"""
    (tmp_path / "recipe.yaml").write_text("version: 1\npretrained: a\nexperts: {b: b}\nmerge: ties\n")
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        with process:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            assert process.stdout.readline() == "asked to stop\n"
            process.send_signal(number)
            assert process.wait(10) == -number


@pytest.mark.full
def test_a_reader_that_goes_is_no_crash():
    command = [sys.executable, "-m", "merging", "methods", "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait(60) == 1 and process.stderr.read() == b""


@pytest.mark.full
def test_what_a_merge_loads_has_no_pandas_before_the_first_table():
    code = (
        "import sys; from merging.methods import registry; registry.list_methods(); import merging.cli.run_and_export; "
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "torch" in done.stdout.split() and "pandas" not in done.stdout.split()


def test_garbage_is_collected_from_the_moment_a_command_begins(monkeypatch):
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    gc.disable()
    try:
        assert main(["merge", "--merge"]) == 2 and not gc.isenabled()
        assert main(["methods"]) == 0
        assert gc.isenabled() and frozen == [True]
    finally:
        gc.enable()
