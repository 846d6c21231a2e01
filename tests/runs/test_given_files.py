"""Files of layer inputs and gradients in recipes and on the command line: ids, paths, errors, doubts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import other_kinds
import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

import merging
from app.session.draft import Draft
from merging.base.errors import MergingError
from merging.cli import exit_codes
from merging.cli.main import main
from merging.engine.capture.data_files import GradientMeans
from merging.engine.capture.row_store import LayerRows
from merging.methods.moments import Moments
from merging.models.formats.model_sources import open_checkpoint
from merging.models.network_inference import describe_parameters
from merging.models.tensor_info import TensorInfo
from merging.recipes.recipe import Recipe
from merging.sharing.export.export_provenance import anonymize_recipe
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run_store import Store
from merging.study.sweeps.sweep import with_absolute_paths

ROWS = {"a": "rows/a.safetensors", "b": "rows/b.safetensors"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny GPT-2 with two experts, their rows and their gradients."""
    root = tmp_path_factory.mktemp("gpt2")
    base, draw = other_kinds.pretrained("GPT-2"), torch.Generator().manual_seed(0)
    (root / "rows").mkdir()
    save_file(base, root / "base.safetensors")
    tensors = describe_parameters({name: TensorInfo(tuple(value.shape), value.dtype) for name, value in base.items()})
    for seed, name in enumerate("ab", start=1):
        save_file(other_kinds.expert(base, seed), root / f"{name}.safetensors")
        digest = open_checkpoint(root / f"{name}.safetensors").digest
        rows = {
            p.name: Moments.from_rows(torch.randn(30, base[p.name].shape[0 if p.transposed else 1], generator=draw))
            for p in tensors if p.role == "linear"
        }  # fmt: skip
        merging.save_layer_inputs(root / ROWS[name], LayerRows(rows, 30, digest))
        means = {key: torch.rand(value.shape, generator=draw) for key, value in base.items()}
        merging.save_gradients(root / f"rows/{name}-fisher.safetensors", GradientMeans(means, "fisher", 30, digest))
    return root


def recipe(merge: str = "lot", **data: Any) -> Recipe:
    return Recipe.build(merge, {}, [], "base.safetensors", {"a": "a.safetensors", "b": "b.safetensors"}, **data)


@pytest.mark.parametrize("merge,option", [("lot", "--layer-inputs NAME=FILE"), ("fisher", "--gradients NAME=FILE")])
def test_without_data_the_option_that_gives_it_is_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], merge: str, option: str
) -> None:
    words = [
        "merge",
        f"--pretrained={folder}/base.safetensors",
        *(f"--expert={n}={folder}/{n}.safetensors" for n in "ab"),
    ]
    words += [f"--merge={merge}", f"--out={tmp_path}/out", f"--store={tmp_path}/store"]
    assert main(words) == exit_codes.FAILED
    said = capsys.readouterr().err
    assert "CLIP towers; this is GPT-2. Give " in said and f" On the command line: {option} for each expert." in said


def test_on_another_benchmark_layer_inputs_of_clip_can_be_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    family = tiny.write_family(tmp_path / "models")
    words = ["merge", f"--pretrained={family.pretrained}", *(f"--expert={n}={p}" for n, p in family.experts.items())]
    words += [f"--out={tmp_path}/out", f"--store={tmp_path}/store", "--merge"]
    assert main([*words, "lot"]) == exit_codes.FAILED
    assert "can replace them. On the command line: --layer-inputs NAME=FILE for each expert." in capsys.readouterr().err
    assert main([*words, "fisher"]) == exit_codes.FAILED
    assert "there are none for these models" in (said := capsys.readouterr().err) and "--layer-inputs" not in said


def in_memory(folder: Path, **data: Any) -> dict[str, torch.Tensor]:
    experts = {name: folder / f"{name}.safetensors" for name in "ab"}
    return merging.merge(folder / "base.safetensors", experts, **data, device="cpu").state_dict


def words(folder: Path) -> list[str]:
    experts = [word for name in "ab" for word in ("--expert", f"{name}={folder / name}.safetensors")]
    return ["--pretrained", str(folder / "base.safetensors"), *experts, "--no-evaluate", "--device", "cpu"]


def test_a_recipe_file_with_rows_runs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    chain = recipe(layer_inputs=ROWS)
    assert chain.exemplars is None and not chain.needs and Recipe.from_yaml(chain.to_yaml()) == chain
    (folder / "lot.yaml").write_text(chain.to_yaml(), "utf-8")
    assert main(["run", str(folder / "lot.yaml"), "--no-evaluate", "--device", "cpu"]) == exit_codes.DONE
    (run,) = Store(tmp_path / "store", libraries=()).list_runs()
    assert run.id == open_inputs(chain, folder).run_id() and not run.warnings
    expected = in_memory(folder, merge="lot", layer_inputs={name: folder / path for name, path in ROWS.items()})
    stored = load_file(run.model_path)
    assert all(torch.equal(stored[name], value) for name, value in expected.items())


