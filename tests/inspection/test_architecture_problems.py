"""Another number of layers or heads, or another activation, is refused wherever it is known, and named with both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import other_kinds
import pytest
import tiny
import torch
from namings import to_naming
from safetensors.torch import save_file
from shelf_folders import CONFIG, transformers
from torch import Tensor

import merging
from merging.base.errors import CompatibilityError
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.formats.model_sources import open_checkpoint
from merging.models.inspection.fit_check import check_fit
from merging.models.inspection.fit_report import FitReport

BLOCKS = "visual.transformer.resblocks."


def stating(tensors: Mapping[str, Tensor], name: str, **architecture: Any) -> Checkpoint:
    """A checkpoint in memory whose metadata states this of its architecture."""
    opened = MappingCheckpoint(tensors, name)
    opened.metadata = {"architecture": json.dumps(architecture)} if architecture else {}
    return opened


def errors(report: FitReport) -> list[tuple[str, str, str, str]]:
    return [(p.checkpoint, p.problem, p.expected, p.found) for p in report.errors]


def deeper(state: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """The tower with as many layers, those beyond its own copies of its own."""
    tensors = {name: value for name, value in state.items() if not name.startswith(BLOCKS)}
    for layer in range(layers):
        own = f"{BLOCKS}{layer % tiny.LAYERS}."
        for name, value in state.items():
            if name.startswith(own):
                tensors[f"{BLOCKS}{layer}.{name.removeprefix(own)}"] = value.clone()
    return tensors


def test_an_expert_of_another_activation_is_refused() -> None:
    base, tuned = tiny.family(("a", "b"))
    below = stating(base, "pretrained", quick_gelu=True)
    experts = {"a": stating(tuned["a"], "a", quick_gelu=False), "b": stating(tuned["b"], "b", quick_gelu=True)}
    report = check_fit(below, experts, values=False)
    assert errors(report) == [("a", "activation", "quick_gelu", "gelu")]
    assert "a: activation: expected quick_gelu, found gelu. " in report.text()
    with pytest.raises(CompatibilityError, match="expected quick_gelu, found gelu"):
        merging.merge(below, experts)
    for named in ("gelu", "quick_gelu"):  # the user's word for all
        assert merging.merge(below, experts, activation=named).state_dict
    assert report.remove_kind("activation").ok


@pytest.mark.parametrize(("own", "others"), [({}, {"quick_gelu": False}), ({"quick_gelu": False}, {})])
def test_what_one_side_leaves_open_is_not_compared(own: dict[str, Any], others: dict[str, Any]) -> None:
    base, tuned = tiny.family(("a",))
    stated = {**others, "vision_cfg": {"head_width": 4}} if others else {}
    for left_open in ({}, {"vision_cfg": {}}, {"vision_cfg": {"head_width": 5}}):
        report = check_fit(
            stating(base, "p", **own, **left_open), {"a": stating(tuned["a"], "a", **stated)}, values=False
        )
        assert report.ok and not report.problems


def test_experts_that_contradict_each_other_are_refused() -> None:
    base, tuned = tiny.family(("a", "b", "c"))
    experts = {
        "a": stating(tuned["a"], "a"),
        "b": stating(tuned["b"], "b", quick_gelu=False),
        "c": stating(tuned["c"], "c", quick_gelu=True),
    }
    report = check_fit(stating(base, "pretrained"), experts, values=False)
    assert errors(report) == [("c", "activation", "gelu, as b has", "quick_gelu")]


def test_an_expert_with_other_heads_is_refused() -> None:
    base, tuned = tiny.family(("a",))
    wide, narrow = tiny.ARCHITECTURE, {**tiny.ARCHITECTURE, "vision_cfg": {"head_width": 4}}
    below, experts = stating(base, "pretrained", **wide), {"a": stating(tuned["a"], "a", **narrow)}
    report = check_fit(below, experts, values=False)
    assert errors(report) == [("a", "heads", "2", "4")]
    assert "a: heads: expected 2, found 4. " in report.text()
    with pytest.raises(CompatibilityError, match="heads: expected 2, found 4"):
        merging.merge(below, experts)


def test_files_that_state_other_heads_are_refused(tmp_path: Path) -> None:
    base, tuned = tiny.family(("a", "b"))
    below = transformers(tmp_path / "base", base)
    expert = transformers(tmp_path / "a", tuned["a"])
    (expert / "config.json").write_text(json.dumps({**CONFIG, "num_attention_heads": 4, "hidden_act": "gelu"}))
    (tmp_path / "b").mkdir()
    about = {"vision_cfg": {"image_size": 16, "layers": 2, "width": 16, "patch_size": 8, "head_width": 16}}
    save_file(dict(tuned["b"]), tmp_path / "b" / "open_clip_model.safetensors")
    (tmp_path / "b" / "open_clip_config.json").write_text(json.dumps({"model_cfg": {"quick_gelu": True, **about}}))
    with pytest.raises(CompatibilityError) as caught:
        merging.merge(below, {"a": expert, "b": tmp_path / "b"})
    assert errors(caught.value.report) == [
        ("a", "activation", "quick_gelu", "gelu"), ("a", "heads", "2", "4"), ("b", "heads", "2", "1"),
    ]  # fmt: skip


@pytest.mark.parametrize(("layers", "text"), [(4, "expected 2 layers, found 4 layers"), (1, "found 1 layer.")])
@pytest.mark.parametrize("naming", ["open_clip", "hf", "open_clip_tower"])
def test_another_depth_is_one_error(layers: int, text: str, naming: str) -> None:
    base, tuned = tiny.family(("a",))
    below, expert = to_naming(base, naming), to_naming(deeper(tuned["a"], layers), naming)
    report = check_fit(MappingCheckpoint(below, "pretrained"), {"a": MappingCheckpoint(expert, "a")}, values=True)
    assert [(p.checkpoint, p.problem, p.severity) for p in report.problems] == [("a", "depth", "error")]
    assert text in report.text()
    with pytest.raises(CompatibilityError, match="depth: expected 2 layers"):
        merging.merge(below, {"a": expert})


def with_blocks(kind: str, tower: str, blocks: int, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A network with so many blocks in a tower, which has two: the second again and again, or left out."""
    start = {"BERT": "bert.encoder.layer", "Llama": "model.layers", "BLIP VQA": "vision_model.encoder.layers"}.get(kind)
    prefix = f"{start or f'{tower}.block'}."
    kept = {n: v for n, v in state.items() if not n.startswith(f"{prefix}1.") or blocks > 1}
    second = {n.removeprefix(f"{prefix}1."): v for n, v in state.items() if n.startswith(f"{prefix}1.")}
    return kept | {f"{prefix}{block}.{n}": v.clone() for block in range(2, blocks) for n, v in second.items()}


