"""LoRA adapters of networks other than CLIP give what PEFT merges; what no adapter names counts nowhere."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path

import peers
import pytest
import torch
from safetensors.torch import load_file, save_file

import merging
from merging.base.errors import CheckpointError
from merging.engine.chain_work import chain_work
from merging.models.formats.adapter_checkpoint import AdaptedCheckpoint
from merging.models.formats.model_sources import open_checkpoint
from merging.models.inspection.fit_check import check_fit
from merging.recipes.recipe import Recipe
from merging.study.runs.estimate import tensor_bytes
from merging.study.runs.opened_recipe import open_inputs

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def adapted(peft, model, folder, seed=0, **options):
    """An adapter's folder and the state dict of the model with it merged in, both by PEFT."""
    own = "feedforward_modules" in options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = peft.IA3Config(**options) if own else peft.LoraConfig(r=4, lora_alpha=8, **options)
        wrapped = peft.get_peft_model(copy.deepcopy(model), config)
        draw = torch.Generator().manual_seed(seed)
        for value in wrapped.parameters():
            if value.requires_grad:
                value.data += 0.1 * torch.randn(value.shape, generator=draw)
        wrapped.save_pretrained(folder)
        return wrapped.merge_and_unload().state_dict()


def llama(t):
    return t.LlamaForCausalLM(t.LlamaConfig(vocab_size=40, num_key_value_heads=1, **SIZES))


def test_an_adapter_of_another_base_is_said_with_both_names(peft, tmp_path):
    t = peers.transformers()
    torch.manual_seed(1)
    for name, model in {"llama": llama(t), "llama-chat": llama(t), "gpt2": gpt2(t)}.items():
        model.save_pretrained(tmp_path / name)
    adapted(peft, t.LlamaForCausalLM.from_pretrained(tmp_path / "llama"), tmp_path / "a", target_modules=["q_proj"])
    experts = {"a": tmp_path / "a"}
    assert not check_fit(tmp_path / "llama", experts, values=False).problems
    assert not check_fit(tmp_path / "llama" / "model.safetensors", experts, values=False).problems
    report = check_fit(tmp_path / "llama-chat", experts, values=False)
    said = "Its adapter_config.json names 'llama' as its base, but is applied to 'llama-chat'."
    assert report.ok and report.text() == f"a: {said}"
    with pytest.raises(
        CheckpointError, match=r"does not have\. Its adapter_config\.json names 'llama' as its base, but"
    ) as e:
        check_fit(tmp_path / "gpt2", experts)
    assert str(e.value).endswith("is applied to 'gpt2'.")
    file = tmp_path / "a" / "adapter_config.json"
    for stated, agrees in (("meta/Llama-Chat", True), ("meta/llama", False), (None, True), ("", True), (7, True)):
        file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | {"base_model_name_or_path": stated}), "utf-8")
        assert bool(check_fit(tmp_path / "llama-chat", experts, values=False).problems) != agrees, stated


def test_a_base_in_the_folder_of_the_call_is_called_by_that_folder(peft, tmp_path, monkeypatch):
    t = peers.transformers()
    torch.manual_seed(1)
    llama(t).save_pretrained(tmp_path / "llama")
    llama(t).save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    adapted(peft, t.LlamaForCausalLM.from_pretrained(tmp_path / "llama"), tmp_path / "a", target_modules=["q_proj"])
    monkeypatch.chdir(tmp_path / "llama")
    for base in (".", "model.safetensors"):
        assert not check_fit(base, {"a": tmp_path / "a"}, values=False).problems, base
    monkeypatch.chdir(tmp_path / "shards")
    assert len(list(Path().glob("model-*"))) > 1
    for base in (".", "model.safetensors.index.json"):
        said = check_fit(base, {"a": tmp_path / "a"}, values=False).text()
        assert said == "a: Its adapter_config.json names 'llama' as its base, but is applied to 'shards'.", base


def t5(t):
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    return t.T5ForConditionalGeneration(t.T5Config(vocab_size=40, **sizes))


def gpt2(t):
    return t.GPT2LMHeadModel(t.GPT2Config(vocab_size=40, n_positions=12, n_embd=16, n_layer=2, n_head=2))