@pytest.mark.parametrize(
    "merge,option,file", [("regmean", "--layer-inputs", "{}"), ("fisher", "--gradients", "{}-fisher")]
)
def test_the_command_line_takes_files(folder: Path, tmp_path: Path, merge: str, option: str, file: str) -> None:
    files = {name: folder / "rows" / f"{file.format(name)}.safetensors" for name in "ab"}
    given = [word for name, path in files.items() for word in (option, f"{name}={path}")]
    chain = tmp_path / "chain.yaml"
    chain.write_text(with_absolute_paths(recipe(merge), folder).to_yaml(), "utf-8")
    words = ["run", str(chain), *given, "--store", str(tmp_path / "store"), "--no-evaluate", "--device", "cpu"]
    assert main(words) == exit_codes.DONE
    (run,) = Store(tmp_path / "store", libraries=()).list_runs()
    expected = in_memory(folder, merge=merge, **{option.removeprefix("--").replace("-", "_"): files})
    stored = load_file(run.model_path)
    assert all(torch.equal(stored[name], value) for name, value in expected.items())


def test_ids_depend_on_what_files_hold_and_not_on_where_they_are(folder: Path, tmp_path: Path) -> None:
    one = open_inputs(recipe(layer_inputs=ROWS), folder).run_id()
    moved = {name: tmp_path / f"{name}-elsewhere.safetensors" for name in ROWS}
    for name, path in moved.items():
        path.write_bytes((folder / ROWS[name]).read_bytes())
    assert open_inputs(recipe(layer_inputs={n: str(p) for n, p in moved.items()}), folder).run_id() == one
    swapped = recipe(layer_inputs={"a": ROWS["b"], "b": ROWS["a"]})
    opened = open_inputs(swapped, folder)
    assert opened.run_id() != one
    assert opened.captured_files.list_doubts(opened.digests()) == (
        "a: b.safetensors was made from another checkpoint than this expert.",
        "b: a.safetensors was made from another checkpoint than this expert.",
    )
    plain = recipe("ties")
    assert plain.run_id("0", {"a": "1", "b": "2"}) == plain.run_id("0", {"a": "1", "b": "2"}, data_digests={})
    assert "layer_inputs" not in plain.to_plain()


def test_recipes_carry_their_files(folder: Path) -> None:
    chain = recipe(layer_inputs={"a": "/home/ada/a.safetensors", "b": "rows/b.safetensors"})
    assert anonymize_recipe(chain).to_plain()["layer_inputs"] == {"a": "a.safetensors", "b": "b.safetensors"}
    assert with_absolute_paths(chain, folder).to_plain()["layer_inputs"]["b"] == str(folder / "rows/b.safetensors")
    draft = Draft.from_recipe(chain)
    assert draft.recipe(dict(chain.experts)).data_files == chain.data_files
    draft.experts = ["b"]
    assert draft.recipe(dict(chain.experts)).to_plain()["layer_inputs"] == {"b": "rows/b.safetensors"}
    unread = Recipe.from_plain(recipe("ties").to_plain() | {"layer_inputs": ROWS})
    assert unread.unused == ("No step of this chain reads layer inputs, so layer_inputs is not used.",)


@pytest.mark.parametrize(
    "data,says",
    [
        ({"layer_inputs": {"a": "a.safetensors", "b": ROWS["b"]}}, "a: a.safetensors is not a file of layer inputs"),
        ({"layer_inputs": {"a": "rows/a-fisher.safetensors"}}, "it holds gradients. Write it with merging.save_layer"),
        ({"layer_inputs": ROWS | {"c": ROWS["a"]}}, "names data files for c, but it does not merge such an expert"),
        ({"layer_inputs": {"a": "rows/none.safetensors"}}, "a: none.safetensors: not found"),
        ({"layer_inputs": ["a"]}, "layer_inputs is a mapping of expert to file"),
    ],
)
def test_a_wrong_file_is_named(folder: Path, data: dict[str, Any], says: str) -> None:
    with pytest.raises(MergingError, match=says):
        open_inputs(recipe(**data), folder)


def test_wrong_options_are_told_together(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "out.safetensors")]
    given = ["--layer-inputs", "a", "--gradients", f"a={tmp_path / 'none.safetensors'}"]
    assert main(["merge", *words(folder), "--merge", "lot", *given, *out]) == exit_codes.USAGE
    said = capsys.readouterr().err
    assert "Write --layer-inputs as NAME=FILE; got 'a'." in said and "The file of --gradients a was not found" in said
    unread = ["--layer-inputs", f"a={folder / ROWS['a']}"]
    assert main(["merge", *words(folder), "--merge", "ties", *unread, *out]) != exit_codes.DONE
    assert "No step of this chain reads layer inputs; leave them out." in capsys.readouterr().err
