"""Folders of language models whose tokenizer numbers the rows of their tables."""

from __future__ import annotations

import json
import warnings

import peers
import pytest
import torch
from safetensors.torch import load_file, save_file

from merging.cli.main import main
from merging.recipes.recipe import Recipe
from merging.sharing.export.model_export import export
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
WORDS = ["[PAD]", "[UNK]", *(f"w{number}" for number in range(2, 40))]
TABLE, NEW = "model.embed_tokens.weight", "[X0]"


def with_tokenizer(folder, words):
    """Write a tokenizer that knows these words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    t = peers.transformers()
    numbered = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(numbered, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    t.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]").save_pretrained(folder)


@pytest.fixture
def base(tmp_path):
    """The folder of a Llama with a tokenizer."""
    t = peers.transformers()
    torch.manual_seed(3)
    config = t.LlamaConfig(**SIZES, vocab_size=40, pad_token_id=0, num_key_value_heads=1, initializer_range=0.5)
    t.LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    with_tokenizer(tmp_path / "base", WORDS)
    return tmp_path / "base"


@pytest.fixture
def classifiers(base, tmp_path):
    """Folders of classifiers of two and three labels; the second has one token more, and neither has a tokenizer."""
    t, paths = peers.transformers(), {}
    for labels, name in ((2, "two"), (3, "three")):
        model = t.LlamaForSequenceClassification.from_pretrained(base, num_labels=labels)
        model.resize_token_embeddings(40 + labels % 2)
        if name == "three":
            model.config.pad_token_id = 40
        paths[name] = tmp_path / name
        peers.move(model, labels).save_pretrained(paths[name])
    return paths


def merged(base, experts, vocabulary="common"):
    named = {name: str(path) for name, path in experts.items()}
    recipe = Recipe.build("weight_averaging", pretrained=str(base), experts=named, vocabulary=vocabulary)
    return execute(recipe, Store(base.parent / "store", libraries=()), evaluate=False, context=Context(device="cpu"))


def loaded(folder):
    """What Transformers loads: the model's rows of tokens, its configuration and the numbers of three words."""
    t = peers.transformers()
    model, about = t.LlamaForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"]
    tokenizer = t.AutoTokenizer.from_pretrained(folder)
    return model.state_dict()[TABLE], model.config, tokenizer(f"w3 {NEW} w4").input_ids


def test_a_task_with_more_tokens_gets_its_own_tokenizer(base, classifiers, tmp_path):
    with_tokenizer(classifiers["three"], [*WORDS, NEW])
    export(merged(base, classifiers), tmp_path / "out", task="three")
    rows, config, numbers = loaded(tmp_path / "out")
    assert numbers == [3, 40, 4] and len(rows) == config.vocab_size == 41 and config.pad_token_id == 40
    assert torch.equal(rows[40], load_file(classifiers["three"] / "model.safetensors")[TABLE][40])


def test_a_task_with_the_same_tokens_keeps_the_whole_tokenizer_of_the_base(base, classifiers, tmp_path):
    (base / "chat_template.jinja").write_text("{{ messages }}", "utf-8")
    numbered = {word: number for number, word in enumerate(WORDS)}
    (classifiers["two"] / "vocab.json").write_text(json.dumps(numbered), "utf-8")  # without a configuration
    notes = export(merged(base, classifiers), tmp_path / "out", task="two").missing_parts
    there = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} <= there and "vocab.json" not in there
    (said,) = (note for note in notes if note.startswith("Missing, and so"))
    beside = {path.name for path in (*base.iterdir(), *classifiers["two"].iterdir())}
    absent = set(said.removesuffix(".").rpartition(": ")[2].split(", "))
    assert "merges.txt" in absent and not absent & beside


@pytest.mark.parametrize("vocabulary", ["common", "pretrained"])
def test_tokens_that_the_copied_tokenizer_does_not_know_are_left_out(base, classifiers, tmp_path, vocabulary):
    if vocabulary == "pretrained":  # the rows are in the pretrained model's order, whatever the expert's is
        with_tokenizer(classifiers["three"], [*WORDS[::-1], NEW])
    export(run := merged(base, classifiers, vocabulary), tmp_path / "out", task="three")
    rows, config, numbers = loaded(tmp_path / "out")
    assert numbers == [3, 1, 4] and len(rows) == config.vocab_size == 40 and config.pad_token_id == 0
    assert torch.equal(rows, load_file(run.model_paths["merged"])[TABLE])


def test_a_tokenizer_beyond_the_experts_rows_is_not_taken(base, classifiers, tmp_path):
    with_tokenizer(classifiers["two"], [*WORDS, NEW])
    export(merged(base, classifiers), tmp_path / "out", task="two")
    rows, config, numbers = loaded(tmp_path / "out")
    assert numbers == [3, 1, 4] and len(rows) == config.vocab_size == 40


def with_adapter(base, folder, **whole):
    """Write a LoRA adapter of that model by PEFT, with tensors that it saves as a whole; gives what PEFT merges."""
    model = peers.transformers().LlamaForCausalLM.from_pretrained(base)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PEFT's own calls
        import peft

        adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, value in adapted.named_parameters():
            if "lora_" in name:
                value.copy_(0.1 * torch.randn(value.shape, generator=draw))
    adapted.save_pretrained(folder)
    if whole:
        state = load_file(folder / "adapter_model.safetensors")
        save_file(state | whole, folder / "adapter_model.safetensors", {"format": "pt"})
    return adapted.merge_and_unload().eval()


def test_the_folder_of_a_converted_adapter_loads(base, tmp_path, capsys):
    by_peft = with_adapter(base, tmp_path / "lora")
    assert main(["convert", str(tmp_path / "lora"), "--base", str(base), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "not copied from the pretrained model's folder: " in said and "as its base" not in said
    base.rename(other := tmp_path / "other")
    assert main(["convert", str(tmp_path / "lora"), "--base", str(other), "--out", str(tmp_path / "again")]) == 0
    assert "names 'base' as its base, but is applied to 'other'." in capsys.readouterr().out
    other.rename(base)
    t = peers.transformers()
    model, about = t.AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"]
    numbers = t.AutoTokenizer.from_pretrained(tmp_path / "out")("w3 w9 w4", return_tensors="pt").input_ids
    assert numbers.tolist() == [[3, 9, 4]]
    torch.testing.assert_close(model.eval()(numbers).logits, by_peft(numbers).logits)
    expected = {path.name for path in base.iterdir()} | {"README.md", "export.json"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == expected


def test_an_adapter_with_more_tokens_brings_its_tokenizer(base, tmp_path):
    rows = torch.randn(41, 16, generator=torch.Generator().manual_seed(7))
    names = ("base_model.model.model.embed_tokens.weight", "base_model.model.lm_head.weight")
    with_adapter(base, tmp_path / "lora", **dict.fromkeys(names, rows.clone()) | {names[1]: rows + 1})
    with_tokenizer(tmp_path / "lora", [*WORDS, NEW])
    export(tmp_path / "lora", tmp_path / "out", base=base)
    assert json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))["vocab_size"] == 41
    t = peers.transformers()
    model, about = t.LlamaForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"]
    assert torch.equal(model.state_dict()[TABLE], rows)
    assert t.AutoTokenizer.from_pretrained(tmp_path / "out")(f"w3 {NEW}").input_ids == [3, 40]
