"""``mergescope methods`` with methods of one's own: listed, checked, merged with, and named where they are broken."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from merging.base.outside_code import FOLDER_VARIABLE
from merging.cli.main import main

OWN = """
from merging.methods.method import Citation, Merge, register
from merging.methods.params import Params, real
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class OwnParams(Params):
    scaling: float = real(1.0, low=0.0, label="Scaling", help="A factor.")


def own(slot, params, statistics):
    return params.scaling * slot.task_vectors.mean(dim=0)


register(
    Merge(key="own_mean", title="Own Mean", summary="The mean.", formula="x", variant="None.", params=OwnParams,
          run=own, elementwise=lambda params, parameter: True,
          cite=Citation(key="you", authors="You", title="Mean", venue="Unpublished", year=2026))
)
"""


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Calls the command line in a process of its own, with a folder of methods; returns it and the folder."""
    folder = tmp_path / "methods"
    folder.mkdir()
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))

    def call(*words):
        return subprocess.run(
            [sys.executable, "-m", "merging", *map(str, words)], capture_output=True, text=True, check=False
        )

    return call, folder


@pytest.mark.full
def test_methods_lists_own_ones_and_names_broken_ones(command):
    call, folder = command
    (folder / "mean.py").write_text(OWN)
    (folder / "broken.py").write_text("x = (\n")
    done = call("methods")
    assert done.returncode == 0 and f"own method, {folder / 'mean.py'}" in done.stdout
    assert f"Not loaded: {folder / 'broken.py'}, line 1: it is not valid Python" in done.stderr
    listed = {one["key"]: one["origin"] for one in json.loads(call("methods", "--json").stdout)}
    assert listed["own_mean"] == str(folder / "mean.py") and listed["ties"] == ""


@pytest.mark.full
def test_a_merge_with_an_own_method(command, tiny_folder, tmp_path):
    call, folder = command
    (folder / "mean.py").write_text(OWN)
    words = ("merge", "--layout", tiny_folder / "models", "--experts", "circles,digits", "--out", tmp_path / "out")
    done = call(*words, "--merge", "own_mean:scaling=0.5", "--no-evaluate")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "out").glob("*.safetensors"))
    refused = call(*words, "--merge", "own_mean:scalling=0.5")
    assert refused.returncode == 2 and "own_mean has no parameter 'scalling'" in refused.stderr


@pytest.mark.full
def test_check_prints_every_sentence(command, tmp_path):
    call, _ = command
    file = tmp_path / "mean.py"  # in no folder
    file.write_text(OWN)
    done = call("methods", "check", file)
    assert done.returncode == 0 and done.stdout.count("  passed   ") == 15, done.stdout
    assert "order_of_experts_does_not_matter: The order of the experts does not matter." in done.stdout
    assert done.stdout.endswith("All checks passed.\n")


@pytest.mark.full
@pytest.mark.parametrize(
    "change, failed, reason",
    [
        (("params.scaling *", "0.5 *"), {"scaling_zero_gives_pretrained", "one_expert_at_full_strength"}, "differs by"),
        (("return", "slot.unknown\n    return"), None, "mean.py, line 13: AttributeError"),
        (('variant="None."', 'variant=""'), {"the_card_is_complete"}, "variant is empty."),
        (("slot.task_vectors.mean(dim=0)", "slot.task_vectors[0]"), None, "differs by"),
    ],
)
def test_check_says_what_is_wrong(command, tmp_path, change, failed, reason):
    call, _ = command
    file = tmp_path / "mean.py"
    file.write_text(OWN.replace(*change))
    done = call("methods", "check", file, "--json")
    results = {one["name"]: one["reason"] for one in json.loads(done.stdout)}
    assert done.returncode == 1 and any(reason in one for one in results.values())
    assert failed is None or {name for name, why in results.items() if why} == failed
    if failed is not None:
        skipped = call("methods", "check", file, *(word for name in failed for word in ("--skip", name)))
        assert skipped.returncode == 0 and skipped.stdout.count("  skipped  ") == len(failed)


def test_check_refuses_what_is_no_method(tmp_path, capsys):
    file = tmp_path / "broken.py"
    file.write_text("import nothing_here\n")
    assert main(["methods", "check", str(file)]) == 1
    assert f"{file}, line 1: ModuleNotFoundError: No module named 'nothing_here'." in capsys.readouterr().err
    assert main(["methods", "check", str(tmp_path / "none.py")]) == 1
    assert "none.py: it cannot be read: No such file" in capsys.readouterr().err


@pytest.mark.full
def test_check_refuses_unknown_checks(command, tmp_path):
    call, _ = command
    (tmp_path / "mean.py").write_text(OWN)
    done = call("methods", "check", tmp_path / "mean.py", "--skip", "the_cart_is_complete")
    assert done.returncode == 1 and "Did you mean 'the_card_is_complete'" in done.stderr
