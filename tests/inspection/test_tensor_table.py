"""``merging.describe`` and ``inspect --tensors``: what each tensor of a model is."""

from __future__ import annotations

import json

import other_kinds
import tiny
from safetensors.torch import save_file

import merging
from merging.cli.main import main


def test_every_tensor_is_described_with_what_a_merge_makes_of_it():
    table = merging.describe(other_kinds.pretrained("ResNet")).set_index("tensor")
    assert table.loc["layer1.0.bn1.running_var", "becomes"] == "mean"
    assert table.loc["bn1.num_batches_tracked", "becomes"] == "kept"
    assert dict(table.loc["layer2.0.conv1.weight"]) == {
        "tower": "", "section": "block 1", "block": 1, "part": "0.conv1", "role": "conv", "transposed": False,
        "tied_to": "", "shape": (16, 16, 3, 3), "dtype": "float32", "becomes": "merged", "told_by": "facts",
    }  # fmt: skip
    gpt2 = merging.describe(other_kinds.pretrained("GPT-2") | {"lm_head.weight": other_kinds.torch.ones(20, 16)})
    named = gpt2.set_index("tensor")
    assert named.loc["lm_head.weight", "tied_to"] == "transformer.wte.weight"
    assert named.loc["transformer.h.0.mlp.c_fc.weight", "transposed"]
    clip = merging.describe(tiny.pretrained())
    assert set(clip["told_by"]) == {"clip"} and len(clip) == len(tiny.shapes())


def test_the_command_prints_the_table_for_people_and_for_programs(tmp_path, capsys):
    file = tmp_path / "t5.safetensors"
    save_file(other_kinds.pretrained("T5"), file)
    assert main(["inspect", str(file), "--tensors"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["shared.weight", "embeddings", "vocabulary", "20", "×", "16", "float32", "merged"]
    assert lines[-1] == "Roles were derived from facts of its kind, names and shapes."
    assert main(["inspect", str(file), "--tensors", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(other_kinds.t5()) and rows[0]["block"] is None and rows[-1]["tower"] == "decoder"
