"""What is done where experts differ from their pretrained model: each row of the table of policies, with its text."""

from __future__ import annotations

import json

import other_kinds
import pytest
import torch
from safetensors.torch import save_file

import merging
from merging.base.errors import CheckpointError, CompatibilityError
from merging.base.files.tables import SCORES
from merging.models.checkpoint import MappingCheckpoint
from merging.models.inspection.fit_check import check_fit
from merging.models.network_facts import facts_of
from merging.models.team.task_heads_file import HEADS_FILE, read_heads
from merging.models.team.tokenizers import read_tokens
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import attach_checkpoints
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

DRAW = torch.Generator().manual_seed(7)


def drawn(*shape):
    return torch.randn(shape, generator=DRAW)


def bert():
    """A bare BERT under the names that its classifiers have."""
    return {name: value for name, value in other_kinds.pretrained("BERT").items() if name.startswith("bert.")}


def classifier(base, seed, labels):
    head = {"classifier.weight": drawn(labels, 16), "classifier.bias": drawn(labels)}
    return other_kinds.expert(base, seed) | head


def without(prefix, state):
    return {name.removeprefix(prefix): value for name, value in state.items()}


def mean_of(experts, name):
    return (experts["a"][name] + experts["b"][name]) / 2


def test_classifiers_of_a_bare_model_merge_and_keep_their_heads():
    base = bert()
    experts = {"a": classifier(base, 1, 2), "b": classifier(base, 2, 3)}
    bare = without("bert.", base)
    report = check_fit(bare, experts)
    assert report.ok
    assert {
        "a: the names begin with 'bert.', which was removed.",
        "b: the names begin with 'bert.', which was removed.",
        "classifier.weight, classifier.bias: each task keeps its own.",
    } <= set(report.notes)
    assert not any("Transformers 5" in note for note in report.notes)
    result = merging.merge(bare, experts, "weight_averaging", device="cpu")
    assert list(result.state_dict) == list(bare)
    for name, value in result.state_dict.items():
        torch.testing.assert_close(value, mean_of(experts, f"bert.{name}"))
    for name, expert in experts.items():
        assert set(result.heads[name]) == {"classifier.weight", "classifier.bias"}
        assert all(torch.equal(value, expert[tensor]) for tensor, value in result.heads[name].items())


def test_heads_of_the_pretraining_are_the_pretrained_models():
    base = bert() | {"cls.predictions.bias": drawn(20), "cls.predictions.transform.dense.weight": drawn(16, 16)}
    experts = {"a": classifier(bert(), 1, 2), "b": classifier(bert(), 2, 2)}
    names = "cls.predictions.bias, cls.predictions.transform.dense.weight"
    assert f"2 tensors that no expert has are the pretrained model's: {names}." in check_fit(base, experts).notes
    result = merging.merge(base, experts, "weight_averaging", device="cpu")
    assert torch.equal(result.state_dict["cls.predictions.bias"], base["cls.predictions.bias"])
    assert "cls.predictions.bias" not in set(result.tables["tensors"]["tensor"])
    del experts["a"]["bert.embeddings.LayerNorm.bias"]  # the other has it
    with pytest.raises(CompatibilityError, match=r"a: missing: embeddings|a: missing: bert\.embeddings"):
        merging.merge(base, experts, "weight_averaging", device="cpu")


def test_a_head_that_every_model_has_in_one_shape_is_merged():
    base = other_kinds.pretrained("BERT")
    experts = {name: other_kinds.expert(base, seed) for seed, name in enumerate("ab")}
    assert (
        "classifier.weight, classifier.bias: merged; every model has it in one shape." in check_fit(base, experts).notes
    )
    result = merging.merge(base, experts, "weight_averaging", device="cpu")
    torch.testing.assert_close(result.state_dict["classifier.weight"], mean_of(experts, "classifier.weight"))
    assert result.heads == {}
    experts["b"]["classifier.weight"] = drawn(5, 16)  # now the whole head is per task
    kept = merging.merge(base, experts, "weight_averaging", device="cpu")
    assert set(kept.heads["a"]) == set(kept.heads["b"]) == {"classifier.weight", "classifier.bias"}
    assert torch.equal(kept.state_dict["classifier.bias"], base["classifier.bias"])