def gpt2_classifier(t):
    sizes = {"n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 2, "num_labels": 2}
    return t.GPT2ForSequenceClassification(t.GPT2Config(vocab_size=40, **sizes))


def vit(t):
    return t.ViTForImageClassification(t.ViTConfig(image_size=16, patch_size=8, num_labels=3, **SIZES))


CASES = {
    "Llama": (llama, {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}),
    "T5": (t5, {"target_modules": ["q", "v"]}),
    "GPT-2": (gpt2, {"target_modules": ["c_attn"], "fan_in_fan_out": True}),
    "GPT-2's square matrices": (gpt2_classifier, {"target_modules": ["attn.c_proj", "score"]}),  # of two classes
    "Llama's output": (llama, {"target_modules": ["q_proj", "lm_head"]}),  # PEFT saves both tables, too
    "ViT": (vit, {"target_modules": ["q_proj", "fc1"], "modules_to_save": ["classifier"]}),
    "Llama's tables": (llama, {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}),
    "Llama, (IA)³": (llama, {"target_modules": ["k_proj", "down_proj"], "feedforward_modules": ["down_proj"]}),
    "GPT-2, (IA)³": (
        gpt2,
        {"target_modules": ["c_attn", "c_fc"], "feedforward_modules": ["c_fc"], "fan_in_fan_out": True},
    ),
    "ViT, (IA)³": (vit, {"target_modules": ["q_proj", "fc2"], "feedforward_modules": ["fc2"]}),
}


@pytest.mark.parametrize("kind", CASES)
def test_adapters_give_what_peft_merges(kind, peft, tmp_path):
    make, options = CASES[kind]
    t = peers.transformers()
    torch.manual_seed(0)
    model = make(t)
    for value in model.parameters():
        value.data += 0.1 * torch.randn(value.shape)  # biases begin as zeros, of which no product is seen
    model.save_pretrained(tmp_path / "base")
    expected = adapted(peft, model, tmp_path / "adapter", **options)
    after = copy.deepcopy(model)
    after.load_state_dict(expected)
    after.save_pretrained(tmp_path / "after")  # under the names of files
    want, base = load_file(tmp_path / "after" / "model.safetensors"), load_file(tmp_path / "base" / "model.safetensors")
    expert = open_checkpoint(tmp_path / "adapter", like=open_checkpoint(tmp_path / "base"))
    assert all(torch.equal(expert.read(name), value) for name, value in want.items())
    merged = merging.merge(tmp_path / "base", {"a": tmp_path / "adapter"}, params={"scaling": 1.0}, device="cpu")
    assert merged.state_dict.keys() == want.keys()
    touched = {name for name in want if not torch.equal(want[name], base[name])}
    assert touched
    for name, value in merged.state_dict.items():
        if name in touched:  # the sum of the pretrained weights and a task vector, which is a rounded difference
            torch.testing.assert_close(value, want[name], atol=1e-7, rtol=1e-6)
        else:
            assert torch.equal(value, base[name]), name
    assert set(merged.tables["tensors"]["tensor"]) == touched


@pytest.mark.parametrize(("kind", "merge"), [("GPT-2", "iso_cts"), ("Llama", "tsv_m"), ("Llama", "drm")])
def test_matrices_are_merged_by_their_factors(kind, merge, peft, tmp_path, monkeypatch):
    """In float64, in which whole matrices of low rank are so to 16 digits."""
    make, options = CASES[kind]
    torch.manual_seed(0)
    model = make(peers.transformers()).double()
    model.save_pretrained(tmp_path / "base")
    for seed, name in enumerate("ab"):
        after = copy.deepcopy(model)
        after.load_state_dict(adapted(peft, model, tmp_path / name, seed, **options))
        after.save_pretrained(tmp_path / f"whole {name}")
    read = AdaptedCheckpoint._read_factors
    taken = []
    monkeypatch.setattr(
        AdaptedCheckpoint, "_read_factors", lambda self, change: taken.append(change) or read(self, change)
    )
    by_factors, whole = (
        merging.merge(tmp_path / "base", {n: tmp_path / f"{kind}{n}" for n in "ab"}, merge, device="cpu").state_dict
        for kind in ("", "whole ")
    )
    assert taken
    for name, value in by_factors.items():
        torch.testing.assert_close(value, whole[name], atol=1e-10, rtol=1e-10)


def test_estimates_know_of_factors_unless_an_edit_stands_before(peft, tmp_path):
    torch.manual_seed(0)
    model, name = llama(peers.transformers()), "model.layers.0.self_attn.q_proj.weight"
    model.save_pretrained(tmp_path / "base")
    adapted(peft, model, tmp_path / "a", target_modules=["q_proj"])
    at = {"pretrained": str(tmp_path / "base"), "experts": {"a": str(tmp_path / "a")}}
    thin, whole = (open_inputs(Recipe.build("drm", edits=edits, **at)) for edits in ([], ["magnitude"]))
    assert tensor_bytes(thin, {name}) < tensor_bytes(whole, {name})
    flops = [chain_work(opened.recipe, opened.pretrained, opened.experts).matrix_flops for opened in (thin, whole)]
    assert flops[0] < flops[1] / 2


def test_what_no_adapter_names_counts_only_if_asked_for(peft, tmp_path):
    torch.manual_seed(0)
    model = llama(peers.transformers())
    model.save_pretrained(tmp_path / "base")
    for seed, name in enumerate("ab"):
        adapted(peft, model, tmp_path / name, seed, target_modules=["q_proj"])
    experts = {name: tmp_path / name for name in "ab"}
    report = check_fit(tmp_path / "base", experts)
    assert (
        report.ok and "19 tensors that no adapter changes are the pretrained model's and do not count." in report.notes
    )
    tables = [
        merging.merge(tmp_path / "base", experts, "ties", count_dead_params=counted, device="cpu").tables
        for counted in (False, True)
    ]
    assert [len(table["tensors"]) for table in tables] == [2, 21]
    ids = set()
    for counted in (False, True):
        recipe = Recipe.build(
            "ties", pretrained=str(tmp_path / "base"), experts={n: str(path) for n, path in experts.items()},
            count_dead_params=counted,
        )  # fmt: skip
        ids.add(open_inputs(recipe).run_id())
    assert len(ids) == 2


def test_an_adapters_head_is_kept_per_task(peft, tmp_path):
    t = peers.transformers()
    torch.manual_seed(0)
    base = t.BertModel(t.BertConfig(vocab_size=40, **SIZES))
    base.save_pretrained(tmp_path / "base")
    experts = {}
    for labels, name in ((2, "two"), (3, "three")):
        model = t.BertForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=labels)
        adapted(peft, model, tmp_path / name, target_modules=["query"], modules_to_save=["classifier"])
        experts[name] = tmp_path / name
    report = check_fit(tmp_path / "base", experts)
    assert report.ok and "two: the names begin with 'bert.', which was removed." in report.notes
    heads = merging.merge(tmp_path / "base", experts, device="cpu").heads
    assert heads["three"]["classifier.weight"].shape == (3, 16) and heads["two"]["classifier.bias"].shape == (2,)


