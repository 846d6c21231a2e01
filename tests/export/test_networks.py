"""Networks other than CLIP as folders that Transformers loads, checked by the outputs of its classes."""

from __future__ import annotations

import json

import peers
import pytest
import torch
from safetensors.torch import load_file, save_file

from merging.base.errors import CheckpointError
from merging.cli.main import main
from merging.recipes.recipe import Recipe
from merging.sharing.export.model_export import export
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
TOKENS = torch.tensor([[5, 6, 7, 8], [9, 3, 2, 1]])
VOCABULARY = {"vocab_size": 40, "pad_token_id": 0}


def saved(model, folder):
    model.save_pretrained(folder)
    return str(folder)


def merged_run(folder, pretrained, experts, merge="weight_averaging"):
    recipe = Recipe.build(merge, pretrained=pretrained, experts=experts)
    return execute(recipe, Store(folder / "store", libraries=()), evaluate=False, context=Context(device="cpu"))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A run of a pretrained BERT and classifiers of two and three labels, with its folder."""
    t, at = peers.transformers(), tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    base = t.BertForPreTraining(t.BertConfig(**SIZES, **VOCABULARY, max_position_embeddings=20))
    pretrained = saved(base, at / "base")
    (at / "base" / "vocab.txt").write_text("".join(f"w{n}\n" for n in range(40)), "utf-8")
    (at / "base" / "modeling_own.py").write_text("raise SystemExit\n", "utf-8")
    (at / "secret.json").write_text("{}", "utf-8")
    (at / "base" / "tokenizer_config.json").symlink_to(at / "secret.json")
    experts = {}
    for labels, name in ((2, "two"), (3, "three")):
        model = t.BertForSequenceClassification.from_pretrained(pretrained, num_labels=labels)
        experts[name] = saved(peers.move(model, labels), at / name)
    return at, merged_run(at, pretrained, experts)


def test_a_folder_is_the_pretrained_model_with_merged_numbers_and_every_head(bert, tmp_path):
    at, run = bert
    written = export(run, tmp_path / "out")
    t = peers.transformers()
    model = t.BertForPreTraining.from_pretrained(tmp_path / "out").eval()
    by_hand = t.BertForPreTraining.from_pretrained(at / "base").eval()
    states = [load_file(at / name / "model.safetensors") for name in ("two", "three")]
    own = by_hand.state_dict()
    for name in own.keys() & states[0].keys():
        own[name].copy_((states[0][name] + states[1][name]) / 2)
    torch.testing.assert_close(model(TOKENS).prediction_logits, by_hand(TOKENS).prediction_logits)
    for name, state in zip(("two", "three"), states, strict=True):
        head = load_file(tmp_path / "out" / "heads" / name / "head.safetensors")
        assert head.keys() == {"classifier.weight", "classifier.bias"}
        assert all(torch.equal(value, state[tensor]) for tensor, value in head.items())
        config = json.loads((tmp_path / "out" / "heads" / name / "config.json").read_text("utf-8"))
        assert config["architectures"] == ["BertForSequenceClassification"]
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert "vocab.txt" in files and not files & {"modeling_own.py", "tokenizer_config.json"}
    assert any(note.startswith("tokenizer_config.json was not copied: ") for note in written.missing_parts)
    assert any(
        "not copied from the pretrained model's folder: " in note and "merges.txt" in note
        for note in written.missing_parts
    )
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "BERT or RoBERTa" in card and "## What was inferred" in card and "## Kept per task" in card


@pytest.mark.parametrize("task,labels", [("two", 2), ("three", 3)])
def test_a_task_gets_the_merged_model_under_its_own_configuration(bert, tmp_path, task, labels):
    at, run = bert
    assert main(["export", run.id, "--store", str(at / "store"), "--out", str(tmp_path / "out"), "--task", task]) == 0
    t = peers.transformers()
    model, about = t.BertForSequenceClassification.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"] and model.config.num_labels == labels
    by_hand = t.BertForSequenceClassification.from_pretrained(at / task).eval()
    states = [load_file(at / name / "model.safetensors") for name in ("two", "three")]
    own = by_hand.state_dict()
    for name in own:
        if not name.startswith("classifier"):
            own[name].copy_((states[0][name] + states[1][name]) / 2)
    torch.testing.assert_close(model.eval()(TOKENS).logits, by_hand(TOKENS).logits)


def test_what_is_no_task_and_what_open_clip_lacks_is_refused(bert, tmp_path):
    _, run = bert
    with pytest.raises(
        CheckpointError, match=r"stores no head of 'four'|stores no head of four; it stores the heads of two, three"
    ):
        export(run, tmp_path / "out", task="four")
    with pytest.raises(
        CheckpointError, match=r"^Only CLIP towers can be exported to open_clip; this is BERT or RoBERTa. Use --to hf.$"
    ):
        export(run, tmp_path / "out", to="open_clip")
    assert not (tmp_path / "out").exists()


def test_an_unknown_task_is_refused_before_anything_is_merged(bert, tmp_path, capsys):
    at, run = bert
    words = ["merge", "--pretrained", str(at / "base"), "--merge", "ties", "--store", str(tmp_path / "store")]
    words += [f"--expert={name}={at / name}" for name in ("two", "three")]
    assert main([*words, "--out", str(tmp_path / "out"), "--task", "four"]) == 1
    assert "This merge stores no head of 'four'; it stores the heads of two, three." in capsys.readouterr().err
    assert main([*words, "--out", str(tmp_path / "out.safetensors"), "--task", "two"]) == 2
    assert "A single file does not hold a task's head; name a folder with --out." in capsys.readouterr().err
    assert main([*words, "--out", str(tmp_path / "out"), "--task", "two", "--to", "peft", "--rank", "2"]) == 2
    assert "An adapter does not contain heads of tasks; use --to hf." in capsys.readouterr().err
    assert not Store(tmp_path / "store", libraries=()).list_runs() and not list(tmp_path.glob("out*"))
    assert main(["export", run.id, "--store", str(at / "store"), "--out", str(tmp_path / "out"), "--task", "four"]) == 1


def test_a_task_of_clip_is_refused_before_anything_is_merged(tiny_benchmark, tmp_path, capsys):
    words = ["merge", "--pretrained", tiny_benchmark.pretrained, "--store", str(tmp_path / "store")]
    words += [f"--expert={name}={path}" for name, path in tiny_benchmark.experts.items()]
    assert main([*words, "--out", str(tmp_path / "out"), "--task", "flags"]) == 1
    assert "so a task has no stored head; leave out --task." in capsys.readouterr().err
    assert not Store(tmp_path / "store", libraries=()).list_runs()


def test_the_head_of_an_expert_that_has_changed_is_refused(bert, tmp_path):
    at, run = bert
    weights = at / "three" / "model.safetensors"
    before = weights.read_bytes()
    for change in ({"classifier.weight": torch.ones(5, 16)}, {"bert.embeddings.LayerNorm.bias": torch.ones(16)}):
        save_file({**load_file(weights), **change}, weights, {"format": "pt"})
        with pytest.raises(CheckpointError, match=r"^The file of three has changed since it was merged"):
            export(run, tmp_path / "out", task="three")
        weights.write_bytes(before)


def networks(t):
    """By name: a pretrained model of a class, and what an expert is made of from its folder."""
    small = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
    t5 = t.T5Config(**VOCABULARY, **small)
    llama = t.LlamaConfig(**SIZES, **VOCABULARY, num_key_value_heads=1)
    return {"T5": (t.T5ForConditionalGeneration, t5), "Llama": (t.LlamaForCausalLM, llama)}


@pytest.mark.parametrize("kind", ["T5", "Llama"])
def test_language_models_give_the_logits_of_one_filled_by_hand(kind, tmp_path):
    made, config = networks(peers.transformers())[kind]
    torch.manual_seed(1)
    pretrained = saved(made(config).to(torch.bfloat16), tmp_path / "base")
    experts = {}
    for seed, name in enumerate("ab"):
        experts[name] = saved(peers.move(made.from_pretrained(pretrained).float(), seed), tmp_path / name)
    written = export(merged_run(tmp_path, pretrained, experts), tmp_path / "out", shard_bytes=8_000)
    assert sum(name.startswith("model-0") for name in written.files) > 1  # in shards, with an index
    model = made.from_pretrained(tmp_path / "out").eval()
    assert model.dtype == torch.bfloat16
    by_hand, others = made.from_pretrained(pretrained).eval(), [made.from_pretrained(path) for path in experts.values()]
    with torch.no_grad():
        pairs = zip(*(one.float().parameters() for one in others), strict=True)
        for value, pair in zip(by_hand.parameters(), pairs, strict=True):
            value.copy_(torch.stack(pair).mean(0))
    more = {"decoder_input_ids": TOKENS} if kind == "T5" else {}
    torch.testing.assert_close(model(TOKENS, **more).logits, by_hand(TOKENS, **more).logits)


def test_a_task_with_more_tokens_keeps_its_own_rows_of_them(tmp_path):
    t = peers.transformers()
    torch.manual_seed(3)
    config = t.LlamaConfig(**SIZES, **VOCABULARY, num_key_value_heads=1, initializer_range=0.5)
    pretrained, experts = saved(t.LlamaForCausalLM(config), tmp_path / "base"), {}
    for labels, name in ((2, "two"), (3, "three")):
        model = t.LlamaForSequenceClassification.from_pretrained(pretrained, num_labels=labels)
        model.resize_token_embeddings(40 + labels % 2)
        experts[name] = saved(peers.move(model, labels), tmp_path / name)
    run = merged_run(tmp_path, pretrained, experts)
    export(run, tmp_path / "out", task="three")
    model, about = t.LlamaForSequenceClassification.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"]
    two, three = (load_file(tmp_path / name / "model.safetensors") for name in experts)
    rows = model.state_dict()["model.embed_tokens.weight"]
    torch.testing.assert_close(
        rows[:40], (two["model.embed_tokens.weight"] + three["model.embed_tokens.weight"][:40]) / 2
    )
    assert torch.equal(rows[40], three["model.embed_tokens.weight"][40])


def test_one_model_per_task_goes_into_a_folder_for_each(bert, tmp_path):
    at, run = bert
    recipe = run.recipe
    own = merged_run(at, recipe.pretrained, dict(recipe.experts), "emr")
    export(own, tmp_path / "out")
    for task in ("two", "three"):
        assert peers.transformers().BertModel.from_pretrained(tmp_path / "out" / "tasks" / task) is not None
    export(own, tmp_path / "task", task="three")
    model = peers.transformers().BertForSequenceClassification.from_pretrained(tmp_path / "task")
    expert = load_file(at / "three" / "model.safetensors")
    assert torch.equal(model.classifier.weight, expert["classifier.weight"])


def test_statistics_of_a_resnet_are_the_experts_mean(tmp_path):
    t = peers.transformers()
    torch.manual_seed(2)
    config = t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=4)
    pretrained = saved(t.ResNetForImageClassification(config), tmp_path / "base")
    experts, images = {}, torch.randn(4, 3, 32, 32)
    for seed, name in enumerate("ab"):
        model = peers.move(t.ResNetForImageClassification.from_pretrained(pretrained), seed).train()
        model(images * (seed + 1))
        experts[name] = saved(model, tmp_path / name)
    export(merged_run(tmp_path, pretrained, experts), tmp_path / "out")
    model = t.ResNetForImageClassification.from_pretrained(tmp_path / "out").eval()
    others = [t.ResNetForImageClassification.from_pretrained(path).eval() for path in experts.values()]
    by_hand = t.ResNetForImageClassification.from_pretrained(pretrained).eval()
    for name, value in by_hand.state_dict().items():
        if value.is_floating_point():
            value.copy_(torch.stack([other.state_dict()[name] for other in others]).mean(0))
    torch.testing.assert_close(model(images).logits, by_hand(images).logits)
