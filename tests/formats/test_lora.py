"""LoRA adapters give what PEFT merges, and adapters of other kinds are refused."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from namings import to_naming
from real_models import open_state, visual

import merging
from merging.base.errors import CheckpointError
from merging.models.checkpoint import MappingCheckpoint
from merging.models.formats.model_sources import open_checkpoint
from merging.models.inspection.fit_check import check_fit


@pytest.fixture(scope="module")
def peft(transformers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import peft

        return peft


def adapted(peft, model, folder, **options):
    """An adapter's folder and the state dict of the model with it merged in, both by PEFT."""
    import copy

    config = peft.LoraConfig(**({"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj", "fc1"]} | options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = peft.get_peft_model(copy.deepcopy(model), config)
        draw = torch.Generator().manual_seed(0)
        for _name, value in wrapped.named_parameters():
            if value.requires_grad:
                value.data += 0.1 * torch.randn(value.shape, generator=draw)
        wrapped.save_pretrained(folder)
        return wrapped.merge_and_unload().state_dict()


ADAPTERS = {
    "plain": {},
    "rslora": {"use_rslora": True},
    "patterns": {"rank_pattern": {"fc1": 2, r"layers\.1\.self_attn\.q_proj": 3}, "alpha_pattern": {"v_proj": 20}},
    "bias": {"bias": "lora_only"},
    "all biases": {"bias": "all"},
    "module saved whole": {"modules_to_save": ["visual_projection"]},
    "projection and patches": {"target_modules": ["visual_projection", "patch_embedding", "k_proj"]},
    "one layer": {"target_modules": ["vision_model.encoder.layers.1.mlp.fc2"]},
}


@pytest.mark.parametrize("kind", ADAPTERS)
def test_lora_adapters_give_what_peft_merges(kind, peft, projecting, tmp_path):
    expected = adapted(peft, projecting, tmp_path / "adapter", **ADAPTERS[kind])
    projecting.save_pretrained(tmp_path / "base")
    base = open_checkpoint(tmp_path / "base")
    expert = open_checkpoint(tmp_path / "adapter", like=base)
    found = to_naming(expert.state_dict(), "hf")
    for name, value in expected.items():
        assert torch.allclose(found[name], value, atol=1e-6), name
    changed = {n for n in expected if not torch.equal(expected[n], projecting.state_dict()[n])}
    for name in set(expected) - changed:
        assert torch.equal(found[name], expected[name])
    assert check_fit(base, {"a": open_checkpoint(tmp_path / "adapter")}, values=True).ok
    merged = merging.merge(projecting.state_dict(), {"a": tmp_path / "adapter"}, params={"scaling": 1.0}, device="cpu")
    assert all(torch.allclose(merged.state_dict[n], v, atol=1e-6) for n, v in expected.items())


REFUSED = {
    "dora": ({"use_dora": True}, {}, "DoRA"),
    "VeRA": ({}, {"peft_type": "VERA"}, "'VERA' is not supported"),
    "AdaLoRA": ({}, {"peft_type": "ADALORA"}, "'ADALORA' is not supported"),
    "prompts": ({}, {"peft_type": "PROMPT_TUNING"}, "'PROMPT_TUNING' is not supported"),
    "other kind": ({}, {"peft_type": "IA3"}, "of another kind of adapter than its configuration says"),
    "pissa": ({}, {"init_lora_weights": "pissa"}, "changes the pretrained weights"),
    "gradients first": ({}, {"init_lora_weights": "lora_ga"}, "changes the pretrained weights"),
    "third factor": ("kasa", {}, "kasa_config are not supported"),
    "third factor, not said": ("kasa", {"kasa_config": None}, "more than two factors"),
    "blocks": ({}, {"use_bdlora": {"nblocks": 2}}, "use_bdlora are not supported"),
    "lying rank": ({}, {"r": 5}, "its configuration says rank 5"),
    "intricate pattern": ({}, {"rank_pattern": {"(a+)+b": 3}}, "too intricate"),
    "no alpha": ({}, {"lora_alpha": "much"}, "lora_alpha is a number"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_adapters_of_other_kinds_are_refused(kind, peft, projecting, tmp_path):
    options, changes, says = REFUSED[kind]
    if options == "kasa":
        options = {"kasa_config": peft.tuners.lora.config.KasaConfig()}
    adapted(peft, projecting, tmp_path / "adapter", **options)
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(CheckpointError, match=says):
        open_checkpoint(tmp_path / "adapter")


def test_settings_of_adapters_that_nobody_knows_are_said(peft, projecting, tmp_path):
    adapted(peft, projecting, tmp_path / "adapter")
    assert not open_checkpoint(tmp_path / "adapter").cautions
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"use_tomorrow": True}))
    assert "use_tomorrow" in open_checkpoint(tmp_path / "adapter").cautions[0]


def test_adapters_of_open_clip_models(peft, clip, tmp_path):
    layers = r"visual\.transformer.*"
    expected = adapted(peft, clip, tmp_path / "mlp", target_modules=layers + "(c_fc|c_proj)")
    found = open_checkpoint(tmp_path / "mlp", like=open_state(dict(clip.state_dict())))
    assert all(torch.allclose(found.read(name), value, atol=1e-6) for name, value in expected.items())
    assert "of 4 tensors" in found.notes[-1]
    adapted(peft, clip, tmp_path / "attention", target_modules=layers + "attn")
    with pytest.raises(CheckpointError, match="count differently"):
        open_checkpoint(tmp_path / "attention")


def test_an_adapter_of_another_model_is_refused(peft, projecting, clip, tmp_path):
    adapted(peft, projecting, tmp_path / "adapter")
    small = {name: value[:, :1] if name.endswith("c_fc.weight") else value for name, value in visual(clip).items()}
    with pytest.raises(CheckpointError, match="belongs to another model"):
        open_checkpoint(tmp_path / "adapter", like=MappingCheckpoint(small, "small"))