def test_a_head_of_one_layer_stands_beside_one_of_two():
    """Its only layer would look like a block of the network; the other expert's head says that it is none."""
    layers = [{f"classifier.layer.{at}.weight": drawn(2, 16), f"classifier.layer.{at}.bias": drawn(2)} for at in (0, 1)]
    base = bert()
    experts = {"a": other_kinds.expert(base, 1) | layers[0] | layers[1], "b": other_kinds.expert(base, 2) | layers[0]}
    assert check_fit(base, experts).ok
    heads = merging.merge(base, experts, "weight_averaging", device="cpu").heads
    assert set(heads["a"]) == {*layers[0], *layers[1]} and set(heads["b"]) == set(layers[0])


def test_names_of_the_current_library_are_the_same_tensors():
    base = other_kinds.pretrained("DINOv2")
    facts = facts_of(base)
    experts = {name: other_kinds.expert(base, seed) for seed, name in enumerate("ab")}
    later = {facts.later_name(name): value for name, value in experts["b"].items()}
    assert later.keys() != base.keys()
    assert (
        "b: names of Transformers 5 were changed to those of the pretrained model's file."
        in check_fit(base, {"a": experts["a"], "b": later}).notes
    )
    result = merging.merge(base, {"a": experts["a"], "b": later}, "weight_averaging", device="cpu").state_dict
    assert list(result) == list(base)
    assert all(torch.allclose(value, mean_of(experts, name)) for name, value in result.items())


@pytest.mark.parametrize("start", ["module.", "_orig_mod.", "base_model.model."])
def test_what_trainers_put_before_names_is_taken_off(start):
    base = bert()
    expert = {start + name: value for name, value in classifier(base, 1, 2).items()}
    report = check_fit(base, {"a": expert})
    assert report.ok and f"a: the names begin with {start!r}, which was removed." in report.notes


def test_old_names_of_norms_are_the_same_tensors():
    base = bert()
    old = {
        (n[: -len(last)] + new if n.endswith("LayerNorm." + last) else n): value
        for n, value in base.items()
        for last, new in [("weight", "gamma") if n.endswith("LayerNorm.weight") else ("bias", "beta")]
    }
    assert any(name.endswith("gamma") for name in old)
    experts = {name: other_kinds.expert(base, seed) for seed, name in enumerate("ab")}
    result = merging.merge(old, experts, "weight_averaging", device="cpu")
    name = "bert.embeddings.LayerNorm."
    torch.testing.assert_close(result.state_dict[name + "gamma"], mean_of(experts, name + "weight"))


def tokens_of(state, rows):
    return {
        n: rows(value) if n in {"model.embed_tokens.weight", "lm_head.weight"} else value for n, value in state.items()
    }


