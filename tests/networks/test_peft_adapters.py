"""LoRA adapters that PEFT writes, merged by several methods, exported, and loaded by the library of the network."""

from __future__ import annotations

import copy
import warnings

import family_files
import peers
import pytest
import torch
from family_files import KINDS

import merging
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.recipe import Recipe
from merging.sharing.export.model_export import export
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

TARGETS = {
    "Llama": ["q_proj", "v_proj"], "Mixtral": ["q_proj", "v_proj"], "T5": ["q", "v"], "GPT-2": ["c_attn"],
    "ViT": ["q_proj", "fc1"], "BERT": ["query"], "LLaVA": ["q_proj"],
}  # fmt: skip


def adapted(model, folder, seed, **options):
    """Write an adapter of a model with PEFT; returns the model with it merged in, by PEFT, too."""
    peers.transformers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import peft

        wrapped = peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(r=2, lora_alpha=4, **options))
        draw = torch.Generator().manual_seed(seed)
        for value in wrapped.parameters():
            if value.requires_grad:
                value.data += 0.1 * torch.randn(value.shape, generator=draw)
        wrapped.save_pretrained(folder)
        return wrapped.merge_and_unload().eval()


@pytest.mark.full
@pytest.mark.parametrize("kind", TARGETS)
def test_merged_adapters_are_what_peft_and_the_library_compute(kind, files_of, tmp_path):
    base = files_of(kind)[0]
    more = {"fan_in_fan_out": True} if kind == "GPT-2" else {}
    model = family_files.load(kind, base)
    others = [adapted(model, tmp_path / name, n, target_modules=TARGETS[kind], **more) for n, name in enumerate("ab")]
    experts = {name: tmp_path / name for name in "ab"}
    places = {name: str(path) for name, path in experts.items()}
    recipe = Recipe.build("weight_averaging", pretrained=str(base), experts=places)
    run = execute(recipe, Store(tmp_path / "store", libraries=()), evaluate=False, context=Context(device="cpu"))
    export(run, tmp_path / "out", to="hf")
    by_hand = family_files.average_by_hand(family_files.load(kind, base), others)
    given = KINDS[kind].given()
    merged = family_files.outputs(family_files.load(kind, tmp_path / "out"), given)
    torch.testing.assert_close(merged, family_files.outputs(by_hand, given), rtol=1e-4, atol=1e-5)
    before = {name: open_checkpoint(base).read(name) for name in open_checkpoint(base).infos}
    for merge, edits in (("ties", ["lines"]), ("tsv_m", ())):
        result = merging.merge(base, experts, merge, edits=edits, device="cpu")
        touched = set(result.tables["tensors"]["tensor"])
        assert list(result.state_dict) == list(before) and 0 < len(touched) < len(before)
        for name, value in result.state_dict.items():
            assert torch.equal(value, before[name]) != (name in touched)
