"""A merge as an adapter: PEFT puts it on the pretrained model, which then gives the merged model's outputs."""

from __future__ import annotations

import copy
import json
import warnings

import peers
import pytest
import torch
from safetensors.torch import load_file

from merging.base.errors import CheckpointError
from merging.cli.main import main
from merging.recipes.recipe import Recipe
from merging.sharing.export.model_export import export
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
TOKENS = torch.tensor([[5, 6, 7, 8], [9, 3, 2, 1]])


def networks(t):
    llama = t.LlamaConfig(vocab_size=40, num_key_value_heads=1, **SIZES)
    gpt2 = t.GPT2Config(vocab_size=40, n_positions=12, n_embd=16, n_layer=2, n_head=2)
    return {
        "Llama": (t.LlamaForCausalLM(llama), {"target_modules": ["q_proj", "o_proj"]}),
        "GPT-2": (t.GPT2LMHeadModel(gpt2), {"target_modules": ["c_attn"], "fan_in_fan_out": True}),
    }


def run_of(peft, kind, folder, merge):
    """A run of two adapters of rank 2, with its pretrained model."""
    torch.manual_seed(0)
    model, options = networks(peers.transformers())[kind]
    model.save_pretrained(folder / "base")
    for seed, name in enumerate("ab"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wrapped = peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(r=2, lora_alpha=4, **options))
        draw = torch.Generator().manual_seed(seed)
        for value in wrapped.parameters():
            if value.requires_grad:
                value.data += 0.1 * torch.randn(value.shape, generator=draw)
        wrapped.save_pretrained(folder / name)
    experts = {name: str(folder / name) for name in "ab"}
    recipe = Recipe.build(merge, pretrained=str(folder / "base"), experts=experts)
    return model, execute(recipe, Store(folder / "store", libraries=()), evaluate=False, context=Context(device="cpu"))


@pytest.mark.parametrize(("kind", "merge"), [("Llama", "tsv_m"), ("GPT-2", "weight_averaging")])
@torch.no_grad()
def test_peft_gives_the_merged_models_outputs(kind, merge, peft, tmp_path):
    model, run = run_of(peft, kind, tmp_path, merge)
    written = export(run, tmp_path / "out", to="peft", rank=4)
    assert written.missing_parts == ("The adapter retains the whole change, up to rounding.",)
    by_hand = copy.deepcopy(model)
    by_hand.load_state_dict(load_file(run.model_paths["merged"]), strict=False)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        loaded = peft.PeftModel.from_pretrained(copy.deepcopy(model), tmp_path / "out").eval()
    assert not [str(one.message) for one in raised if "adapter" in str(one.message)]
    found, expected = loaded(TOKENS).logits, by_hand.eval()(TOKENS).logits
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    assert float((expected - model.eval()(TOKENS).logits).norm()) > 100 * float((found - expected).norm())
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "library_name: peft" in card and "Share retained" in card and "1.0000" in card


def test_an_adapter_that_would_lose_much_is_refused(peft, tmp_path, capsys):
    _, run = run_of(peft, "Llama", tmp_path, "ties")
    with pytest.raises(CheckpointError, match=r"rank 1 retains less than half .* --force"):
        export(run, tmp_path / "out", to="peft", rank=1)
    assert not (tmp_path / "out").exists()
    words = ["export", run.id, "--out", str(tmp_path / "out"), "--store", str(tmp_path / "store")]
    assert main([*words, "--to", "peft"]) == 2
    assert "Only an adapter (--to peft) has a rank" in capsys.readouterr().err
    assert main([*words, "--to", "peft", "--rank", "1", "--force"]) == 0
    assert json.loads((tmp_path / "out" / "adapter_config.json").read_text("utf-8"))["r"] == 1
    assert "The adapter retains at least " in (tmp_path / "out" / "README.md").read_text("utf-8")