@pytest.mark.parametrize(("blocks", "found"), [(1, "1 block"), (3, "3 blocks"), (4, "4 blocks")])
@pytest.mark.parametrize(
    ("kind", "tower"), [("BERT", ""), ("Llama", ""), ("T5", "decoder"), ("BLIP VQA", "vision_model")]
)
def test_another_depth_of_another_network_is_one_error(kind: str, tower: str, blocks: int, found: str) -> None:
    base = other_kinds.pretrained(kind)
    experts = {"a": other_kinds.expert(base, 1), "b": with_blocks(kind, tower, blocks, other_kinds.expert(base, 2))}
    expected = f"2 blocks in the {tower}" if tower else "2 blocks"
    for state in (experts["b"], {f"module.{name}": value for name, value in experts["b"].items()}):
        report = check_fit(base, {"a": experts["a"], "b": state})
        assert errors(report) == [("b", "depth", expected, found)]
    said = f"b: depth: expected {expected}, found {found}. Choose experts that are as deep as the pretrained model."
    with pytest.raises(CompatibilityError) as caught:
        merging.merge(base, experts, "weight_averaging", device="cpu")
    assert str(caught.value) == said


def test_a_tensor_that_a_block_lacks_is_no_other_depth() -> None:
    base = other_kinds.pretrained("BERT")
    expert = other_kinds.expert(base, 1)
    del expert["bert.encoder.layer.1.output.dense.bias"]
    assert [(p.problem, p.tensor) for p in check_fit(base, {"a": expert, "b": other_kinds.expert(base, 2)}).errors] == [
        ("missing", "bert.encoder.layer.1.output.dense.bias")
    ]