def test_tokens_that_one_expert_has_more_are_left_out(tmp_path):
    base = other_kinds.pretrained("Llama")
    experts = {"a": other_kinds.expert(base, 1), "b": other_kinds.expert(base, 2)}
    experts["b"] = tokens_of(experts["b"], lambda rows: torch.cat([rows, drawn(2, 16)]))
    assert "b has 2 more tokens, which are left out." in check_fit(base, experts).notes
    result = merging.merge(base, experts, "weight_averaging", device="cpu")
    want = (experts["a"]["lm_head.weight"] + experts["b"]["lm_head.weight"][:20]) / 2
    torch.testing.assert_close(result.state_dict["lm_head.weight"], want)
    paths = {}
    for name, state in {"pretrained": base, **experts}.items():
        words = [f"w{number}" for number in range(20)] + ["<pad>", "<sep>"] * (name == "b")
        paths[name] = tmp_path / name
        paths[name].mkdir()
        (paths[name] / "vocab.json").write_text(json.dumps({word: at for at, word in enumerate(words)}), "utf-8")
        save_file({n: value.contiguous() for n, value in state.items()}, paths[name] / "model.safetensors")
    first = paths.pop("pretrained")
    assert "b has 2 more tokens ('<pad>', '<sep>'), which are left out." in check_fit(first, paths).notes
    swapped = {f"w{number}": number for number in range(20)} | {"w1": 2, "w2": 1, "<pad>": 20}
    (paths["b"] / "vocab.json").write_text(json.dumps(swapped), "utf-8")
    with pytest.raises(CompatibilityError) as refused:
        merging.merge(first, paths, "weight_averaging", device="cpu")
    assert str(refused.value) == (
        "b numbers its tokens differently from the pretrained model (2 of 20 shared tokens have another id). Merge "
        "models of one tokenizer, or leave the vocabularies alone (vocabulary: pretrained)."
    )
    kept = merging.merge(first, paths, "weight_averaging", vocabulary="pretrained", device="cpu")
    assert torch.equal(kept.state_dict["lm_head.weight"], base["lm_head.weight"])
    layer = "model.layers.0.self_attn.q_proj.weight"
    torch.testing.assert_close(kept.state_dict[layer], mean_of(experts, layer))


def test_without_tokenizers_rows_that_point_elsewhere_are_refused():
    base = other_kinds.pretrained("Llama")
    other = tokens_of(other_kinds.expert(base, 1), lambda rows: torch.cat([rows.flip(0), drawn(1, 16)]))
    assert [p.problem for p in check_fit(base, {"a": other}).errors] == ["other tokens"]


def test_fewer_tokens_keep_the_pretrained_models():
    base = other_kinds.pretrained("Llama")
    expert = tokens_of(other_kinds.expert(base, 1), lambda rows: rows[:18])
    merged = merging.merge(base, {"a": expert}, "weight_averaging", device="cpu").state_dict["lm_head.weight"]
    assert torch.equal(merged[18:], base["lm_head.weight"][18:])
    torch.testing.assert_close(merged[:18], expert["lm_head.weight"])


def test_tables_that_are_stored_twice_are_taken_once():
    base = other_kinds.pretrained("T5")
    tied = other_kinds.expert(base, 1)
    tied |= {"lm_head.weight": tied["shared.weight"], "encoder.embed_tokens.weight": tied["shared.weight"]}
    plain = other_kinds.expert(base, 2)
    result = merging.merge(base, {"a": tied, "b": plain}, "weight_averaging", device="cpu")
    torch.testing.assert_close(result.state_dict["shared.weight"], mean_of({"a": tied, "b": plain}, "shared.weight"))
    twice = base | {"lm_head.weight": base["shared.weight"]}  # the experts store it once
    merged = merging.merge(twice, {"a": tied, "b": plain}, "weight_averaging", device="cpu").state_dict
    assert torch.equal(merged["lm_head.weight"], merged["shared.weight"])
    tied["lm_head.weight"] = drawn(20, 16)
    with pytest.raises(CompatibilityError) as refused:
        merging.merge(base, {"c": tied, "b": plain}, "weight_averaging", device="cpu")
    assert str(refused.value) == (
        "c has its own output embedding; the others share the input embedding. Merge models that are alike, or leave "
        "vocabularies alone (vocabulary: pretrained)."
    )


def test_quantized_experts_are_refused():
    base = other_kinds.pretrained("Llama")
    packed = other_kinds.expert(base, 1)
    name = "model.layers.0.self_attn.q_proj."
    packed |= {
        name + "qweight": torch.ones(2, 16, dtype=torch.int32),
        name + "g_idx": torch.ones(16, dtype=torch.int32),
    }
    del packed[name + "weight"]
    text = "e is quantized (GPTQ); task vectors need full numbers. Give the model it was made from."
    experts = {"a": other_kinds.expert(base, 2), "e": packed}
    assert check_fit(base, experts).text() == text
    with pytest.raises(CompatibilityError, match=r"^e is quantized \(GPTQ\)"):
        merging.merge(base, experts, "weight_averaging", device="cpu")


