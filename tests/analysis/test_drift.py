"""Drift against plain forward passes, and the objective against its formula."""

from __future__ import annotations

import numpy as np
import plain_tower
import pytest
import tiny
import torch

from merging.engine.evaluation.image_features import HEAD_BATCH
from merging.engine.layer_inputs import CapturedInputs
from merging.study.measurements.drift import MergeModels, cumulative_drift, isolated_drift

TASK_NAMES = ("circles", "digits")
HEADS = tiny.WIDTH // tiny.ARCHITECTURE["vision_cfg"]["head_width"]


def _plain(state, images):
    """Every layer's output, by a tower that shares no code with ours; under Hugging Face's names."""
    return plain_tower.layer_outputs(state, images, tiny.LAYERS, HEADS, tiny.PATCH)


@pytest.fixture(scope="module")
def states():
    """Pretrained, experts and a merged state dict under Hugging Face's names, in float64."""
    base, experts = tiny.family(TASK_NAMES)
    mean = {name: torch.stack([e[name] for e in experts.values()]).mean(dim=0) + 0.02 for name in base}
    wide = {"pretrained": base, "merged": mean, **experts}
    return {
        key: {name: value.double() for name, value in plain_tower.hugging_face(state).items()}
        for key, state in wide.items()
    }


@pytest.fixture(scope="module")
def images():
    draw = torch.Generator().manual_seed(5)
    return {
        task: torch.randn(n, 3, tiny.SIZE, tiny.SIZE, generator=draw)
        for task, n in zip(TASK_NAMES, (6, 4), strict=True)
    }


def _models(states, merged="merged"):
    opened = {key: tiny.checkpoint(state) for key, state in states.items()}
    experts = {task: opened[task] for task in TASK_NAMES}
    return MergeModels(opened["pretrained"], experts, dict.fromkeys(TASK_NAMES, opened[merged]))


# Cumulative


def _plain_places(state, images):
    """Class token and mean of tokens after the stem and every block, and the embedding, from the plain outputs."""
    found, stem = _plain(state, images), "vision_model.pre_layrnorm.weight"
    x = found[stem]
    places = [(x[:, 0], x.mean(dim=1))]
    for block in range(tiny.LAYERS):
        at = f"vision_model.encoder.layers.{block}."
        x = x + found[at + "self_attn.out_proj.weight"] + found[at + "mlp.fc2.weight"]
        places.append((x[:, 0], x.mean(dim=1)))
    embedding = found["visual_projection.weight"]
    return [*places, (embedding, embedding)]


def test_cumulative_drift_equals_a_plain_computation(states, images):
    found = cumulative_drift(_models(states), images).set_index(["task", "model", "position", "token"])
    assert len(found) == len(TASK_NAMES) * 2 * (tiny.LAYERS + 2) * 2
    for task in TASK_NAMES:
        reference = _plain_places(states[task], images[task].double())
        for model in ("merged", "pretrained"):
            for position, pair in enumerate(_plain_places(states[model], images[task].double())):
                for token, ours, own in zip(("class", "mean"), pair, reference[position], strict=True):
                    row = found.loc[(task, model, position, token)]
                    cosines = [float(a @ b / (a.norm() * b.norm())) for a, b in zip(ours, own, strict=True)]
                    assert row["cosine"] == pytest.approx(1 - np.mean(cosines), rel=2e-4, abs=1e-7)
                    assert row["l1"] == pytest.approx(float((ours - own).abs().mean()), rel=1e-4)
                    assert row["n"] == len(images[task])
    assert list(dict.fromkeys(found["place"])) == ["stem", "block 0", "block 1", "embedding"]


def test_a_merge_that_is_the_expert_does_not_drift(states, images):
    models = _models(states)
    own = MergeModels(models.pretrained, models.experts, models.experts)  # one model per task, each task's own expert
    found = cumulative_drift(own, images)
    merged = found[found["model"] == "merged"]
    assert merged["cosine"].max() < 1e-12 and (merged["l1"] == 0).all()
    assert found[found["model"] == "pretrained"]["cosine"].max() > 1e-3
    isolated, objective = isolated_drift(own, images)
    assert (isolated[["mean_square", "relative"]] == 0).all(axis=None)
    assert (objective["merged"] == 0).all() and (objective["mean"] > 0).all()


# Layer by layer


def _replaced(states, task, names, images):
    """(Δ, Y): what leaves the layer with only these tensors replaced, less what leaves the expert's own; and that."""
    mixed = states[task] | {name: states["merged"][name] for name in names}
    own = _plain(states[task], images)
    layer = names[0].removesuffix("bias").removesuffix("weight") + "weight"
    return _plain(mixed, images)[layer] - own[layer], own[layer]


@pytest.mark.parametrize(
    "name",
    [
        "vision_model.embeddings.patch_embedding.weight",
        "vision_model.pre_layrnorm.weight",
        "vision_model.pre_layrnorm.bias",
        "vision_model.encoder.layers.1.layer_norm1.weight",
        "vision_model.encoder.layers.0.self_attn.q_proj.weight",
        "vision_model.encoder.layers.1.self_attn.v_proj.bias",
        "vision_model.encoder.layers.1.self_attn.out_proj.weight",
        "vision_model.encoder.layers.0.mlp.fc1.weight",
        "vision_model.encoder.layers.1.mlp.fc2.weight",
        "vision_model.encoder.layers.1.mlp.fc2.bias",
        "vision_model.post_layernorm.weight",
        "vision_model.post_layernorm.bias",
        "visual_projection.weight",
    ],
)
def test_isolated_drift_is_that_of_a_forward_with_one_replaced_layer(states, images, name):
    found = isolated_drift(_models(states), images)[0].set_index(["tensor", "task"])
    for task in TASK_NAMES:
        change, output = _replaced(states, task, [name], images[task].double())
        row = found.loc[(name, task)]
        assert row["mean_square"] == pytest.approx(float(change.square().mean()), rel=1e-4)
        assert row["relative"] == pytest.approx(float(change.norm() / output.norm()), rel=1e-4)


