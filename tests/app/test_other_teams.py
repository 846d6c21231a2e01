"""Every page on a T5, a LoRA and a ResNet run, and what Merge and the export ask on models that are no CLIP."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import other_kinds
import peers
import pytest
import small_networks
import torch
from daily import some_of
from page_harness import charts, press, run_until_idle, words
from safetensors.torch import save_file

import merging
from app.reading import page_data
from merging.recipes.data_files import DataFiles
from merging.recipes.recipe import Recipe
from merging.sharing.catalog.model_set_store import ModelSet
from merging.sharing.catalog.model_set_store import make_model_set as make_set
from merging.sharing.catalog.model_set_store import store_model_set as keep_set
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

NAMES = ("qasc", "rte")
Teams = Mapping[str, tuple[ModelSet, Run]]


def by_hand(kind: str, folder: Path) -> dict[str, str]:
    """Files of a made-up state dict of that kind and of two experts."""
    folder.mkdir()
    base = other_kinds.pretrained(kind)
    for name, state in {"pretrained": base, **{n: other_kinds.expert(base, i) for i, n in enumerate(NAMES)}}.items():
        save_file(state, folder / f"{name}.safetensors")
    return {name: f"{folder}/{name}.safetensors" for name in ("pretrained", *NAMES)}


def with_adapters(folder: Path) -> dict[str, str]:
    """A Llama as Transformers writes it, and two adapters in PEFT's form."""
    model = small_networks.small("llama")
    model.save_pretrained(folder / "pretrained")
    for number, name in enumerate(NAMES):
        draw, state = torch.Generator().manual_seed(number), {}
        for layer, weight in model.named_parameters():
            if "q_proj" in layer or "v_proj" in layer:
                at = f"base_model.model.{layer.removesuffix('.weight')}"
                state[f"{at}.lora_A.weight"] = torch.randn(2, weight.shape[1], generator=draw)
                state[f"{at}.lora_B.weight"] = 0.01 * torch.randn(weight.shape[0], 2, generator=draw)
        (folder / name).mkdir()
        save_file(state, folder / name / "adapter_model.safetensors")
        config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"]}
        (folder / name / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return {name: str(folder / name) for name in ("pretrained", *NAMES)}


def with_heads(folder: Path) -> dict[str, str]:
    """A BERT and classifiers of two and three labels, each a folder of Transformers."""
    t, model = peers.transformers(), small_networks.small("bert")
    model.bert.save_pretrained(folder / "pretrained")
    for labels, name in enumerate(NAMES, 2):
        own = t.BertForSequenceClassification.from_pretrained(folder / "pretrained", num_labels=labels)
        with torch.no_grad():
            own.bert.encoder.layer[0].output.dense.weight.mul_(1 + 0.1 * labels)
        own.save_pretrained(folder / name)
    return {name: str(folder / name) for name in ("pretrained", *NAMES)}


@pytest.fixture(scope="module")
def teams(tmp_path_factory: pytest.TempPathFactory) -> Teams:
    """By kind: a set of models and a stored run of it, all in one store beside them."""
    root = tmp_path_factory.mktemp("teams")
    made = {}
    for kind in ("T5", "LoRA", "ResNet", "BERT"):
        special = {"LoRA": with_adapters, "BERT": with_heads}
        files = special[kind](root / kind) if kind in special else by_hand(kind, root / kind)
        experts = {name: files[name] for name in NAMES}
        team = make_set(kind, files["pretrained"], experts)
        keep_set(root / "store", team)
        recipe = Recipe.build("ties", edits=["lwptv"], pretrained=team.pretrained, experts=experts, title=f"{kind} run")
        made[kind] = team, execute(recipe, Store(root / "store", libraries=()), context=Context(device="cpu"))
    return made


@pytest.fixture
def store(teams: Teams, tmp_path: Path) -> None:
    """The store of these teams as that of the app."""
    root = teams["T5"][1].path.parents[1]
    shutil.copytree(root, tmp_path / "store")


@pytest.mark.parametrize("kind", some_of(["LoRA", "ResNet"], "LoRA"))
def test_pages_on_weights_show_the_run(open_app: Any, library: Path, store: None, teams: Teams, kind: str) -> None:
    run = teams[kind][1]
    for page, least in (("masks", 2), ("conflicts", 1), ("compare", 0)):
        at = open_app(page, library, run=run.id)
        assert not at.exception and not at.error, page
        assert charts(at) >= least, page


@pytest.mark.full
def test_other_pages_name_the_networks_that_they_do_not_show(
    open_app: Any, library: Path, store: None, teams: Teams
) -> None:
    for page in ("drift", "features", "scores", "image"):
        at = open_app(page, library)
        assert not at.exception, page
        text = words(at)
        assert "4 runs of BERT or RoBERTa, Llama or a relative of it, ResNet" in text
        assert ("have no scores" if page == "scores" else "not offered on this page") in text
    for page in ("home", "learning", "sweeps", "report"):
        assert not open_app(page, library).exception, page


def merge_page(open_app: Any, library: Path, team: ModelSet, chain: str = "ties") -> Any:
    at = open_app("merge", library, models=team.id, chain=chain)
    assert not at.exception
    return at


@pytest.mark.full
def test_merge_offers_published_values_and_vocabularies_of_the_network(
    open_app: Any, library: Path, store: None, teams: Teams
) -> None:
    at = merge_page(open_app, library, teams["T5"][0])
    assert at.selectbox(key="preset").options[:3] == ["T5 · Task Arithmetic", "T5 · TIES", "T5 · DRM-H"]
    at.selectbox(key="preset").select("t5_task_arithmetic").run()
    assert not at.exception and "task_arithmetic:scaling=0.4" in str(at.query_params["chain"])
    (rows,) = [group for group in at.button_group if group.label == "Merged rows of vocabularies"]
    rows.set_value("pretrained").run()
    assert not at.exception and "vocabulary: pretrained" in at.get("code")[0].value
    at = merge_page(open_app, library, teams["ResNet"][0])
    assert not [group for group in at.button_group if group.label == "Merged rows of vocabularies"]
    at = open_app("merge", library, chain="ties")
    assert "T5 · TIES" not in at.selectbox(key="preset").options
    assert not [group for group in at.button_group if group.label == "Merged rows of vocabularies"]


@pytest.mark.full
def test_layer_inputs_are_named_by_one_path_with_the_experts_names(
    open_app: Any, library: Path, store: None, teams: Teams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = merge_page(open_app, library, teams["BERT"][0], "regmean")
    assert at.button(key="run_button").disabled and not [box for box in at.slider if "Exemplars" in box.label]
    monkeypatch.setattr("app.reading.listed_models.is_local", lambda: False)
    (field,) = [box for box in at.text_input if box.label == "Files of layer inputs"]
    field.set_value(f"{tmp_path}/{{expert}}.safetensors").run()
    assert "reads only files whose names start with models:" in words(at)
    draft, (first, second) = at.session_state["_draft"], NAMES  # as a recipe that is pasted states them
    draft.data_files = DataFiles.build(
        {first: "models:folder/a.safetensors", second: f"{tmp_path}/{second}.safetensors"}
    )
    field.set_value("models:folder/a.safetensors").run()
    assert at.session_state["_draft"].data_files == DataFiles()
    assert "reads only files whose names start with models:" in words(at)
    field.set_value(f"{tmp_path}/{{expert}}.safetensors").run()
    monkeypatch.setattr("app.reading.listed_models.is_local", lambda: True)
    at.run()
    assert [error.value for error in at.error] == [r"qasc\: qasc\.safetensors\: not found\."]
    t = peers.transformers()
    for name, reference in teams["BERT"][0].experts:
        model = t.BertForSequenceClassification.from_pretrained(reference)
        rows = merging.capture(model, small_networks.batches("bert"), like=reference)
        merging.save_layer_inputs(tmp_path / f"{name}.safetensors", rows)
    at.run()
    assert not at.exception and not at.error
    assert not at.button(key="run_button").disabled
    press(at, "Run")
    (job,) = page_data.job_queue().list_jobs()
    recipe = Recipe.from_yaml(job.recipe_yaml)
    assert dict(recipe.data_files.layer_inputs) == {name: f"{tmp_path}/{name}.safetensors" for name in NAMES}
    run_until_idle(at)
    assert (
        page_data.store().get_run(job.subject).network == "BERT or RoBERTa"
    )  # rows of 'bert.…' enter tensors without it


def test_a_tower_alone_is_offered_where_a_network_holds_one(open_app: Any, library: Path, tmp_path: Path) -> None:
    files = by_hand("LLaVA", tmp_path / "llava")
    team = make_set("LLaVA", files["pretrained"], {name: files[name] for name in NAMES})
    keep_set(tmp_path / "store", team)
    at = merge_page(open_app, library, team)
    (group,) = [group for group in at.button_group if group.label == "Merge"]
    group.set_value("clip").run()
    assert not at.exception and not at.error
    assert "family: clip" in at.get("code")[0].value
    assert not at.button(key="run_button").disabled


def test_the_export_form_of_networks_asks_for_a_task_alone(
    open_app: Any, library: Path, store: None, teams: Teams
) -> None:
    run = teams["BERT"][1]
    at = open_app("models", library, models_view="runs", selected_runs=run.id)
    assert not at.exception and not [box for box in at.selectbox if box.label == "Activation"]
    (target,) = [group for group in at.button_group if group.label == "For"]
    assert "open_clip" not in target.options
    at.selectbox(key="export_task").select("rte").run()
    assert any("--to hf --task rte" in code.value for code in at.get("code"))
    at.button(key="export_start").click().run()
    (job,) = page_data.job_queue().list_jobs()
    assert not at.exception and job.words[-2:] == ("--task", "rte")
    page_data.job_queue().cancel(job.id)
    at = open_app("models", library, models_view="runs", selected_runs=teams["T5"][1].id)
    assert not at.exception and not [box for box in at.selectbox if box.label == "With the head of"]
