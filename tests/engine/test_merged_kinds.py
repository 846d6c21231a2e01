"""Merges of networks other than CLIP: every tensor, by methods that treat each number by itself."""

from __future__ import annotations

import other_kinds
import pytest
import torch

import merging
from merging.base.errors import CheckpointError, CompatibilityError, FamilyError, MergingError, NeedsError
from merging.engine.run_inputs import RunInputs
from merging.models.checkpoint import MappingCheckpoint
from merging.recipes.recipe import Recipe
from merging.sharing.export.model_export import export
from merging.study.runs.opened_recipe import attach_checkpoints

INFERRED = list(other_kinds.KINDS)


def team(kind):
    """The pretrained model and two experts in memory."""
    base = other_kinds.pretrained(kind)
    return base, {name: other_kinds.expert(base, seed) for seed, name in enumerate("ab", start=1)}


@pytest.mark.parametrize("kind", INFERRED)
def test_every_tensor_is_merged_under_its_own_name(kind):
    base, experts = team(kind)
    mean = merging.merge(base, experts, "weight_averaging", device="cpu").state_dict
    assert {n: v.shape for n, v in mean.items()} == {n: v.shape for n, v in base.items()}
    for name, value in mean.items():
        if not value.is_floating_point():
            assert torch.equal(value, base[name])
            continue
        torch.testing.assert_close(value, (experts["a"][name] + experts["b"][name]) / 2)


def test_running_statistics_are_the_mean_whatever_the_methods_do():
    base, experts = team("ResNet")
    experts["a"]["bn1.num_batches_tracked"] = torch.tensor(99)
    merged = merging.merge(base, experts, "ties", edits=["lwptv"], device="cpu")
    name = "layer1.0.bn1.running_var"
    torch.testing.assert_close(merged.state_dict[name], (experts["a"][name] + experts["b"][name]) / 2)
    assert merged.state_dict["bn1.num_batches_tracked"] == 7
    assert not {"running_mean", "running_var"} & {n.rpartition(".")[2] for n in merged.tables["tensors"]["tensor"]}
    alone = merging.merge(base, experts, "emr", device="cpu")
    assert torch.equal(alone.task_state_dicts["b"][name], experts["b"][name])
    experts["b"][name] = torch.full_like(base[name], float("nan"))
    with pytest.raises(MergingError, match=rf"running statistic '{name}' is not finite"):
        merging.merge(base, experts, "weight_averaging", device="cpu")


@pytest.mark.parametrize("kind", ["T5", "LLaVA"])
def test_methods_with_a_survey_see_every_number(kind):
    base, experts = team(kind)
    result = merging.merge(base, experts, "ties", edits=["lwptv"], device="cpu")
    assert set(result.tables["saliency"]["tensor"]) == set(base)
    assert any(not torch.equal(value, base[name]) for name, value in result.state_dict.items())


def test_every_tower_has_its_own_line_of_factors():
    base, experts = team("T5")
    result = merging.merge(base, experts, "task_arithmetic", edits=[("lines", {"base": 0.5, "slope": 1.0})])
    table = result.tables["block_factors"]
    assert table.to_numpy().tolist() == [
        ["decoder", 0, 0.5], ["decoder", 1, 1.5], ["encoder", 0, 0.5], ["encoder", 1, 1.5],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "merge,edits,error,says",
    [
        ("lot", (), NeedsError, r"CLIP towers; this is BERT or RoBERTa\. Give layer_inputs, from merging\.capture\."),
        ("ties", ("cat",), NeedsError, "Give layer_inputs"),
        ("fisher", (), NeedsError, "this is BERT or RoBERTa. Give gradients, from merging.gradient_means"),
        ("regmean_pp", (), FamilyError, "this is BERT or RoBERTa"),
    ],
)
def test_methods_that_run_images_through_clip_towers_say_so(merge, edits, error, says):
    base, experts = team("BERT")
    with pytest.raises(error, match=says):
        merging.merge(base, experts, merge, edits=edits, device="cpu")


def test_a_method_that_reaches_few_matrices_says_so():
    base, experts = team("LLaVA")  # most numbers are in its table of tokens
    warnings = merging.merge(base, experts, "drm", device="cpu").warnings
    assert "DRM treats 28 of 64 tensors (37% of the numbers) as matrices here; the others take the mean." in warnings
    assert not merging.merge(*team("DINOv2"), "drm", device="cpu").warnings


@pytest.mark.parametrize("edits", [(), ("lwptv",)])
def test_large_tables_come_in_pieces_among_whole_matrices(edits, monkeypatch):
    base, experts = team("Llama")
    whole = merging.merge(base, experts, "drm", edits=edits, device="cpu").state_dict
    seen = []
    kept = RunInputs.split_block
    monkeypatch.setattr(RunInputs, "split_block", lambda self, block: seen.append(block.name) or kept(self, block))
    monkeypatch.setattr("merging.engine.run_inputs.BLOCK_CPU", 50)
    monkeypatch.setattr("merging.engine.run_inputs.PIECE_CPU", 30)
    pieces = merging.merge(base, experts, "drm", edits=edits, device="cpu").state_dict
    assert set(seen) == {"model.embed_tokens.weight", "lm_head.weight"} or edits  # whose survey is all in pieces
    for name, value in whole.items():
        assert torch.equal(pieces[name], value), name


def test_no_part_of_another_network_is_written_as_a_tower(tmp_path):
    """BLIP has CLIP's names of the class embedding, the norms and the MLPs; open_clip has no such network."""
    base, experts = team("BLIP vision")
    merged = merging.merge(base, experts, "weight_averaging", device="cpu").state_dict
    with pytest.raises(CheckpointError, match=r"Only CLIP towers can be exported to open_clip; this is BLIP."):
        export(merged, tmp_path / "out", to="open_clip")
    assert not list(tmp_path.iterdir())


def test_a_team_of_unlike_models_is_refused_by_name():
    base, experts = team("BERT")
    experts["b"] |= {"bert.encoder.layer.1.output.dense.bias": torch.ones(2)}
    with pytest.raises(CompatibilityError, match=r"output\.dense\.bias"):
        merging.merge(base, experts, "weight_averaging", device="cpu")


@pytest.mark.parametrize(
    "kind,change,says",
    [
        ("BERT", {"extra.weight": torch.ones(2, 16)}, r"only here: extra\.weight"),
        ("BERT", {"bert.embeddings.position_ids": torch.arange(1, 13)}, r"other integers: bert\.embeddings"),
        ("Llama", {"lm_head.weight": torch.ones(20, 16, dtype=torch.int8)}, r"type: lm_head\.weight"),
    ],
)
def test_tensors_of_one_expert_alone_and_other_integers_are_refused(kind, change, says):
    base, experts = team(kind)
    if "bert.embeddings.position_ids" in change:
        for state in (base, experts["a"]):
            state["bert.embeddings.position_ids"] = torch.arange(12)
    experts["b"] |= change
    with pytest.raises(CompatibilityError, match=says):
        merging.merge(base, experts, "weight_averaging", device="cpu")


def test_the_rules_enter_the_id_of_a_run(monkeypatch):
    base, experts = team("Llama")
    one = MappingCheckpoint(base, "pretrained")
    others = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    recipe = Recipe.build("ties", experts=dict.fromkeys(experts, "memory"))
    before = attach_checkpoints(recipe, one, others).run_id()
    monkeypatch.setattr("merging.study.runs.opened_recipe.INFERENCE_VERSION", 99)
    assert attach_checkpoints(recipe, one, others).run_id() != before