def test_gguf_files_are_refused(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(CheckpointError, match=r"model\.gguf is quantized \(GGUF\); task vectors need full numbers"):
        check_fit(tmp_path / "model.gguf", {"a": tmp_path / "model.gguf"})


def test_pickled_shards_open_as_one_model(tmp_path):
    base = other_kinds.pretrained("Llama")
    names = list(base)
    files = {name: f"pytorch_model-0000{1 + (at > 8)}-of-00002.bin" for at, name in enumerate(names)}
    for file in set(files.values()):
        torch.save({name: base[name] for name in names if files[name] == file}, tmp_path / file)
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": files}), "utf-8")
    result = merging.merge(base, {"a": tmp_path}, "weight_averaging", device="cpu")
    assert all(torch.equal(value, base[name]) for name, value in result.state_dict.items())


def test_heads_are_stored_with_the_run_and_the_vocabulary_enters_its_id(tmp_path):
    base = bert()
    states = {"pretrained": base, "a": classifier(base, 1, 2), "b/c": classifier(base, 2, 3)}
    paths = {name: tmp_path / f"{at}.safetensors" for at, name in enumerate(states)}
    for name, state in states.items():
        save_file({n: value.contiguous() for n, value in state.items()}, paths[name])
    experts = {name: str(path) for name, path in paths.items() if name != "pretrained"}
    recipe = Recipe.build("weight_averaging", pretrained=str(paths["pretrained"]), experts=experts)
    run = execute(recipe, Store(tmp_path / "store", libraries=()), evaluate=False, context=Context(device="cpu"))
    assert not run.has_scores and SCORES not in run.files
    heads = read_heads(run.file(HEADS_FILE))
    assert torch.equal(heads["b/c"]["classifier.weight"], states["b/c"]["classifier.weight"])
    assert list(heads) == ["a", "b/c"]
    kept = Recipe.from_yaml(Recipe.build("ties", vocabulary="pretrained").to_yaml())
    assert kept.vocabulary == "pretrained" and "vocabulary" not in recipe.to_yaml()
    one = MappingCheckpoint(base, "pretrained")
    other = {"a": MappingCheckpoint(states["a"], "a")}
    ids = [
        attach_checkpoints(Recipe.build("ties", experts={"a": "memory"}, vocabulary=rows), one, other).run_id()
        for rows in ("common", "pretrained")
    ]
    assert ids[0] != ids[1]


def test_statistics_are_measured_anew():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)).eval()
    batches = [drawn(64, 4) + 2 for _ in range(3)]
    merging.recalibrate(model, batches)
    rows = torch.stack([model[0](batch).mean(0) for batch in batches])
    torch.testing.assert_close(model[1].running_mean, rows.mean(0).detach())
    assert not model.training and not model[1].training and model[1].momentum == 0.1


@pytest.mark.parametrize(
    "stated",
    ['{"model": {"vocab": [[]]}}', '{"model": {"vocab": []}, "added_tokens": [{"content": "a", "id": 1e999}]}'],
)
def test_a_damaged_tokenizer_is_as_none(tmp_path, stated):
    (tmp_path / "tokenizer.json").write_text(stated, "utf-8")
    assert read_tokens(tmp_path) is None


@pytest.mark.parametrize("heads", ["x", "[1]", '{"a": ["b"]}', '{"a": 1}'])
def test_a_damaged_file_of_heads_is_refused(tmp_path, heads):
    save_file({"a/c": torch.ones(2)}, tmp_path / HEADS_FILE, {"heads": heads})
    with pytest.raises(CheckpointError, match="of the run is damaged"):
        read_heads(tmp_path / HEADS_FILE)
