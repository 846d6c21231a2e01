"""Files that belong together: experts with the pretrained model that they come from."""

from __future__ import annotations

import json
from pathlib import Path

import tiny
import torch
from safetensors.torch import save_file
from shelf_folders import list_folder, names, only_group, recognize_folder, transformers

from merging.sharing.catalog.model_groups import find_groups
from merging.sharing.catalog.model_recognition import recognize_model


def test_published_task_vectors(root: Path) -> None:
    base, tuned = tiny.family()
    model = root / "ViT-B-32"
    for name, state in tuned.items():
        (model / name.capitalize()).mkdir(parents=True)
        torch.save(state, model / name.capitalize() / "finetuned.pt")
        torch.save({"weight": torch.ones(5, tiny.EMBED)}, model / f"head_{name.capitalize()}.pt")
    torch.save(base, model / "zeroshot.pt")
    group = only_group(find_groups(recognize_folder(root)))
    assert group.pretrained is not None and group.pretrained.listed_path == "clip/ViT-B-32/zeroshot.pt"
    assert names(group) == {n.capitalize(): f"clip/ViT-B-32/{n.capitalize()}/finetuned.pt" for n in tuned}
    assert set(group.heads) == {name.capitalize() for name in tuned}
    assert "task vectors" in group.layout and not group.is_guessed


def test_experts_with_a_copy_of_the_pretrained_model_each(root: Path) -> None:
    base, tuned = tiny.family()
    for name, state in tuned.items():
        (root / f"{name}Val").mkdir()
        torch.save(base, root / f"{name}Val" / "nonlinear_zeroshot.pt")
        torch.save(state, root / f"{name}Val" / "nonlinear_finetuned.pt")
    group = only_group(find_groups(recognize_folder(root)))
    assert set(group.experts) == set(tuned)
    assert group.pretrained is not None and group.pretrained.name == "nonlinear_zeroshot"


def test_a_folder_for_each_expert(root: Path) -> None:
    base, tuned = tiny.family()
    transformers(root / "clip-vit-tiny", base)
    for name, state in tuned.items():
        transformers(root / f"clip-vit-tiny_{name}", state)
    group = only_group(find_groups(recognize_folder(root)))
    assert group.pretrained is not None and group.pretrained.name == "clip-vit-tiny"
    assert set(group.experts) == set(tuned)  # without what all names begin with


def test_files_whose_pretrained_model_is_told_by_its_numbers(root: Path) -> None:
    base, tuned = tiny.family()
    for name, state in {**tuned, "x": base}.items():
        tiny.write(root / f"{name}.safetensors", state, torch.float32)
    tiny.write(root / "stranger.safetensors", tiny.pretrained(seed=5), torch.float32)
    group = only_group(find_groups(recognize_folder(root)))
    assert group.is_guessed and group.pretrained is not None and group.pretrained.name == "x"
    assert set(group.experts) == set(tuned) and group.unrelated_names == ("stranger",)


def test_no_pretrained_model_is_made_up(root: Path) -> None:
    for name, state in tiny.family()[1].items():
        tiny.write(root / f"{name}.safetensors", state, torch.float32)
    assert only_group(find_groups(recognize_folder(root))).pretrained is None


def test_the_pretrained_model_may_lie_elsewhere(root: Path) -> None:
    base, tuned = tiny.family(("a", "b"))
    states = {f"experts/{name}": state for name, state in tuned.items()}
    for place, state in {**states, "clip/model": base, "other/model": tiny.pretrained(9)}.items():
        (root / place).parent.mkdir(exist_ok=True)
        tiny.write(root / f"{place}.safetensors", state, torch.float32)
    group = next(group for group in find_groups(recognize_folder(root)) if group.title.endswith("experts"))
    assert group.pretrained is not None and group.pretrained.listed_path.endswith("clip/clip")
    assert group.is_guessed and set(group.experts) == {"a", "b"}


def adapter(folder: Path, base: str) -> None:
    folder.mkdir()
    layer = "base_model.model.vision_model.encoder.layers.0.self_attn.q_proj"
    tensors = {f"{layer}.lora_A.weight": torch.ones(2, tiny.WIDTH), f"{layer}.lora_B.weight": torch.ones(tiny.WIDTH, 2)}
    save_file(tensors, folder / "adapter_model.safetensors")
    said = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "base_model_name_or_path": base}
    (folder / "adapter_config.json").write_text(json.dumps(said))


def test_adapters_with_their_base(root: Path) -> None:
    transformers(root / "clip-vit-tiny", tiny.pretrained())
    for name in ("cars", "dtd"):
        adapter(root / name, "somebody/clip-vit-tiny")
    group = only_group(find_groups(recognize_folder(root)))
    assert group.pretrained is not None and group.pretrained.name == "clip-vit-tiny"
    assert set(group.experts) == {"cars", "dtd"} and "adapters" in group.layout


def test_a_benchmark_folder(root: Path) -> None:
    tiny.write_benchmark(root / "bench")
    found = list_folder(root)
    assert [item.listed_path for item in found.benchmarks] == ["clip/bench"]
    group = only_group(find_groups([(item, recognize_model(item)) for item in found.items], found.benchmarks))
    assert group.title == "clip/bench" and set(group.experts) == set(tiny.EXPERTS)  # the multi-task model is no expert
    assert not any("data" in item.listed_path for item in found.items)


def test_a_repository_of_the_hub_is_called_by_its_name(root: Path) -> None:
    snapshot = root / "models--org--clip" / "snapshots" / ("0" * 40)
    transformers(snapshot, tiny.pretrained())
    (root / "models--org--clip" / "blobs").mkdir()
    (root / "models--org--clip" / "blobs" / "abc").write_bytes(b"x")
    ((item, what),) = recognize_folder(root)
    assert item.name == "org/clip" and what.kind == "model"