def test_an_adapter_of_another_network_is_refused(peft, tmp_path):
    torch.manual_seed(0)
    t = peers.transformers()
    gpt2(t).save_pretrained(tmp_path / "base")
    adapted(peft, llama(t), tmp_path / "adapter", target_modules=["q_proj"])
    with pytest.raises(CheckpointError, match=r"self_attn\.q_proj\.weight', which the pretrained model does not have"):
        check_fit(tmp_path / "base", {"a": tmp_path / "adapter"})
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text("utf-8"))["peft_type"] == "LORA"


@pytest.mark.parametrize("saved", [["embed_tokens"], ["lm_head"], ["embed_tokens", "lm_head"]])
def test_tied_embeddings_are_replaced_alike_or_not_at_all(saved, peft, tmp_path):
    t = peers.transformers()
    torch.manual_seed(0)
    model = t.LlamaForCausalLM(t.LlamaConfig(vocab_size=40, num_key_value_heads=1, tie_word_embeddings=True, **SIZES))
    model.save_pretrained(tmp_path / "base")
    adapted(peft, model, tmp_path / "a", target_modules=["q_proj"], modules_to_save=saved)
    with pytest.raises(CheckpointError, match=r"a has its own .* shares one tensor among its input and output"):
        check_fit(tmp_path / "base", {"a": tmp_path / "a"}).raise_if_unfit()
    if len(saved) == 1:
        return
    file = tmp_path / "a" / "adapter_model.safetensors"
    tensors = load_file(file)
    tables = [name for name in tensors if "embed_tokens" in name or "lm_head" in name]
    same = torch.randn(40, 16)
    save_file(tensors | {name: same.clone() for name in tables}, file)
    merged = merging.merge(tmp_path / "base", {"a": tmp_path / "a"}, params={"scaling": 1.0}, device="cpu")
    torch.testing.assert_close(merged.state_dict["model.embed_tokens.weight"], same)


def test_a_product_is_computed_in_float32(peft, tmp_path):
    torch.manual_seed(0)
    model = llama(peers.transformers()).bfloat16()
    model.save_pretrained(tmp_path / "base")
    options = {"target_modules": ["k_proj"], "feedforward_modules": []}
    adapted(peft, model, tmp_path / "a", **options)
    base = open_checkpoint(tmp_path / "base")
    expert, name = open_checkpoint(tmp_path / "a", like=base), "model.layers.0.self_attn.k_proj.weight"
    (vector,) = [v for n, v in load_file(tmp_path / "a" / "adapter_model.safetensors").items() if "layers.0.self" in n]
    assert torch.equal(expert.read(name), base.read(name).float() * vector.float())
    assert expert.notes[-1] == "An (IA)³ adapter of 2 tensors; the others are pretrained."
