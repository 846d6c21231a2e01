"""The two programs in docs/evaluators, on tiny models of Transformers: their numbers are those of its classes."""

from __future__ import annotations

import json
import math
import runpy
import sys
from pathlib import Path

import peers
import pytest
import torch

from merging.recipes.recipe import Recipe
from merging.sharing.evaluator_program import parse_score_lines
from merging.sharing.export.model_export import export
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

DOCS = Path(__file__).resolve().parents[2] / "docs" / "evaluators"
WORDS = [f"w{n}" for n in range(30)]


def scores_by(program: str, data: Path, source, folder: Path, monkeypatch, capsys):
    """What one of the programs measures of an exported model, by task; in this process, for speed."""
    export(source, folder)
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", [program, str(data), str(folder)])
    runpy.run_path(str(DOCS / program), run_name="__main__")
    return {score.task: score for score in parse_score_lines(capsys.readouterr().out.encode(), program).scores}


def run_of(pretrained: Path, experts: list[Path], store: Store):
    named = {path.name: str(path) for path in experts}
    recipe = Recipe.build("weight_averaging", pretrained=str(pretrained), experts=named)
    return execute(recipe, store, evaluate=False, context=Context(device="cpu"))


def moved(model, seed: int):
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.2 * torch.randn(value.shape, generator=draw))
    return model


@pytest.mark.full
def test_classifiers_are_measured_with_their_own_heads(tmp_path: Path, monkeypatch, capsys) -> None:
    t = peers.transformers()
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = t.BertConfig(**sizes, vocab_size=35, max_position_embeddings=20)
    t.BertModel(config).save_pretrained(tmp_path / "base")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab.txt").write_text("\n".join([*special, *WORDS]), "utf-8")
    tokenizer = t.BertTokenizer(str(tmp_path / "vocab.txt"))
    tokenizer.save_pretrained(tmp_path / "base")
    for labels, name in ((2, "two"), (3, "three")):
        model = t.BertForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=labels)
        moved(model, labels).save_pretrained(tmp_path / name)
    store = Store(tmp_path / "store", libraries=())
    run = run_of(tmp_path / "base", [tmp_path / "two", tmp_path / "three"], store)
    texts = [" ".join(WORDS[(start + step * start) % 30] for step in range(4)) for start in range(12)]
    for name in ("two", "three"):
        lines = [json.dumps({"text": text, "label": place % 2}) for place, text in enumerate(texts)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), "utf-8")
    found = scores_by("classifiers.py", tmp_path, run, tmp_path / "out", monkeypatch, capsys)
    for name in ("two", "three"):
        export(run, tmp_path / f"as_{name}", task=name)
        model = t.BertForSequenceClassification.from_pretrained(tmp_path / f"as_{name}").eval()
        with torch.inference_mode():
            own = [int(model(**tokenizer(text, return_tensors="pt")).logits.argmax()) for text in texts]
        tokenizer.save_pretrained(tmp_path / name)
        alone = scores_by("classifiers.py", tmp_path, tmp_path / name, tmp_path / "own" / name, monkeypatch, capsys)
        assert alone.keys() == {name} and alone[name].n == 12  # an expert by itself, whose head is among its weights
        assert found[name].n == 12
        assert found[name].value == pytest.approx(sum(got == place % 2 for place, got in enumerate(own)) / 12)


def test_perplexity_is_that_of_the_model(tmp_path: Path, monkeypatch, capsys) -> None:
    t = peers.transformers()
    from tokenizers import Tokenizer, models, pre_tokenizers

    torch.manual_seed(0)
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    base = t.GPT2LMHeadModel(t.GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=8, vocab_size=30))
    base.save_pretrained(tmp_path / "base")
    t.PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(tmp_path / "base")
    for seed, name in enumerate(("one", "two")):
        moved(t.GPT2LMHeadModel.from_pretrained(tmp_path / "base"), seed).save_pretrained(tmp_path / name)
    store = Store(tmp_path / "store", libraries=())
    run = run_of(tmp_path / "base", [tmp_path / "one", tmp_path / "two"], store)
    ids = [place * 7 % 30 for place in range(20)]
    (tmp_path / "book.txt").write_text(" ".join(WORDS[place] for place in ids), "utf-8")
    score = scores_by("perplexity.py", tmp_path / "book.txt", run, tmp_path / "out", monkeypatch, capsys)["book"]
    model = t.GPT2LMHeadModel.from_pretrained(tmp_path / "out").eval()
    losses = []
    with torch.inference_mode():
        for part in torch.tensor(ids).split(8):
            logits = model(input_ids=part[None]).logits[0]
            losses += torch.nn.functional.cross_entropy(logits[:-1], part[1:], reduction="none").tolist()
    assert score.value == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-4)
    assert score.better == "lower"