def test_isolated_drift_from_gram_matrices(states):
    """Of more rows than are kept and images than run at once, so that only products are left; in square layers, too."""
    draw = torch.Generator().manual_seed(7)
    many = {task: torch.randn(HEAD_BATCH + 12, 3, tiny.SIZE, tiny.SIZE, generator=draw) for task in TASK_NAMES}
    models = _models(states)
    captured = CapturedInputs(models.experts, many, torch.device("cpu"), like=models.pretrained)
    at = "vision_model.encoder.layers.1."
    names = ["self_attn.k_proj.weight", "self_attn.out_proj.weight", "mlp.fc1.weight", "mlp.fc2.weight"]
    names = [*(at + name for name in names), "visual_projection.weight"]
    given = {p.name: captured.moments(p) for p in models.pretrained.parameters if p.name in names}
    found = isolated_drift(models, many)[0].set_index(["tensor", "task"])
    assert all(moments.rows is None for name in names for moments in given[name])
    for name in [*names, at + "mlp.fc1.bias"]:
        for task in TASK_NAMES:
            change, output = _replaced(states, task, [name], many[task].double())
            row = found.loc[(name, task)]
            assert row["mean_square"] == pytest.approx(float(change.square().mean()), rel=1e-4)
            assert row["relative"] == pytest.approx(float(change.norm() / output.norm()), rel=1e-4)


@pytest.mark.parametrize("part", ["class_embedding", "position_embedding.weight"])
def test_isolated_drift_of_what_is_added_to_the_tokens(states, images, part):
    name = "vision_model.embeddings." + part
    found = isolated_drift(_models(states), images)[0].set_index(["tensor", "task"])
    for task in TASK_NAMES:
        at, state = "vision_model.embeddings.", states[task]
        patches = _plain(state, images[task].double())[at + "patch_embedding.weight"]

        def tokens(own, patches=patches, at=at):
            first = own[at + "class_embedding"].expand(len(patches), 1, -1)
            return torch.cat([first, patches], dim=1) + own[at + "position_embedding.weight"]

        change = tokens(state | {name: states["merged"][name]}) - tokens(state)
        assert found.loc[(name, task), "mean_square"] == pytest.approx(float(change.square().mean()), rel=1e-4)
        assert found.loc[(name, task), "relative"] == pytest.approx(
            float(change.norm() / tokens(state).norm()), rel=1e-4
        )


def test_open_clips_names_give_the_same_drift(images):
    base, experts = tiny.family(TASK_NAMES)
    merged = {name: torch.stack([e[name] for e in experts.values()]).mean(dim=0) for name in base}
    found = {}
    for key, rename in (("open_clip", dict), ("hugging_face", plain_tower.hugging_face)):
        opened = {name: tiny.checkpoint(rename(state)) for name, state in {"": base, "m": merged, **experts}.items()}
        models = MergeModels(opened[""], {t: opened[t] for t in TASK_NAMES}, dict.fromkeys(TASK_NAMES, opened["m"]))
        table = isolated_drift(models, images)[0]
        found[key] = table[table["tensor"].str.contains("mlp|proj$|projection")]["relative"].to_numpy()
    first, second = (np.sort(values) for values in found.values())
    np.testing.assert_allclose(first, second, rtol=1e-5)


def test_the_objective_is_lots(states, images):
    """Σ_k ‖X_k (T - T_k)ᵀ‖² for the merged weights, for none, for the mean, and at its least."""
    name = "vision_model.encoder.layers.1.mlp.fc1.weight"
    before = "vision_model.encoder.layers.1.layer_norm2.weight"
    objective = isolated_drift(_models(states), images)[1].set_index("tensor")
    rows = {task: _plain(states[task], images[task].double())[before].reshape(-1, tiny.WIDTH) for task in TASK_NAMES}
    base = states["pretrained"][name]
    vectors = {task: states[task][name] - base for task in TASK_NAMES}

    def value(merged):
        return sum(float((rows[task] @ (merged - vectors[task]).T).square().sum()) for task in TASK_NAMES)

    mean = torch.stack(list(vectors.values())).mean(dim=0)
    stacked = torch.cat([rows[task] for task in TASK_NAMES])
    wanted = torch.cat([rows[task] @ vectors[task].T for task in TASK_NAMES])
    least = torch.linalg.lstsq(stacked, wanted, driver="gelsd").solution.T
    expected = (states["merged"][name] - base, torch.zeros_like(base), mean, least)
    row = objective.loc[name]
    for column, merged in zip(("merged", "pretrained", "mean", "least"), expected, strict=True):
        assert row[column] == pytest.approx(value(merged), rel=1e-3), column
    assert (objective["least"] <= objective[["merged", "pretrained", "mean"]].min(axis=1) * (1 + 1e-9)).all()
