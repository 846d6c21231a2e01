"""Names of Transformers 5 against the facts: the numbers of a file say where the library puts each tensor of it."""

from __future__ import annotations

import time

import family_files
import pytest
import torch
from family_files import KINDS
from safetensors.torch import load_file, save_file

from merging.models.expert_names import keep_name, match_names
from merging.models.network_facts import facts_of

OTHERS = ("timm", "torch", "layers", "anything")
OF_TRANSFORMERS = [kind for kind in KINDS if not kind.startswith(OTHERS)]
FUSED = "mlp.experts"  # several tensors of a file in one of the module


def traced(kind, base, folder):
    """{tensor of the module: tensor of the file}, as the library brings one to the other."""
    state = load_file(base / family_files.WEIGHTS)
    named = dict(enumerate(state, 1))
    tagged = {name: torch.full_like(state[name], number) for number, name in named.items()}
    folder.mkdir()
    (folder / "config.json").write_bytes((base / "config.json").read_bytes())
    save_file(tagged, folder / family_files.WEIGHTS, {"format": "pt"})
    model = family_files.load(kind, folder)
    return {
        name: named[int(value.flatten()[0])]
        for name, value in model.named_parameters()
        if value.numel() and bool((value == value.flatten()[0]).all()) and FUSED not in name
    }


@pytest.mark.parametrize("kind", OF_TRANSFORMERS)
def test_the_facts_give_the_names_that_the_library_gives(kind, files_of, tmp_path):
    base = files_of(kind)[0]
    found = traced(kind, base, tmp_path / "traced")
    stored = load_file(base / family_files.WEIGHTS).keys()
    facts = facts_of(stored)
    names = match_names(stored, found, facts.later_name if facts else keep_name).stored
    assert len(found) > 10
    assert names == {file: one for one, file in found.items()}


def test_hostile_prefixes_cost_no_more_than_their_length():
    found = [f"p{number}.x.w" for number in range(20_000)]
    started = time.process_time()
    assert len(match_names(["x.w", "y"], found).stored) == len(found)
    assert time.process_time() - started < 3
