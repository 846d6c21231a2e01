"""What the wheel brings: one package with every file of the program, and commands that give the checkout's bytes."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from installed_package import ROOT, Environment, make_environment

pytestmark = pytest.mark.full
# What makes the benchmark, and the second team, with which the wheel would have more than 100 MB.
NOT_INSTALLED = ("sample_data/build/", "sample_data/make.py", "sample_data/library.py", "sample_data/gentle/")
EXPERTS = ("digits", "signs", "flags")
RECIPE = """merge: {ties: {scaling: 0.45}}
pretrained: bundled:pretrained
experts: {digits: "bundled:digits", signs: "bundled:signs"}
"""


def test_the_wheel_has_one_folder_with_every_file_of_the_program(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"mergescope", "mergescope-0.1.0.dist-info"}
    tracked = subprocess.run(
        ["git", "ls-files", "merging", "viz", "app", "sample_data"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    wanted = {f"mergescope/{name}" for name in tracked if not name.startswith(NOT_INSTALLED)}
    assert len(wanted) > 2000 and wanted - set(names) == set()
    assert {name for name in names if name.startswith("mergescope/")} - wanted == {
        "mergescope/__init__.py", "mergescope/__main__.py",
    }  # fmt: skip
    assert wheel.stat().st_size < 100e6


def test_removing_it_leaves_nothing(wheel: Path, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "env")
    before = environment.list_files()
    environment.install(wheel)
    assert environment.command.is_file() and environment.list_files() > before
    environment.run(environment.python, "-c", "import mergescope; mergescope.list_methods()", cwd=tmp_path)
    environment.pip("uninstall", "--yes", "mergescope")
    assert environment.list_files() == before


def test_a_merge_has_the_bytes_of_the_checkout(installed: Environment, tmp_path: Path) -> None:
    words = ["merge", "--pretrained", "bundled:pretrained", "--edit", "lwptv:prune_ratio=0.55", "--merge", "ties"]
    words += [word for name in EXPERTS for word in ("--expert", f"{name}=bundled:{name}")]
    outputs = {}
    for name, command in (("installed", [installed.command]), ("checkout", [sys.executable, "-m", "merging"])):
        cwd = tmp_path / name
        cwd.mkdir()
        variables = {"PYTHONPATH": str(ROOT)} if name == "checkout" else {}
        done = installed.run(*command, *words, "--out", "out", "--store", cwd / "store", cwd=cwd, **variables)
        assert done.returncode == 0, done.stderr
        files = [path for path in (cwd / "out").rglob("*") if path.suffix in {".safetensors", ".csv"}]
        outputs[name] = {path.relative_to(cwd).as_posix(): path.read_bytes() for path in files}
    assert len(outputs["installed"]) >= 3 and outputs["installed"] == outputs["checkout"]


def test_runs_are_stored_with_workers_too(installed: Environment, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    words = ["run", "recipe.yaml", "--workers", "2", "--store", tmp_path / "store"]
    done = installed.run(installed.command, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "store" / "runs").iterdir()
    facts = json.loads((run / "run.json").read_text("utf-8"))
    assert facts["chain"] == ["ties"] and (run / "scores.csv").is_file()


@pytest.mark.parametrize("command", [("mergescope",), ("python", "-m", "mergescope")])
def test_the_command_works_from_any_folder(command: tuple[str, ...], installed: Environment, tmp_path: Path) -> None:
    program = [installed.folder / "bin" / command[0], *command[1:]]
    assert installed.run(*program, "--version", cwd=tmp_path).stdout == "mergescope 0.1.0\n"
    done = installed.run(*program, "lessons", "check", cwd=tmp_path, MERGESCOPE_STORE=str(tmp_path / "store"))
    assert done.returncode == 0 and "No problems." in done.stdout, done.stderr


def test_a_script_has_the_public_names(installed: Environment, tmp_path: Path) -> None:
    script = """
import mergescope
assert {"merge", "describe", "list_methods", "preview"} <= set(dir(mergescope))
print(len(mergescope.list_methods()))
import viz
assert mergescope.viz is viz
try:
    mergescope.nothing
except AttributeError as error:
    print(error)
"""
    done = installed.run(installed.python, "-c", script, cwd=tmp_path)
    count, error = done.stdout.splitlines()
    assert int(count) > 30 and error == "module 'mergescope' has no attribute 'nothing'", done.stderr


@pytest.mark.parametrize("name", ["merging", "viz", "app"])
def test_another_package_of_that_name_is_named(name: str, installed: Environment, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text("")
    for script in ("import mergescope", f"import {name}; import mergescope"):
        done = installed.run(installed.python, "-c", script, cwd=tmp_path)
        last = done.stderr.splitlines()[-1]
        assert done.returncode == 1 and last.startswith("ImportError: Mergescope needs its own package"), done.stderr
        assert repr(name) in last and str(tmp_path / f"{name}.py") in last
    for command in ((installed.command,), (installed.python, "-m", "mergescope")):  # they take their own packages first
        done = installed.run(*command, "methods", cwd=tmp_path, PYTHONPATH=str(tmp_path))
        assert done.returncode == 0, done.stderr