def test_another_depth_is_refused_in_files_under_other_names(tmp_path: Path) -> None:
    base, tuned = tiny.family(("a",))
    below = tiny.write(tmp_path / "base.safetensors", base)
    expert = {f"module.{name}": value for name, value in deeper(tuned["a"], 6).items()}
    save_file(expert, tmp_path / "a.safetensors")
    hugging_face = {name: value.contiguous() for name, value in to_naming(deeper(tuned["a"], 6), "hf").items()}
    save_file(hugging_face, tmp_path / "b.safetensors")
    with pytest.raises(CompatibilityError) as caught:
        merging.merge(below, {"a": tmp_path / "a.safetensors", "b": tmp_path / "b.safetensors"})
    assert errors(caught.value.report) == [(name, "depth", "2 layers", "6 layers") for name in "ab"]


def test_an_extra_text_tower_or_head_is_no_other_depth(tmp_path: Path) -> None:
    base, tuned = tiny.family(("a",))
    text = {f"transformer.resblocks.{layer}.ln_1.weight": torch.ones(4) for layer in range(5)}
    expert = {**tuned["a"], **text, "classifier.weight": torch.ones(3, 8)}
    for naming in ("open_clip", "open_clip_tower"):  # without a prefix, the names of both towers look alike
        below = MappingCheckpoint(to_naming(base, naming), "pretrained")
        opened = open_checkpoint(MappingCheckpoint(expert, "a"), like=below)
        report = check_fit(below, {"a": opened}, values=False)
        assert report.ok and {p.problem for p in report.problems} == {"extra"}
        assert "classifier.weight" in {p.tensor for p in report.problems}
        assert not report.doubts


def test_a_layer_without_a_tensor_is_a_missing_tensor() -> None:
    base, tuned = tiny.family(("a",))
    del tuned["a"][f"{BLOCKS}1.ln_1.bias"]
    report = check_fit(MappingCheckpoint(base, "p"), {"a": MappingCheckpoint(tuned["a"], "a")}, values=False)
    assert [(p.tensor, p.problem) for p in report.problems] == [(f"{BLOCKS}1.ln_1.bias", "missing")]


def test_a_dropped_projection_is_named(tmp_path: Path) -> None:
    base, tuned = tiny.family(("a",))
    bare = {name: value for name, value in base.items() if name != "visual.proj"}
    report = check_fit(MappingCheckpoint(bare, "pretrained"), {"a": MappingCheckpoint(tuned["a"], "a")}, values=False)
    assert report.ok and [(p.tensor, p.problem) for p in report.doubts] == [("visual.proj", "projection")]
    assert any("no output projection (visual.proj)" in note for note in report.notes)
    hugging_face = to_naming(tuned["a"], "hf")
    del hugging_face["visual_projection.weight"]
    save_file({name: value.contiguous() for name, value in hugging_face.items()}, tmp_path / "a.safetensors")
    report = check_fit(MappingCheckpoint(base, "pretrained"), {"a": tmp_path / "a.safetensors"}, values=False)
    assert report.ok and any("the pretrained model's visual.proj is used" in note for note in report.notes)
    missing = {name: value for name, value in tuned["a"].items() if name != "visual.proj"}
    report = check_fit(MappingCheckpoint(base, "pretrained"), {"a": MappingCheckpoint(missing, "a")}, values=False)
    assert [(p.tensor, p.problem) for p in report.errors] == [("visual.proj", "missing")]


def test_a_projection_beside_the_tower_is_named_among_what_was_ignored(tmp_path: Path) -> None:
    base, tuned = tiny.family(("a",))
    expert = {f"clip.{name}": value for name, value in tuned["a"].items() if name != "visual.proj"}
    others = {f"other.{number}": torch.ones(2) for number in range(9)}
    save_file({**others, **expert, "visual_projection": tuned["a"]["visual.proj"]}, tmp_path / "a.safetensors")
    report = check_fit(MappingCheckpoint(base, "pretrained"), {"a": tmp_path / "a.safetensors"}, values=False)
    caution = next(p.found for p in report.problems if p.problem == "opened" and "ignored" in p.found)
    assert "visual_projection" in caution
